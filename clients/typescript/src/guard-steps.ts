/** The guard's protocol (docs/guard.md of the project): reading one row, and writing. */

import { type Call, call, type Outcome, same } from "./ask.js";
import type { Codec } from "./codec.js";
import type { Client, Reply } from "./connection.js";
import { Durability } from "./durability.js";
import { isReply, LoadFailed, Unconfirmed } from "./errors.js";
import { type Fetched, WAIT, withoutToken } from "./fetched.js";
import { Failure, type Flight, Flights } from "./flights.js";
import { type Answer, BATCH, spread } from "./guard-commands.js";
import { GuardLoads, type LoadRows } from "./guard-load.js";
import type { CheckedOptions } from "./guard-options.js";
import type { Key } from "./items.js";
import { pause, settles } from "./promises.js";
import { array } from "./replies.js";
import { keyWord, Row } from "./rows.js";
import type { Word } from "./words.js";

/** The pause before a confirmation is repeated, and before a row is fetched again that nobody can wait for. */
const REPEAT_MS = 100;

/** Reads a row. It returns null or undefined if there is none. */
type Load<V> = (signal: AbortSignal | undefined) => Promise<V | null | undefined> | V | null | undefined;

/** Readers and writers of one table. */
export class GuardSteps<V> extends GuardLoads<V> {
  readonly flights = new Flights();
  readonly durability: Durability;

  constructor(client: Client, filter: Key, codec: Codec<V>, options: CheckedOptions) {
    super(client, filter, codec, options);
    this.durability = new Durability(options.replicas, options.replicasTimeoutMs, options.aof);
    this.durability.checkConnection(this.link.connection);
  }

  row(item: Word | number | bigint | Uint8Array): Row {
    return new Row(item, this.prefix);
  }

  /** Adapts a loader of one row to a loader of many. */
  loader(row: Row, load: Load<V>): LoadRows<V> {
    return async (rows, signal) => new Map([[row.id, (await this.timed(() => load(signal), rows, signal)) ?? null]]);
  }

  /** Reads a row for a call that began at a time, by the clock of `direct`. `found` is what a fetch has answered already. */
  async get(
    row: Row,
    begun: number,
    load: LoadRows<V>,
    ttlMs: number,
    signal: AbortSignal | undefined,
    found: Outcome<Fetched>,
  ): Promise<V | null> {
    const deadline = performance.now() + this.options.attempts * this.options.waitMs;
    const flight = this.flights.begin(row.id);
    try {
      const answer = await this.fetchRow(row, flight, deadline, signal, found);
      if (answer?.token) {
        const loading = {
          leases: [{ row, token: answer.token }],
          flights: new Map([[row.id, flight]]),
          load,
          begun,
          ttlMs,
          hasValues: answer.isReadable,
        };
        return (await this.loadRows(loading, signal)).get(row.id) ?? null;
      }
      if (answer !== undefined) return answer.value;
    } finally {
      this.flights.end(flight);
    }
    // The server does not answer, or another caller loads the row and takes too long: ask the database, fill nothing.
    return (await this.loadDirectly([row], begun, load, signal)).get(row.id) ?? null;
  }

  /** Returns a row that is cached and not old, or null. */
  async peek(row: Row, signal: AbortSignal | undefined): Promise<V | null> {
    const [found] = await this.fetch([row], { staleMs: this.options.failSafeMs, signal });
    if (found === undefined || found instanceof Error) return null;
    if (found.token !== undefined) await this.giveUp([{ row, token: found.token }]);
    return found.word === "hit" ? this.read(found).value : null;
  }

  /** Fetches a row until the answer is final. Resolves with undefined if the server fails, or nobody brings the row in time. */
  async fetchRow(
    row: Row,
    flight: Flight,
    deadline: number,
    signal: AbortSignal | undefined,
    found?: Outcome<Fetched>,
  ): Promise<Answer<V> | undefined> {
    let undecodable: Buffer | undefined;
    let replace = false;
    for (let waits = 0; ; ) {
      if (found === undefined) {
        this.flights.ask(flight);
        found = (await this.fetch([row], { replace, signal }))[0] ?? new Error("no answer");
      }
      if (found instanceof Error) {
        flight.outcome = found;
        return undefined;
      }
      if (found.word !== "wait") {
        let answer = this.read(found, undecodable);
        if (found.word === "stale" && found.token && answer.isReadable && replace) {
          // Another caller has replaced the value meanwhile. The new one is not due for a refresh.
          await this.giveUp([{ row, token: found.token }]);
          answer = { value: answer.value, isReadable: true };
        }
        if (answer.token || answer.isReadable) {
          if (!answer.token) flight.outcome = withoutToken(found);
          return answer;
        }
        undecodable = found.value;
        if (!replace) {
          replace = true;
          found = undefined;
          continue;
        }
      }
      const leftMs = Math.ceil(deadline - performance.now());
      waits++;
      if (leftMs <= 0 && waits >= this.options.attempts) return undefined;
      found = await this.#wait(row, flight, leftMs, found.word === "hit", signal);
      replace = false;
    }
  }

