/** Sends commands and reads their replies, for all parts of the package. Clients are recognised by their methods, so that neither
 * library has to be installed for the other. */

import { type Connection, type Replaceable, type Reply, replaceables } from "./connection.js";
import type { Word } from "./creation.js";
import { asError, isNoPrimary, isReply, ModuleMissing, TimeoutError } from "./errors.js";
import { type IoredisClient, ioredisConnection, isIoredis } from "./ioredis.js";
import { isNodeRedis, type NodeRedisClient, nodeRedisConnection } from "./node-redis.js";

/** A client of node-redis (`createClient`, `createCluster`), of ioredis (`Redis`, `Cluster`), or another Connection. */
export type Client = NodeRedisClient | IoredisClient | Connection;

const connections = new WeakMap<object, Connection>();

/** Returns the Connection of a client: the same object for each call. */
export function connectionOf(client: Client): Connection {
  let connection = connections.get(client);
  if (connection === undefined) {
    connection = adapt(client);
    connections.set(client, connection);
  }
  return connection;
}

function adapt(client: Client): Connection {
  if (isIoredis(client)) return ioredisConnection(client);
  if (isNodeRedis(client)) return nodeRedisConnection(client);
  if (typeof (client as Partial<Connection> | null)?.command === "function" && "isCluster" in client) return client;
  throw new TypeError("a client of node-redis or ioredis is needed");
}

/** How long a pause lasts. */
const PAUSE_MS = 2000;

/** Diverts callers from a server that has not answered in time, or that refuses a guard's commands. */
export class Pause {
  #endMs: number | undefined;
  #isRefused = false;

  /** Begins a pause, which the next answer ends. */
  begin(): void {
    this.#endMs = performance.now() + PAUSE_MS;
  }

  /** Begins a pause that is not ended by an answer: the server answers, but refuses the commands. */
  refuse(): void {
    this.begin();
    this.#isRefused = true;
  }

