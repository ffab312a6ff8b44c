/** Makes the calls of the cases in clients/specification: it reads messages from its standard input, and answers on its standard output.
 * The README.md there describes them. The argument is the library: `redis` or `ioredis`. */

import { createInterface } from "node:readline";
import { isReply } from "../src/errors.js";
import {
  BloomgateError,
  type Client,
  Disconnected,
  Filter,
  fillFilter,
  Guard,
  Json,
  plan,
  TimeoutError,
} from "../src/index.js";
import { itemBytes } from "../src/items.js";
import { settledBy } from "../src/promises.js";
import { cachePrefix, fillingName } from "../src/rows.js";
import { type Library, openClient, openCluster } from "./clients.js";
import { Cleanup, PATIENCE_MS } from "./server.js";

/** The abilities of this client that cases may need. It has one connection for all commands that do not wait, so no `pool`;
 * every value that a function throws is shared in the same way, so no `fatal`. */
const ABILITIES = ["cancel", "turns", "timeout", "share", "pause", "background", "transaction", "resp2", "resp3"];

// biome-ignore lint/suspicious/noExplicitAny: the messages come from the cases, some of which are wrong on purpose.
type Any = any;

/** The error that an actor's function throws on request of a case. */
class LoadError extends Error {}

/** A message of the runner that this adapter does not understand. */
class Unknown extends Error {}

/** A call of an actor. */
interface Call {
  id: number;
  call: string;
  with: Any;
  abort: AbortController;
}

const processes = new Map<number, Process>();
const calls = new Map<number, Call>();
const functions = new Map<number, { resolve(value: Any): void; reject(error: Error): void }>();
let last = 0;

