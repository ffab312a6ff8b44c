/** Fills the filter of a guard under another name until every id is in it and acknowledged. */

import { type Client, call, Link, type Outcome, same } from "./ask.js";
import type { Reply } from "./connection.js";
import type { CreationOptions, Word } from "./creation.js";
import { Durability } from "./durability.js";
import { named } from "./errors.js";
import { Filter, type Items, settled } from "./filter.js";
import { asyncWindows, type Key, refuseSingle, type Window } from "./items.js";
import { fillingName, keyWord } from "./rows.js";

/** The options of a fill. */
export interface FillOptions extends CreationOptions {
  /** How many replicas must acknowledge each batch and the rename: every replica that may be promoted. */
  replicas?: number | undefined;
  /** The time limit for replicas, or the disk, to acknowledge: 3000. */
  replicasTimeoutMs?: number | undefined;
  /** Whether the append-only file on disk must contain each batch and the rename. */
  aof?: boolean | undefined;
}

/** Fills the filter of a guard as `{key}~filling`, then renames it to `key`. Returns the number of new ids. Until the rename,
 * writers must announce to both names.
 *
 * If the filter loses ids, their rows are reported absent. To survive a failover, set `replicas`; to survive a restart, set `aof`.
 * If the replicas or the disk take longer than `replicasTimeoutMs`, this throws TimeoutError.
 *
 * After an error `{key}~filling` may exist: delete it and start again. While it exists, this throws FilterExists, because another
 * client may be filling it. */
export async function fillFilter(
  client: Client,
  key: Key,
  ids: Items,
  rate: number,
  capacity: number,
  options: FillOptions = {},
): Promise<number> {
  refuseSingle(ids);
  const { replicas = 0, replicasTimeoutMs = 3000, aof = false, ...creation } = options;
  const durability = new Durability(replicas, replicasTimeoutMs, aof);
  const main = new Link(client);
  durability.checkConnection(main.connection);
  const name = fillingName(keyWord(key));
  await new Filter(client, name).reserve(rate, capacity, creation);
  // WAIT would block the client's own connection, and it waits only for writes on its own connection.
  const link = durability.isAsked ? new Link(await main.connection.duplicate(name), main.timeoutMs) : main;
  try {
    const filling = new Filling(link, name, durability);
    let added = 0;
    for await (const window of asyncWindows(ids)) added += await filling.add(window);
    await filling.finish(keyWord(key));
    return added;
  } finally {
    if (link !== main) link.connection.close();
  }
}

class Filling {
  readonly #link: Link;
  readonly #name: Word;
  readonly #durability: Durability;

  constructor(link: Link, name: Word, durability: Durability) {
    this.#link = link;
    this.#name = name;
    this.#durability = durability;
  }

  /** Adds ids, and waits until they are acknowledged. Returns how many were new.
   *
   * With SYNC, the server also replicates ids that were not new: another client may have added them, and the replicas may lack
   * its writes. */
  async add(window: Window): Promise<number> {
    const found = await this.#ask(window.map((chunk) => ["BF.INSERT", this.#name, "NOCREATE", "SYNC", "ITEMS", ...chunk]));
    const lost = this.#durability.takeError(found);
    const answers = settled(window, found, this.#name);
    if (lost !== undefined) throw lost;
    return answers.filter(Boolean).length;
  }

  /** Renames the filter to its final name. */
  async finish(key: Word): Promise<void> {
    const found = await this.#ask([["RENAME", this.#name, key]]);
    const lost = this.#durability.takeError(found);
    if (found[0] instanceof Error) throw named(found[0], this.#name);
    if (lost !== undefined) throw lost;
  }

  #ask(commands: readonly Word[][]): Promise<Outcome<Reply>[]> {
    const calls = [...commands.map((words) => call(words, same)), ...this.#durability.calls(this.#name)];
    return this.#link.ask(calls, { waitMs: this.#durability.waitMs });
  }
}