  /** Waits for the caller that holds the lease: in this process, or else inside the server. Resolves with what another caller
   * shares, or what the server answers. A server that has a value cached makes nobody wait for another; then, and if all waiting
   * connections are in use, it pauses. */
  async #wait(
    row: Row,
    flight: Flight,
    leftMs: number,
    isCached: boolean,
    signal: AbortSignal | undefined,
  ): Promise<Outcome<Fetched> | undefined> {
    if (leftMs <= 0) return undefined;
    const woken = this.flights.beginWait(flight);
    if (woken !== undefined) {
      // A timer may end a millisecond early, and this call would wait once more.
      await settles(woken, leftMs + 1, signal);
      this.flights.endWait(flight);
      const { given } = flight;
      if (given === undefined) return undefined;
      this.count("shared");
      if (given instanceof Failure) throw given.error;
      return given;
    }
    if (isCached || !this.waiting.take()) {
      await pause(Math.min(REPEAT_MS, leftMs), signal);
      return undefined;
    }
    return this.#waitInServer(row, flight, Math.min(this.options.waitMs, leftMs), signal);
  }

  /** Waits inside the server, on a reserved connection. CLIENT UNBLOCK may end that early, and then the row is fetched again. A
   * back-off ends it early each time. */
  async #waitInServer(
    row: Row,
    flight: Flight,
    waitMs: number,
    signal: AbortSignal | undefined,
  ): Promise<Outcome<Fetched> | undefined> {
    const begun = performance.now();
    this.flights.ask(flight);
    const found = await this.fetchWaiting(row, waitMs, signal);
    const elapsedMs = performance.now() - begun;
    const refusal = found instanceof Error && isReply(found) ? found.message.split(" ", 1)[0] : undefined;
    const isEarly = !(found instanceof Error) && found.word === "wait" && elapsedMs < waitMs / 2;
    if (isEarly && flight.wasEarly && this.options.failSafeMs > 0) {
      const error = new LoadFailed(Buffer.from(row.id, "latin1"));
      flight.outcome = new Failure(error);
      throw error;
    }
    flight.wasEarly = isEarly;
    // A node that the slot has left is not the one to wait in: the cluster's client finds the other.
    const isMoved = refusal === "MOVED" || refusal === "ASK";
    if (!isEarly && !isMoved && refusal !== "UNBLOCKED") return found;
    await pause(Math.max(0, Math.min(REPEAT_MS, waitMs) - elapsedMs), signal);
    return isMoved ? undefined : WAIT;
  }

  /** A writer's first call: throws the first error. With a feed, the follower makes the writers' calls. */
  async announce(rows: readonly Row[]): Promise<void> {
    if (this.feed !== undefined) return;
    const trouble = (await this.#changed(rows)).find((outcome) => outcome !== undefined);
    if (trouble !== undefined) throw trouble;
  }

  /** A writer's second call: repeated until the server has answered for every row, for up to `patience` seconds. */
  async confirm(rows: readonly Row[]): Promise<void> {
    if (this.feed !== undefined) return;
    const deadline = performance.now() + this.options.patience * 1000;
    for (let left = rows; left.length > 0; ) {
      const outcomes = await this.#changed(left);
      const trouble = outcomes.find((outcome) => outcome !== undefined);
      left = left.filter((_, index) => outcomes[index] !== undefined);
      if (trouble === undefined) return;
      this.failed(trouble);
      if (performance.now() >= deadline) {
        throw new Unconfirmed(
          left.map((row) => Buffer.from(row.id, "latin1")),
          { cause: trouble },
        );
      }
      await pause(REPEAT_MS, undefined);
    }
  }

  /** Announces a change of each row, to the filters that are being filled first. Resolves with an error or undefined for each. */
  async #changed(rows: readonly Row[]): Promise<(Error | undefined)[]> {
    const outcomes: (Error | undefined)[] = [];
    const filters = [...this.options.announceTo.map(keyWord), this.filter];
    for (let start = 0; start < rows.length; start += BATCH) {
      const part = rows.slice(start, start + BATCH);
      const found = await this.#sendChanges(part, filters);
      const error = this.durability.takeError(found);
      // The answers of each filter, in the order of the rows.
      const each = found.flatMap((one) => spreadReply(one, part.length));
      for (const index of part.keys()) {
        const errors = each.filter((answer, at) => at % part.length === index && answer instanceof Error) as Error[];
        outcomes.push(error ?? errors[0]);
      }
      this.hasAnswered ||= outcomes.at(-1) === undefined;
    }
    return outcomes;
  }

  async #sendChanges(rows: readonly Row[], filters: readonly Word[]): Promise<Outcome<Reply>[]> {
    const calls = [...this.#changeCalls(rows, filters), ...this.durability.calls(this.filter)];
    try {
      if (!this.durability.isAsked) return await this.link.ask(calls);
      // WAIT blocks its connection until the replicas have the change.
      await this.waiting.reserve();
      return await this.waiting.ask(calls, { waitMs: this.durability.waitMs });
    } finally {
      this.near?.drop(rows.map((row) => row.cacheKey));
    }
  }

  /** Returns the commands that announce changes: one for each filter. */
  #changeCalls(rows: readonly Row[], filters: readonly Word[]): Call<Reply>[] {
    const pairs = rows.flatMap((row) => [row.item, row.cacheKey]);
    const words = (name: Word) => (rows.length > 1 ? ["BF.MCHANGED", name, "ITEMS", ...pairs] : ["BF.CHANGED", name, ...pairs]);
    return filters.map((name) => call(words(name), same));
  }

  /** Deletes rows' ids from the filter: throws the first error. */
  async forget(rows: readonly Row[]): Promise<void> {
    if (this.feed !== undefined) return;
    for (let start = 0; start < rows.length; start += BATCH) {
      const items = rows.slice(start, start + BATCH).map((row) => row.item);
      const answers = array(await this.link.one(call(["BF.MDEL", this.filter, ...items], same)));
      const trouble = answers.find((answer) => answer instanceof Error);
      if (trouble !== undefined) throw trouble;
    }
  }
}

function spreadReply(outcome: Outcome<Reply>, count: number): Outcome<Reply>[] {
  return Array.isArray(outcome) || outcome instanceof Error ? spread(outcome as Outcome<Reply[]>, count) : [outcome];
}
