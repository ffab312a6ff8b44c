/** Connections for commands that wait inside the server: `BF.FETCH ... WAIT`, WAIT and WAITAOF. On the client's own connection
 * they would block all other commands. */

import { type AskOptions, type Call, Link, type Outcome } from "./ask.js";
import { Replaceable } from "./connection.js";
import type { Word } from "./creation.js";
import { asError, TimeoutError } from "./errors.js";
import { settledBy } from "./promises.js";

/** How long an idle connection stays open. */
const IDLE_MS = 1000;

export class WaitingConnections {
  readonly #main: Link;
  readonly #key: Word;
  readonly #idle: { link: Link; timer: NodeJS.Timeout }[] = [];
  readonly #queue: (() => void)[] = [];
  #free: number;

  /** At most `most` connections wait inside the server at a time. Other callers wait in the process, or fetch again. In a
   * cluster, the connections are to the node of `key`. */
  constructor(main: Link, key: Word, most: number) {
    this.#main = main;
    this.#key = key;
    this.#free = most;
  }

  /** Reserves a connection for one call of `ask`; false if all are in use. */
  tryReserve(): boolean {
    if (this.#free <= 0) return false;
    this.#free--;
    return true;
  }

  /** Reserves a connection, and waits for one if all are in use. */
  async reserve(): Promise<void> {
    if (!this.tryReserve()) await new Promise<void>((resolve) => this.#queue.push(resolve));
  }

  /** Sends commands on a reserved connection, and ends the reservation once the replies have arrived. */
  async ask<T>(calls: readonly Call<T>[], options: AskOptions<T> = {}): Promise<Outcome<T>[]> {
    const opening = this.#open();
    let link: Link;
    try {
      link = await settledBy(opening, this.#main.timeoutMs, options.signal);
    } catch (error) {
      opening.then(
        (late) => this.#recycle(late, true),
        () => this.release(),
      );
      if (options.signal?.aborted) throw error;
      if (error === undefined) this.#main.pause.begin();
      const failure = asError(error ?? new TimeoutError("the server has accepted no connection in time"));
      return calls.map(() => failure);
    }
    const finished = (outcomes: Outcome<unknown>[]) => {
      // A server that refuses a command may no longer own the key.
      const isReusable = !outcomes.some((one) => one instanceof Error);
      this.#recycle(link, isReusable);
    };
    return link.ask(calls, { ...options, finished });
  }

  async #open(): Promise<Link> {
    const idle = this.#idle.pop();
    if (idle !== undefined) {
      clearTimeout(idle.timer);
      return idle.link;
    }
    const { connection, timeoutMs, pause } = this.#main;
    const other = await connection.duplicate(this.#key);
    return new Link(other, timeoutMs, pause, new Replaceable(timeoutMs, () => other.close()));
  }

  #recycle(link: Link, isReusable: boolean): void {
    if (isReusable) {
      const timer = setTimeout(() => {
        this.#idle.splice(
          this.#idle.findIndex((one) => one.link === link),
          1,
        );
        link.connection.close();
      }, IDLE_MS);
      timer.unref();
      this.#idle.push({ link, timer });
    } else {
      link.connection.close();
    }
    this.release();
  }

  /** Ends a reservation. */
  release(): void {
    const next = this.#queue.shift();
    if (next === undefined) this.#free++;
    else next();
  }
}
