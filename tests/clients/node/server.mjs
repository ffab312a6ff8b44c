// A server of a test's own: started in a fresh directory on a free port, ended with the test. `BLOOMGATE_SERVER` names
// the server's program, `BLOOMGATE_MODULE` the module; `scripts/test-clients` sets both.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, openSync, closeSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

// How long anything may take before a test gives up on it, in milliseconds. Not a measure of speed.
const PATIENCE = 120_000;

// What a server or the module writes to the log when it crashed.
const CRASH_MARKS = ["BUG REPORT START", "ASSERTION FAILED", "panicked at", "crashed by signal"];

// Where it can be had (Linux), the server ends with the tests even if those are killed the hard way.
const WITH_PARENT = spawnSync("setpriv", ["--version"]).status === 0 ? ["setpriv", "--pdeathsig", "KILL"] : [];

function fromEnvironment(name) {
  const path = process.env[name];
  assert(path, `${name} is not set: run scripts/test-clients`);
  return path;
}

// Starts a server with the module; gives its port. `test` is the context of the test that it ends with.
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
    lines.push(`loadmodule ${fromEnvironment("BLOOMGATE_MODULE")}`, "");
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

// A port that was free a moment ago, below those that systems pick for outgoing connections.
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

// Waits until our server answers, not one that was there before; false where it ended instead.
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
