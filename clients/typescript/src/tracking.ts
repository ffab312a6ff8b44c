/** Drops values from a near cache when other clients change them. */

import type { ChangeReports, Connection } from "./connection.js";
import { asError, Disconnected } from "./errors.js";
import type { NearCache } from "./near.js";
import type { Warnings } from "./warnings.js";
import type { Word } from "./words.js";

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
        this.#warnings.about("the near cache serves nothing until the server reports changes again", error);
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
