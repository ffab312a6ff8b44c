/** Rows in the memory of this process, in front of the server, which reports their changes. */

import type { ChangeReports, Connection } from "./connection.js";
import type { Word } from "./creation.js";
import { asError, Disconnected } from "./errors.js";
import { binary } from "./rows.js";
import type { Warnings } from "./telemetry.js";

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

/** The pause before reconnecting. It doubles with each failed attempt. */
const RETRY_MS = 1000;

/** The longest of these pauses. */
const MOST_RETRY_MS = 30_000;

/** Closes the connections of near caches that are no longer in use. */
const unused = new FinalizationRegistry<ChangeReports>((reports) => reports.close());

/** Follows the changes of the keys with a prefix. The near cache stores and serves only while this is active: without a
 * connection, no changes are reported. All values are dropped when the connection is lost, and again when it is restored. */
export class Tracking {
  /** Whether the server reports changes. */
  isActive = false;
  readonly #reportChanges: NonNullable<Connection["reportChanges"]>;
  readonly #near: WeakRef<NearCache>;
  readonly #prefix: Word;
  readonly #warnings: Warnings;
  #isFollowing = false;

  constructor(connection: Connection, near: NearCache, prefix: Word, warnings: Warnings) {
    if (connection.reportChanges === undefined) {
      throw new RangeError("a near cache needs a client of one server: the nodes of a cluster report changes separately");
    }
    this.#reportChanges = connection.reportChanges.bind(connection);
    this.#near = new WeakRef(near);
    this.#prefix = prefix;
    this.#warnings = warnings;
  }

  /** Follows changes from now on, unless it does so already. */
  start(): void {
    if (this.#isFollowing) return;
    this.#isFollowing = true;
    void this.#follow();
  }

  async #follow(): Promise<void> {
    for (let pauseMs = RETRY_MS; this.#near.deref() !== undefined; pauseMs = Math.min(2 * pauseMs, MOST_RETRY_MS)) {
      try {
        await this.#untilLost();
        pauseMs = RETRY_MS;
      } catch (thrown) {
        const error = asError(thrown);
        if (error instanceof Disconnected) {
          // The client is closed. If it is opened again, the next fetch restarts the tracking.
          this.#isFollowing = false;
          return;
        }
        // Any error may be temporary: a server may become a primary, a permission may be granted.
        this.#warnings.warn("the near cache serves nothing until the server reports changes again", error);
      } finally {
        this.isActive = false;
        this.#near.deref()?.clear();
      }
      await new Promise((resolve) => setTimeout(resolve, pauseMs).unref());
    }
  }

  async #untilLost(): Promise<void> {
    const reports = await this.#reportChanges(this.#prefix, (keys) => this.#drop(keys));
    this.#begin(reports);
    await reports.ended;
    unused.unregister(reports);
  }

  /** A separate function, because a variable that outlives an `await` would keep the near cache alive. */
  #begin(reports: ChangeReports): void {
    const near = this.#near.deref();
    if (near === undefined) {
      reports.close();
      return;
    }
    // Values that were fetched before are not tracked.
    near.clear();
    this.isActive = true;
    unused.register(near, reports, reports);
  }

  #drop(keys: readonly Buffer[] | null): void {
    const near = this.#near.deref();
    if (keys === null) near?.clear();
    else near?.drop(keys);
  }
}
