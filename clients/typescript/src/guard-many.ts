/** Reading many rows at once through the guard. */

import type { Outcome } from "./ask.js";
import { type Fetched, withoutToken } from "./fetched.js";
import type { Flight } from "./flights.js";
import { BATCH, type Lease } from "./guard-commands.js";
import type { GuardSteps } from "./guard-steps.js";
import { type Item, refuseSingle } from "./items.js";
import type { Row } from "./rows.js";

/** Reads rows. Ids that the map does not have do not exist. */
export type LoadMany<Id, V> = (
  ids: Id[],
  signal: AbortSignal | undefined,
) => Promise<ReadonlyMap<Id, V | null | undefined>> | ReadonlyMap<Id, V | null | undefined>;

/** One call of `getMany`. Ids that are written in the same bytes, such as 7 and "7", name one row: it is loaded by the first of
 * them, and returned under each. */
export class ManyRows<Id extends Item, V> {
  readonly #guard: GuardSteps<V>;
  readonly #loadMany: LoadMany<Id, V>;
  readonly #ttlMs: number;
  readonly #signal: AbortSignal | undefined;
  readonly #begun: number;
  readonly #asked = new Map<Id, Row>();
  /** The first id of each row. */
  readonly #first = new Map<string, Id>();
  readonly #rows = new Map<string, V | null>();
  readonly #unguarded: Row[] = [];
  /** The rows that have an old value in the cache. */
  readonly #old = new Set<string>();

  constructor(
    guard: GuardSteps<V>,
    ids: Iterable<Id>,
    loadMany: LoadMany<Id, V>,
    ttlMs: number,
    signal: AbortSignal | undefined,
  ) {
    refuseSingle(ids);
    this.#guard = guard;
    this.#loadMany = loadMany;
    this.#ttlMs = ttlMs;
    this.#signal = signal;
    this.#begun = guard.direct.now();
    for (const id of ids) {
      const row = guard.row(id);
      this.#asked.set(id, row);
      if (!this.#first.has(row.id)) this.#first.set(row.id, id);
    }
  }

  async get(): Promise<Map<Id, V | null>> {
    const deadline = performance.now() + this.#guard.options.waitMs;
    const wanted: Row[] = [];
    const inside: Row[] = [];
    for (const id of this.#first.values()) {
      const row = this.#asked.get(id) as Row;
      const near = this.#guard.nearAnswer(row);
      if (near === undefined) (this.#guard.isInsideLoad(row) ? inside : wanted).push(row);
      else this.#rows.set(row.id, near.value);
    }
    let left = await this.#fetchAll(wanted);
    while (left[0] !== undefined && performance.now() < deadline) {
      // By the time the first row is there, most of the others are, too.
      await this.#waitFor(left[0], deadline);
      left = await this.#fetchAll(left.slice(1));
    }
    const unguarded = [...this.#unguarded, ...left];
    if (inside.length > 0) this.#keep(await this.#guard.loadInside(inside, this.#load, this.#signal));
    this.#keep(await this.#guard.loadDirectly(unguarded, this.#begun, this.#load, this.#signal));
    return new Map([...this.#asked].map(([id, row]) => [id, this.#rows.get(row.id) ?? null]));
  }

  /** Fetches rows, and loads those whose leases it gets. Returns the rows that other callers load. */
  async #fetchAll(rows: readonly Row[]): Promise<Row[]> {
    const flights = new Map(rows.map((row) => [row.id, this.#guard.flights.begin(row.id)]));
    const leases: Lease[] = [];
    const waiting: Row[] = [];
    try {
      for (let start = 0; start < rows.length; start += BATCH) {
        const unreadable = await this.#fetchPart(rows.slice(start, start + BATCH), false, flights, leases, waiting);
        waiting.push(...(await this.#fetchPart(unreadable, true, flights, leases, waiting)));
      }
      // Only those with a lease will bring a row: nobody in this process has to wait for the other flights.
      const leased = new Set(leases.map((lease) => lease.row.id));
      for (const [id, flight] of flights) {
        if (leased.has(id)) continue;
        flights.delete(id);
        this.#guard.flights.end(flight);
      }
      await this.#loadLeased(leases.splice(0), flights);
    } catch (error) {
      void this.#guard.giveUp(leases);
      throw error;
    } finally {
      for (const flight of flights.values()) this.#guard.flights.end(flight);
    }
    return waiting;
  }

  /** Fetches some rows together, and sorts them by their answers. Returns the rows whose cached values could not be decoded, to
   * be fetched again with `replace`. */
  async #fetchPart(
    rows: readonly Row[],
    replace: boolean,
    flights: ReadonlyMap<string, Flight>,
    leases: Lease[],
    waiting: Row[],
  ): Promise<Row[]> {
    if (rows.length === 0) return [];
    const unreadable: Row[] = [];
    const unneeded: Lease[] = [];
    for (const row of rows) this.#guard.flights.ask(flights.get(row.id) as Flight);
    const found = await this.#guard.fetch(rows, { replace, signal: this.#signal });
    for (const [index, row] of rows.entries()) {
      const one: Outcome<Fetched> = found[index] ?? new Error("no answer");
      const flight = flights.get(row.id) as Flight;
      if (one instanceof Error) {
        this.#unguarded.push(row);
        flight.outcome = one;
      } else if (one.word === "wait") {
        waiting.push(row);
      } else {
        const { value, token, isReadable } = this.#guard.read(one);
        if (isReadable && (replace || !token)) {
          this.#rows.set(row.id, value);
          flight.outcome = withoutToken(one);
          // Another caller has replaced the value meanwhile. The new one is not due for a refresh.
          if (token) unneeded.push({ row, token });
        } else if (token) {
          leases.push({ row, token });
          if (isReadable) this.#old.add(row.id);
        } else {
          unreadable.push(row);
        }
      }
    }
    await this.#guard.giveUp(unneeded);
    return unreadable;
  }

  /** Waits for a row that another caller loads, and loads it if that caller does not bring it. */
  async #waitFor(row: Row, deadline: number): Promise<void> {
    const flight = this.#guard.flights.begin(row.id);
    try {
      const answer = await this.#guard.fetchRow(row, flight, deadline, this.#signal);
      if (answer === undefined) {
        this.#unguarded.push(row);
      } else if (answer.token) {
        if (answer.isReadable) this.#old.add(row.id);
        await this.#loadLeased([{ row, token: answer.token }], new Map([[row.id, flight]]));
      } else {
        this.#rows.set(row.id, answer.value);
      }
    } finally {
      this.#guard.flights.end(flight);
    }
  }

  /** Loads rows under leases and fills them. */
  async #loadLeased(leases: readonly Lease[], flights: ReadonlyMap<string, Flight>): Promise<void> {
    if (leases.length === 0) return;
    const loading = {
      leases,
      flights,
      load: this.#load,
      begun: this.#begun,
      ttlMs: this.#ttlMs,
      hasValues: leases.every((lease) => this.#old.has(lease.row.id)),
    };
    this.#keep(await this.#guard.loadRows(loading, this.#signal));
  }

  readonly #load = async (rows: readonly Row[], signal: AbortSignal | undefined): Promise<Map<string, V | null>> => {
    const ids = rows.map((row) => this.#first.get(row.id) as Id);
    const loaded = await this.#guard.timed(() => this.#loadMany([...ids], signal), rows, signal);
    return new Map(rows.map((row, index) => [row.id, loaded.get(ids[index] as Id) ?? null]));
  };

  #keep(rows: ReadonlyMap<string, V | null>): void {
    for (const [id, value] of rows) this.#rows.set(id, value);
  }
}