function say(message: object): void {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

const camel = (name: string) => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

/** Returns options under the names of this package. */
const named = (options: object) => Object.fromEntries(Object.entries(options).map(([name, value]) => [camel(name), value]));

function item(of: Any): Any {
  if (typeof of !== "object" || of === null) return of;
  const [[name, value] = ["", null]] = Object.entries<Any>(of);
  if (name === "hex") return Buffer.from(value, "hex");
  if (name === "integer") return BigInt(value);
  if (name === "boolean" || name === "float") return value;
  if (name === "null") return null;
  if (name === "utf16") return String.fromCharCode(...value);
  throw new Unknown(`unknown item ${JSON.stringify(of)}`);
}

/** Returns items. A text in place of a batch is passed on, and the client refuses it. */
const items = (of: Any): Any => (Array.isArray(of) ? of.map(item) : of);

/** Converts a result to JSON values. */
function plain(found: Any): Any {
  if (found === undefined || found === null) return null;
  if (Buffer.isBuffer(found)) {
    const text = found.toString();
    return Buffer.from(text).equals(found) ? text : { hex: found.toString("hex") };
  }
  if (Array.isArray(found)) return found.map(plain);
  if (typeof found === "bigint") return Number(found);
  if (typeof found !== "object") return found;
  return Object.fromEntries(Object.entries(found).map(([name, value]) => [name, plain(value)]));
}

/** The state of one process of a case: a client, and the objects of the case, which are created on first use. */
class Process {
  readonly #case: Any;
  readonly #client: Client;
  readonly cleanup: Cleanup;
  #filter: Any;
  #guard: Guard<Any> | undefined;

  constructor(from: Any, client: Client, cleanup: Cleanup) {
    this.#case = from;
    this.#client = client;
    this.cleanup = cleanup;
  }

  static async open(from: Any, library: Library): Promise<Process> {
    const cleanup = new Cleanup();
    const [port, ...others] = from.ports;
    const client =
      others.length > 0
        ? await openCluster(cleanup, library, from.ports)
        : await openClient(cleanup, library, port, from.protocol);
    return new Process(from, client, cleanup);
  }

  get #timeoutMs(): number {
    return this.#case.client?.timeout_ms ?? PATIENCE_MS;
  }

  get filter(): Any {
    const { key, ...options } = this.#case.filter;
    this.#filter ??= new Filter(this.#client, key, { timeoutMs: this.#timeoutMs, ...options });
    return this.#filter;
  }

  get guard(): Guard<Any> {
    if (this.#guard !== undefined) return this.#guard;
    const { filter, codec, ...options } = this.#case.guard;
    const given: Any = { timeoutMs: this.#timeoutMs, warn: () => {}, ...named(options) };
    if (this.#case.client?.connections !== undefined) given.waitingConnections = Math.floor(this.#case.client.connections / 2);
    if (codec !== undefined) given.codec = new Json();
    this.#guard = new Guard(this.#client, filter, given);
    return this.#guard;
  }

  #value(value: Any): Any {
    if (value === null || this.#case.guard.codec === "json") return value;
    return typeof value === "string" ? Buffer.from(value) : item(value);
  }

  async perform(call: Call): Promise<Any> {
    const [kind, method] = call.call.split(".");
    if (method === undefined) return this.#function(call);
    if (kind === "guard") return this.#guardCall(camel(method), call);
    if (kind === "filter") return this.#filterCall(camel(method), call.with);
    throw new Unknown(`unknown call ${call.call}`);
  }

  #function({ call, with: given }: Call): Any {
    const { rate, capacity, key, ids, ...options } = given;
    switch (call) {
      case "item_bytes":
        return { hex: itemBytes(item(given.item)).toString("hex") };
      case "cache_prefix":
        return cachePrefix(given.filter);
      case "filling_name":
        return fillingName(given.filter);
      case "plan":
        return plan(this.#client, rate, capacity, named(options));
      case "fill_filter":
        return fillFilter(this.#client, key, items(ids), rate, capacity, named(options));
      default:
        throw new Unknown(`unknown call ${call}`);
    }
  }

  async #filterCall(method: string, { rate, capacity, ...given }: Any): Promise<Any> {
    if (method === "reserve") return this.filter.reserve(rate, capacity, named(given));
    return callOf(this.filter, method, given);
  }

  async #guardCall(method: string, call: Call): Promise<Any> {
    const { guard } = this;
    const { id, ids, ...options } = call.with;
    const { signal } = call.abort;
    const load = async () => this.#value(await called(call));
    switch (method) {
      case "get":
        return guard.get(item(id), load, { ...options, signal });
      case "getInTransaction":
        return guard.getInTransaction(item(id), load, { signal });
      case "getNested":
        return guard.get(item(id), (own) => guard.get(own, load), { ...options, signal });
      case "getMany": {
        const loadMany = async (wanted: Any[]) => {
          const rows = await called(call, wanted.map(plain));
          const found = wanted.filter((one) => String(one) in rows);
          return new Map(found.map((one) => [one, this.#value(rows[String(one)])]));
        };
        return [...(await guard.getMany(items(ids), loadMany, { ...options, signal }))];
      }
      case "announce":
      case "confirm":
      case "forget":
        return guard[method](...items(ids));
      case "changed":
        return guard.changedMany(items(ids), () => settledBy(called(call), undefined, signal));
      default:
        throw new Unknown(`unknown call ${call.call}`);
    }
  }
}

/** Calls a method that takes an item, items or nothing. */
function callOf(of: Any, method: string, given: Any): Any {
  if (typeof of[method] !== "function") throw new Unknown(`unknown call ${method}`);
  if ("item" in given) return of[method](item(given.item));
  return "items" in given ? of[method](items(given.items)) : of[method]();
}

/** Reports that the client calls an actor's function. It returns or throws when the runner says so later. */
function called({ id }: Call, ids?: Any[]): Promise<Any> {
  last += 1;
  say({ called: id, function: last, ids });
  return new Promise((resolve, reject) => functions.set(last, { resolve, reject }));
}

/** Returns the names of an error in the cases. */
function namesOf(error: Any): string[] {
  if (error instanceof Unknown) return ["unknown"];
  if (error instanceof LoadError) return ["load"];
  if (error instanceof TypeError || error instanceof RangeError) return ["refused"];
  if (error.name === "AbortError") return ["cancelled"];
  const names: string[] = [];
  if (error instanceof BloomgateError) {
    for (let type = error.constructor; type !== Error; type = Object.getPrototypeOf(type)) names.push(type.name);
  } else if (isReply(error)) names.push("server");
  else if (/socket|connection|MaxRetriesPerRequest/i.test(`${error.name} ${error.message}`)) names.push("connection");
  if (error instanceof Disconnected || error instanceof TimeoutError) names.push("connection");
  return names;
}

async function run(of: Process, call: Call): Promise<void> {
  calls.set(call.id, call);
  try {
    say({ end: call.id, result: plain(await of.perform(call)) });
  } catch (error) {
    const { message, answers, ids } = error as Any;
    const texts = ids?.map((id: Any) => Buffer.from(id).toString());
    say({ end: call.id, error: namesOf(error), message, answers, ids: texts });
  }
  calls.delete(call.id);
}

/** Executes a message. */
async function take(message: Any): Promise<void> {
  if ("open" in message) processes.set(message.open, await Process.open(message, process.argv[2] as Library));
  else if ("close" in message) await processes.get(message.close)?.cleanup.run();
  else if ("cancel" in message) calls.get(message.cancel)?.abort.abort();
  else if ("return" in message) functions.get(message.return)?.resolve(message.value);
  else if ("raise" in message) functions.get(message.raise)?.reject(new LoadError(message.message));
  else {
    const of = processes.get(message.process) as Process;
    for (const call of message.start) run(of, { ...call, abort: new AbortController() });
  }
}

say({ abilities: ABILITIES });
createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  take(message)
    .then(() => undefined, String)
    .then((error) => "id" in message && say({ done: message.id, error }));
});
