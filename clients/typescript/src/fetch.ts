/** BF.FETCH, BF.MFETCH and BF.FILL: fetches rows for a guard, and fills rows or ends their leases. */

import { type Call, type Client, call, Link, type Outcome } from "./ask.js";
import { Batcher } from "./batcher.js";
import type { Codec } from "./codec.js";
import type { Reply } from "./connection.js";
import type { Word } from "./creation.js";
import { asError, isReply, TimeoutError } from "./errors.js";
import { type CheckedOptions, fetchWords, milliseconds } from "./guard-options.js";
import { COMMAND_BYTES, COMMAND_ITEMS, type Key, keyBytes } from "./items.js";
import { Tracking } from "./near.js";
import { array, number, text } from "./replies.js";
import { binary, cachePrefix, keyWord, type Row } from "./rows.js";
import { Events, Warnings } from "./telemetry.js";
import { WaitingConnections } from "./waiting.js";

/** A reply of BF.FETCH: `value` comes with hit and stale, `token` with load and stale. */
export interface Fetched {
  readonly word: "absent" | "hit" | "stale" | "load" | "wait" | "failed";
  readonly value?: Buffer;
  readonly token?: Buffer;
}

const ABSENT: Fetched = { word: "absent" };
export const WAIT: Fetched = { word: "wait" };

/** Returns a row in the form of an answer to a fetch. */
export function fetchedRow(data: Buffer | null): Fetched {
  return data === null ? ABSENT : { word: "hit", value: data };
}

/** Returns an answer without its token, for callers that do not load. */
export function withoutToken(found: Fetched): Fetched {
  if (found.token === undefined) return found;
  return found.value === undefined ? WAIT : { word: "hit", value: found.value };
}

function parseFetch(reply: Reply): Fetched {
  if (reply instanceof Error) throw reply;
  const [first, second, third] = array(reply);
  const word = text(first);
  if (word === "absent" && second === undefined) return ABSENT;
  if (word === "hit" && Buffer.isBuffer(second)) return { word, value: second };
  if (word === "stale" && Buffer.isBuffer(second) && Buffer.isBuffer(third)) return { word, value: second, token: third };
  if (word === "load" && Buffer.isBuffer(second)) return { word, token: second };
  if ((word === "wait" || word === "failed") && number(second) >= 0) return { word };
  throw new TypeError(`BF.FETCH answered ${JSON.stringify(reply)}`);
}

/** Reads a reply of BF.MFETCH. A row has an error in place of an answer if its cache key has another type, or if this package
 * does not support the answer. */
function parseMfetch(reply: Reply): (Fetched | Error)[] {
  return array(reply).map((one) => {
    try {
      return parseFetch(one);
    } catch (error) {
      return asError(error);
    }
  });
}

/** The weight of the newest value in the average size of values. */
const SIZE_WEIGHT = 1 / 16;

/** Times to live are shortened by up to this share, at random: rows that are filled together do not expire together. */
const JITTER = 0.1;

/** The answer to a command that is not sent during a pause. */
const PAUSED = new TimeoutError("a moment ago, the server did not answer in time, or refused BF.FILL");

/** A row and the token of its lease. */
export interface Lease {
  readonly row: Row;
  readonly token: Buffer;
}

/** A row that callers request in one batch. */
interface Asked {
  readonly row: Row;
  readonly callers: { readonly signal: AbortSignal | undefined; take(answer: Outcome<Fetched>): void }[];
}

/** A loaded row, and the function to call when the server has answered its fill or has timed out. */
interface Fill {
  readonly lease: Lease;
  readonly call: Call<boolean>;
  readonly bytes: number;
  done(): void;
}

/** The options of a fetch. */
export interface FetchOptions {
  /** Additional options, beyond the guard's options for every fetch. */
  words?: readonly Word[];
  /** Waits inside the server, on a reserved connection. */
  waitMs?: number;
  signal?: AbortSignal | undefined;
}

