/** The fills of one guard: those of many loads that end at about the same time are sent together. */

import type { Call } from "./ask.js";
import type { Lease } from "./guard-commands.js";
import { COMMAND_BYTES, COMMAND_ITEMS } from "./items.js";

/** How many batches of fills may be under way at a time. All others wait in the process, where no time limit has begun. */
const MOST_BATCHES = 8;

/** A row to fill, and the caller that waits for it. */
export interface Fill {
  readonly lease: Lease;
  readonly call: Call<boolean>;
  readonly bytes: number;
}

interface Queued extends Fill {
  resolve(): void;
  reject(error: unknown): void;
}

export class Fills {
  readonly #send: (fills: readonly Fill[]) => Promise<void>;
  readonly #queue: Queued[] = [];
  #sent = 0;
  #isScheduled = false;

  /** `send` sends some fills together. */
  constructor(send: (fills: readonly Fill[]) => Promise<void>) {
    this.#send = send;
  }

  /** Fills a row. Resolves when the server has answered, or has not in time. */
  add(fill: Fill): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ ...fill, resolve, reject });
      if (this.#isScheduled) return;
      this.#isScheduled = true;
      setImmediate(() => {
        this.#isScheduled = false;
        this.#pump();
      });
    });
  }

  #pump(): void {
    while (this.#sent < MOST_BATCHES && this.#queue.length > 0) {
      let bytes = 0;
      let count = 0;
      for (const fill of this.#queue) {
        bytes += fill.bytes;
        if (count > 0 && (count >= COMMAND_ITEMS || bytes > COMMAND_BYTES)) break;
        count++;
      }
      void this.#sendBatch(this.#queue.splice(0, count));
    }
  }

  async #sendBatch(batch: readonly Queued[]): Promise<void> {
    this.#sent++;
    try {
      await this.#send(batch);
      for (const fill of batch) fill.resolve();
    } catch (error) {
      for (const fill of batch) fill.reject(error);
    }
    this.#sent--;
    this.#pump();
  }
}
