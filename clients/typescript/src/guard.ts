/** The guard in front of a database. docs/guard.md of the project has the protocol, and docs/guard-proof.md its reasons. */

import { Bytes, type Codec } from "./codec.js";
import type { Client } from "./connection.js";
import { checkReplicas } from "./durability.js";
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

/** Reads rows. Ids that the map does not have do not exist. */
export type LoadMany<Id, V> = (
  ids: Id[],
  signal: AbortSignal | undefined,
) => Promise<ReadonlyMap<Id, V | null | undefined>> | ReadonlyMap<Id, V | null | undefined>;

/** How one call reads. */
export interface GetOptions {
  /** The time to live of the row in seconds, in place of the guard's. */
  ttl?: number | undefined;
  /** If it aborts, the call rejects at once with the signal's reason, and the lease that it holds or is about to get is given up.
   * `load` gets the signal, too. */
  signal?: AbortSignal | undefined;
}

/** The loaders of calls that bring none of their own. */
export interface Loaders<V> {
  // biome-ignore lint/suspicious/noExplicitAny: a guard's ids have one type or several, and only its calls name it.
  load?: Load<any, V> | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  loadMany?: LoadMany<any, V> | undefined;
}

/** What follows the ids of a call: a loader, unless the guard has one, and how the call reads. */
export type ReadArguments<L, O = GetOptions> = [load: L, options?: O] | [options?: O];

/** Returns the loader of a call, and how it reads. */
function chosen<L extends (...given: never[]) => unknown>(call: ReadArguments<L>, ofGuard: L | undefined): [L, GetOptions] {
  const [first, second] = call;
  const [load = ofGuard, options = {}] = typeof first === "object" ? [undefined, first] : [first, second];
  if (load === undefined) throw new TypeError("there is no loader: pass one to this call or to the guard");
  return [load, options];
}

/** Rows of a database by id, with a filter and a cache in front of them. The filter has the id of every row.
 *
 * The calls of `get` that are made in one turn of the event loop are one BF.MFETCH. Callers that wait for another process do so on
 * connections of their own: at most `waitingConnections` for each guard. */
export class Guard<V = Uint8Array> {
  readonly #reads: Reading<V>;
  readonly #writes: Writing;
  readonly #loaders: Loaders<V>;
  #isChecked = false;

  /** `codec` converts rows to bytes and back; without one they are bytes. `load` and `loadMany` are the loaders of calls that bring
   * none of their own. */
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

  /** What this guard has done, by event. */
  get counts(): Readonly<Counts> {
    return this.#reads.events.counts;
  }

  /** Returns a row, or null if there is none. `load`, by default the guard's, gets the id. It reads the row from the database that
   * has every commit, in a transaction that begins when `load` is called, and returns null or undefined if there is no row.
   *
   * If the server fails, the database is asked and nothing is filled: errors of the server are reported as warnings, not thrown.
   * What `load` throws is thrown, after the lease was given up, in all callers of this process that waited for it; but if an old
   * value is cached, that is served instead. A `load` that asks this guard for the same row calls the function that it passes. */
  async get<Id extends Item>(id: Id, ...call: ReadArguments<Load<Id, V>>): Promise<V | null> {
    const [load, options] = chosen(call, this.#loaders.load);
    const row = this.#row(id);
    const loadRow: LoadRows<V> = async (_, signal) => new Map([[row.id, (await load(id, signal)) ?? null]]);
    const found = await this.#reads.get(row, this.#call(loadRow, options));
    this.#check();
    return found;
  }

  /** Returns a row inside a transaction of the caller's that may see other rows than the database's commits: its own changes, or an
   * older snapshot. A cached row is returned; otherwise, also if the filter answers that there is none, `load` is called. What it
   * returns is neither cached nor shared, and does not pass through the codec.
   *
   * If the transaction has changed the row, call `load` yourself: the cached row may be the one before the change. */
  async getInTransaction<Id extends Item>(
    id: Id,
    ...call: ReadArguments<Load<Id, V>, Pick<GetOptions, "signal">>
  ): Promise<V | null> {
    const [load, { signal }] = chosen(call, this.#loaders.load);
    signal?.throwIfAborted();
    allowListeners(signal);
    const cached = await this.#reads.cached(this.#row(id), signal);
    this.#check();
    if (cached !== null) return cached;
    this.#reads.events.count("unguarded");
    return (await load(id, signal)) ?? null;
  }

  /** Returns rows by id, fetched together: each id as it was passed, with its row or null. `loadMany`, by default the guard's, gets
   * the ids that this caller has to load, and returns a map without those that have no row. It is called once, and again for rows
   * that other callers were loading and did not bring. */
  async getMany<Id extends Item>(ids: Iterable<Id>, ...call: ReadArguments<LoadMany<Id, V>>): Promise<Map<Id, V | null>> {
    const [loadMany, options] = chosen(call, this.#loaders.loadMany);
    refuseSingle(ids);
    const asked = new Map([...ids].map((id) => [id, this.#row(id)]));
    // Ids that are written in the same bytes, such as 7 and "7", name one row: it is loaded by the first of them.
    const first = new Map<string, [Id, Row]>();
    for (const [id, row] of asked) if (!first.has(row.id)) first.set(row.id, [id, row]);
    const loadRows: LoadRows<V> = async (rows, signal) => {
      const wanted = rows.map((row) => first.get(row.id)?.[0] as Id);
      const loaded = await loadMany([...wanted], signal);
      return new Map(rows.map((row, index) => [row.id, loaded.get(wanted[index] as Id) ?? null]));
    };
    const rows = [...first.values()].map(([, row]) => row);
    const found = await this.#reads.getMany(rows, this.#call(loadRows, options));
    this.#check();
    return new Map([...asked].map(([id, row]) => [id, found.get(row.id) ?? null]));
  }

  /** A writer's first call, before the commit. If it throws, do not commit. With `feed` it does nothing. */
  async announce(...ids: Item[]): Promise<void> {
    await this.#writes.announce(this.#rows(ids));
    this.#check();
  }

  /** A writer's second call, after the commit. It is repeated for up to `patience` seconds until the server answers; then it throws
   * Unconfirmed.
   *
   * If the outcome of the commit is unknown, find it out before this call, or end the database's session: a commit that lands after
   * this call leaves the old row cached. With `feed` it does nothing. */
  async confirm(...ids: Item[]): Promise<void> {
    await this.#writes.confirm(this.#rows(ids));
    this.#check();
  }

  /** Announces a change of a row, runs `transaction`, and confirms the change, whatever happens in it. The transaction that
   * inserts, changes or deletes the row has to end inside of `transaction`, its outcome known. Returns what `transaction` returns.
   * With `feed` it only runs `transaction`: the follower announces each change. */
  changed<T>(id: Item, transaction: () => Promise<T> | T): Promise<T> {
    return this.changedMany([id], transaction);
  }

  /** Does the same for several rows. */
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

  /** Deletes ids that never return from the filter, after their rows were deleted inside of `changed`. The filter needs
   * `hash: "siphash"`. With `feed` it does nothing: the follower deletes the ids of deleted rows. */
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

  /** After the first call that the server has answered, checks the server's replication settings. */
  #check(): void {
    if (this.#isChecked || !this.#reads.hasAnswered) return;
    this.#isChecked = true;
    void checkReplicas(this.#reads.link, this.#reads.filter, this.#reads.warnings);
  }
}