/** The fetches and fills of one guard. */
export class Fetching<V> {
  readonly link: Link;
  readonly waiting: WaitingConnections;
  readonly filter: Word;
  readonly prefix: Word;
  readonly codec: Codec<V>;
  readonly options: CheckedOptions;
  readonly events: Events;
  readonly warnings: Warnings;
  /** The options of every fetch. */
  readonly #words: readonly Word[];
  readonly #tracking: Tracking | undefined;
  readonly #asked = new Map<string, Asked>();
  readonly #fetches = new Batcher<Asked>(
    (batch) => this.#sendFetches(batch),
    () => this.#batchRows,
  );
  readonly #fills = new Batcher<Fill>((fills) => this.#sendFills(fills), batchOf);
  /** The average size of the values that this process has received lately. */
  #valueBytes = 0;

  constructor(client: Client, filter: Key, codec: Codec<V>, options: CheckedOptions) {
    this.link = new Link(client, options.timeoutMs);
    this.filter = keyWord(filter);
    this.waiting = new WaitingConnections(this.link, this.filter, options.waitingConnections);
    this.prefix = options.prefix === undefined ? cachePrefix(this.filter) : keyWord(options.prefix);
    this.codec = codec;
    this.options = options;
    this.events = new Events(options.telemetry, keyBytes(filter).toString());
    this.warnings = new Warnings(options.warn);
    this.#words = fetchWords(this.filter, options);
    this.#tracking = options.near && new Tracking(this.link.connection, options.near, this.prefix, this.warnings);
  }

  failed(error: Error): void {
    this.events.count("errors");
    this.warnings.warn("the server could not be queried", error);
  }

  /** Fetches a row together with the rows that other callers request in this iteration of the event loop. Callers of the same row share one answer,
   * but only the first of them whose signal has not aborted gets the lease. */
  fetchBatched(row: Row, signal: AbortSignal | undefined): Promise<Outcome<Fetched>> {
    let asked = this.#asked.get(row.id);
    if (asked === undefined) {
      asked = { row, callers: [] };
      this.#asked.set(row.id, asked);
      this.#fetches.add(asked);
    }
    const { callers } = asked;
    return new Promise((resolve, reject) => {
      const abort = () => reject(signal?.reason);
      signal?.addEventListener("abort", abort, { once: true });
      const take = (answer: Outcome<Fetched>) => {
        signal?.removeEventListener("abort", abort);
        resolve(answer);
      };
      callers.push({ signal, take });
    });
  }

  async #sendFetches(batch: readonly Asked[]): Promise<void> {
    for (const { row } of batch) this.#asked.delete(row.id);
    const present = ({ callers }: Asked) => callers.filter(({ signal }) => !signal?.aborted);
    const wanted = batch.filter((asked) => present(asked).length > 0);
    const answers = await this.fetch(wanted.map(({ row }) => row));
    for (const [index, asked] of wanted.entries()) {
      let answer = answers[index] as Outcome<Fetched>;
      const [first, ...others] = present(asked);
      if (first === undefined) void this.giveUp(leasesIn([asked.row], [answer]));
      first?.take(answer);
      if (!(answer instanceof Error) && others.length > 0) {
        answer = withoutToken(answer);
        this.events.count(answer.word, others.length);
      }
      for (const caller of others) caller.take(answer);
    }
  }

  /** The maximum number of rows per fetch, chosen so that their values together are about as large as the largest command. All
   * replies use one connection, where a long reply delays the replies after it. */
  get #batchRows(): number {
    return Math.max(1, Math.min(COMMAND_ITEMS, Math.floor(COMMAND_BYTES / Math.max(1, this.#valueBytes))));
  }

  /** Fetches rows: resolves with a Fetched or an error for each. If the signal aborts, the leases in the replies are given up. */
  async fetch(rows: readonly Row[], how: FetchOptions = {}): Promise<Outcome<Fetched>[]> {
    const answers: Outcome<Fetched>[] = [];
    try {
      while (answers.length < rows.length) {
        const part = rows.slice(answers.length, answers.length + this.#batchRows);
        answers.push(...(await this.#fetchPart(part, how)));
      }
    } catch (error) {
      void this.giveUp(leasesIn(rows, answers));
      throw error;
    }
    return answers;
  }

  /** Sends one BF.FETCH or BF.MFETCH. Stores the hits in the near cache, but not filled rows, which others may have changed. */
  async #fetchPart(rows: readonly Row[], how: FetchOptions): Promise<Outcome<Fetched>[]> {
    const { words = [], waitMs, signal } = how;
    if (this.link.pause.holds()) {
      if (waitMs !== undefined) this.waiting.release();
      return rows.map(() => PAUSED);
    }
    const pairs = rows.flatMap((row) => [row.item, row.cacheKey]);
    const one =
      rows.length > 1
        ? call(["BF.MFETCH", this.filter, ...this.#words, ...words, "ITEMS", ...pairs], parseMfetch)
        : call(["BF.FETCH", this.filter, ...pairs, ...this.#words, ...words], (reply) => [parseFetch(reply)]);
    const each = (found: Outcome<Outcome<Fetched>[]>[]) => spread(found[0] as Outcome<Outcome<Fetched>[]>, rows.length);
    const undo = (found: Outcome<Outcome<Fetched>[]>[]) =>
      leasesIn(rows, each(found)).map((lease) => this.#fill(lease, "GIVEUP"));
    this.#tracking?.start();
    const near = this.#tracking?.isActive ? this.options.near : undefined;
    const marks = near?.begin(rows.map((row) => row.cacheKey));
    const hits = new Map<string, Buffer>();
    try {
      const asking = waitMs === undefined ? this.link : this.waiting;
      const answers = each(await asking.ask([one], { undo, waitMs: waitMs ?? 0, signal }));
      for (const [index, answer] of answers.entries()) {
        if (answer instanceof Error) {
          this.failed(answer);
          continue;
        }
        this.events.count(answer.word);
        if (marks && answer.word === "hit" && answer.value) hits.set(binary((rows[index] as Row).cacheKey), answer.value);
      }
      return answers;
    } finally {
      if (marks !== undefined) near?.end(marks, hits);
    }
  }

  /** Returns the answer of the near cache for a row, if the server reports changes. */
  nearAnswer(row: Row): V | null | undefined {
    const value = this.#tracking?.isActive ? this.options.near?.get(row.cacheKey) : undefined;
    const found = value && this.decode({ word: "hit", value });
    if (found !== undefined) this.events.count("near_hit");
    return found;
  }

  /** Returns a BF.FILL; its answer is whether the token was still valid. */
  #fill(lease: Lease, ...rest: Word[]): Call<boolean> {
    const { row, token } = lease;
    return call(["BF.FILL", this.filter, row.item, row.cacheKey, token, ...rest], (reply) => reply !== null);
  }

  /** Caches a row or its absence. Resolves when the server has answered or has timed out. */
  fill(lease: Lease, data: Buffer | null, ttlMs: number): Promise<void> {
    const share = 1 - JITTER * Math.random();
    const px = (most: number, more = 0) => ["PX", String(Math.max(1, Math.round(most * share)) + more)];
    const words =
      data === null
        ? ["NONE", ...px(milliseconds("absentTtl", this.options.absentTtl))]
        : ["VALUE", data, ...px(ttlMs, this.options.failSafeMs)];
    return new Promise((done) => {
      this.#fills.add({ lease, call: this.#fill(lease, ...words), bytes: data?.length ?? 0, done });
    });
  }

  /** Sends some fills together. If the server refuses a fill, it ends the lease. After a lost connection the lease is given up.
   * After a time-out nothing more is sent, not even queued fills. */
  async #sendFills(fills: readonly Fill[]): Promise<void> {
    const outcomes = this.link.pause.isOn ? fills.map(() => PAUSED) : await this.#askFills(fills.map((fill) => fill.call));
    const lost: Lease[] = [];
    for (const [index, { lease }] of fills.entries()) {
      const outcome = outcomes[index];
      if (!(outcome instanceof Error)) {
        this.events.count(outcome ? "filled" : "lease_lost");
        continue;
      }
      this.failed(outcome);
      if (!isReply(outcome) && !(outcome instanceof TimeoutError)) lost.push(lease);
    }
    await this.giveUp(lost);
    for (const fill of fills) fill.done();
  }

  /** Ends leases, so that other callers may load. */
  async giveUp(leases: readonly Lease[], ...words: Word[]): Promise<void> {
    if (leases.length > 0) await this.#askFills(leases.map((lease) => this.#fill(lease, "GIVEUP", ...words)));
  }

  /** If the user has no permission, a pause begins, because otherwise each fetch would wait until a lease ends. */
  async #askFills(calls: readonly Call<boolean>[]): Promise<Outcome<boolean>[]> {
    const outcomes = await this.link.ask(calls);
    if (outcomes.some((one) => one instanceof Error && one.message.startsWith("NOPERM"))) this.link.pause.refuse();
    return outcomes;
  }

  /** Encodes loaded rows for the cache. */
  encode(rows: ReadonlyMap<string, V | null>): Map<string, Buffer | null> {
    const encode = (value: V) => {
      const encoded = this.codec.encode(value);
      return this.#measured(Buffer.from(encoded.buffer, encoded.byteOffset, encoded.byteLength));
    };
    return new Map([...rows].map(([id, value]) => [id, value === null ? null : encode(value)]));
  }

  /** Returns the row of an answer other than `wait`, or undefined if it has no value or the codec cannot decode it. */
  decode(found: Fetched): V | null | undefined {
    const { word, value } = found;
    if (value === undefined) return word === "absent" ? null : undefined;
    try {
      return this.codec.decode(this.#measured(value));
    } catch (error) {
      this.events.count("undecodable");
      this.warnings.warn("a cached value could not be decoded, and is replaced", asError(error));
      return undefined;
    }
  }

  #measured(data: Buffer): Buffer {
    this.#valueBytes += (data.length - this.#valueBytes) * SIZE_WEIGHT;
    return data;
  }
}

/** Returns how many fills are sent together. */
function batchOf(queue: readonly Fill[]): number {
  let count = 0;
  for (let bytes = 0; count < Math.min(queue.length, COMMAND_ITEMS); count++) {
    bytes += queue[count]?.bytes ?? 0;
    if (count > 0 && bytes > COMMAND_BYTES) break;
  }
  return count;
}

function leasesIn(rows: readonly Row[], answers: readonly Outcome<Fetched>[]): Lease[] {
  const lease = (answer: Fetched, index: number) => (answer.token ? [{ row: rows[index] as Row, token: answer.token }] : []);
  return answers.flatMap((answer, index) => (answer instanceof Error ? [] : lease(answer, index)));
}

/** Returns an answer for each row of a command, which itself may have failed. */
export function spread<T>(outcome: Outcome<readonly T[]>, count: number): (T | Error)[] {
  return outcome instanceof Error ? new Array<Error>(count).fill(outcome) : [...outcome];
}
