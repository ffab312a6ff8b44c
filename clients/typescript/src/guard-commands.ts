/** The commands of the guard, and what their replies mean: what reading one row, reading many and writing have in common. */

import { type Call, call, Link, type Outcome } from "./ask.js";
import type { Codec } from "./codec.js";
import type { Client } from "./connection.js";
import { asError, TimeoutError } from "./errors.js";
import { type Fetched, parseFetch, parseFill, parseMfetch } from "./fetched.js";
import { type Fill, Fills } from "./fills.js";
import { type CheckedOptions, milliseconds } from "./guard-options.js";
import { COMMAND_BYTES, type Key, keyBytes } from "./items.js";
import type { NearCache } from "./near.js";
import { cachePrefix, FeedKeys, keyWord, type Row } from "./rows.js";
import { Events } from "./telemetry.js";
import { Tracking } from "./tracking.js";
import { WaitingConnections } from "./waiting.js";
import { Warnings } from "./warnings.js";
import type { Word } from "./words.js";

/** The most ids that are sent together. */
export const BATCH = 500;

/** The weight of the newest value in the average size of values. */
const SIZE_WEIGHT = 1 / 16;

/** The longest STALE that BF.FETCH accepts, 2^61. Every value with a time to live has less than this left. */
const ANY_AGE = "2305843009213693952";

/** Times to live are shortened by up to this share, at random: rows that are filled together do not expire together. */
const JITTER = 0.1;

/** Renewals of faster loads may come together: they are over soon. */
const SLOW_LOAD_MS = 50;

/** The answer to a fetch that is not sent during a pause. */
const PAUSED = new Error("the server has not answered in time a moment ago, or has refused BF.FILL");

/** What a guard has done, by event. The names are the same in every language, and a metric may have them. */
export interface Counts {
  /** Answers of BF.FETCH, one for each row. */
  absent: number;
  hit: number;
  stale: number;
  load: number;
  wait: number;
  /** Loaded rows that were cached. */
  filled: number;
  /** Loaded rows that were not cached, because the row changed or another caller filled it during the load. */
  lease_lost: number;
  /** Rows whose `load` threw. */
  load_failed: number;
  /** Old values that were served because a `load` threw. */
  stale_served: number;
  /** Old values that were served because a `load` took too long. */
  soft_timeout: number;
  /** Rows that were read from the database without a lease: the server failed, or another caller took too long. */
  unguarded: number;
  /** Rows that the near cache had. */
  near_hit: number;
  /** Answers and errors that other callers of the process got, and that waiting callers share. */
  shared: number;
  /** Cached values that the codec could not decode. */
  undecodable: number;
  /** Commands that the server did not answer, or refused. */
  errors: number;
}

/** What is known of a row: the cached value, or null if there is no row. With a `token` the caller has to load the row, and
 * `value` is what may be served if that fails. `isReadable` is false where no value is cached, or none that the codec can
 * decode. */
export interface Answer<V> {
  readonly value: V | null;
  readonly token?: Buffer | undefined;
  readonly isReadable: boolean;
}

/** A row and the token of its lease. */
export interface Lease {
  readonly row: Row;
  readonly token: Buffer;
}

/** How rows are fetched. */
export interface FetchOptions {
  /** The cached value could not be decoded: ask for the lease to replace it. */
  replace?: boolean;
  /** Replaces the guard's STALE. */
  staleMs?: number;
  signal?: AbortSignal | undefined;
}

