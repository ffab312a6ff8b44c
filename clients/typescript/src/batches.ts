/** Fetches of many callers as one command: what they ask for in one turn of the event loop is one BF.MFETCH. */

import type { Outcome } from "./ask.js";
import { asError } from "./errors.js";
import { type Fetched, withoutToken } from "./fetched.js";
import type { GuardCommands } from "./guard-commands.js";
import type { Row } from "./rows.js";

/** Where a caller waits for the answer for its row: a Fetched, or the error in its place. */
interface Seat {
  isLeft: boolean;
  take(answer: Outcome<Fetched>): void;
}

/** How many commands may be under way at a time. Meanwhile callers join the next one, for which no time limit has begun. */
const MOST_COMMANDS = 8;

/** The rows that callers ask for in one turn. */
type Batch = Map<string, { row: Row; seats: Seat[] }>;

/** The fetches of one guard. */
export class Batches {
  readonly #commands: GuardCommands<unknown>;
  #open: Batch | undefined;
  /** Batches that may not be sent yet. */
  readonly #waiting: Batch[] = [];
  #sent = 0;

  // biome-ignore lint/suspicious/noExplicitAny: the commands of any guard are fetched in the same way.
  constructor(commands: GuardCommands<any>) {
    this.#commands = commands;
  }

  /** Fetches a row together with those that other callers ask for. If the signal aborts, another caller that wants the row gets
   * its lease, or the lease is given up. */
  fetch(row: Row, signal: AbortSignal | undefined): Promise<Outcome<Fetched>> {
    let batch = this.#open;
    if (batch === undefined || batch.size >= this.#commands.batchRows) {
      const opened: Batch = new Map();
      batch = this.#open = opened;
      setImmediate(() => {
        this.#waiting.push(opened);
        this.#pump();
      });
    }
    let place = batch.get(row.id);
    if (place === undefined) {
      place = { row, seats: [] };
      batch.set(row.id, place);
    }
    const { seats } = place;
    return new Promise((resolve, reject) => {
      const abort = () => {
        seat.isLeft = true;
        reject(signal?.reason);
      };
      const seat: Seat = {
        isLeft: false,
        take(answer) {
          signal?.removeEventListener("abort", abort);
          resolve(answer);
        },
      };
      signal?.addEventListener("abort", abort, { once: true });
      seats.push(seat);
    });
  }

  #pump(): void {
    while (this.#sent < MOST_COMMANDS) {
      const batch = this.#waiting.shift();
      if (batch === undefined) return;
      this.#sent++;
      void this.#send(batch).finally(() => {
        this.#sent--;
        this.#pump();
      });
    }
  }

  async #send(batch: Batch): Promise<void> {
    if (this.#open === batch) this.#open = undefined;
    const places = [...batch.values()].filter((place) => !place.seats.every((seat) => seat.isLeft));
    if (places.length === 0) return;
    let answers: Outcome<Fetched>[];
    try {
      answers = await this.#commands.fetch(places.map((place) => place.row));
    } catch (error) {
      answers = places.map(() => asError(error));
    }
    for (const [index, { row, seats }] of places.entries()) {
      const answer = answers[index] ?? new Error("no answer");
      if (!this.#deliver(seats, answer) && !(answer instanceof Error) && answer.token) {
        void this.#commands.giveUp([{ row, token: answer.token }]);
      }
    }
  }

  /** Gives one answer to all that wait for it, but a lease to the first of them only. Returns whether there is any. */
  #deliver(seats: readonly Seat[], answer: Outcome<Fetched>): boolean {
    const present = seats.filter((seat) => !seat.isLeft);
    for (const [index, seat] of present.entries()) {
      if (index === 0 || answer instanceof Error) {
        seat.take(answer);
        continue;
      }
      const shared = withoutToken(answer);
      this.#commands.count(shared.word);
      seat.take(shared);
    }
    return present.length > 0;
  }
}
