/** Reads rows through the guard (docs/guard.md of the project): waits for other callers, loads rows, and serves old values if
 * the database fails or is slow. */

import { AsyncLocalStorage } from "node:async_hooks";
import type { Outcome } from "./ask.js";
import { asError, isReply, LoadFailed } from "./errors.js";
import { type Fetched, Fetching, type FetchOptions, fetchedRow, type Lease, WAIT, withoutToken } from "./fetch.js";
import { Failure, type Flight, Flights } from "./flights.js";
import { pause, settledBy, settles } from "./promises.js";
import type { Row } from "./rows.js";

/** The pause before a row is fetched again if the server cannot block another caller. */
const REPEAT_MS = 100;

/** The maximum number of a guard's loads that continue in the background after their `softTimeout`. */
const BACKGROUND_LOADS = 64;

/** After this time another caller also loads a row without a lease, so that a hung query does not block its row forever. */
const LOST_MS = 60_000;

/** Rows by id; null for rows that do not exist. */
type Rows<V> = Map<string, V | null>;

type Signal = AbortSignal | undefined;

/** An answer to a fetch. */
type Found = Outcome<Fetched>;

/** Loads all rows of a call. */
export type LoadRows<V> = (rows: readonly Row[], signal: Signal) => Promise<Rows<V>>;

/** One call of `get` or `getMany`. */
export interface ReadCall<V> {
  readonly load: LoadRows<V>;
  readonly ttlMs: number;
  /** The time at which the call began. */
  readonly begun: number;
  readonly signal: Signal;
}

/** A lease, its flight, and whether an old value of the row is cached. */
interface Leased extends Lease {
  readonly flight: Flight;
  readonly hasOld: boolean;
}

/** A running loader, and the loader that encloses it. */
interface LoadCall {
  readonly guard: object;
  readonly ids: ReadonlySet<string>;
  readonly outer: LoadCall | undefined;
  hasEnded: boolean;
}

/** The innermost running loader. */
const loadCalls = new AsyncLocalStorage<LoadCall>();

/** The readers of one guard. */
export class Reading<V> extends Fetching<V> {
  /** The rows that callers fetch or load under a lease, and the rows that they load without one. They are separate, because
   * callers that load without a lease must not wait for a caller that probes a hung server. */
  readonly #flights = new Flights();
  readonly #direct = new Flights();
  #background = 0;

