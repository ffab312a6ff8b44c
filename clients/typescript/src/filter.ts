/** A filter at one key. */

import { type Call, type Client, call, Link, nothing, type Outcome, same } from "./ask.js";
import type { Reply } from "./connection.js";
import { type CreationOptions, creationWords, type InsertOptions, insertWords, type Word } from "./creation.js";
import { BloomgateError, FilterExists, named } from "./errors.js";
import { asyncWindows, type Item, itemBytes, type Key, keyBytes, refuseSingle, type Window } from "./items.js";
import {
  array,
  booleans,
  type Info,
  number,
  type Plan,
  parseInfo,
  parsePlan,
  parseStats,
  type Stats,
  text,
} from "./replies.js";

/** A batch: an array, or any other iterable. */
export type Items = Iterable<Item> | AsyncIterable<Item>;

/** Returns the size of a filter with these options once it has `items` items (BF.PLAN). Creates nothing. */
export async function plan(
  client: Client,
  rate: number,
  capacity: number,
  options: CreationOptions & { items?: number | undefined; tightening?: number | undefined } = {},
): Promise<Plan> {
  const { items, tightening, ...creation } = options;
  const words: Word[] = ["BF.PLAN", String(rate), String(capacity), ...creationWords(creation)];
  if (tightening !== undefined) words.push("TIGHTENING", String(tightening));
  if (items !== undefined) words.push("ITEMS", String(items));
  return new Link(client).one({ words, parse: parsePlan, key: undefined });
}

/** The additional time limit of BF.MERGE, which reads and writes whole filters. */
const MERGE_MS = 10_000;

/** The options of a filter. */
export interface FilterOptions {
  /** If false, an add to a missing filter throws FilterMissing instead of creating one from the server's configuration. */
  create?: boolean | undefined;
  /** The time limit of a command in milliseconds: by default the client's, or 1000. */
  timeoutMs?: number | undefined;
}

/** A filter in a server.
 *
 * Every method throws FilterMissing, FilterFull, FilterLoading, FilterExists or ModuleMissing where they apply, and otherwise
 * the client library's errors. A client that repeats a command after a lost connection may report a new item as present, because
 * the first attempt added it. Clients of `connect` (`bloomgate/redis`, `bloomgate/ioredis`) repeat no command. */
export class Filter {
  readonly key: Key;
  readonly #name: Buffer;
  readonly #link: Link;
  readonly #create: boolean;

  constructor(client: Client, key: Key, options: FilterOptions = {}) {
    this.key = key;
    this.#name = keyBytes(key);
    this.#link = new Link(client, options.timeoutMs);
    this.#create = options.create ?? true;
  }

  /** Creates the filter. `rate` is the false positive rate, between 0 and 1; `capacity` is the number of items before it grows.
   * Returns true; with `existOk`, returns false if the filter exists and leaves it unchanged. */
  async reserve(
    rate: number,
    capacity: number,
    options: CreationOptions & { existOk?: boolean | undefined } = {},
  ): Promise<boolean> {
    const { existOk, ...creation } = options;
    try {
      await this.#one(nothing, "BF.RESERVE", String(rate), String(capacity), ...creationWords(creation));
    } catch (error) {
      if (!(existOk && error instanceof FilterExists)) throw error;
      // The reply is the same for a key of another type: this throws then.
      await this.info();
      return false;
    }
    return true;
  }

  /** Adds an item. Returns true if it is certainly new, false if it was present or is a false positive. */
  async add(item: Item): Promise<boolean> {
    const [answer] = await this.#batch(this.#addWords(), [[itemBytes(item)]]);
    return answer === true;
  }

