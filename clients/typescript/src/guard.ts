/** The guard in front of a database. docs/guard.md of the project has the protocol, and docs/guard-proof.md its reasons. */

import type { Client } from "./ask.js";
import { Bytes, type Codec } from "./codec.js";
import { Unconfirmed } from "./errors.js";
import { now } from "./flights.js";
import { checkOptions, type GuardOptions, milliseconds } from "./guard-options.js";
import { type Item, type Key, refuseSingle } from "./items.js";
import { allowListeners } from "./promises.js";
import { type LoadRows, type ReadCall, Reading } from "./read.js";
import { Row } from "./rows.js";
import type { Counts } from "./telemetry.js";
import { Writing } from "./write.js";

/** Reads the row with an id from the database. */
export type Load<Id, V> = (id: Id, signal: AbortSignal | undefined) => Promise<V | null | undefined> | V | null | undefined;

/** Reads rows from the database. Ids that are missing from the map do not exist. */
export type LoadMany<Id, V> = (
  ids: Id[],
  signal: AbortSignal | undefined,
) => Promise<ReadonlyMap<Id, V | null | undefined>> | ReadonlyMap<Id, V | null | undefined>;

/** The options of a read. */
export interface GetOptions {
  /** The time to live of the row in seconds, in place of the guard's. */
  ttl?: number | undefined;
  /** If it aborts, the call rejects at once with the signal's reason, and its lease is given up. `load` receives the signal. */
  signal?: AbortSignal | undefined;
}

/** The default loaders of calls. */
export interface Loaders<V> {
  // biome-ignore lint/suspicious/noExplicitAny: a guard's ids have one type or several, which only its calls determine.
  load?: Load<any, V> | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  loadMany?: LoadMany<any, V> | undefined;
}

/** The arguments after the ids: a loader, unless the guard has one, and options. */
export type ReadArguments<L, O = GetOptions> = [load: L, options?: O] | [options?: O];

/** Returns the loader and the options of a call. */
function chosen<L extends (...given: never[]) => unknown>(call: ReadArguments<L>, ofGuard: L | undefined): [L, GetOptions] {
  const [first, second] = call;
  const [load = ofGuard, options = {}] = typeof first === "object" ? [undefined, first] : [first, second];
  if (load === undefined) throw new TypeError("there is no loader: pass one to this call or to the guard");
  return [load, options];
}

/** Reads database rows by id through a filter and a cache. The filter contains the id of every row.
 *
 * Calls of `get` in one iteration of the event loop are sent as one BF.MFETCH. Callers that wait for a load in another process use
 * separate connections, up to `waitingConnections` for each guard. */
export class Guard<V = Uint8Array> {
  readonly #reads: Reading<V>;
  readonly #writes: Writing;
  readonly #loaders: Loaders<V>;

  /** `codec` converts rows to bytes and back; by default rows are bytes. `load` and `loadMany` are the default loaders of
   * calls. */
  constructor(
    client: Client,
    filter: Key,
    ...[options]: Uint8Array extends V
      ? [options?: GuardOptions & Loaders<V> & { codec?: Codec<V> | undefined }]
      : [options: GuardOptions & Loaders<V> & { codec: Codec<V> }]
  ) {
    const { codec, load, loadMany, ...rest } = options ?? {};
    const chosen = (codec ?? new Bytes()) as Codec<V>;
    this.#reads = new Reading(client, filter, chosen, checkOptions(rest));
    this.#writes = new Writing(this.#reads);
    this.#loaders = { load, loadMany };
  }

  /** The number of each event of this guard. */
  get counts(): Readonly<Counts> {
    return this.#reads.events.counts;
  }

