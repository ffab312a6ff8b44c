/** A client of ioredis that suits filters and the guard. It is exported as `bloomgate/ioredis`. */

import { Redis, type RedisOptions } from "ioredis";

/** Returns a connected client for `redis://host:port/db`. It throws if the first attempt to connect fails; later it reconnects as
 * ioredis does.
 *
 * No command is sent twice, and a command that finds no connection throws at once. ioredis would send a command again if its
 * connection was lost; but an add that arrives twice answers that the item was in, and a guard whose BF.FETCH arrives twice
 * waits for a lease of its own. */
export async function connect(url: string, options: RedisOptions = {}): Promise<Redis> {
  let isConnected = false;
  const { retryStrategy = (times: number) => Math.min(50 * 2 ** (times - 1), 2000) } = options;
  const client = new Redis(url, {
    autoResendUnfulfilledCommands: false,
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    ...options,
    lazyConnect: true,
    retryStrategy: (times) => (isConnected ? retryStrategy?.(times) : null),
  } as RedisOptions & { replyMapping: "legacy" });
  // Each command reports the loss of its connection.
  client.on("error", () => {});
  await client.connect();
  isConnected = true;
  return client;
}
