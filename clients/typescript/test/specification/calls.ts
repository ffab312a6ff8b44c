/** The calls of the cases, as calls of this package. */

import assert from "node:assert/strict";
import { connectionOf } from "../../src/connection.js";
import { type Client, type Codec, Filter, fillFilter, Guard, Json, plan, ShardedFilter } from "../../src/index.js";
import { type Item, itemBytes } from "../../src/items.js";
import { settledBy } from "../../src/promises.js";
import { cachePrefix, fillingName } from "../../src/rows.js";
import { shardCapacity, shardKey, shardOf } from "../../src/sharding.js";
import { PATIENCE_MS } from "../server.js";
import { type Case, isObject, itemList, type Json as JsonValue, oneItem, SpecificationError } from "./words.js";

/** What a function of an actor throws if the case says so. */
export class LoadError extends Error {}

// biome-ignore lint/suspicious/noExplicitAny: the arguments come from the cases, some of which are wrong on purpose.
type Any = any;

interface Pending {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** A call of one actor. */
export class Call {
  readonly name: string;
  readonly given: { [name: string]: Any };
  readonly abort = new AbortController();
  /** The calls of the actor's function that the case has not dealt with yet. */
  readonly called: { argument: unknown[]; pending: Pending }[] = [];
  #pending: Pending | undefined;
  #wake = () => {};
  ended: Promise<unknown> = Promise.resolve();

  constructor(name: string, given: JsonValue) {
    this.name = name;
    this.given = Object.fromEntries(Object.entries(given ?? {}).map(([name, value]) => [camel(name), value]));
  }

  /** What the client calls: it returns, or throws, as the case says later. */
  begin(argument: unknown[]): Promise<Any> {
    return new Promise((resolve, reject) => {
      this.called.push({ argument, pending: { resolve, reject } });
      this.#wake();
    });
  }

  async untilCalled(): Promise<unknown[]> {
    while (this.called.length === 0) {
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      const ended = this.ended.then(
        (result) => assert.fail(`${this.name} has not called its function; its result is ${JSON.stringify(result)}`),
        (error: Error) => assert.fail(`${this.name} has not called its function; it threw ${error.stack}`),
      );
      await settledBy(Promise.race([woken, ended]), PATIENCE_MS, undefined).catch((error: Error | undefined) => {
        throw error ?? new Error(`${this.name} has not called its function`);
      });
    }
    const first = this.called.shift();
    this.#pending = first?.pending;
    return first?.argument ?? [];
  }

  async takePending(): Promise<Pending> {
    if (this.#pending === undefined) await this.untilCalled();
    const pending = this.#pending as Pending;
    this.#pending = undefined;
    return pending;
  }
}

function camel(name: string): string {
  return name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** What one process of a case has: a client, and the objects of the case, which are made when they are used first. */
export class Process {
  readonly client: Client;
  readonly #case: Case;
  #filter: Filter | undefined;
  #guard: Guard<unknown> | undefined;
  #sharded: ShardedFilter | undefined;

  constructor(client: Client, from: Case) {
    this.client = client;
    this.#case = from;
  }

  get filter(): Filter {
    const { key, ...options } = this.#case.filter ?? {};
    this.#filter ??= new Filter(this.client, String(key), { timeoutMs: this.#timeoutMs, ...options });
    return this.#filter;
  }

  get guard(): Guard<unknown> {
    if (this.#guard !== undefined) return this.#guard;
    const { filter, codec, ...options } = this.#case.guard ?? {};
    if (codec !== undefined && codec !== "json") throw new SpecificationError(`unknown codec ${codec}`);
    const { connections } = this.#case.client ?? {};
    const given: Any = { timeoutMs: this.#timeoutMs, warn: () => {} };
    for (const [name, value] of Object.entries(options)) given[camel(name)] = value;
    if (connections !== undefined) given.waitingConnections = Math.floor(connections / 2);
    if (codec !== undefined) given.codec = new Json() as Codec<unknown>;
    this.#guard = new Guard<unknown>(this.client, String(filter), given);
    return this.#guard;
  }

  get #timeoutMs(): number {
    return this.#case.client?.timeout_ms ?? PATIENCE_MS;
  }

  get #isJson(): boolean {
    return this.#case.guard?.["codec"] === "json";
  }

  #value(value: JsonValue): unknown {
    if (value === null || this.#isJson) return value;
    return typeof value === "string" ? Buffer.from(value) : oneItem(value);
  }

  setup(): Promise<unknown> {
    const connection = connectionOf(this.client);
    return (this.#case.setup ?? []).reduce<Promise<unknown>>(
      (before, words) => before.then(() => connection.command(words, words[1])),
      Promise.resolve(),
    );
  }

  /** Begins a call. Resolves with its result as JSON would write it. */
  async perform(call: Call): Promise<JsonValue> {
    return plain(await this.#perform(call));
  }

  async #perform(call: Call): Promise<unknown> {
    const { given } = call;
    const [kind, method = ""] = call.name.split(".");
    if (method === "") return this.#function(call);
    if (kind === "filter") return this.#filterCall(camel(method), given);
    if (kind === "sharded") return this.#shardedCall(camel(method), given);
    if (kind === "guard") return this.#guardCall(camel(method), call);
    throw new SpecificationError(`unknown call ${call.name}`);
  }

  #function({ name, given }: Call): unknown {
    const { rate, capacity, key, ids, item, shards, shard, filter, ...options } = given;
    switch (name) {
      case "item_bytes":
        return { hex: itemBytes(oneItem(item) as Item).toString("hex") };
      case "shard_of":
        return shardOf(itemBytes(oneItem(item) as Item), shards);
      case "shard_capacity":
        return shardCapacity(capacity, shards);
      case "shard_key":
        return shardKey(options["name"], shard);
      case "cache_prefix":
        return cachePrefix(filter);
      case "filling_name":
        return fillingName(filter);
      case "plan":
        return plan(this.client, rate, capacity, options);
      case "fill_filter":
        return fillFilter(this.client, key, itemList(ids) as Item[], rate, capacity, options);
      default:
        throw new SpecificationError(`unknown call ${name}`);
    }
  }

  async #filterCall(method: string, { item, items, rate, capacity, file, ...options }: Call["given"]): Promise<unknown> {
    const { filter } = this;
    switch (method) {
      case "add":
      case "exists":
      case "delete":
      case "count":
        return filter[method](oneItem(item) as Item);
      case "addMany":
      case "existsMany":
      case "deleteMany":
        return filter[method](itemList(items) as Item[]);
      case "card":
      case "info":
      case "stats":
      case "clear":
      case "drop":
        return filter[method]();
      case "reserve":
        return filter.reserve(rate, capacity, options);
      case "load":
        return filter.load([oneItem(file) as Buffer], options);
      case "dump": {
        const parts: Buffer[] = [];
        for await (const part of filter.dump()) parts.push(part);
        return { hex: Buffer.concat(parts).toString("hex") };
      }
      default:
        throw new SpecificationError(`unknown call filter.${method}`);
    }
  }

