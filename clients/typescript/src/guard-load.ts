/** Loading rows under leases: filling them, and what happens when the database fails or is slow. */

import { AsyncLocalStorage } from "node:async_hooks";
import { DirectLoads } from "./direct.js";
import { asError } from "./errors.js";
import { Failure, type Flight } from "./flights.js";
import { GuardCommands, type Lease } from "./guard-commands.js";
import { settledBy, settles } from "./promises.js";
import type { Row } from "./rows.js";

/** The weight of the newest load in the average duration of loads. */
const SMOOTHING = 0.2;

/** The back-off after the first failed load of a row. It doubles with each further failure. */
const BACKOFF_MS = 100;

/** The longest back-off. */
const MOST_BACKOFF_MS = 10_000;

/** The most rows whose failed loads are counted. Beyond that, the row that has not failed for the longest time is forgotten. */
const MOST_FAILING = 10_000;

/** The most loads of a guard that continue in the background after their `softTimeout`. */
const BACKGROUND_LOADS = 64;

/** Loads rows. Those that it leaves out do not exist. */
export type LoadRows<V> = (rows: readonly Row[], signal: AbortSignal | undefined) => Promise<Map<string, V | null>>;

/** A call of a function that loads rows. */
interface LoadCall {
  readonly guard: object;
  readonly ids: ReadonlySet<string>;
  /** The call inside of which this one runs. */
  readonly outer: LoadCall | undefined;
  hasEnded: boolean;
}

/** The call inside of which the program runs. */
const loadCalls = new AsyncLocalStorage<LoadCall>();

/** Rows to load under leases. */
export interface Loading<V> {
  readonly leases: readonly Lease[];
  readonly flights: ReadonlyMap<string, Flight>;
  readonly load: LoadRows<V>;
  /** When the call began, by the clock of `direct`. */
  readonly begun: number;
  readonly ttlMs: number;
  /** Whether all of the rows have old values in the cache. They are served when the load fails or takes too long. Once it has
   * taken too long, its caller serves them. */
  hasValues: boolean;
}

/** The loads of one guard. */
export class GuardLoads<V> extends GuardCommands<V> {
  /** The failed loads of each row, in the order of the last failure. */
  readonly failing = new Map<string, number>();
  readonly direct = new DirectLoads<Buffer | null>();
  #background = 0;

  /** Whether the caller is inside a load of this row: then it would wait for itself. */
  isInsideLoad(row: Row): boolean {
    for (let call = loadCalls.getStore(); call !== undefined; call = call.outer) {
      if (call.guard === this && !call.hasEnded && call.ids.has(row.id)) return true;
    }
    return false;
  }

  /** Calls a function that loads rows, and takes its duration into the average. If the signal aborts, does not wait for it. */
  async timed<T>(load: () => T | PromiseLike<T>, rows: readonly Row[], signal: AbortSignal | undefined): Promise<T> {
    const begun = performance.now();
    const ids = new Set(rows.map((row) => row.id));
    const call: LoadCall = { guard: this, ids, outer: loadCalls.getStore(), hasEnded: false };
    const begin = () => loadCalls.run(call, async () => load());
    let loaded: T;
    try {
      loaded = await settledBy(this.events?.load(rows.length, begin) ?? begin(), undefined, signal);
    } catch (error) {
      if (!signal?.aborted) this.count("load_failed", rows.length);
      throw error;
    } finally {
      // What the load has started may run on.
      call.hasEnded = true;
    }
    this.loadMs += (performance.now() - begun - this.loadMs) * (this.loadMs ? SMOOTHING : 1);
    return loaded;
  }

  /** Loads rows for a caller inside a load of these rows. */
  async loadInside(rows: readonly Row[], load: LoadRows<V>, signal: AbortSignal | undefined): Promise<Map<string, V | null>> {
    this.count("unguarded", rows.length);
    return this.decodeRows(this.encodeRows(await load(rows, signal)));
  }

  /** Loads rows without leases, and fills nothing. Callers that ask for the same row share the load. */
  async loadDirectly(
    rows: readonly Row[],
    begun: number,
    load: LoadRows<V>,
    signal: AbortSignal | undefined,
  ): Promise<Map<string, V | null>> {
    const byId = new Map(rows.map((row) => [row.id, row]));
    let shared = byId.size;
    const loadFree = async (ids: readonly string[]) => {
      this.count("unguarded", ids.length);
      shared -= ids.length;
      const free = ids.map((id) => byId.get(id) as Row);
      const encoded = this.encodeRows(await load(free, signal));
      return new Map(ids.map((id) => [id, encoded.get(id) ?? null]));
    };
    const found = await this.direct.load([...byId.keys()], begun, loadFree, signal);
    if (shared > 0) this.count("shared", shared);
    return this.decodeRows(found);
  }