  /** Reads a row. */
  async get(row: Row, call: ReadCall<V>): Promise<V | null> {
    const near = this.nearAnswer(row);
    if (near !== undefined) return near;
    if (this.#isInsideLoad(row)) return this.#decoded(await this.#loadUnguarded([row], call)).get(row.id) ?? null;
    const found = await this.fetchBatched(row, call.signal);
    const isFinal = !(found instanceof Error) && (found.word === "hit" || found.word === "absent");
    const value = isFinal ? this.decode(found) : undefined;
    if (value !== undefined) return value;
    const deadline = performance.now() + this.options.attempts * this.options.waitMs;
    return this.#getRow(row, call, deadline, isFinal ? undefined : found, isFinal);
  }

  /** Reads rows by their ids. */
  async getMany(rows: readonly Row[], call: ReadCall<V>): Promise<Rows<V>> {
    const deadline = performance.now() + this.options.waitMs;
    const found = new Map<string, V | null>();
    const [inside, failed]: [Row[], Row[]] = [[], []];
    let left: readonly Row[] = rows.filter((row) => {
      const near = this.nearAnswer(row);
      if (near !== undefined) found.set(row.id, near);
      return near === undefined && !(this.#isInsideLoad(row) && inside.push(row));
    });
    for (;;) {
      left = await this.#fetchMany(left, call, found, failed);
      const [first, ...others] = left;
      if (first === undefined || performance.now() >= deadline) break;
      // By then most of the other rows are loaded, too.
      found.set(first.id, await this.#getRow(first, call, deadline));
      left = others;
    }
    const nested = inside.length > 0 ? this.#decoded(await this.#loadUnguarded(inside, call)) : [];
    return new Map([...found, ...nested, ...(await this.#loadDirectly([...failed, ...left], call))]);
  }

  /** Returns a row that is cached and not old, or null. */
  async cached(row: Row, signal: Signal): Promise<V | null> {
    const [found] = await this.fetch([row], { signal });
    if (found === undefined || found instanceof Error) return null;
    if (found.token !== undefined) await this.giveUp([{ row, token: found.token }]);
    return found.word === "hit" ? (this.decode(found) ?? null) : null;
  }

  /** Reads a row; `found` is its answer if it was already fetched. With `replaces`, the caller could not decode the cached
   * value. */
  async #getRow(row: Row, call: ReadCall<V>, deadline: number, found?: Found, replaces = false): Promise<V | null> {
    const flight = this.#flights.begin(row.id, call.begun);
    try {
      for (;;) {
        found ??= await this.#fetchRow(row, flight, replaces, { signal: call.signal });
        if (found instanceof Error) {
          flight.share(found);
          break;
        }
        if (found.word === "failed") {
          const error = new LoadFailed(Buffer.from(row.id, "latin1"));
          flight.share(new Failure(error));
          throw error;
        }
        const isWait = found.word === "wait";
        const [value, token] = isWait ? [] : this.#answer(row, flight, found, replaces);
        if (token) {
          const lease = { row, token, flight, hasOld: value !== undefined };
          return (await this.#loadLeased([lease], call)).get(row.id) ?? null;
        }
        if (value !== undefined) return value;
        const leftMs = Math.ceil(deadline - performance.now());
        if (leftMs <= 0 && (isWait || replaces)) break;
        found = isWait ? await this.#wait(row, flight, leftMs, replaces, call.signal) : undefined;
        replaces = !isWait || (replaces && found !== undefined);
      }
    } finally {
      this.#flights.end(flight);
    }
    // The server does not answer, or another caller's load takes too long: query the database, and fill nothing.
    return (await this.#loadDirectly([row], call)).get(row.id) ?? null;
  }

  async #fetchRow(row: Row, flight: Flight, replaces: boolean, how: FetchOptions): Promise<Found> {
    this.#flights.ask(flight);
    const words = [...(replaces ? ["REPLACE"] : []), ...(how.words ?? [])];
    return (await this.fetch([row], { ...how, words }))[0] as Found;
  }

  /** Reads an answer other than `wait`, and shares it. Returns the row, or undefined if it is not known, and a token if the
   * caller has to load it. A caller that requested the lease to replace a value gives the lease up if it can now decode the
   * value: another caller has replaced it. */
  #answer(row: Row, flight: Flight, found: Fetched, replaces: boolean): [V | null | undefined, Buffer | undefined] {
    const { token } = found;
    const value = this.decode(found);
    if (value === undefined || (token && !replaces)) return [value, token];
    if (token) void this.giveUp([{ row, token }]);
    flight.share(withoutToken(found));
    return [value, undefined];
  }

  /** Waits for the holder of the lease, in this process or inside the server. Resolves with the outcome that another caller
   * shares, with the server's answer, or with undefined. If all waiting connections are in use, it pauses. */
  async #wait(row: Row, flight: Flight, leftMs: number, replaces: boolean, signal: Signal): Promise<Found | undefined> {
    const resumed = this.#flights.wait(flight);
    if (resumed !== undefined) {
      // A timer may fire a millisecond early; this call would then wait again.
      await settles(resumed, leftMs + 1, signal);
      this.#flights.stop(flight);
      const { given } = flight;
      if (given !== undefined) this.events.count("shared");
      if (given instanceof Failure) throw given.error;
      return given;
    }
    if (!this.waiting.tryReserve()) {
      await pause(Math.min(REPEAT_MS, leftMs), signal);
      return undefined;
    }
    const begun = performance.now();
    const waitMs = Math.min(this.options.waitMs, leftMs);
    const words = ["WAIT", String(waitMs), "BACKOFF"];
    const found = await this.#fetchRow(row, flight, replaces, { words, waitMs, signal });
    const refusal = found instanceof Error && isReply(found) ? found.message.split(" ", 1)[0] : undefined;
    // The slot has moved to another node, which the cluster's client finds.
    const isMoved = refusal === "MOVED" || refusal === "ASK";
    const isUnblocked = refusal === "UNBLOCKED" || (!(found instanceof Error) && found.word === "wait");
    if (!isMoved && !isUnblocked) return found;
    await pause(Math.max(0, Math.min(REPEAT_MS, waitMs) - (performance.now() - begun)), signal);
    return isMoved ? undefined : WAIT;
  }

  /** Fetches rows, and loads the rows whose leases it gets. Stores rows in `found`, and the rows for which the server fails in
   * `failed`. Returns the rows that other callers load. */
  async #fetchMany(rows: readonly Row[], call: ReadCall<V>, found: Rows<V>, failed: Row[]): Promise<readonly Row[]> {
    const flights = new Map(rows.map((row) => [row, this.#flights.begin(row.id, call.begun)]));
    const end = (row: Row) => {
      this.#flights.end(flights.get(row) as Flight);
      return flights.delete(row);
    };
    const [leases, waiting]: [Leased[], Row[]] = [[], []];
    try {
      let asked = rows;
      for (const words of [[], ["REPLACE"]]) {
        for (const row of asked) this.#flights.ask(flights.get(row) as Flight);
        const answers = await this.fetch(asked, { words, signal: call.signal });
        asked = asked.filter((row, index) => {
          const one = answers[index] as Found;
          const flight = flights.get(row) as Flight;
          const isWait = !(one instanceof Error) && one.word === "wait";
          const [value, token] = one instanceof Error || isWait ? [] : this.#answer(row, flight, one, words.length > 0);
          if (token) return !leases.push({ row, token, flight, hasOld: value !== undefined });
          if (one instanceof Error) flight.share(one);
          if (value !== undefined) found.set(row.id, value);
          else if (one instanceof Error) failed.push(row);
          else if (isWait) waiting.push(row);
          else return true;
          // Only flights with a lease will load a row, so no caller in this process needs to wait for the others.
          return !end(row);
        });
      }
      asked.forEach(end);
      if (leases.length > 0) for (const [id, value] of await this.#loadLeased(leases.splice(0), call)) found.set(id, value);
      return [...waiting, ...asked];
    } catch (error) {
      void this.giveUp(leases);
      throw error;
    } finally {
      for (const row of [...flights.keys()]) end(row);
    }
  }

  /** Loads rows under leases. If the load takes longer than `softTimeout`, serves the old values; the load then continues in the
   * background. */
  async #loadLeased(leases: readonly Leased[], call: ReadCall<V>): Promise<Rows<V>> {
    const { softTimeout } = this.options;
    const { signal } = call;
    let servesOld = leases.every((lease) => lease.hasOld);
    const load = (aborted: Signal) => this.#loadAndFill(leases, call, aborted, () => servesOld);
    if (softTimeout === undefined || !servesOld) return load(signal);
    const background = new AbortController();
    const abort = () => background.abort(signal?.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort);
    try {
      let running: Promise<Rows<V>> | undefined;
      if (this.#background < BACKGROUND_LOADS) {
        this.#background++;
        running = load(background.signal).finally(() => this.#background--);
        if (await settles(running, softTimeout * 1000, signal)) return await running;
        servesOld = false;
      } else {
        await this.#fail(leases);
      }
      const rows = leases.map((lease) => lease.row);
      const old = await this.#peek(rows);
      if (old === undefined) return await (running ?? this.#loadDirectly(rows, call));
      this.events.count("soft_timeout", old.size);
      running?.catch((error) => this.#warnOfOld(error));
      return old;
    } finally {
      // From here on no caller waits for the load, so it can no longer be aborted.
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Loads rows and fills them, or gives their leases up and returns old values, if there are any. */
  async #loadAndFill(leases: readonly Leased[], call: ReadCall<V>, signal: Signal, servesOld: () => boolean): Promise<Rows<V>> {
    const rows = leases.map((lease) => lease.row);
    let left = leases;
    try {
      signal?.throwIfAborted();
      const encoded = this.encode(await this.#run(call.load, rows, signal));
      const decoded = this.#decoded(encoded);
      const filled = leases.map((lease) => {
        const data = encoded.get(lease.row.id) ?? null;
        lease.flight.share(fetchedRow(data));
        return this.fill(lease, data, call.ttlMs);
      });
      left = [];
      await settledBy(Promise.all(filled), undefined, signal);
      return decoded;
    } catch (error) {
      if (signal?.aborted) {
        void this.giveUp(left);
        throw error;
      }
      await this.#fail(left);
      const old = servesOld() ? await this.#peek(rows) : undefined;
      if (old !== undefined) {
        this.events.count("stale_served", old.size);
        this.#warnOfOld(error);
        return old;
      }
      for (const { flight } of leases) flight.share(new Failure(error));
      throw error;
    }
  }

  /** Ends the leases of rows whose load has failed. With `failSafe`, the server grants no lease for these rows until a back-off
   * ends. */
  #fail(leases: readonly Lease[]): Promise<void> {
    return this.options.failSafeMs > 0 ? this.giveUp(leases, "BACKOFF") : this.giveUp(leases);
  }

  #warnOfOld(error: unknown): void {
    this.warnings.warn("rows could not be loaded, and their old values were served", asError(error));
  }

  /** Fetches cached values that may be old. Returns undefined unless all rows have a value. Values that were fetched before a
   * load must not be used: a row may have changed during the load, which deletes its value. */
  async #peek(rows: readonly Row[]): Promise<Rows<V> | undefined> {
    const old = new Map<string, V | null>();
    for (const [index, found] of (await this.fetch(rows, { words: ["PEEK"] })).entries()) {
      const value = found instanceof Error ? undefined : this.decode(found);
      if (value === undefined) return undefined;
      old.set((rows[index] as Row).id, value);
    }
    return old;
  }

  /** Loads rows without leases, and fills nothing. At most one load of a row runs at a time. Callers that arrive during it
   * share the next one, which begins when the first has ended. They also share the error of any load that they wait for. */
  async #loadDirectly(rows: readonly Row[], call: ReadCall<V>): Promise<Rows<V>> {
    const found: Rows<Buffer> = new Map();
    const left = new Map(rows.map((row) => [this.#direct.begin(row.id, call.begun), row]));
    const end = (flight: Flight) => left.delete(flight) && this.#direct.end(flight);
    const loadFree = async (flights: ReadonlyMap<Flight, Row>) => {
      try {
        for (const flight of flights.keys()) this.#direct.ask(flight);
        const encoded = await this.#loadUnguarded([...flights.values()], call);
        for (const flight of flights.keys()) flight.share(fetchedRow(encoded.get(flight.id) ?? null));
        for (const [id, data] of encoded) found.set(id, data);
      } catch (error) {
        if (!call.signal?.aborted) for (const flight of flights.keys()) flight.share(new Failure(error));
        throw error;
      } finally {
        for (const flight of flights.keys()) this.#direct.end(flight);
      }
    };
    const waitFor = async (flight: Flight, resumed: Promise<void>) => {
      if (!(await settles(resumed, LOST_MS, call.signal))) this.#direct.detach(flight);
      const { given } = flight;
      if (given === undefined) return;
      this.events.count("shared");
      if (given instanceof Failure) throw given.error;
      found.set(flight.id, (given as Fetched).value ?? null);
      end(flight);
    };
    try {
      while (left.size > 0) {
        const free = new Map<Flight, Row>();
        const waits: Promise<void>[] = [];
        for (const [flight, row] of left) {
          const resumed = this.#direct.wait(flight);
          if (resumed === undefined) free.set(flight, row);
          else waits.push(waitFor(flight, resumed));
        }
        // They end with their load, even if this call throws first.
        for (const flight of free.keys()) left.delete(flight);
        if (free.size > 0) waits.push(loadFree(free));
        await Promise.all(waits);
      }
    } finally {
      for (const flight of [...left.keys()]) end(flight);
    }
    return this.#decoded(found);
  }

  /** Loads rows, and returns them encoded for the cache. */
  async #loadUnguarded(rows: readonly Row[], call: ReadCall<V>): Promise<Rows<Buffer>> {
    this.events.count("unguarded", rows.length);
    return this.encode(await this.#run(call.load, rows, call.signal));
  }

  /** Whether the caller is inside a load of this row, and would wait for itself. */
  #isInsideLoad(row: Row): boolean {
    for (let call = loadCalls.getStore(); call !== undefined; call = call.outer) {
      if (call.guard === this && !call.hasEnded && call.ids.has(row.id)) return true;
    }
    return false;
  }

  /** Calls a function that loads rows. Stops waiting for it if the signal aborts. */
  async #run(load: LoadRows<V>, rows: readonly Row[], signal: Signal): Promise<Rows<V>> {
    const ids = new Set(rows.map((row) => row.id));
    const call: LoadCall = { guard: this, ids, outer: loadCalls.getStore(), hasEnded: false };
    const begin = () => loadCalls.run(call, async () => load(rows, signal));
    try {
      return await settledBy(this.events.load(rows.length, begin), undefined, signal);
    } catch (error) {
      if (!signal?.aborted) this.events.count("load_failed", rows.length);
      throw error;
    } finally {
      // Tasks that the load has started may continue.
      call.hasEnded = true;
    }
  }

  /** Decodes encoded rows, so that every caller gets the value that the cache would return. */
  #decoded(encoded: Rows<Buffer>): Rows<V> {
    return new Map([...encoded].map(([id, data]) => [id, data === null ? null : this.codec.decode(data)]));
  }
}
