/** Whether a write survives a failover or a restart: WAIT and WAITAOF after it. */

import { type Call, call, type Outcome, same } from "./ask.js";
import type { Connection, Reply } from "./connection.js";
import { TimeoutError } from "./errors.js";
import { array, number } from "./replies.js";
import type { Word } from "./words.js";

/** How many replicas must have a write before it counts, and with `aof` whether it must be in the append-only files on disk, that
 * of the primary included. */
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

  /** For how long the server may withhold the reply to a write. */
  get waitMs(): number {
    return this.isAsked ? this.#timeoutMs : 0;
  }

  checkConnection(connection: Connection): void {
    if (this.isAsked && connection.isCluster) {
      throw new RangeError("replicas and aof need a plain client: that of a cluster cannot send WAIT to a certain node");
    }
  }

  /** Returns the command to send after writes, **on the same connection**: WAIT and WAITAOF wait for the writes of the connection
   * that they arrive on, and on another one answer at once. */
  calls(key: Word): Call<Reply>[] {
    const [replicas, timeout] = [String(this.#replicas), String(this.#timeoutMs)];
    if (this.#aof) return [call(["WAITAOF", "1", replicas, timeout], same, key)];
    return this.#replicas > 0 ? [call(["WAIT", replicas, timeout], same, key)] : [];
  }

  /** Takes the outcome of `calls` off the end of the outcomes. Returns what is wrong with it. */
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
