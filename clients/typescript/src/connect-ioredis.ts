/** A client of ioredis that suits filters and the guard. It is exported as `bloomgate/ioredis`. */

import { Redis, type RedisOptions } from "ioredis";
import { TIMEOUT_MS } from "./ask.js";
import { openReplaceable } from "./connection.js";
import { defined } from "./creation.js";

/** The options of ioredis, and `timeoutMs`: how long a command of this package, and connecting, may take (1000). */
export type ConnectOptions = RedisOptions & { timeoutMs?: number | undefined };

/** Returns a connected client for `redis://host:port/db`. It throws if the first attempt to connect fails; later it reconnects
 * as ioredis does.
 *
 * No command is sent twice, and a command that finds no connection throws at once. ioredis would send a command again if its
 * connection was lost; but an add that arrives twice answers that the item was present, and a guard whose BF.FETCH arrives
 * twice waits for its own lease.
 *
 * After a command of this package has exceeded `timeoutMs`, the client opens a new connection. */
export async function connect(url: string, options: ConnectOptions = {}): Promise<Redis> {
  let isConnected = false;
  const { timeoutMs = TIMEOUT_MS, retryStrategy = (times: number) => Math.min(50 * 2 ** (times - 1), 2000), ...rest } = options;
  const client = new Redis(url, {
    autoResendUnfulfilledCommands: false,
    connectTimeout: timeoutMs,
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    ...defined(rest),
    lazyConnect: true,
    retryStrategy: (times) => (isConnected ? retryStrategy?.(times) : null),
  } as RedisOptions & { replyMapping: "legacy" });
  // Each command reports the loss of its connection.
  client.on("error", () => {});
  await openReplaceable(client, timeoutMs, client.connect(), {
    replace: () => client.stream.destroy(),
    close: () => client.disconnect(),
  });
  isConnected = true;
  return client;
}
