/** Writing to the guard's tables (docs/guard.md of the project). */

import { call, type Outcome, same } from "./ask.js";
import type { Reply } from "./connection.js";
import { Durability } from "./durability.js";
import { Unconfirmed } from "./errors.js";
import { type Fetching, spread } from "./fetch.js";
import { COMMAND_ITEMS } from "./items.js";
import { pause } from "./promises.js";
import { array } from "./replies.js";
import { keyWord, type Row } from "./rows.js";

/** The pause before a confirmation is repeated. */
const REPEAT_MS = 100;

/** The writers of one guard. With a feed they send nothing: the follower announces each change. */
export class Writing {
  readonly #guard: Fetching<unknown>;
  readonly #durability: Durability;

  // biome-ignore lint/suspicious/noExplicitAny: the writers of all guards make the same calls.
  constructor(guard: Fetching<any>) {
    const { replicas, replicasTimeoutMs, aof } = guard.options;
    this.#guard = guard;
    this.#durability = new Durability(replicas, replicasTimeoutMs, aof);
    this.#durability.checkConnection(guard.link.connection);
  }

  /** Announces changes before their commit. Throws the first error. */
  async announce(rows: readonly Row[]): Promise<void> {
    const failure = (await this.#changed(rows)).find((outcome) => outcome !== undefined);
    if (failure !== undefined) throw failure;
  }

  /** Confirms changes after their commit. Repeated until the server has answered for every row, for up to `patience`
   * seconds. */
  async confirm(rows: readonly Row[]): Promise<void> {
    const deadline = performance.now() + this.#guard.options.patience * 1000;
    for (let left = rows; ; await pause(REPEAT_MS, undefined)) {
      const outcomes = await this.#changed(left);
      const failure = outcomes.find((outcome) => outcome !== undefined);
      if (failure === undefined) return;
      left = left.filter((_, index) => outcomes[index] !== undefined);
      this.#guard.failed(failure);
      if (performance.now() < deadline) continue;
      const ids = left.map((row) => Buffer.from(row.id, "latin1"));
      throw new Unconfirmed(ids, { cause: failure });
    }
  }

  /** Announces a change of each row, to the filters that are being filled first. Resolves with an error or undefined for each. */
  async #changed(rows: readonly Row[]): Promise<(Error | undefined)[]> {
    const outcomes: (Error | undefined)[] = [];
    if (this.#guard.options.feed) return outcomes;
    for (let start = 0; start < rows.length; start += COMMAND_ITEMS) {
      const part = rows.slice(start, start + COMMAND_ITEMS);
      const found = await this.#sendChanges(part);
      const error = this.#durability.takeError(found);
      // The answers of each filter, in the order of the rows.
      const each = found.map((one) => spread(one as Outcome<readonly Reply[]>, part.length));
      const failure = (index: number) => each.map((answers) => answers[index]).find((one) => one instanceof Error);
      outcomes.push(...part.map((_, index) => error ?? (failure(index) as Error | undefined)));
    }
    return outcomes;
  }

  async #sendChanges(rows: readonly Row[]): Promise<Outcome<Reply>[]> {
    const { filter, link, options, waiting } = this.#guard;
    const pairs = rows.flatMap((row) => [row.item, row.cacheKey]);
    const changes = [...options.announceTo.map(keyWord), filter].map((name) =>
      rows.length > 1
        ? call(["BF.MCHANGED", name, "ITEMS", ...pairs], same)
        : call(["BF.CHANGED", name, ...pairs], (reply): Reply => [reply]),
    );
    const calls = [...changes, ...this.#durability.calls(filter)];
    try {
      if (!this.#durability.isAsked) return await link.ask(calls);
      // WAIT blocks its connection until the replicas have the change.
      await waiting.reserve();
      return await waiting.ask(calls, { waitMs: this.#durability.waitMs });
    } finally {
      options.near?.drop(rows.map((row) => row.cacheKey));
    }
  }

  /** Deletes the ids of rows from the filter. Throws the first error. */
  async forget(rows: readonly Row[]): Promise<void> {
    const { filter, link, options } = this.#guard;
    for (let start = 0; start < rows.length && !options.feed; start += COMMAND_ITEMS) {
      const items = rows.slice(start, start + COMMAND_ITEMS).map((row) => row.item);
      const failure = array(await link.one(call(["BF.MDEL", filter, ...items], same))).find((one) => one instanceof Error);
      if (failure !== undefined) throw failure;
    }
  }
}
