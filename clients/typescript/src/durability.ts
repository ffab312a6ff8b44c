/** Whether a write survives a failover or a restart: WAIT and WAITAOF after it. */

import { type Call, call, type Outcome, same } from "./ask.js";
import type { Connection, Reply } from "./connection.js";
import type { Word } from "./creation.js";
import { TimeoutError } from "./errors.js";
import { array, number } from "./replies.js";

/** How many replicas must acknowledge a write, and with `aof` whether it must be in the append-only files on disk, including
 * the primary's. */
export class Durability {
  readonly #replicas: number;
  readonly #timeoutMs: number;
  readonly #aof: boolean;

  constructor(replicas: number, timeoutMs: number, aof: boolean) {
    this.#replicas = replicas;
    this.#timeoutMs = timeoutMs;
    this.#aof = aof;
  }

  /** Whether writes are followed by WAIT or WAITAOF. */
  get isAsked(): boolean {
    return this.#aof || this.#replicas > 0;
  }

  /** The time for which the server may withhold the reply to a write. */
  get waitMs(): number {
    return this.isAsked ? this.#timeoutMs : 0;
  }

  checkConnection(connection: Connection): void {
    if (this.isAsked && connection.isCluster) {
      throw new RangeError("replicas and aof need a plain client: a cluster's client cannot send WAIT to a certain node");
    }
  }

  /** Returns the command to send after writes, **on the same connection**: WAIT and WAITAOF wait for the writes on their own
   * connection, and answer at once on another. */
  calls(key: Word): Call<Reply>[] {
    const [replicas, timeout] = [String(this.#replicas), String(this.#timeoutMs)];
    if (this.#aof) return [call(["WAITAOF", "1", replicas, timeout], same, key)];
    return this.#replicas > 0 ? [call(["WAIT", replicas, timeout], same, key)] : [];
  }

  /** Removes the outcome of `calls` from the end of the outcomes. Returns its error, if any. */
  takeError(outcomes: Outcome<Reply>[]): Error | undefined {
    if (!this.isAsked) return undefined;
    const outcome = outcomes.pop();
    if (outcome instanceof Error) return outcome;
    const [onDisk, replicas] = this.#aof ? array(outcome).map(number) : [1, number(outcome)];
    if (!onDisk) return new TimeoutError("the write is not in the server's append-only file yet");
    if ((replicas ?? 0) < this.#replicas) {
      return new TimeoutError(`${replicas} of ${this.#replicas} replica(s) have the write`);
    }
    return undefined;
  }
}
