/** A client of node-redis that suits filters and the guard. It is exported as `bloomgate/redis`. */

import { createClient, type RedisClientOptions } from "redis";

/** The options of node-redis. */
export type ConnectOptions = Omit<RedisClientOptions, "RESP" | "url"> & { RESP?: 2 | 3 };

/** Returns a connected client for `redis://host:port/db`. It throws if the first attempt to connect fails; later it reconnects as
 * node-redis does.
 *
 * A command that finds no connection throws at once instead of waiting for one. node-redis sends no command twice. */
export async function connect(url: string, options: ConnectOptions = {}): Promise<ReturnType<typeof createClient>> {
  let isConnected = false;
  const { reconnectStrategy = (retries: number) => Math.min(50 * 2 ** retries, 2000) } = options.socket ?? {};
  const client = createClient({
    disableOfflineQueue: true,
    ...options,
    url,
    socket: {
      ...options.socket,
      reconnectStrategy: (retries, cause) => {
        if (!isConnected) return cause;
        return typeof reconnectStrategy === "function" ? reconnectStrategy(retries, cause) : reconnectStrategy;
      },
    },
  } as RedisClientOptions);
  // Each command reports the loss of its connection. Without a listener the event would end the process.
  client.on("error", () => {});
  await client.connect();
  isConnected = true;
  return client as unknown as ReturnType<typeof createClient>;
}
