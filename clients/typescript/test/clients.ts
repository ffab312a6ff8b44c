/** The clients for the tests: node-redis and ioredis, in each protocol. */

import { Cluster } from "ioredis";
import { createCluster } from "redis";
import { connect as connectIoredis } from "../src/connect-ioredis.js";
import { connect as connectRedis } from "../src/connect-redis.js";
import type { Client } from "../src/index.js";
import { type Context, PATIENCE_MS } from "./server.js";

export { connectIoredis, connectRedis };

export type Library = "redis" | "ioredis";

export const LIBRARIES: readonly Library[] = ["redis", "ioredis"];

/** Returns a connected client, which is closed at the end of the test. `user` is empty or `NAME:PASSWORD@`. */
export async function openClient(
  context: Context,
  library: Library,
  port: number,
  protocol: 2 | 3 = 3,
  user = "",
): Promise<Client> {
  const url = `redis://${user}127.0.0.1:${port}`;
  if (library === "redis") {
    const client = await connectRedis(url, { RESP: protocol, timeoutMs: PATIENCE_MS });
    context.after(() => client.isOpen && client.destroy());
    return client;
  }
  const client = await connectIoredis(url, { protocol, timeoutMs: PATIENCE_MS });
  context.after(() => client.disconnect());
  return client;
}

/** Returns a connected client of a cluster, which is closed at the end of the test. */
export async function openCluster(context: Context, library: Library, ports: readonly number[]): Promise<Client> {
  if (library === "redis") {
    const cluster = createCluster({ rootNodes: ports.map((port) => ({ socket: { host: "127.0.0.1", port } })) });
    cluster.on("error", () => {});
    await cluster.connect();
    context.after(() => cluster.destroy());
    return cluster;
  }
  const nodes = ports.map((port) => ({ host: "127.0.0.1", port }));
  const cluster = new Cluster(nodes, { lazyConnect: true });
  await cluster.connect();
  context.after(() => cluster.disconnect());
  return cluster;
}
