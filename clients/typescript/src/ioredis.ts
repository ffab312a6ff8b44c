/** The adapter of ioredis, versions 5 and 6. */

import type { Changed, ChangeReports, Connection, Reply } from "./connection.js";
import type { Word } from "./creation.js";
import { Disconnected } from "./errors.js";
import { connectedBy } from "./promises.js";
import { Readiness } from "./readiness.js";
import { beginReports, CHANNEL } from "./reports.js";
import { slotOf } from "./slots.js";

/** The methods of ioredis that this package needs, which `Redis` and `Cluster` have. */
export interface IoredisClient {
  // biome-ignore lint/suspicious/noExplicitAny: the signatures of Redis and Cluster differ.
  callBuffer(...args: any[]): Promise<unknown>;
  // biome-ignore lint/suspicious/noExplicitAny: the signatures of Redis and Cluster differ.
  duplicate(...args: any[]): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: node's EventEmitter has these types.
  on(event: string, listener: (...args: any[]) => void): unknown;
  disconnect(): void;
  readonly status: string;
  readonly stream?: { readonly destroyed: boolean };
}

interface Duplicated extends IoredisClient {
  readonly options?: { readonly connectTimeout?: number };
  connect(): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
}

/** How long connecting may take by default: the default of ioredis. */
const CONNECT_MS = 10_000;

/** The part of a cluster's client that has the addresses of the nodes. */
interface Nodes {
  /** The addresses of the nodes of each slot, the primary first. */
  readonly slots: readonly (readonly string[] | undefined)[];
  nodes(role: "master"): readonly (IoredisClient & { readonly options: { readonly host?: string; readonly port?: number } })[];
}

/** The settings of a connection that never sends a command twice, ends when it is lost, and allows commands to wait inside the
 * server. */
const ONCE = {
  retryStrategy: () => null,
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  commandTimeout: undefined,
  socketTimeout: undefined,
};

export function isIoredis(client: unknown): client is IoredisClient {
  const methods = client as Partial<IoredisClient> | null;
  return typeof methods?.callBuffer === "function" && typeof methods.status === "string";
}

export function ioredisConnection(client: IoredisClient): Connection {
  const options = (client as { options?: { keyPrefix?: string; redisOptions?: { keyPrefix?: string } } }).options;
  if (options?.keyPrefix || options?.redisOptions?.keyPrefix) {
    throw new TypeError("keyPrefix would apply to some commands only: pass a client without it");
  }
  return "slots" in client ? new ClusterConnection(client) : new ClientConnection(client);
}

class ClientConnection implements Connection {
  readonly isCluster = false;
  readonly #client: IoredisClient;
  readonly #readiness: Readiness;

  constructor(client: IoredisClient) {
    this.#client = client;
    this.#readiness = new Readiness(client);
  }

  async command(words: readonly Word[]): Promise<Reply> {
    const { status, stream } = this.#client;
    // A client with `lazyConnect` connects for its first command. A client whose connection was destroyed stays "ready" for a
    // moment.
    const isReady = status === "ready" && !stream?.destroyed;
    if (!isReady && status !== "wait" && status !== "end") await this.#readiness.wait();
    return (await this.#client.callBuffer(...words)) as Reply;
  }

  async duplicate(): Promise<Connection> {
    return opened(duplicated(this.#client));
  }

  async reportChanges(prefix: Word, changed: Changed): Promise<ChangeReports> {
    if (this.#client.status === "end") throw new Disconnected("the client is closed");
    const duplicate = duplicated(this.#client, { protocol: 2, replyMapping: "legacy" });
    duplicate.on("messageBuffer", (_channel: Buffer, keys: Buffer[] | null) => changed(keys));
    const connection = await opened(duplicate);
    const subscribe = () => duplicate.subscribe(CHANNEL);
    return beginReports(connection, prefix, subscribe, [this.#client, duplicate], ["close", "end"]);
  }

  close(): void {
    this.#client.disconnect();
  }
}

class ClusterConnection implements Connection {
  readonly isCluster = true;
  readonly #client: IoredisClient;

  constructor(client: IoredisClient) {
    this.#client = client;
  }

  async command(words: readonly Word[], key: Word | undefined): Promise<Reply> {
    if (key === undefined) return (await this.#client.callBuffer(...words)) as Reply;
    return (await routed(this.#client, slotOf(key)).callBuffer(...words)) as Reply;
  }

  /** A duplicate of the cluster's client would open connections to all nodes. */
  async duplicate(key: Word): Promise<Connection> {
    const { slots, nodes } = this.#client as IoredisClient & Partial<Nodes>;
    const address = slots?.[slotOf(key)]?.[0];
    const node = nodes?.call(this.#client, "master").find(({ options }) => `${options.host}:${options.port}` === address);
    if (node === undefined) throw new Disconnected("no node of the cluster is known to have this key");
    return opened(duplicated(node));
  }

  close(): void {
    this.#client.disconnect();
  }
}

interface Sender {
  sendCommand(command: { slot?: number }, ...rest: unknown[]): Promise<unknown>;
}

/** Returns a view of a cluster's client that sends commands to the node of a slot. ioredis does not know the key positions of
 * BF.*: it would send these commands to a random node, which redirects them, and would then read the map of slots again. */
function routed(client: IoredisClient, slot: number): IoredisClient {
  const sendCommand: Sender["sendCommand"] = (command, ...rest) => {
    command.slot = slot;
    return (client as unknown as Sender).sendCommand(command, ...rest);
  };
  return Object.create(client, { sendCommand: { value: sendCommand } }) as IoredisClient;
}

/** Returns a client with the settings of another client. It does not reconnect. */
function duplicated(client: IoredisClient, options = {}): Duplicated {
  return client.duplicate({ ...ONCE, lazyConnect: true, ...options }) as Duplicated;
}

async function opened(client: Duplicated): Promise<Connection> {
  // Each command reports the loss of its connection.
  client.on("error", () => {});
  await connectedBy(client.connect(), client.options?.connectTimeout ?? CONNECT_MS, () => client.disconnect());
  return ioredisConnection(client);
}
