/** The Connection of a client. Clients are recognised by their methods, so that neither library has to be installed for the other. */

import type { Connection } from "./connection.js";
import { type IoredisClient, ioredisConnection, isIoredis } from "./ioredis.js";
import { isNodeRedis, type NodeRedisClient, nodeRedisConnection } from "./node-redis.js";

/** A client of node-redis (`createClient`, `createCluster`), of ioredis (`Redis`, `Cluster`), or another Connection. */
export type Client = NodeRedisClient | IoredisClient | Connection;

const connections = new WeakMap<object, Connection>();

/** Returns the Connection of a client: the same object for each call. */
export function connectionOf(client: Client): Connection {
  let connection = connections.get(client);
  if (connection === undefined) {
    connection = adapt(client);
    connections.set(client, connection);
  }
  return connection;
}

function adapt(client: Client): Connection {
  if (isIoredis(client)) return ioredisConnection(client);
  if (isNodeRedis(client)) return nodeRedisConnection(client);
  if (typeof (client as Partial<Connection> | null)?.command === "function" && "isCluster" in client) return client;
  throw new TypeError("a client of node-redis or ioredis is needed");
}