/** The commands of one guard. */
export class GuardCommands<V> {
  readonly link: Link;
  readonly waiting: WaitingConnections;
  readonly filter: Word;
  readonly prefix: Word;
  readonly codec: Codec<V>;
  readonly options: CheckedOptions;
  readonly counts: Counts;
  readonly near: NearCache | undefined;
  readonly tracking: Tracking | undefined;
  readonly events: Events | undefined;
  readonly feed: FeedKeys | undefined;
  readonly warnings: Warnings;
  readonly fills = new Fills((fills) => this.#sendFills(fills));
  hasAnswered = false;
  /** The average duration of loads. */
  loadMs = 0;
  /** The average size of the values that this process has seen lately. */
  #valueBytes = 0;

  constructor(client: Client, filter: Key, codec: Codec<V>, options: CheckedOptions) {
    this.link = new Link(client, options.timeoutMs);
    this.filter = keyWord(filter);
    this.waiting = new WaitingConnections(this.link, this.filter, options.waitingConnections);
    this.prefix = options.prefix === undefined ? cachePrefix(this.filter) : keyWord(options.prefix);
    this.codec = codec;
    this.options = options;
    this.near = options.near;
    this.feed = options.feed ? new FeedKeys(this.filter) : undefined;
    this.warnings = new Warnings(options.warn);
    this.events = options.telemetry && new Events(options.telemetry, keyBytes(filter).toString());
    this.tracking = this.near && new Tracking(this.link.connection, this.near, this.prefix, this.warnings);
    this.counts = {
      ...{ absent: 0, hit: 0, stale: 0, load: 0, wait: 0, filled: 0, lease_lost: 0, load_failed: 0, stale_served: 0 },
      ...{ soft_timeout: 0, unguarded: 0, near_hit: 0, shared: 0, undecodable: 0, errors: 0 },
    };
  }

  count(event: keyof Counts, number = 1): void {
    this.counts[event] += number;
    this.events?.count(event, number);
  }

  failed(error: Error): void {
    this.count("errors");
    this.warnings.about("the server could not be asked", error);
  }

  /** Returns the STALE of a fetch: one caller refreshes a value with less than this to live.
   *
   * A value with less than `failSafe` left is due. Before that, it is renewed with a probability that grows as its end
   * approaches, and the earlier the longer loads take: Vattani, Chierichetti and Lowenstein, "Optimal Probabilistic Cache
   * Stampede Prevention", VLDB 2015, figure 3. */
  #staleMs(): number {
    const earlyMs = this.loadMs * this.options.beta * -Math.log(1 - Math.random());
    return Math.min(Number.MAX_SAFE_INTEGER, this.options.failSafeMs + Math.round(earlyMs));
  }

