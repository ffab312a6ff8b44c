/** A filter in many shards, each in a slot of its own, so that the nodes of a cluster share its memory and its load. */

import { type Call, call, Link, nothing, type Outcome, same } from "./ask.js";
import type { Client, Reply } from "./connection.js";
import { BloomgateError, FilterExists, FilterMissing, named, ShardMissing, ShardsChanged } from "./errors.js";
import { collect, each, type Items, LARGE_MS, many } from "./filter.js";
import { type Item, itemBytes, type Key, keyText, type Window, windows } from "./items.js";
import { array, type Info, number, parseInfo, text } from "./replies.js";
import { checkShards, countKey, shardCapacity, shardKey, shardOf } from "./sharding.js";
import { type CreationOptions, creationWords, type Word } from "./words.js";

/** The most shards that get a small command each together. */
const TOGETHER = 256;

/** A sharded filter that exists. `open` throws FilterMissing if there is none with this name, and ShardMissing if one of its
 * shards is missing, as does every call that needs that shard. It works with the clients of clusters and of single servers. A
 * batch goes to all shards in parallel.
 *
 * Every call also reads the number of shards, and throws ShardsChanged if it was doubled: then open the filter again. */
export class ShardedFilter {
  readonly name: Key;
  readonly #link: Link;
  #shards = 0;

  private constructor(link: Link, name: Key) {
    this.name = name;
    this.#link = link;
  }

  /** Opens a sharded filter. */
  static async open(client: Client, name: Key, options: { timeoutMs?: number | undefined } = {}): Promise<ShardedFilter> {
    const filter = new ShardedFilter(new Link(client, options.timeoutMs), name);
    await filter.reopen();
    return filter;
  }

  /** Creates a filter for `capacity` items in 1 to 16384 shards. Each has room for its part and four standard deviations. Filters
   * that are to be merged need the same `seed`. Throws FilterExists if there is one with this name; `resume` completes a creation
   * that was interrupted. Do not use `resume` to replace a lost shard: the new shard would deny the items of the lost one. */
  static async create(
    client: Client,
    name: Key,
    rate: number,
    capacity: number,
    shards: number,
    options: CreationOptions & { resume?: boolean | undefined; timeoutMs?: number | undefined } = {},
  ): Promise<ShardedFilter> {
    checkShards(shards);
    const { resume = false, timeoutMs, ...creation } = options;
    const words = [String(rate), String(shardCapacity(capacity, shards)), ...creationWords(creation)];
    const filter = new ShardedFilter(new Link(client, timeoutMs), name);
    if (!(await filter.#link.one(call(["SET", countKey(name), String(shards), "NX"], Boolean)))) {
      const existing = await filter.#readCount();
      if (!resume || existing !== shards) {
        throw new FilterExists(`${keyText(name)}: there is a sharded filter of ${existing} shards`);
      }
    }
    filter.#shards = shards;
    await filter.#each(
      (key) => call(["BF.RESERVE", key, ...words], nothing),
      (error) => resume && error.message.includes("item exists"),
    );
    await filter.reopen();
    return filter;
  }

  /** The number of shards. */
  get shards(): number {
    return this.#shards;
  }

