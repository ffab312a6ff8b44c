/** The options of BF.RESERVE, BF.INSERT and BF.PLAN. Their names and types are checked here, their values by the server. */

export type Word = string | Buffer;

/** The options of a new filter. `docs/kinds.md` of the project describes the kinds. */
export interface CreationOptions {
  /** The factor from one layer's capacity to the next, 0 to 32768. With 0 the filter does not grow. */
  expansion?: number | undefined;
  /** Makes a full filter refuse items instead of growing. */
  nonscaling?: boolean | undefined;
  /** 0 to 2^32 - 1; with `hash: "siphash"` 32 hexadecimal digits. Filters with the same seed can be merged. */
  seed?: number | string | undefined;
  layout?: "native" | "redisbloom" | undefined;
  /** siphash is for untrusted items, and allows deletes. */
  hash?: "murmur3" | "siphash" | undefined;
  /** Seconds after which an item is forgotten, 1 to 10^10. */
  window?: number | undefined;
  /** Keeps at least the last `capacity` new items. */
  rolling?: boolean | undefined;
  /** The maximum number of buckets of a filter that forgets, 3 to 64. */
  buckets?: number | undefined;
  /** With `window`: adding an item again restarts its window. */
  sliding?: boolean | undefined;
  /** A cuckoo filter: unlimited deletes in little more memory than bits. Every add stores a copy of the item, up to four, and a
   * delete removes one: delete only what was added. */
  cuckoo?: boolean | undefined;
  /** Counters instead of bits: four times the memory, unlimited deletes. */
  counting?: boolean | undefined;
  /** The key's time to live in seconds, set only if the filter is created. */
  ex?: number | undefined;
  /** The key's time to live in milliseconds. */
  px?: number | undefined;
}

/** The options of BF.INSERT, which adds items and creates a missing filter. */
export interface InsertOptions extends CreationOptions {
  capacity?: number | undefined;
  /** The false positive rate. */
  rate?: number | undefined;
  /** Fails if the filter is missing. */
  nocreate?: boolean | undefined;
  /** This, or `seed32`, selects valkey-bloom's layout. */
  tightening?: number | undefined;
  validateScaleTo?: number | undefined;
  /** 32 bytes. */
  seed32?: Uint8Array | undefined;
  /** Replicates items that were not new, too, so that a later WAIT confirms them. */
  sync?: boolean | undefined;
}

/** Returns the options without those that are undefined, which have their defaults. */
export function defined<T extends object>(options: T): T {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T;
}

const FLAGS = new Set(["nonscaling", "rolling", "sliding", "cuckoo", "counting"]);
const VALUES = new Set(["expansion", "seed", "layout", "hash", "window", "buckets", "ex", "px"]);

/** Returns the options as words of a command. Throws TypeError for an unknown name, or a value of the wrong type. */
export function creationWords(options: CreationOptions): Word[] {
  const words: Word[] = [];
  for (const [name, value] of Object.entries(options) as [string, unknown][]) {
    if (value === undefined) continue;
    if (FLAGS.has(name)) {
      if (typeof value !== "boolean") throw new TypeError(`${name} is true or false, not ${String(value)}`);
      if (value) words.push(name.toUpperCase());
    } else if (VALUES.has(name)) {
      if (typeof value !== "string" && typeof value !== "number") throw new TypeError(`${name} cannot be ${String(value)}`);
      words.push(name.toUpperCase(), String(value));
    } else {
      throw new TypeError(`there is no option "${name}": ${[...VALUES, ...FLAGS].join(", ")}`);
    }
  }
  return words;
}

/** Returns the options of BF.INSERT that precede ITEMS. */
export function insertWords(options: InsertOptions): Word[] {
  const { capacity, rate, nocreate, tightening, validateScaleTo, seed32, sync, ...creation } = options;
  if (seed32 !== undefined && seed32.length !== 32) throw new RangeError(`seed32 is 32 bytes, not ${seed32.length}`);
  const words = creationWords(creation);
  const numbers = { CAPACITY: capacity, ERROR: rate, TIGHTENING: tightening, VALIDATESCALETO: validateScaleTo };
  for (const [name, value] of Object.entries(numbers)) {
    if (value !== undefined) words.push(name, String(value));
  }
  if (seed32 !== undefined) words.push("SEED", Buffer.from(seed32));
  if (nocreate) words.push("NOCREATE");
  if (sync) words.push("SYNC");
  return words;
}
