/** Rows in the memory of this process, in front of the server. */

import { binary } from "./rows.js";
import type { Word } from "./words.js";

/** Keeps up to `items` values in this process, for `seconds` each. A value that another client changes is dropped as soon as
 * the server reports the change (`CLIENT TRACKING`). Without a connection for these reports it keeps and serves nothing. If
 * such a connection hangs, its values may be `seconds` older than the server's. After the event loop was blocked, calls may be
 * answered before the reports of that time are read. Several guards may share one near cache.
 *
 * A value is stored only if it was not dropped since it was fetched: `begin` marks the keys that are fetched, `drop` removes
 * marks, and `end` stores the values whose keys are still marked. */
export class NearCache {
  readonly #items: number;
  readonly #ms: number;
  /** The least recently used value first. */
  readonly #values = new Map<string, { value: Buffer; endMs: number }>();
  readonly #marks = new Map<string, symbol>();

  constructor(items: number, seconds: number) {
    if (!(Number.isInteger(items) && items >= 1 && seconds > 0 && seconds < Number.POSITIVE_INFINITY)) {
      throw new RangeError(`a near cache has at least one item, for more than 0 seconds, not ${items} and ${seconds}`);
    }
    this.#items = items;
    this.#ms = seconds * 1000;
  }

  /** The number of values, including expired ones that were not requested since. */
  get size(): number {
    return this.#values.size;
  }

  /** Returns the value of a cache key.
   * @internal */
  get(key: Word): Buffer | undefined {
    const name = binary(key);
    const found = this.#values.get(name);
    if (found === undefined) return undefined;
    this.#values.delete(name);
    if (found.endMs <= performance.now()) return undefined;
    this.#values.set(name, found);
    return found.value;
  }

  /** Marks keys that are about to be fetched.
   * @internal */
  begin(keys: Word[]): Map<string, symbol> {
    const marks = new Map<string, symbol>();
    for (const key of keys.map(binary)) {
      const mark = this.#marks.get(key) ?? Symbol();
      this.#marks.set(key, mark);
      marks.set(key, mark);
    }
    return marks;
  }

  /** Stores the values of marked keys, and removes the marks.
   * @internal */
  end(marks: ReadonlyMap<string, symbol>, values: ReadonlyMap<string, Buffer>): void {
    for (const [key, mark] of marks) {
      if (this.#marks.get(key) !== mark) continue;
      this.#marks.delete(key);
      const value = values.get(key);
      if (value !== undefined) this.#store(key, value);
    }
  }

  /** Removes values, and discards their fetches in flight. */
  drop(keys: readonly Word[]): void {
    for (const key of keys.map(binary)) {
      this.#values.delete(key);
      this.#marks.delete(key);
    }
  }

  /** Removes all values. */
  clear(): void {
    this.#values.clear();
    this.#marks.clear();
  }

  #store(key: string, value: Buffer): void {
    this.#values.delete(key);
    this.#values.set(key, { value, endMs: performance.now() + this.#ms });
    if (this.#values.size > this.#items) {
      const [oldest] = this.#values.keys();
      if (oldest !== undefined) this.#values.delete(oldest);
    }
  }
}