  /** The keys of the shards in order. */
  get keys(): Buffer[] {
    return Array.from({ length: this.#shards }, (_, shard) => shardKey(this.name, shard));
  }

  /** Adds an item. Returns true if it is certainly new. */
  async add(item: Item): Promise<boolean> {
    const [answer] = await this.#add([[itemBytes(item)]]);
    return answer === true;
  }

  /** Adds any number of items. Returns the answers in the order of the items. */
  addMany(items: Items): Promise<boolean[]> {
    return many(items, (window) => this.#add(window));
  }

  /** Like `addMany`, but returns an iterator of the answers. Items whose answers are not consumed are not added. */
  addEach(items: Items): AsyncGenerator<boolean> {
    return each(items, (window) => this.#add(window));
  }

  /** Returns false if the item is certainly not in the filter. */
  async exists(item: Item): Promise<boolean> {
    const [answer] = await this.#exists([[itemBytes(item)]]);
    return answer === true;
  }

  /** Looks up any number of items. */
  existsMany(items: Items): Promise<boolean[]> {
    return many(items, (window) => this.#exists(window));
  }

  /** Like `existsMany`, but returns an iterator of the answers. */
  existsEach(items: Items): AsyncGenerator<boolean> {
    return each(items, (window) => this.#exists(window));
  }

  /** Deletes items; the shards need `hash: "siphash"` or `counting`. */
  deleteMany(items: Items): Promise<boolean[]> {
    return many(items, (window) => this.#batch(["BF.MDEL"], [], window, true));
  }

  /** Returns the number of items in all shards. */
  async card(): Promise<number> {
    // BF.CARD answers 0 for a missing key.
    await this.verify();
    const cards = await this.#each((key) => call(["BF.CARD", key], number));
    return cards.reduce((sum, card) => sum + card, 0);
  }

  /** Returns BF.INFO of each shard in order. */
  infos(): Promise<Info[]> {
    return this.#each((key) => call(["BF.INFO", key], parseInfo));
  }

  /** Returns the sums over all shards; `layers` and `expansion` are those of the shard with the most layers. */
  async info(): Promise<Info> {
    return (await this.infos()).reduce((sum, one) => {
      const deepest = one.layers > sum.layers ? one : sum;
      return {
        capacity: sum.capacity + one.capacity,
        sizeBytes: sum.sizeBytes + one.sizeBytes,
        items: sum.items + one.items,
        layers: deepest.layers,
        expansion: deepest.expansion,
      };
    });
  }

  /** Throws ShardMissing if a shard is missing. */
  async verify(): Promise<void> {
    const found = await this.#each((key) => call(["EXISTS", key], Boolean));
    const missing = this.keys.filter((_, shard) => !found[shard]);
    if (missing[0] !== undefined) {
      const first = keyText(missing[0]);
      throw new ShardMissing(`${missing.length} of ${this.#shards} shards are missing, the first is ${first}`);
    }
  }

  /** Reads the number of shards again. */
  async reopen(): Promise<void> {
    const count = await this.#readCount();
    if (count === null) throw new FilterMissing(`${keyText(this.name)}: there is no such sharded filter`);
    this.#shards = count;
    await this.verify();
  }

  /** Empties all shards. */
  async clear(): Promise<void> {
    await this.#each((key) => call(["BF.CLEAR", key], nothing));
  }

  /** Deletes all shards and their number. */
  async drop(): Promise<void> {
    // Without its number the filter cannot be opened.
    await this.#link.one(call(["UNLINK", countKey(this.name)], nothing));
    await this.#each((key) => call(["UNLINK", key], nothing));
  }

  /** Adds this filter's items to the sharded filter `destination`, which is created if it is missing. Throws RangeError if it has
   * another number of shards. Both need the same rate, capacity and seed. */
  async mergeInto(destination: Key): Promise<void> {
    await this.verify();
    if (!(await this.#link.one(call(["SET", countKey(destination), String(this.#shards), "NX"], Boolean)))) {
      const other = new ShardedFilter(this.#link, destination);
      await other.reopen();
      if (other.#shards !== this.#shards) {
        throw new RangeError(`${keyText(destination)} has ${other.#shards} shards, ${keyText(this.name)} has ${this.#shards}`);
      }
    }
    await this.#each((key, shard) => call(["BF.MERGE", shardKey(destination, shard), key], nothing));
  }

  /** Doubles the number of shards by copying each (BF.SCANDUMP). No item is denied. Nobody may add meanwhile: an item that is
   * added to a shard after it was copied would be denied. The copies keep the items of both halves, so the shards are as full as
   * before, and the new room is for new items. */
  async double(): Promise<void> {
    await this.verify();
    for (let shard = 0; shard < this.#shards; shard++) {
      await this.#copy(shardKey(this.name, shard), shardKey(this.name, shard + this.#shards));
    }
    await this.#run("SET", countKey(this.name), String(2 * this.#shards));
    this.#shards *= 2;
  }

  /** Copies a shard record by record. A copy that an interrupted attempt has left is made again. */
  async #copy(source: Buffer, copy: Buffer): Promise<void> {
    await this.#run("UNLINK", copy);
    for (let iterator = "0"; ; ) {
      const [next, data] = array(await this.#run("BF.SCANDUMP", source, iterator));
      iterator = text(next);
      if (iterator === "0") return;
      await this.#run("BF.LOADCHUNK", copy, iterator, data as Buffer);
    }
  }

  async #run(...words: Word[]): Promise<Reply> {
    const [outcome] = await this.#link.ask([call(words, same)], { waitMs: LARGE_MS });
    if (outcome instanceof Error) throw named(outcome, words[1] ?? "");
    return outcome ?? null;
  }

  async #readCount(): Promise<number | null> {
    const found = await this.#link.one(call(["GET", countKey(this.name)], same));
    if (found === null) return null;
    try {
      return checkShards(Number(text(found)));
    } catch {
      throw new BloomgateError(`${keyText(countKey(this.name))} holds ${text(found)}, which is no number of shards`);
    }
  }

  /** Sends one command for every shard. */
  async #each<T>(make: (key: Buffer, shard: number) => Call<T>, ignore = (_error: Error) => false): Promise<T[]> {
    const results: T[] = [];
    const keys = this.keys;
    for (let start = 0; start < keys.length; start += TOGETHER) {
      const part = keys.slice(start, start + TOGETHER);
      const found = await this.#link.ask(part.map((key, index) => make(key, start + index)));
      for (const [index, outcome] of found.entries()) {
        if (outcome instanceof Error) {
          if (!ignore(outcome)) throw named(outcome, part[index] ?? this.name);
        } else {
          results.push(outcome);
        }
      }
    }
    return results;
  }

  #add(window: Window): Promise<boolean[]> {
    return this.#batch(["BF.INSERT"], ["NOCREATE", "ITEMS"], window, false);
  }

  #exists(window: Window): Promise<boolean[]> {
    return this.#batch(["BF.MEXISTS"], [], window, true);
  }

  /** Sends each item to its shard, to all shards in parallel. `look` checks that the shards exist, for commands that do not fail
   * without them. The number of shards is read again with every batch. */
  async #batch(before: Word[], after: Word[], window: Window, look: boolean): Promise<boolean[]> {
    const items = window.flat();
    const groups = new Map<number, number[]>();
    for (const [position, item] of items.entries()) {
      const shard = shardOf(item, this.#shards);
      const group = groups.get(shard);
      if (group === undefined) groups.set(shard, [position]);
      else group.push(position);
    }
    const chunks: Window = [];
    const calls: Call<Reply>[] = [];
    for (const [shard, positions] of groups) {
      const key = shardKey(this.name, shard);
      for (const part of windows(positions.map((position) => items[position] ?? Buffer.alloc(0)))) {
        for (const chunk of part) {
          chunks.push(chunk);
          calls.push(call([...before, key, ...after, ...chunk], same));
        }
      }
    }
    const shards = look ? [...groups.keys()] : [];
    const checks = shards.map((shard) => call(["EXISTS", shardKey(this.name, shard)], same));
    const found = await this.#link.ask([...calls, ...checks, call(["GET", countKey(this.name)], same)]);
    const result: (boolean | null)[] = new Array(items.length).fill(null);
    try {
      this.#checkShards(found.slice(chunks.length, -1), shards);
      const [answers, trouble] = collect(chunks, found.slice(0, chunks.length));
      if (trouble === undefined) this.#checkCount(found.at(-1));
      for (const [index, position] of [...groups.values()].flat().entries()) result[position] = answers[index] ?? null;
      if (trouble !== undefined) throw this.#named(trouble);
    } catch (error) {
      if (error instanceof BloomgateError) error.answers = result;
      throw error;
    }
    return result.map(Boolean);
  }

  /** Throws ShardMissing if EXISTS has not found a shard. */
  #checkShards(found: Outcome<Reply>[], shards: number[]): void {
    for (const [index, shard] of shards.entries()) {
      const present = found[index];
      if (present instanceof Error) throw present;
      if (!present) throw new ShardMissing(`${keyText(shardKey(this.name, shard))}: this shard is missing`);
    }
  }

  #named(trouble: Error): Error {
    const error = named(trouble, this.name);
    if (!(error instanceof FilterMissing)) return error;
    return new ShardMissing(`${keyText(this.name)}: a shard is missing`, { cause: trouble });
  }

  #checkCount(count: Outcome<Reply> | undefined): void {
    if (count instanceof Error) throw count;
    if (count === null || count === undefined || Number(text(count)) !== this.#shards) {
      throw new ShardsChanged(`${keyText(this.name)} was opened with ${this.#shards} shards: open it again`);
    }
  }
}
