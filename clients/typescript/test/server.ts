/** Servers for the tests: each is started in a fresh directory on a free port, and stopped at the end of the test.
 * `BLOOMGATE_SERVER` names the server's program, `BLOOMGATE_MODULE` the module; scripts/test --only typescript sets both. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "redis";

/** The limit of every wait. It is not a measure of speed. */
export const PATIENCE_MS = 120_000;

/** Lines that a server or the module logs when it crashes. */
const CRASH_MARKS = ["BUG REPORT START", "ASSERTION FAILED", "panicked at", "crashed by signal"];

/** The part of a node:test context that the servers need. */
export interface Context {
  after(fn: () => unknown): void;
}

/** Ends the resources that the tests of a suite share. */
export class Cleanup implements Context {
  readonly #ends: (() => unknown)[] = [];

  after(end: () => unknown): void {
    this.#ends.push(end);
  }

  /** Ends everything in reverse order. */
  async run(): Promise<void> {
    for (const end of this.#ends.reverse()) await end();
  }
}

export type Probe = ReturnType<typeof createClient>;

function fromEnvironment(name: string): string {
  const path = process.env[name] ?? "";
  assert.ok(existsSync(path), `${name} must name a file, it is "${path}": run scripts/test --only typescript`);
  return path;
}

/** Waits until the condition returns something true, and returns that. */
export async function eventually<T>(what: string, condition: () => Promise<T> | T): Promise<NonNullable<T>> {
  for (const begun = performance.now(); ; ) {
    const result = await condition();
    if (result) return result;
    assert.ok(performance.now() - begun < PATIENCE_MS, `gave up waiting for ${what}`);
    await sleep(5);
  }
}

/** Returns a port that was free a moment ago. It and the port of the cluster bus, 10000 higher, are below the range of outgoing
 * connections. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 12_000 + Math.floor(Math.random() * 10_000);
    const listener = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      listener.once("error", () => resolve(false));
      listener.listen(port, "127.0.0.1", () => resolve(true));
    });
    if (!isFree) continue;
    listener.close();
    await once(listener, "close");
    return port;
  }
}

const running = new Set<ChildProcess>();

// Servers end with the process even if an exception is thrown outside a test.
process.once("exit", () => {
  for (const server of running) server.kill("SIGKILL");
});

export class Server {
  readonly #lines: readonly string[];
  readonly #hasModule: boolean;
  readonly #folder = mkdtempSync(join(tmpdir(), "bloomgate-"));
  #process: ChildProcess | undefined;
  port = 0;
  /** A client of another process. */
  probe!: Probe;

  constructor(lines: readonly string[], hasModule = true) {
    this.#lines = lines;
    this.#hasModule = hasModule;
  }

  get pid(): number {
    assert.ok(this.#process?.pid);
    return this.#process.pid;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  async start(): Promise<this> {
    for (let attempt = 0; attempt < 20; attempt++) {
      this.port ||= await freePort();
      const before = this.#log().length;
      this.#launch();
      if (await this.#answers()) return this;
      assert.ok(this.#log().slice(before).includes("Address already in use"), `ended at its start:\n${this.#log()}`);
      this.port = 0;
    }
    throw new Error("no free port in 20 attempts");
  }

  #launch(): void {
    const lines = ["bind 127.0.0.1", 'save ""', "enable-debug-command yes", "repl-diskless-sync-delay 0"];
    lines.push(`port ${this.port}`, `dir ${this.#folder}`, ...this.#lines);
    if (this.#hasModule) lines.push(`loadmodule ${fromEnvironment("BLOOMGATE_MODULE")}`);
    const configuration = join(this.#folder, "redis.conf");
    writeFileSync(configuration, `${lines.join("\n")}\n`);
    const log = openSync(join(this.#folder, "server.log"), "a");
    this.#process = spawn(fromEnvironment("BLOOMGATE_SERVER"), [configuration], { stdio: ["ignore", log, log] });
    closeSync(log);
    const launched = this.#process;
    running.add(launched);
    launched.once("exit", () => running.delete(launched));
  }

  /** Waits until this server, and not another one on the port, answers; returns false if it exited. */
  async #answers(): Promise<boolean> {
    const probe: Probe = createClient({ url: this.url, socket: { reconnectStrategy: 5 } });
    probe.on("error", () => {});
    const connecting = probe.connect();
    connecting.catch(() => {});
    try {
      await eventually("the server", () => this.#process?.exitCode !== null || probe.isReady);
      if (this.#process?.exitCode !== null) throw new Error("exited");
      const info = await probe.info("server");
      assert.match(info, new RegExp(`process_id:${this.pid}\r`));
      this.probe = probe;
      return true;
    } catch {
      probe.destroy();
      return false;
    }
  }

  #log(): string {
    const path = join(this.#folder, "server.log");
    return existsSync(path) ? readFileSync(path, "utf8") : "";
  }

  async kill(): Promise<void> {
    assert.ok(this.#process);
    this.probe.destroy();
    const ended = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await ended;
  }

  /** Stops the server; fails if it had already exited by itself, or crashed. */
  async end(): Promise<void> {
    const endedAlone = this.#process?.exitCode !== null;
    if (!endedAlone && this.#process?.signalCode === null) await this.kill();
    const log = this.#log();
    rmSync(this.#folder, { recursive: true });
    assert.ok(!endedAlone, `the server exited by itself:\n${log}`);
    for (const mark of CRASH_MARKS) assert.ok(!log.includes(mark), `the log has ${mark}:\n${log}`);
  }

  /** Returns a number of INFO. */
  async number(section: string, name: string): Promise<number> {
    const info = await this.probe.info(section);
    return Number(new RegExp(`^${name}:(\\d+)`, "m").exec(info)?.[1]);
  }
}

/** Starts a server with lines of configuration, for one test. */
export async function startServer(context: Context, ...lines: string[]): Promise<Server> {
  const server = new Server(lines);
  context.after(() => server.end());
  return server.start();
}

const SLOTS = [
  ["0", "5460"],
  ["5461", "10922"],
  ["10923", "16383"],
] as const;

/** Starts a cluster of three nodes with a third of the slots each. */
export async function startCluster(context: Context): Promise<Server[]> {
  // The timeout is long, so that on a busy machine a slow node is not considered dead.
  const lines = ["cluster-enabled yes", "cluster-node-timeout 60000", "cluster-require-full-coverage yes"];
  const servers = await Promise.all(SLOTS.map(() => startServer(context, ...lines)));
  const port = String(servers[0]?.port);
  for (const [index, { probe }] of servers.entries()) {
    const [first, last] = SLOTS[index] ?? SLOTS[0];
    await probe.sendCommand(["CLUSTER", "ADDSLOTSRANGE", first, last]);
    await probe.sendCommand(["CLUSTER", "SET-CONFIG-EPOCH", String(index + 1)]);
    await probe.sendCommand(["CLUSTER", "MEET", "127.0.0.1", port]);
  }
  const all = async (...wanted: string[]) => {
    const infos = await Promise.all(servers.map(({ probe }) => probe.sendCommand(["CLUSTER", "INFO"])));
    return infos.every((info) => wanted.every((line) => String(info).includes(line)));
  };
  await eventually("the cluster", () => all("cluster_known_nodes:3\r", "cluster_state:ok\r"));
  return servers;
}
