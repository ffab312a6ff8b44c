/** Converts items to bytes, and splits batches of any size into commands. */

/** An item of a filter: bytes, a string that is encoded as UTF-8, or a whole number that is written in decimal. */
export type Item = string | Uint8Array | number | bigint;

/** The name of a key. */
export type Key = string | Uint8Array;

/** The maximum number of items in one command. Larger commands gain nothing, and delay other clients of the server. */
export const COMMAND_ITEMS = 500;

/** The maximum size of one command's items in bytes, unless it has one item. */
export const COMMAND_BYTES = 1 << 20;

/** The commands that are sent together, before their replies are read. */
const WINDOW_COMMANDS = 16;

type Chunk = Buffer[];
export type Window = Chunk[];

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Returns an item as a word of a command. Throws TypeError for a value without one obvious encoding. */
export function itemWord(item: Item): string | Buffer {
  if (typeof item === "string") {
    if (/\p{Surrogate}/u.test(item)) throw new TypeError("an item has half of a surrogate pair, which UTF-8 cannot encode");
    return item;
  }
  if (item instanceof Uint8Array) return asBuffer(item);
  if (typeof item === "bigint" || Number.isSafeInteger(item)) return item.toString();
  throw new TypeError(`an item is a string, a Uint8Array or a whole number, not ${describe(item)}`);
}

/** Returns the bytes of an item, which the filter hashes. */
export function itemBytes(item: Item): Buffer {
  const word = itemWord(item);
  return typeof word === "string" ? Buffer.from(word) : word;
}

function describe(value: unknown): string {
  return typeof value === "number" ? String(value) : value === null ? "null" : typeof value;
}

/** Returns the name of a key as bytes. Throws TypeError for anything but a string or a Uint8Array. */
export function keyBytes(key: Key): Buffer {
  if (typeof key === "string") return Buffer.from(key);
  if (key instanceof Uint8Array) return asBuffer(key);
  throw new TypeError(`a key is a string or a Uint8Array, not ${describe(key)}`);
}

/** Returns the name of a key as text for a message. */
export function keyText(key: Key): string {
  return JSON.stringify(typeof key === "string" ? key : asBuffer(key).toString());
}

/** Refuses a single item where a batch is expected, although it can be iterated. */
export function refuseSingle(items: unknown): void {
  if (typeof items === "string" || items instanceof Uint8Array) {
    throw new TypeError("items is a single item; pass an iterable of items, such as an array");
  }
}

/** Collects items into chunks, one per command, and chunks into windows, which are sent together. */
class Windows {
  window: Window = [];
  #bytes = 0;

  /** Adds an item. Returns whether the window is full now. */
  put(item: Item): boolean {
    const data = itemBytes(item);
    let last = this.window.at(-1);
    if (last === undefined || last.length >= COMMAND_ITEMS || this.#bytes + data.length > COMMAND_BYTES) {
      last = [];
      this.window.push(last);
      this.#bytes = 0;
    }
    last.push(data);
    this.#bytes += data.length;
    return this.window.length >= WINDOW_COMMANDS && (last.length >= COMMAND_ITEMS || this.#bytes >= COMMAND_BYTES);
  }

  /** Returns the window, and begins the next. */
  take(): Window {
    const window = this.window;
    this.window = [];
    return window;
  }
}

/** Splits items into windows. Reads no further ahead than one window. */
export function* windows(items: Iterable<Item>): Generator<Window> {
  refuseSingle(items);
  const collected = new Windows();
  for (const item of items) {
    if (collected.put(item)) yield collected.take();
  }
  if (collected.window.length > 0) yield collected.take();
}

/** Like `windows`, for synchronous and asynchronous iterables. */
export async function* asyncWindows(items: Iterable<Item> | AsyncIterable<Item>): AsyncGenerator<Window> {
  refuseSingle(items);
  if (Symbol.iterator in items) {
    yield* windows(items);
    return;
  }
  const collected = new Windows();
  for await (const item of items) {
    if (collected.put(item)) yield collected.take();
  }
  if (collected.window.length > 0) yield collected.take();
}
