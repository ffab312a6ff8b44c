/** A client of node-redis that suits filters and the guard. It is exported as `bloomgate/redis`. */

import { createClient, type RedisClientOptions } from "redis";
import { TIMEOUT_MS } from "./ask.js";
import { openReplaceable } from "./connection.js";
import { defined } from "./creation.js";

/** The options of node-redis, and `timeoutMs`: how long a command of this package, and connecting, may take (1000). */
export type ConnectOptions = Omit<RedisClientOptions, "RESP" | "url"> & { RESP?: 2 | 3; timeoutMs?: number | undefined };

/** Returns a connected client for `redis://host:port/db`. It throws if the first attempt to connect fails; later it reconnects
 * as node-redis does.
 *
 * A command that finds no connection throws at once instead of waiting for one. node-redis sends no command twice.
 *
 * After a command of this package has exceeded `timeoutMs`, the client opens a new connection. */
export async function connect(url: string, options: ConnectOptions = {}): Promise<ReturnType<typeof createClient>> {
  let isConnected = false;
  const { timeoutMs = TIMEOUT_MS, socket, ...rest } = options;
  const { reconnectStrategy = (retries: number) => Math.min(50 * 2 ** retries, 2000) } = socket ?? {};
  const client = createClient({
    disableOfflineQueue: true,
    ...defined(rest),
    url,
    socket: {
      connectTimeout: timeoutMs,
      ...defined(socket ?? {}),
      reconnectStrategy: (retries, cause) => {
        if (!isConnected) return cause;
        return typeof reconnectStrategy === "function" ? reconnectStrategy(retries, cause) : reconnectStrategy;
      },
    },
  } as RedisClientOptions);
  // Each command reports the loss of its connection. Without a listener the event would end the process.
  client.on("error", () => {});
  await openReplaceable(client, timeoutMs, client.connect(), {
    replace() {
      // A client that is connecting would continue its attempt, and connect twice. `connectTimeout` ends the attempt.
      if (!client.isReady) return;
      client.destroy();
      client.connect().catch(() => {});
    },
    close: () => client.destroy(),
  });
  isConnected = true;
  return client as unknown as ReturnType<typeof createClient>;
}
