/** Where the callers of one process wait for a row that another caller loads.
 *
 * A caller that waits inside the server (`BF.FETCH ... WAIT`) occupies a connection, and gets the lease if the loading caller
 * gives up. So at most one caller per row waits there; the others wait in the process until that caller is done, and share what
 * it shares or what the next fetch answers. They cost no connections. */

import type { Outcome } from "./ask.js";
import type { Fetched } from "./fetched.js";

/** What a load has thrown, which may be any value. */
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

/** The flights of one row: how many are active, and those that wait in the process, in the order in which they came. */
interface Crowd {
  active: number;
  readonly waiting: Set<Flight>;
}

/** One caller's interest in one row. It is active while the caller fetches the row, waits for it inside the server or loads it. */
export class Flight {
  readonly id: string;
  readonly begun: number;
  /** When the fetch or the load began that `shares` is the outcome of. */
  asked = 0;
  crowd: Crowd = { active: 0, waiting: new Set() };
  /** What another caller has shared. It is not shared again. */
  given: Shared | undefined;
  shares: Shared | undefined;
  wake: (() => void) | undefined;

  constructor(id: string, begun: number) {
    this.id = id;
    this.begun = begun;
  }

  /** Shares an outcome with those that wait, once this flight ends. */
  share(outcome: Shared): void {
    if (this.given === undefined) this.shares = outcome;
  }
}

/** The rows that callers of this process fetch and load now. While flights of a row wait, another one is active. */
export class Flights {
  readonly #crowds = new Map<string, Crowd>();

  /** Begins an active flight of a call that began at a time. */
  begin(id: string, begun = now()): Flight {
    const flight = new Flight(id, begun);
    this.#join(flight);
    return flight;
  }

  #join(flight: Flight): void {
    const crowd = this.#crowds.get(flight.id);
    if (crowd === undefined) this.#crowds.set(flight.id, flight.crowd);
    else flight.crowd = crowd;
    flight.crowd.active++;
  }

  /** To call right before a fetch is sent or a load begins: its outcome may be shared with the flights that began earlier. One
   * that began later may know of a change that the outcome does not have. */
  ask(flight: Flight): void {
    flight.asked = now();
    flight.given = undefined;
  }

  /** Makes an active flight wait until the returned promise resolves. If it is the only active one of its row, it stays active,
   * and nothing is returned. */
  wait(flight: Flight): Promise<void> | undefined {
    const { crowd } = flight;
    if (crowd.active === 1) return undefined;
    flight.given = undefined;
    crowd.active--;
    crowd.waiting.add(flight);
    return new Promise((resolve) => {
      flight.wake = resolve;
    });
  }

  /** Makes a flight active again that has waited for long enough. */
  stop(flight: Flight): void {
    if (flight.crowd.waiting.delete(flight)) flight.crowd.active++;
  }

  /** Makes a waiting flight active. Other active flights of its row stay active. */
  leave(flight: Flight): void {
    const { crowd } = flight;
    if (!crowd.waiting.delete(flight)) return;
    if (this.#crowds.get(flight.id) === crowd) this.#crowds.delete(flight.id);
    flight.crowd = { active: 0, waiting: new Set() };
    this.#join(flight);
  }

  /** Ends a flight. An answer is shared with those flights that began before it was asked for, and an error with all that wait.
   * If others still wait and none is active, the first of them goes on, and fetches for the others. */
  end(flight: Flight): void {
    const { crowd, shares, asked } = flight;
    if (!crowd.waiting.delete(flight)) crowd.active--;
    if (shares !== undefined) {
      const isError = shares instanceof Error || shares instanceof Failure;
      for (const other of crowd.waiting) {
        if (isError || other.begun < asked) resume(other, shares);
      }
    }
    const [first] = crowd.waiting;
    if (first !== undefined && crowd.active === 0) resume(first, undefined);
    if (crowd.active === 0 && this.#crowds.get(flight.id) === crowd) this.#crowds.delete(flight.id);
  }
}

/** Wakes a flight. It is active from then on, though its caller may be aborted before it notices: then the end of the flight lets
 * the next one go on. */
function resume(flight: Flight, given: Shared | undefined): void {
  flight.crowd.waiting.delete(flight);
  flight.crowd.active++;
  flight.given = given;
  flight.wake?.();
}