  end(): void {
    if (!this.#isRefused) this.#endMs = undefined;
  }

  get isOn(): boolean {
    return this.#endMs !== undefined && performance.now() < this.#endMs;
  }

  /** Whether a caller must not contact the server. After a pause, one caller probes the server; the rest stay paused. */
  holds(): boolean {
    if (this.#endMs === undefined) return false;
    if (performance.now() < this.#endMs) return true;
    this.#isRefused = false;
    this.begin();
    return false;
  }
}

/** The guard's commands. Their options are fixed, so only an older module can report a syntax error in them. */
const GUARDS = /^BF\.(M?FETCH|FILL|M?CHANGED)$/;

/** How long a command may take by default. */
export const TIMEOUT_MS = 1000;

/** A command and the function that reads its reply. */
export interface Call<T> {
  readonly words: readonly Word[];
  readonly parse: (reply: Reply) => T;
  /** A cluster's client sends the command to the node of this key: by default the first word after the command's name. */
  readonly key: Word | undefined;
}

/** The outcome of a command: its parsed reply, or an error in its place. */
export type Outcome<T> = T | Error;

export function call<T>(words: readonly Word[], parse: (reply: Reply) => T, key: Word | undefined = words[1]): Call<T> {
  return { words, parse, key };
}

/** Reads the reply of commands that answer OK. */
export function nothing(_reply: Reply): void {}

export function same(reply: Reply): Reply {
  return reply;
}

/** Options for sending commands. */
export interface AskOptions<T> {
  /** Returns the commands that undo the outcomes. They are sent if the caller does not get the outcomes, because it was aborted
   * or the replies came too late. */
  undo?: ((outcomes: Outcome<T>[]) => Call<unknown>[]) | undefined;
  /** The time for which the server may withhold the replies, in addition to the time limit. */
  waitMs?: number;
  signal?: AbortSignal | undefined;
  /** Is called when the replies have arrived, or can no longer arrive. */
  finished?: ((outcomes: Outcome<unknown>[]) => void) | undefined;
}

/** The time of the last reply on each connection. */
const lastReplies = new WeakMap<Connection, { atMs: number }>();

function lastReplyOf(connection: Connection): { atMs: number } {
  const lastReply = lastReplies.get(connection) ?? { atMs: 0 };
  lastReplies.set(connection, lastReply);
  return lastReply;
}

/** One server or cluster. */
export class Link {
  readonly connection: Connection;
  readonly timeoutMs: number;
  readonly pause: Pause;
  readonly #replaceable: Replaceable | undefined;

  constructor(client: Client, timeoutMs?: number, pause = new Pause(), replaceable = replaceables.get(client)) {
    this.connection = connectionOf(client);
    this.timeoutMs = timeoutMs ?? replaceable?.timeoutMs ?? TIMEOUT_MS;
    if (!(this.timeoutMs > 0)) throw new RangeError(`timeoutMs is more than 0, not ${timeoutMs}`);
    this.pause = pause;
    this.#replaceable = replaceable;
  }

  /** Sends commands together on one connection. Resolves with the outcome of each; rejects only if the signal aborts. The time
   * limit applies to the next reply on the connection: replies to earlier commands in the queue delay a reply, and show that
   * the server is alive. A cluster's client has several connections, where only the replies to these commands count. */
  ask<T>(calls: readonly Call<T>[], options: AskOptions<T> = {}): Promise<Outcome<T>[]> {
    const { undo, waitMs = 0, signal, finished } = options;
    if (signal?.aborted) {
      finished?.([]);
      return Promise.reject(signal.reason);
    }
    const replaceable = this.#replaceable;
    const replaced = replaceable?.count ?? 0;
    if (replaceable !== undefined && waitMs > 0) replaceable.longCommands++;
    const lastReply = this.connection.isCluster ? { atMs: 0 } : lastReplyOf(this.connection);
    return new Promise((resolve, reject) => {
      const limitMs = Math.min(this.timeoutMs + waitMs, 0x7fffffff);
      const begunMs = performance.now();
      let isLate = false;
      let last: NodeJS.Immediate | undefined;
      const send = async (one: Call<T>) => {
        const outcome = await this.#send(one);
        if (!(outcome instanceof Error) || isReply(outcome)) lastReply.atMs = performance.now();
        return outcome;
      };
      const sent = Promise.all(calls.map(send));
      const cleanUp = () => {
        isLate = true;
        if (replaceable !== undefined && waitMs > 0) replaceable.longCommands--;
        clearTimeout(timer);
        clearImmediate(last);
        signal?.removeEventListener("abort", abort);
      };
      const abort = () => {
        cleanUp();
        reject(signal?.reason);
      };
      const timeLimit = () => {
        cleanUp();
        const error = new TimeoutError(`the server has not answered ${String(calls[0]?.words[0])} in time`);
        resolve(calls.map(() => error));
        this.pause.begin();
        replaceable?.replace(replaced);
      };
      const leftMs = () => limitMs - (performance.now() - Math.max(begunMs, lastReply.atMs));
      const check = (isFinal: boolean) => {
        const left = leftMs();
        if (left > 0) timer = setTimeout(check, left, false);
        else if (isFinal) timeLimit();
        // Replies that arrived while the process was busy are read before an immediate runs.
        else last = setImmediate(check, true);
      };
      let timer = setTimeout(check, limitMs, false);
      signal?.addEventListener("abort", abort);
      void sent.then((outcomes) => {
        finished?.(outcomes);
        if (outcomes.some((one) => one instanceof Error && isNoPrimary(one))) replaceable?.replace(replaced);
        if (isLate) {
          const undoing = undo?.(outcomes) ?? [];
          if (undoing.length > 0) void this.ask(undoing);
          return;
        }
        if (outcomes.some((one) => !(one instanceof Error) || isReply(one))) this.pause.end();
        cleanUp();
        resolve(outcomes);
      });
    });
  }

  /** Sends one command. Returns its reply, or throws its error. */
  async one<T>(call: Call<T>, waitMs = 0): Promise<T> {
    const [outcome] = (await this.ask([call], { waitMs })) as [Outcome<T>];
    if (outcome instanceof Error) throw outcome;
    return outcome;
  }

  async #send<T>(call: Call<T>): Promise<Outcome<T>> {
    try {
      return call.parse(await this.connection.command(call.words, call.key));
    } catch (thrown) {
      const error = asError(thrown);
      const command = String(call.words[0]);
      if (command.startsWith("BF.") && error.message.includes("unknown command")) {
        const message = `the server does not know ${command}: it has not loaded the module bloomgate`;
        return new ModuleMissing(message, { cause: error });
      }
      if (GUARDS.test(command) && error.message.includes("syntax error")) {
        const message = `the server does not know the options of ${command}: its module bloomgate is older than this client`;
        return new ModuleMissing(message, { cause: error });
      }
      return error;
    }
  }
}
