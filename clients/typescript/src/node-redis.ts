/** The adapter of node-redis, versions 5 and 6. */

import type { Changed, ChangeReports, Connection, Reply } from "./connection.js";
import type { Word } from "./creation.js";
import { Disconnected } from "./errors.js";
import { connectedBy } from "./promises.js";
import { Readiness } from "./readiness.js";
import { beginReports, CHANNEL } from "./reports.js";
import { slotOf } from "./slots.js";

/** The methods of node-redis that this package needs, which the clients of `createClient` and `createCluster` have. */
export interface NodeRedisClient {
  // biome-ignore lint/suspicious/noExplicitAny: the signatures of a client and of a cluster's client differ.
  sendCommand(...args: any[]): Promise<unknown>;
  // biome-ignore lint/suspicious/noExplicitAny: the types of the options differ with each client's type parameters.
  duplicate(...args: any[]): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: node's EventEmitter has these types.
  on(event: string, listener: (...args: any[]) => void): unknown;
  destroy(): void;
  /** Only the client of `createSentinel` has this method. That client is refused, because its methods take other arguments. */
  readonly getSentinelNode?: never;
  readonly isOpen: boolean;
}

interface Duplicated extends NodeRedisClient {
  readonly options?: { readonly socket?: { readonly connectTimeout?: number } };
  connect(): Promise<unknown>;
  subscribe(channel: string, listener: (message: unknown) => void, areBuffers: true): Promise<void>;
}

/** How long connecting may take by default: the default of node-redis. */
const CONNECT_MS = 5000;

/** The part of a cluster's client that has the addresses of the nodes. */
interface Nodes {
  readonly slots: readonly ({ readonly master?: { readonly client?: NodeRedisClient } } | undefined)[];
}

/** Settings that need RESP3. */
const WITHOUT_RESP3 = { RESP: 2, clientSideCache: undefined, emitInvalidate: false, maintNotifications: "disabled" };

/** BLOB_STRING as Buffer, MAP as a flat array; RESP_TYPES of node-redis has these numbers. */
const OPTIONS = { typeMapping: { 36: Buffer, 37: Array } };

export function isNodeRedis(client: unknown): client is NodeRedisClient {
  const methods = client as Partial<NodeRedisClient> | null;
  return (
    typeof methods?.sendCommand === "function" && typeof methods.duplicate === "function" && typeof methods.isOpen === "boolean"
  );
}

export function nodeRedisConnection(client: NodeRedisClient): Connection {
  if ("getSentinelNode" in client) {
    throw new TypeError(
      "createSentinel of node-redis is not supported: pass a client of createClient or createCluster, or of ioredis",
    );
  }
  return "slots" in client ? new ClusterConnection(client) : new ClientConnection(client);
}

class ClientConnection implements Connection {
  readonly isCluster = false;
  readonly #client: NodeRedisClient & { readonly isReady?: boolean };
  readonly #readiness: Readiness;

  constructor(client: NodeRedisClient) {
    this.#client = client;
    this.#readiness = new Readiness(client);
  }

  async command(words: readonly Word[]): Promise<Reply> {
    if (!this.#client.isReady && this.#client.isOpen) await this.#readiness.wait();
    return (await this.#client.sendCommand(words, OPTIONS)) as Reply;
  }

  async duplicate(): Promise<Connection> {
    return opened(duplicated(this.#client));
  }

  async reportChanges(prefix: Word, changed: Changed): Promise<ChangeReports> {
    if (!this.#client.isOpen) throw new Disconnected("the client is closed");
    const duplicate = duplicated(this.#client, WITHOUT_RESP3);
    const connection = await opened(duplicate);
    const subscribe = () => duplicate.subscribe(CHANNEL, (keys) => changed(keys as Buffer[] | null), true);
    return beginReports(connection, prefix, subscribe, [this.#client, duplicate], ["error", "end"]);
  }

  close(): void {
    if (this.#client.isOpen) this.#client.destroy();
  }
}

class ClusterConnection implements Connection {
  readonly isCluster = true;
  readonly #client: NodeRedisClient & Partial<Nodes>;

  constructor(client: NodeRedisClient) {
    this.#client = client;
  }

  async command(words: readonly Word[], key: Word | undefined): Promise<Reply> {
    return (await this.#client.sendCommand(key, false, words, OPTIONS)) as Reply;
  }

  /** A duplicate of the cluster's client would keep connections to several nodes, and reconnect to nodes that hang. */
  async duplicate(key: Word): Promise<Connection> {
    const node = this.#client.slots?.[slotOf(key)]?.master?.client;
    if (node === undefined) throw new Disconnected("no node of the cluster is known to have this key");
    return opened(duplicated(node));
  }

  close(): void {
    if (this.#client.isOpen) this.#client.destroy();
  }
}

/** Returns a client with the settings of another client. It does not reconnect. */
function duplicated(client: NodeRedisClient & { readonly options?: { socket?: object } }, options = {}): Duplicated {
  // A command that waits inside the server, and a connection for reports, are silent for longer than the socket's time limit.
  const socket = { ...client.options?.socket, reconnectStrategy: false, socketTimeout: undefined };
  return client.duplicate({ socket, disableOfflineQueue: true, ...options }) as Duplicated;
}

async function opened(client: Duplicated): Promise<Connection> {
  // Each command reports the loss of its connection. Without a listener the event would end the process.
  client.on("error", () => {});
  const { connectTimeout = CONNECT_MS } = client.options?.socket ?? {};
  await connectedBy(client.connect(), connectTimeout, () => client.destroy());
  return nodeRedisConnection(client);
}
