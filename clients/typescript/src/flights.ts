/** Where the callers of one process wait for a row that another caller loads.
 *
 * A caller that waits inside the server (`BF.FETCH ... WAIT`) occupies a connection, and gets the lease if the loading caller
 * gives up. So at most one caller per row waits there; the others wait in the process until that caller is done, and share what
 * the next fetch answers. They cost no connections. */

import type { Outcome } from "./ask.js";
import type { Fetched } from "./fetched.js";

/** The flights of one row: how many are active, and those that wait in the process, in the order in which they came. */
interface FlightsOfRow {
  active: number;
  readonly waiting: Set<Flight>;
}

/** What a load has thrown, which may be any value. */
export class Failure {
  readonly error: unknown;

  constructor(error: unknown) {
    this.error = error;
  }
}

/** One caller's interest in one row. It is active while the caller fetches the row, waits for it inside the server or loads it. */
export class Flight {
  readonly id: string;
  readonly number: number;
  /** The number of the fetch that `outcome` answers. */
  asked = 0;
  /** What ends the caller's call: the answer to a fetch, an error of the server in its place, or the failure of a load. */
  outcome: Outcome<Fetched> | Failure | undefined;
  /** What another caller has shared. */
  given: Fetched | Failure | undefined;
  isActive = true;
  /** Whether its last wait inside the server ended early. */
  wasEarly = false;
  wake: (() => void) | undefined;

  constructor(id: string, number: number) {
    this.id = id;
    this.number = number;
  }
}

/** The rows that callers of this process fetch and load now. While flights of a row wait, another one is active. */
export class Flights {
  readonly #rows = new Map<string, FlightsOfRow>();
  #numbers = 0;

  /** Begins an active flight. */
  begin(id: string): Flight {
    let row = this.#rows.get(id);
    if (row === undefined) {
      row = { active: 0, waiting: new Set() };
      this.#rows.set(id, row);
    }
    row.active++;
    return new Flight(id, ++this.#numbers);
  }

  /** To call right before a fetch is sent: its answer may be shared with the flights that began earlier. One that began later may
   * know of a change that the answer does not have. */
  ask(flight: Flight): void {
    flight.asked = ++this.#numbers;
  }

  /** Ends a flight. An answer is shared with those flights that began before it was asked for, and a failure with all that wait;
   * after an error of the server all go on without an answer. If others still wait and none is active, the first of them goes on,
   * and fetches for the others. */
  end(flight: Flight): void {
    const row = this.#rows.get(flight.id);
    if (row === undefined) return;
    if (flight.isActive) {
      flight.isActive = false;
      row.active--;
    } else {
      row.waiting.delete(flight);
    }
    const { outcome, asked } = flight;
    for (const other of outcome === undefined ? [] : row.waiting) {
      if (!(outcome instanceof Error)) {
        if (!(outcome instanceof Failure) && other.number > asked) break;
        other.given = outcome;
        other.asked = asked;
      }
      resume(row, other);
    }
    const [first] = row.waiting;
    if (first !== undefined && row.active === 0) resume(row, first);
    if (row.active === 0) this.#rows.delete(flight.id);
  }

  /** Makes an active flight wait until the returned promise resolves. If it is the only active one of its row, it stays active,
   * and nothing is returned. */
  beginWait(flight: Flight): Promise<void> | undefined {
    const row = this.#rows.get(flight.id);
    if (row === undefined || row.active === 1) return undefined;
    flight.isActive = false;
    flight.given = undefined;
    row.active--;
    row.waiting.add(flight);
    return new Promise((resolve) => {
      flight.wake = resolve;
    });
  }

  /** Makes a flight active again that was woken, or that has waited for long enough. */
  endWait(flight: Flight): void {
    const row = this.#rows.get(flight.id);
    if (row !== undefined && !flight.isActive) activate(row, flight);
  }
}

function activate(row: FlightsOfRow, flight: Flight): void {
  row.waiting.delete(flight);
  flight.isActive = true;
  row.active++;
}

/** Wakes a flight. It is active from then on, though its caller may be aborted before it notices: then the end of the flight lets
 * the next one go on. */
function resume(row: FlightsOfRow, flight: Flight): void {
  activate(row, flight);
  flight.wake?.();
}