  /** Returns a row, or null if it does not exist. `load`, by default the guard's loader, reads the row from the primary database in a
   * transaction that begins with the call, and returns null or undefined if the row does not exist.
   *
   * If the server fails, the row is read from the database and not cached: errors of the server are warnings, not thrown. An
   * exception of `load` ends the lease and is thrown in every caller of this process that waited for the load. If an old value is
   * cached, it is returned instead. A call for the same row inside `load` runs its own `load`. */
  async get<Id extends Item>(id: Id, ...call: ReadArguments<Load<Id, V>>): Promise<V | null> {
    const [load, options] = chosen(call, this.#loaders.load);
    const row = this.#row(id);
    const loadRow: LoadRows<V> = async (_, signal) => new Map([[row.id, (await load(id, signal)) ?? null]]);
    return await this.#reads.get(row, this.#call(loadRow, options));
  }

  /** Returns a row inside the caller's transaction, whose view may differ from the committed rows: it may see its own changes, or an
   * older snapshot. Returns a cached row; otherwise calls `load`, even if the filter does not contain the id. The loaded row is
   * neither cached nor shared, and is not encoded.
   *
   * If the transaction has changed the row, call `load` directly: the cached row may be older than the change. */
  async getInTransaction<Id extends Item>(
    id: Id,
    ...call: ReadArguments<Load<Id, V>, Pick<GetOptions, "signal">>
  ): Promise<V | null> {
    const [load, { signal }] = chosen(call, this.#loaders.load);
    signal?.throwIfAborted();
    allowListeners(signal);
    const cached = await this.#reads.cached(this.#row(id), signal);
    if (cached !== null) return cached;
    this.#reads.events.count("unguarded");
    return (await load(id, signal)) ?? null;
  }

  /** Returns a row or null for each id, fetched together. `loadMany`, by default the guard's loader, returns a map that omits ids
   * without a row. It is called once with the ids that this caller has to load, and again with ids whose loads by other callers did
   * not complete. */
  async getMany<Id extends Item>(ids: Iterable<Id>, ...call: ReadArguments<LoadMany<Id, V>>): Promise<Map<Id, V | null>> {
    const [loadMany, options] = chosen(call, this.#loaders.loadMany);
    refuseSingle(ids);
    const asked = new Map([...ids].map((id) => [id, this.#row(id)]));
    // Ids with the same bytes, such as 7 and "7", name one row, which is loaded by the first id.
    const first = new Map<string, [Id, Row]>();
    for (const [id, row] of asked) if (!first.has(row.id)) first.set(row.id, [id, row]);
    const loadRows: LoadRows<V> = async (rows, signal) => {
      const wanted = rows.map((row) => first.get(row.id)?.[0] as Id);
      const loaded = await loadMany([...wanted], signal);
      return new Map(rows.map((row, index) => [row.id, loaded.get(wanted[index] as Id) ?? null]));
    };
    const rows = [...first.values()].map(([, row]) => row);
    const found = await this.#reads.getMany(rows, this.#call(loadRows, options));
    return new Map([...asked].map(([id, row]) => [id, found.get(row.id) ?? null]));
  }

  /** Announces changes before their commit. If it throws, do not commit. With `feed` it does nothing. */
  async announce(...ids: Item[]): Promise<void> {
    await this.#writes.announce(this.#rows(ids));
  }

  /** Confirms changes after their commit. Repeats failed confirmations for up to `patience` seconds, then throws Unconfirmed.
   *
   * If the outcome of the commit is unknown, determine it before this call, or end the database session: a commit after this call
   * leaves the old row cached. With `feed` it does nothing. */
  async confirm(...ids: Item[]): Promise<void> {
    await this.#writes.confirm(this.#rows(ids));
  }

  /** Announces a change of a row, runs `transaction`, and confirms the change, even if `transaction` throws. The database transaction
   * must end inside `transaction`, with a known outcome. Returns the result of `transaction`. With `feed` it only runs
   * `transaction`: the follower announces each change. */
  changed<T>(id: Item, transaction: () => Promise<T> | T): Promise<T> {
    return this.changedMany([id], transaction);
  }

  /** Like `changed`, for several rows. */
  async changedMany<T>(ids: Iterable<Item>, transaction: () => Promise<T> | T): Promise<T> {
    const all = [...ids];
    await this.announce(...all);
    let result: T;
    try {
      result = await transaction();
    } catch (error) {
      try {
        await this.confirm(...all);
      } catch (unconfirmed) {
        if (unconfirmed instanceof Unconfirmed) unconfirmed.transactionError = error;
        throw unconfirmed;
      }
      throw error;
    }
    await this.confirm(...all);
    return result;
  }

  /** Deletes ids from the filter after their rows were deleted inside `changed`. Deleted ids must never be used again. The filter
   * needs `hash: "siphash"`. With `feed` it does nothing: the follower deletes the ids of deleted rows. */
  async forget(...ids: Item[]): Promise<void> {
    await this.#writes.forget(this.#rows(ids));
  }

  #row(id: Item): Row {
    return new Row(id, this.#reads.prefix);
  }

  #rows(ids: readonly Item[]): Row[] {
    return ids.map((id) => this.#row(id));
  }

  #call(load: LoadRows<V>, { ttl = this.#reads.options.ttl, signal }: GetOptions): ReadCall<V> {
    signal?.throwIfAborted();
    allowListeners(signal);
    return { load, ttlMs: milliseconds("ttl", ttl), begun: now(), signal };
  }
}