  async #shardedCall(method: string, { item, items, rate, capacity, shards, ...options }: Call["given"]): Promise<unknown> {
    const name = String(this.#case.sharded?.["name"]);
    if (method === "open") {
      this.#sharded = await ShardedFilter.open(this.client, name);
      return this.#sharded.shards;
    }
    if (method === "create") {
      this.#sharded = await ShardedFilter.create(this.client, name, rate, capacity, shards, options);
      return null;
    }
    const sharded = this.#sharded as ShardedFilter;
    switch (method) {
      case "add":
      case "exists":
        return sharded[method](oneItem(item) as Item);
      case "addMany":
      case "existsMany":
      case "deleteMany":
        return sharded[method](itemList(items) as Item[]);
      case "card":
      case "double":
      case "drop":
        return sharded[method]();
      default:
        throw new SpecificationError(`unknown call sharded.${method}`);
    }
  }

  async #guardCall(method: string, call: Call): Promise<unknown> {
    const { guard } = this;
    const { id, ids, ...options } = call.given;
    const { signal } = call.abort;
    const all = ids === undefined ? [] : (itemList(ids) as Item[]);
    const load = async () => this.#value(await call.begin([]));
    switch (method) {
      case "get":
        return guard.get(oneItem(id) as Item, load, { ...options, signal });
      case "getNested":
        return guard.get(oneItem(id) as Item, (own) => guard.get(own, load), { ...options, signal });
      case "getMany": {
        const loadMany = async (wanted: Item[]) => {
          const rows = await call.begin(wanted);
          const found = wanted.filter((one) => String(one) in rows);
          return new Map(found.map((one) => [one, this.#value(rows[String(one)])]));
        };
        return [...(await guard.getMany(all, loadMany, { ...options, signal }))];
      }
      case "announce":
      case "confirm":
      case "forget":
        return guard[method](...all);
      case "changed":
        return guard.changedMany(all, () => settledBy(call.begin([]), undefined, signal));
      default:
        throw new SpecificationError(`unknown call guard.${method}`);
    }
  }
}

/** Returns a result as JSON would write it, with names in snake_case. */
function plain(found: unknown): JsonValue {
  if (found === undefined || found === null) return null;
  if (Buffer.isBuffer(found)) {
    const text = found.toString();
    return Buffer.from(text).equals(found) ? text : { hex: found.toString("hex") };
  }
  if (Array.isArray(found)) return found.map(plain);
  if (typeof found === "bigint") return Number(found);
  if (typeof found === "object") {
    return Object.fromEntries(Object.entries(found).map(([name, value]) => [snake(name), plain(value)]));
  }
  return found as JsonValue;
}

/** Compares JSON values: floating-point numbers with a tolerance. */
export function equal(expected: JsonValue, found: JsonValue): boolean {
  if (isObject(expected) && "repeat" in expected && "times" in expected) {
    return equal(new Array<JsonValue>(Number(expected["times"])).fill(expected["repeat"] ?? null), found);
  }
  if (Array.isArray(expected) && Array.isArray(found)) {
    return expected.length === found.length && expected.every((one, index) => equal(one, found[index] ?? null));
  }
  if (isObject(expected) && isObject(found)) {
    const names = Object.keys(expected);
    if (names.length !== Object.keys(found).length) return false;
    return names.every((name) => name in found && equal(expected[name] ?? null, found[name] ?? null));
  }
  if (typeof expected === "number" && typeof found === "number" && !Number.isInteger(expected)) {
    return Math.abs(expected - found) <= 1e-9 * Math.abs(expected);
  }
  return expected === found;
}