  /** Loads rows under leases, and fills them or gives the leases up. If the load takes longer than `softTimeout`, serves the old
   * values; the load then continues in the background. */
  async loadRows(loading: Loading<V>, signal: AbortSignal | undefined): Promise<Map<string, V | null>> {
    const { softTimeout } = this.options;
    if (softTimeout === undefined || !loading.hasValues) return this.#loadAndFill(loading, signal);
    let running: Promise<Map<string, V | null>> | undefined;
    const background = new AbortController();
    const abort = () => background.abort(signal?.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort);
    try {
      if (this.#background < BACKGROUND_LOADS) {
        running = this.#inBackground(loading, background.signal);
        if (await settles(running, softTimeout * 1000, signal)) return await running;
        loading.hasValues = false;
      } else {
        await this.backOff(loading.leases);
      }
      const rows = loading.leases.map((lease) => lease.row);
      const old = await this.#oldValues(rows);
      if (old.size === rows.length) {
        this.count("soft_timeout", old.size);
        running?.catch((error) => this.#warnOfOld(error));
        return old;
      }
      if (running !== undefined) return await running;
      return await this.loadDirectly(rows, loading.begun, loading.load, signal);
    } finally {
      // From here on nobody waits for the load, so nobody can abort it.
      signal?.removeEventListener("abort", abort);
    }
  }

  #warnOfOld(error: unknown): void {
    this.warnings.about("rows could not be loaded, and their old values were served", asError(error));
  }

  async #inBackground(loading: Loading<V>, signal: AbortSignal): Promise<Map<string, V | null>> {
    this.#background++;
    try {
      return await this.#loadAndFill(loading, signal);
    } finally {
      this.#background--;
    }
  }

  async #loadAndFill(loading: Loading<V>, signal: AbortSignal | undefined): Promise<Map<string, V | null>> {
    const { leases, flights } = loading;
    let left = leases;
    try {
      signal?.throwIfAborted();
      const rows = leases.map((lease) => lease.row);
      const encoded = this.encodeRows(await loading.load(rows, signal));
      const decoded = this.decodeRows(encoded);
      const filled = leases.map((lease) => {
        const data = encoded.get(lease.row.id) ?? null;
        return this.fills.add({ lease, call: this.fillWith(lease, data, loading.ttlMs), bytes: data?.length ?? 0 });
      });
      left = [];
      // If the signal aborts, what the server refuses is given up all the same.
      await settledBy(Promise.all(filled), undefined, signal);
      for (const { row } of leases) this.failing.delete(row.id);
      return decoded;
    } catch (error) {
      if (signal?.aborted) {
        void this.giveUp(left);
        throw error;
      }
      await this.backOff(left);
      const old = loading.hasValues ? await this.#oldValues(leases.map((lease) => lease.row)) : new Map();
      if (loading.hasValues && old.size === leases.length) {
        this.count("stale_served", old.size);
        this.#warnOfOld(error);
        return old;
      }
      for (const flight of flights.values()) flight.outcome = new Failure(error);
      throw error;
    }
  }

  /** Fetches values that may be served though they are old. The values that were fetched before a load do not qualify: a row may
   * have been changed during the load, and then its value has been deleted. */
  async #oldValues(rows: readonly Row[]): Promise<Map<string, V | null>> {
    const found = await this.fetch(rows, { staleMs: 0 });
    const old = new Map<string, V | null>();
    const unneeded: Lease[] = [];
    for (const [index, row] of rows.entries()) {
      const one = found[index];
      if (one === undefined || one instanceof Error || one.word === "wait") continue;
      const { value, token, isReadable } = this.read(one);
      if (token) unneeded.push({ row, token });
      if (isReadable) old.set(row.id, value);
    }
    await this.giveUp(unneeded);
    return old;
  }

  /** Ends the leases of rows whose load has failed. With `failSafe`, nobody gets another lease for them before a back-off has
   * passed. It doubles with each failure. A server that does not know BACKOFF ends the leases only. */
  async backOff(leases: readonly Lease[]): Promise<void> {
    if (this.options.failSafeMs === 0 || leases.length === 0) {
      await this.giveUp(leases);
      return;
    }
    const calls = leases.map((lease) => this.fill(lease, "GIVEUP", "BACKOFF", String(this.nextBackoffMs(lease.row.id))));
    const outcomes = await this.link.ask(calls);
    const refused = outcomes.find((outcome) => outcome instanceof Error);
    if (refused === undefined) return;
    this.warnings.about("the server has refused a back-off", refused);
    await this.giveUp(leases.filter((_, index) => outcomes[index] instanceof Error));
  }

  /** Counts a failed load of a row, and returns how long nobody may try again. */
  nextBackoffMs(id: string): number {
    const failures = this.failing.get(id) ?? 0;
    this.failing.delete(id);
    this.failing.set(id, failures + 1);
    if (this.failing.size > MOST_FAILING) {
      const [oldest] = this.failing.keys();
      if (oldest !== undefined) this.failing.delete(oldest);
    }
    return Math.min(MOST_BACKOFF_MS, BACKOFF_MS * 2 ** Math.min(failures, 16));
  }
}
