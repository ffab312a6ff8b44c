/** Coalesces the fetches of a process: callers wait here for a row that another caller loads.
 *
 * A caller that waits inside the server (`BF.FETCH ... WAIT`) occupies a connection, and gets the lease if the loading caller
 * gives up. So at most one caller per row waits there; the others wait in the process until that caller is done, and share its
 * outcome or the outcome of the next fetch. They occupy no connections. */

import type { Outcome } from "./ask.js";
import type { Fetched } from "./fetch.js";

/** The value that a load has thrown, which may have any type. */
export class Failure {
  readonly error: unknown;

  constructor(error: unknown) {
    this.error = error;
  }
}

/** The outcome of a flight: an answer to a fetch, a loaded row, an error of the server, or the failure of a load. */
export type Shared = Outcome<Fetched> | Failure;

let clock = 0;

/** Returns the time of an event. The times of all calls, fetches and loads are ordered. */
export function now(): number {
  return ++clock;
}

/** The flights of one row: the number of active ones, and the waiting ones in the order of their arrival. */
interface RowFlights {
  active: number;
  readonly waiting: Set<Flight>;
}

/** One caller's interest in one row. It is active while the caller fetches the row, waits for it inside the server or loads it. */
export class Flight {
  readonly id: string;
  readonly begun: number;
  /** The beginning of the fetch or load whose outcome is in `shares`. */
  asked = 0;
  row: RowFlights = { active: 0, waiting: new Set() };
  /** The outcome that another caller has shared. It is not shared again. */
  given: Shared | undefined;
  shares: Shared | undefined;
  wake: (() => void) | undefined;

  constructor(id: string, begun: number) {
    this.id = id;
    this.begun = begun;
  }

  /** Shares an outcome with waiting flights when this flight ends. */
  share(outcome: Shared): void {
    if (this.given === undefined) this.shares = outcome;
  }
}

/** The rows that callers of this process are fetching or loading. While flights of a row wait, another flight is active. */
export class Flights {
  readonly #rows = new Map<string, RowFlights>();

  /** Begins an active flight of a call that began at a time. */
  begin(id: string, begun = now()): Flight {
    const flight = new Flight(id, begun);
    this.#join(flight);
    return flight;
  }

  #join(flight: Flight): void {
    const row = this.#rows.get(flight.id);
    if (row === undefined) this.#rows.set(flight.id, flight.row);
    else flight.row = row;
    flight.row.active++;
  }

  /** Must be called right before a fetch is sent or a load begins: the outcome may be shared with flights that began earlier. A
   * later flight may know of a change that the outcome lacks. */
  ask(flight: Flight): void {
    flight.asked = now();
    flight.given = undefined;
  }

  /** Makes an active flight wait until the returned promise resolves. The only active flight of a row stays active; undefined
   * is returned. */
  wait(flight: Flight): Promise<void> | undefined {
    const { row } = flight;
    if (row.active === 1) return undefined;
    flight.given = undefined;
    row.active--;
    row.waiting.add(flight);
    return new Promise((resolve) => {
      flight.wake = resolve;
    });
  }

  /** Ends the wait of a flight, which becomes active again. */
  stop(flight: Flight): void {
    if (flight.row.waiting.delete(flight)) flight.row.active++;
  }

  /** Makes a waiting flight active. Other active flights of its row stay active. */
  detach(flight: Flight): void {
    const { row } = flight;
    if (!row.waiting.delete(flight)) return;
    if (this.#rows.get(flight.id) === row) this.#rows.delete(flight.id);
    flight.row = { active: 0, waiting: new Set() };
    this.#join(flight);
  }

  /** Ends a flight. An answer is shared with flights that began before its fetch, and an error with all waiting flights. If
   * flights still wait for a row without an active flight, the first of them resumes, and fetches for the others. */
  end(flight: Flight): void {
    const { row, shares, asked } = flight;
    if (!row.waiting.delete(flight)) row.active--;
    if (shares !== undefined) {
      const isError = shares instanceof Error || shares instanceof Failure;
      for (const other of row.waiting) {
        if (isError || other.begun < asked) resume(other, shares);
      }
    }
    const [first] = row.waiting;
    if (first !== undefined && row.active === 0) resume(first, undefined);
    if (row.active === 0 && this.#rows.get(flight.id) === row) this.#rows.delete(flight.id);
  }
}

/** Resumes a flight, which is active from now on. If its caller is aborted before it notices, the end of the flight resumes the
 * next one. */
function resume(flight: Flight, given: Shared | undefined): void {
  flight.row.waiting.delete(flight);
  flight.row.active++;
  flight.given = given;
  flight.wake?.();
}
