// A server for a test: started in a fresh directory on a free port, and stopped with the test. `BLOOMGATE_SERVER` names the
// server's program, `BLOOMGATE_MODULE` the module; `scripts/test --only libraries` sets both. `BLOOMGATE_LINES` has more lines of
// configuration.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, openSync, closeSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

// The timeout of every wait, in milliseconds. It is not a measure of speed.
export const PATIENCE = 120_000;

// Lines that a server or the module logs when it crashes.
const CRASH_MARKS = ["BUG REPORT START", "ASSERTION FAILED", "panicked at", "crashed by signal"];

// If setpriv exists (Linux), the server exits with the tests even if they are killed with SIGKILL.
const WITH_PARENT = spawnSync("setpriv", ["--version"]).status === 0 ? ["setpriv", "--pdeathsig", "KILL"] : [];

function fromEnvironment(name) {
  const path = process.env[name];
  assert(path, `${name} is not set: run scripts/test --only libraries`);
  return path;
}

// Starts a server with the module and returns its port. The server is stopped with the test whose context is `test`.
export async function startServer(test) {
  const folder = mkdtempSync(join(tmpdir(), "bloomgate-"));
  const log = join(folder, "server.log");
  let server;
  test.after(async () => {
    const endedAlone = server?.exitCode !== null;
    server?.kill("SIGKILL");
    const text = readFileSync(log, "utf8");
    rmSync(folder, { recursive: true });
    assert(!endedAlone, `the server ended by itself:\n${text}`);
    for (const mark of CRASH_MARKS) assert(!text.includes(mark), `the log has "${mark}":\n${text}`);
  });
  for (let attempt = 0; attempt < 20; attempt++) {
    const port = await freePort();
    const lines = ["bind 127.0.0.1", `port ${port}`, 'save ""', `dir ${folder}`, "enable-debug-command yes"];
    lines.push(process.env.BLOOMGATE_LINES ?? "", `loadmodule ${fromEnvironment("BLOOMGATE_MODULE")}`, "");
    writeFileSync(join(folder, "redis.conf"), lines.join("\n"));
    const [program, ...words] = [...WITH_PARENT, fromEnvironment("BLOOMGATE_SERVER"), join(folder, "redis.conf")];
    const output = openSync(log, "w");
    server = spawn(program, words, { stdio: ["ignore", output, output] });
    closeSync(output);
    if (await answers(server, port)) return port;
    const text = readFileSync(log, "utf8");
    assert(text.includes("Address already in use"), `the server ended at its start:\n${text}`);
  }
  assert.fail("no free port in 20 attempts");
}

// Returns a port that was free a moment ago, below the range of outgoing connections.
async function freePort() {
  for (;;) {
    const port = 22_000 + Math.floor(Math.random() * 10_000);
    const listener = createServer();
    const isFree = await new Promise((resolve) => {
      listener.on("error", () => resolve(false)).listen(port, "127.0.0.1", () => listener.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}

// Waits until our server answers, and not another one on the port; returns false if it exited.
async function answers(server, port) {
  for (const begun = Date.now(); server.exitCode === null; await pause(5)) {
    assert(Date.now() - begun < PATIENCE, "the server does not answer");
    const reply = await ask(port, "INFO server\r\n");
    if (reply.includes(`process_id:${server.pid}\r\n`)) return true;
  }
  return false;
}

function ask(port, words) {
  return new Promise((resolve) => {
    let reply = "";
    const socket = connect(port, "127.0.0.1", () => socket.write(words));
    socket.setEncoding("utf8");
    socket.on("error", () => resolve(""));
    socket.on("close", () => resolve(reply));
    socket.on("data", (data) => {
      reply += data;
      if (reply.includes("executable:")) socket.end();
    });
  });
}
