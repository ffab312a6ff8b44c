/** Drops values from a near cache as others change them. */

import type { Connection } from "./connection.js";
import { asError, Disconnected, isReply } from "./errors.js";
import type { NearCache } from "./near.js";
import type { ChangeReports } from "./reports.js";
import type { Warnings } from "./warnings.js";
import type { Word } from "./words.js";

/** The pause before a lost connection is made again. */
const RETRY_MS = 1000;

/** Closes the connections of near caches that are no longer in use. */
const unused = new FinalizationRegistry<ChangeReports>((reports) => reports.close());

/** Follows the changes of the keys with a prefix. Without a connection, values are bounded by their time only: changes are not
 * reported meanwhile, so everything is dropped when the connection is lost, and again when there is another. */
export class Tracking {
  readonly #connection: Connection;
  readonly #near: WeakRef<NearCache>;
  readonly #prefix: Word;
  readonly #warnings: Warnings;
  #isFollowing = false;

  constructor(connection: Connection, near: NearCache, prefix: Word, warnings: Warnings) {
    this.#connection = connection;
    this.#near = new WeakRef(near);
    this.#prefix = prefix;
    this.#warnings = warnings;
  }

  /** Follows changes from now on, unless it does so already. */
  start(): void {
    if (this.#isFollowing || this.#connection.reportChanges === undefined) return;
    this.#isFollowing = true;
    void this.#follow();
  }

  async #follow(): Promise<void> {
    while (this.#near.deref() !== undefined) {
      try {
        await this.#untilLost();
      } catch (thrown) {
        const error = asError(thrown);
        if (error instanceof Disconnected) {
          // The client is closed. If it is opened again, the next fetch starts the tracking.
          this.#isFollowing = false;
          return;
        }
        if (isReply(error) && !error.message.startsWith("LOADING")) {
          this.#warnings.about("the near cache is bounded by its time only", error);
          return;
        }
      } finally {
        this.#near.deref()?.clear();
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS).unref());
    }
  }

  async #untilLost(): Promise<void> {
    const reports = await this.#connection.reportChanges?.(this.#prefix, (keys) => this.#drop(keys));
    if (reports === undefined) return;
    this.#begin(reports);
    await reports.ended;
    unused.unregister(reports);
  }

  /** Has a function of its own, because a variable that outlives an `await` would keep the near cache. */
  #begin(reports: ChangeReports): void {
    const near = this.#near.deref();
    if (near === undefined) {
      reports.close();
      return;
    }
    // What was fetched before is not tracked.
    near.clear();
    unused.register(near, reports, reports);
  }

  #drop(keys: readonly Buffer[] | null): void {
    const near = this.#near.deref();
    if (keys === null) near?.clear();
    else near?.drop(keys);
  }
}