  /** Adds items, up to 500 or 1 MiB per command and 16 commands at a time. Returns the answers in the order of the items. A
   * BloomgateError carries the answers so far. */
  addMany(items: Items): Promise<boolean[]> {
    return many(items, (window) => this.#batch(this.#addWords(), window));
  }

  /** Like `addMany`, but returns an iterator of the answers, for batches larger than memory. Items are read as the answers are
   * consumed, up to 8,000 ahead; items that were not read are not added. */
  addEach(items: Items): AsyncGenerator<boolean> {
    return each(items, (window) => this.#batch(this.#addWords(), window));
  }

  /** Returns false if the item is certainly not in the filter, true if it is or is a false positive. A missing filter is
   * empty. */
  exists(item: Item): Promise<boolean> {
    return this.#one(Boolean, "BF.EXISTS", itemBytes(item));
  }

  /** Looks up items. */
  existsMany(items: Items): Promise<boolean[]> {
    return many(items, (window) => this.#batch(["BF.MEXISTS", this.#name], window));
  }

  /** Like `existsMany`, but returns an iterator of the answers. */
  existsEach(items: Items): AsyncGenerator<boolean> {
    return each(items, (window) => this.#batch(["BF.MEXISTS", this.#name], window));
  }

  /** Deletes an item from a filter with `cuckoo`, `hash: "siphash"` or `counting`. Returns whether it was found. */
  delete(item: Item): Promise<boolean> {
    return this.#one(Boolean, "BF.DEL", itemBytes(item));
  }

  /** Deletes items. */
  deleteMany(items: Items): Promise<boolean[]> {
    return many(items, (window) => this.#batch(["BF.MDEL", this.#name], window));
  }

  /** BF.INSERT: adds items, and creates a missing filter with these options. Without items it only creates the filter, which
   * needs `seed`, `seed32`, `tightening` or `validateScaleTo`. */
  async insert(items: Items = [], options: InsertOptions = {}): Promise<boolean[]> {
    const words = ["BF.INSERT", this.#name, ...insertWords(options)];
    let hasItems = false;
    const answers = await many(items, (window) => {
      hasItems = true;
      return this.#batch([...words, "ITEMS"], window);
    });
    if (!hasItems) await this.#batch(words, [[]]);
    return answers;
  }

  /** Returns how often the item is in a filter with `cuckoo` (from 4 on: or more) or `counting` (at most 15). */
  count(item: Item): Promise<number> {
    return this.#one(number, "BF.COUNT", itemBytes(item));
  }

  /** Returns the number of items; 0 if the key does not exist. */
  card(): Promise<number> {
    return this.#one(number, "BF.CARD");
  }

  /** Returns the filter's capacity, size and number of items (BF.INFO). */
  info(): Promise<Info> {
    return this.#one(parseInfo, "BF.INFO");
  }

  /** Returns the filter's kind, fill and current error rate (BF.STATS). The server reads at most 1 MiB of each layer. */
  stats(): Promise<Stats> {
    return this.#one(parseStats, "BF.STATS");
  }

  /** Returns lines with the sizes of the filter and of each layer (BF.DEBUG). */
  debug(): Promise<string[]> {
    return this.#one((reply) => array(reply).map(text), "BF.DEBUG");
  }

  /** Adds the items of the sources to this filter (BF.MERGE). Creates it with the options of the first source if it is missing. All
   * filters need the same rate, capacity, expansion, hash and seed. */
  async merge(...sources: Key[]): Promise<void> {
    if (sources.length === 0) throw new RangeError("merge needs a source");
    await this.#one(nothing, "BF.MERGE", ...sources.map(keyBytes));
  }

  /** Starts the next bucket of a filter that forgets. Returns how many items were dropped with the oldest bucket. */
  rotate(): Promise<number> {
    return this.#one(number, "BF.ROTATE");
  }

  /** Removes all items and keeps the options. */
  clear(): Promise<void> {
    return this.#one(nothing, "BF.CLEAR");
  }

  /** Deletes the key. Returns whether it existed. */
  drop(): Promise<boolean> {
    return this.#one(Boolean, "UNLINK");
  }

  #addWords(): Word[] {
    return this.#create ? ["BF.MADD", this.#name] : ["BF.INSERT", this.#name, "NOCREATE", "ITEMS"];
  }

  /** Sends a command whose first argument is the key. */
  async #one<T>(parse: (reply: Reply) => T, command: string, ...words: Word[]): Promise<T> {
    try {
      return await this.#link.one(call([command, this.#name, ...words], parse), command === "BF.MERGE" ? MERGE_MS : 0);
    } catch (error) {
      throw error instanceof Error ? named(error, this.key) : error;
    }
  }

  /** Sends one command per chunk, all together. Throws the first error, with the answers of all other commands. */
  async #batch(words: readonly Word[], window: Window): Promise<boolean[]> {
    const calls = window.map((chunk): Call<Reply> => call([...words, ...chunk], same));
    return settled(window, await this.#link.ask(calls), this.key);
  }
}

/** Returns the answers of a batch in order, and its first error. A command that failed midway answers a shorter array, whose last
 * element is the error. */
export function collect(window: Window, found: Outcome<Reply>[]): [answers: (boolean | null)[], failure: Error | undefined] {
  const answers: (boolean | null)[] = [];
  let failure: Error | undefined;
  for (const [index, chunk] of window.entries()) {
    const reply = found[index] ?? null;
    if (reply instanceof Error) {
      failure ??= reply;
      answers.push(...chunk.map(() => null));
      continue;
    }
    const parsed = booleans(reply);
    const last = array(reply).at(-1);
    if (last instanceof Error) failure ??= last;
    answers.push(...parsed, ...chunk.slice(parsed.length).map(() => null));
  }
  return [answers, failure];
}

/** Returns the answers of a batch, or throws its first error. */
export function settled(window: Window, found: Outcome<Reply>[], key: Key): boolean[] {
  const [answers, failure] = collect(window, found);
  if (failure === undefined) return answers.map(Boolean);
  const error = named(failure, key);
  if (error instanceof BloomgateError) error.answers = answers;
  throw error;
}

/** Sends the windows of a batch one after another, and returns all answers. */
export async function many(items: Items, send: (window: Window) => Promise<boolean[]>): Promise<boolean[]> {
  refuseSingle(items);
  const answers: boolean[] = [];
  try {
    for await (const window of asyncWindows(items)) {
      for (const answer of await send(window)) answers.push(answer);
    }
  } catch (error) {
    if (error instanceof BloomgateError) error.answers = [...answers, ...error.answers];
    throw error;
  }
  return answers;
}

export async function* each(items: Items, send: (window: Window) => Promise<boolean[]>): AsyncGenerator<boolean> {
  for await (const window of asyncWindows(items)) yield* await send(window);
}
