/** The interface of a connection, which the adapters of node-redis and ioredis implement, and connections that are replaced once a
 * command has taken too long. */

import type { Word } from "./creation.js";
import { connectedBy } from "./promises.js";

/** A reply of the server. Strings are Buffers, except simple strings such as OK, which may be either. An error inside an array
 * is an Error in its place. */
export type Reply = null | boolean | number | string | Buffer | Error | readonly Reply[] | ReadonlyMap<Reply, Reply>;

/** Is called with the names of changed keys, or with null if all keys may have changed. */
export type Changed = (keys: readonly Buffer[] | null) => void;

/** A connection that reports changes. */
export interface ChangeReports {
  /** Resolves once the connection is closed or lost. */
  readonly ended: Promise<void>;
  close(): void;
}

/** A client of a server or a cluster. Commands that are sent in one turn of the event loop, without an `await` between them,
 * arrive in their order on one connection to the node. */
export interface Connection {
  /** Sends a command. A cluster's client sends it to the node that holds `key`, or to any node without one. Rejects with the
   * error of the server or of the client library. */
  command(words: readonly Word[], key: Word | undefined): Promise<Reply>;
  /** Opens another connection with the same settings, which does not reconnect and never sends a command twice. For a cluster's
   * client, it connects to the node of `key`. */
  duplicate(key: Word): Promise<Connection>;
  /** Opens a connection on which the server reports the changes of all keys with a prefix. Rejects with Disconnected if this client
   * is closed. A near cache needs this method. */
  reportChanges?(prefix: Word, changed: Changed): Promise<ChangeReports>;
  /** Closes the connection at once. Commands without a reply reject. */
  close(): void;
  /** Whether the client routes commands by their keys. */
  readonly isCluster: boolean;
}

/** A connection that is replaced once a command has taken too long. Other commands without a reply on it then fail. */
export class Replaceable {
  /** How long a command may take. */
  readonly timeoutMs: number;
  /** The number of times that the connection was replaced. */
  count = 0;
  /** The number of commands without a reply that have a longer time limit, such as BF.MERGE: other commands may wait behind
   * them. */
  longCommands = 0;
  readonly #replace: () => void;

  constructor(timeoutMs: number, replace: () => void) {
    if (!(timeoutMs > 0)) throw new RangeError(`timeoutMs is more than 0, not ${timeoutMs}`);
    this.timeoutMs = timeoutMs;
    this.#replace = replace;
  }

  /** Replaces the connection, unless it was replaced since `count` was read: a new connection did not cause the delay. */
  replace(count: number): void {
    if (count !== this.count || this.longCommands > 0) return;
    this.count++;
    this.#replace();
  }
}

/** The clients that `connect` has created. A client that the user created keeps its connection. */
export const replaceables = new WeakMap<object, Replaceable>();

/** Waits until a new client is connected. Closes it and throws TimeoutError if connecting exceeds the time limit of a
 * command. */
export async function openReplaceable(
  client: object,
  timeoutMs: number,
  connecting: Promise<unknown>,
  { replace, close }: { replace(): void; close(): void },
): Promise<void> {
  replaceables.set(client, new Replaceable(timeoutMs, replace));
  await connectedBy(connecting, timeoutMs, close);
}