  #fetchWords(stale: number | string): Word[] {
    const words: Word[] = ["LEASE", String(this.options.leaseMs)];
    if (stale) words.push("STALE", String(stale));
    if (this.feed !== undefined) words.push("WHILE", this.feed.heartbeat, "UNLESS", this.feed.inFlight);
    return words;
  }

  /** Fetches rows: resolves with a Fetched or an error for each. If the signal aborts, the leases in the replies are given up.
   *
   * Several rows are one BF.MFETCH, or a few. `replace` needs BF.FETCH: STALE with the longest time gives one caller a token for
   * any value with a time to live; a value without one, which is never stale, gets one first. Deleting the value instead would
   * not be safe: every caller that has seen it would delete what the first of them has filled since.
   *
   * An id whose cache key would be one of the follower's own keys is not sent: those keys hold no rows, and a fill would
   * overwrite them. Such a row is read from the database. */
  async fetch(rows: readonly Row[], how: FetchOptions = {}): Promise<Outcome<Fetched>[]> {
    const feed = this.feed;
    const own = feed === undefined ? undefined : rows.find((row) => feed.own(row));
    if (feed !== undefined && own !== undefined) {
      const others = rows.filter((row) => !feed.own(row));
      const answers = others.length > 0 ? await this.fetch(others, how) : [];
      const byId = new Map(others.map((row, index) => [row.id, answers[index]]));
      const refused = new RangeError(`the cache key of "${own.id}" is a key of the follower`);
      this.failed(refused);
      return rows.map((row) => byId.get(row.id) ?? refused);
    }
    const most = this.batchRows;
    if (rows.length > most) {
      return [...(await this.fetch(rows.slice(0, most), how)), ...(await this.fetch(rows.slice(most), how))];
    }
    if (this.link.pause.holds()) return rows.map(() => PAUSED);
    const isBatch = rows.length > 1 && !how.replace;
    return this.#keepNear(rows, () => (isBatch ? this.#fetchTogether(rows, how) : this.#fetchEach(rows, how)));
  }

  /** Fetches a row on a reserved connection, where the caller waits inside the server. */
  async fetchWaiting(row: Row, waitMs: number, signal: AbortSignal | undefined): Promise<Outcome<Fetched>> {
    if (this.link.pause.holds()) {
      this.waiting.release();
      return PAUSED;
    }
    const words = ["BF.FETCH", this.filter, row.item, row.cacheKey, ...this.#fetchWords(this.#staleMs())];
    const calls = [call([...words, "WAIT", String(waitMs)], parseFetch)];
    const undo = (found: Outcome<Fetched>[]) => this.#unneeded([row], found);
    const [answer] = await this.#keepNear([row], () => this.waiting.ask(calls, { undo, waitMs, signal }));
    return answer ?? new Error("no answer");
  }

  /** Stores the hits of a fetch in the near cache, and counts its answers. Not what is filled: others may change that. */
  async #keepNear(rows: readonly Row[], fetch: () => Promise<Outcome<Fetched>[]>): Promise<Outcome<Fetched>[]> {
    this.tracking?.start();
    const marks = this.tracking?.isActive ? this.near?.begin(rows.map((row) => row.cacheKey)) : undefined;
    let answers: Outcome<Fetched>[] = [];
    try {
      answers = await fetch();
    } finally {
      if (marks !== undefined) {
        const hits = new Map<string, Buffer>();
        for (const [index, key] of [...marks.keys()].entries()) {
          const found = answers[index];
          if (found && !(found instanceof Error) && found.word === "hit" && found.value) hits.set(key, found.value);
        }
        this.near?.end(marks, hits);
      }
    }
    for (const answer of answers) {
      if (answer instanceof Error) {
        this.failed(answer);
      } else {
        this.hasAnswered = true;
        this.count(answer.word);
      }
    }
    return answers;
  }

  /** Returns what the near cache has of a row, if the server reports changes. */
  nearAnswer(row: Row): Answer<V> | undefined {
    const value = this.tracking?.isActive ? this.near?.get(row.cacheKey) : undefined;
    if (value === undefined) return undefined;
    const answer = this.read({ word: "hit", value });
    if (!answer.isReadable) return undefined;
    this.count("near_hit");
    return answer;
  }

  /** Sends one BF.MFETCH, or a few. */
  async #fetchTogether(rows: readonly Row[], how: FetchOptions): Promise<Outcome<Fetched>[]> {
    const groups: [number, readonly Row[]][] = how.staleMs === undefined ? this.#staleGroups(rows) : [[how.staleMs, rows]];
    const calls = groups.map(([staleMs, group]) => {
      const words = ["BF.MFETCH", this.filter, ...this.#fetchWords(staleMs), "ITEMS"];
      for (const row of group) words.push(row.item, row.cacheKey);
      return call(words, parseMfetch);
    });
    const order = groups.flatMap(([, group]) => group);
    const answers = (found: Outcome<Outcome<Fetched>[]>[]) =>
      found.flatMap((one, index) => spread(one, groups[index]?.[1].length ?? 0));
    const undo = (found: Outcome<Outcome<Fetched>[]>[]) => this.#unneeded(order, answers(found));
    const found = await this.link.ask(calls, { undo, signal: how.signal });
    if (groups.length === 1) return answers(found);
    const byRow = new Map(answers(found).map((answer, index) => [order[index], answer]));
    return rows.map((row) => byRow.get(row) ?? new Error("no answer"));
  }

  /** Returns rows by the STALE of their fetch. If all rows of a batch shared what is drawn for their renewal, a large number would
   * renew all that expire soon, at once. So slow loads are drawn for each row, and rows with similar numbers are fetched
   * together. */
  #staleGroups(rows: readonly Row[]): [number, readonly Row[]][] {
    if (this.loadMs * this.options.beta < SLOW_LOAD_MS) return [[this.#staleMs(), rows]];
    const groups = new Map<number, { drawn: number; rows: Row[] }>();
    for (const row of rows) {
      const drawn = this.#staleMs();
      const size = Math.ceil(Math.log2(drawn - this.options.failSafeMs + 1));
      const group = groups.get(size);
      if (group === undefined) {
        groups.set(size, { drawn, rows: [row] });
      } else {
        group.drawn += drawn;
        group.rows.push(row);
      }
    }
    return [...groups.values()].map((group) => [Math.floor(group.drawn / group.rows.length), group.rows]);
  }

  /** Sends a BF.FETCH for each row, all together. */
  async #fetchEach(rows: readonly Row[], how: FetchOptions): Promise<Outcome<Fetched>[]> {
    const calls: Call<Fetched | undefined>[] = [];
    for (const row of rows) {
      if (how.replace) {
        const ttl = String(milliseconds("ttl", this.options.ttl));
        calls.push(call(["PEXPIRE", row.cacheKey, ttl, "NX"], () => undefined));
      }
      const words = this.#fetchWords(how.replace ? ANY_AGE : (how.staleMs ?? this.#staleMs()));
      calls.push(call(["BF.FETCH", this.filter, row.item, row.cacheKey, ...words], parseFetch));
    }
    const fetched = (found: Outcome<Fetched | undefined>[]) =>
      found.filter((_, index) => calls[index]?.parse === parseFetch) as Outcome<Fetched>[];
    const undo = (found: Outcome<Fetched | undefined>[]) => this.#unneeded(rows, fetched(found));
    return fetched(await this.link.ask(calls, { undo, signal: how.signal }));
  }

  /** Returns the commands that give up the leases in some answers. */
  #unneeded(rows: readonly Row[], answers: Outcome<Fetched>[]): Call<unknown>[] {
    const leases: Lease[] = [];
    for (const [index, row] of rows.entries()) {
      const answer = answers[index];
      if (answer && !(answer instanceof Error) && answer.token) leases.push({ row, token: answer.token });
    }
    return leases.map((lease) => this.fill(lease, "GIVEUP"));
  }

  fill(lease: Lease, ...rest: Word[]): Call<boolean> {
    const { row, token } = lease;
    return call(["BF.FILL", this.filter, row.item, row.cacheKey, token, ...rest], parseFill);
  }

  /** Returns loaded rows as they are cached. */
  encodeRows(rows: ReadonlyMap<string, V | null>): Map<string, Buffer | null> {
    const encode = (value: V) => {
      const encoded = this.codec.encode(value);
      const data = Buffer.from(encoded.buffer, encoded.byteOffset, encoded.byteLength);
      this.#measure(data);
      return data;
    };
    return new Map([...rows].map(([id, value]) => [id, value === null ? null : encode(value)]));
  }

  /** Returns loaded rows as callers get them: as everybody gets them who finds them in the cache. */
  decodeRows(encoded: ReadonlyMap<string, Buffer | null>): Map<string, V | null> {
    return new Map([...encoded].map(([id, data]) => [id, data === null ? null : this.codec.decode(data)]));
  }

  /** How many rows one fetch may ask for: their values together are about as long as the longest command. All replies come through
   * one connection, and a long one delays those behind it. */
  get batchRows(): number {
    return Math.max(1, Math.min(BATCH, Math.floor(COMMAND_BYTES / Math.max(1, this.#valueBytes))));
  }

  #measure(data: Buffer): void {
    this.#valueBytes += (data.length - this.#valueBytes) * SIZE_WEIGHT;
  }

  fillWith(lease: Lease, data: Buffer | null, ttlMs: number): Call<boolean> {
    const share = 1 - JITTER * Math.random();
    const ms = (most: number) => Math.max(1, Math.round(most * share));
    if (data === null) return this.fill(lease, "NONE", "PX", String(ms(milliseconds("absentTtl", this.options.absentTtl))));
    return this.fill(lease, "VALUE", data, "PX", String(ms(ttlMs) + this.options.failSafeMs));
  }

  /** Ends leases, so that other callers may load. If the user has no permission for that, a pause begins: otherwise each fetch
   * would wait for a lease to end. */
  async giveUp(leases: readonly Lease[]): Promise<void> {
    if (leases.length === 0) return;
    const outcomes = await this.link.ask(leases.map((lease) => this.fill(lease, "GIVEUP")));
    if (outcomes.some((one) => one instanceof Error && one.message.startsWith("NOPERM"))) this.link.pause.refuse();
  }

  /** Sends some fills together. Gives up what the server refuses, because it is out of memory for instance, so that no caller waits until
   * those leases end. Sends nothing more, queued fills included, to a server that has not answered. */
  async #sendFills(fills: readonly Fill[]): Promise<void> {
    const outcomes = this.link.pause.isOn ? fills.map(() => PAUSED) : await this.link.ask(fills.map((fill) => fill.call));
    for (const outcome of outcomes) {
      if (outcome instanceof Error) this.failed(outcome);
      else this.count(outcome ? "filled" : "lease_lost");
    }
    const isRefused = (outcome: unknown) =>
      outcome instanceof Error && outcome !== PAUSED && !(outcome instanceof TimeoutError);
    await this.giveUp(fills.filter((_, index) => isRefused(outcomes[index])).map((fill) => fill.lease));
  }

  /** Decodes the value of a reply other than `wait`. `undecodable` is a value that the codec has failed on already. */
  read(found: Fetched, undecodable?: Buffer): Answer<V> {
    const { word, value, token } = found;
    if (word === "absent") return { value: null, isReadable: true };
    if (value !== undefined && !(undecodable && value.equals(undecodable))) {
      this.#measure(value);
      try {
        return { value: this.codec.decode(value), token, isReadable: true };
      } catch (error) {
        this.count("undecodable");
        this.warnings.about("a cached value could not be decoded, and is replaced", asError(error));
      }
    }
    return { value: null, token, isReadable: false };
  }
}

/** Returns an answer for each row of a command, which itself may have failed. */
export function spread<T>(outcome: Outcome<readonly T[]>, count: number): (T | Error)[] {
  return outcome instanceof Error ? new Array<Error>(count).fill(outcome) : [...outcome];
}
