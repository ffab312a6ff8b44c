/** Reports of changed keys: `CLIENT TRACKING` with BCAST, on a separate connection that redirects the reports to itself. In
 * RESP2 they are messages of a channel, to which both libraries can subscribe. */

import type { ChangeReports, Connection } from "./connection.js";
import type { Word } from "./creation.js";

/** The channel on which the server sends the names of changed keys, or null after FLUSHALL. */
export const CHANNEL = "__redis__:invalidate";

/** The events of a client of either library. */
interface Emitter {
  // biome-ignore lint/suspicious/noExplicitAny: node's EventEmitter has these types.
  on(event: string, listener: (...args: any[]) => void): unknown;
}

/** Functions that close the connections that report changes for a client. They end with the client's connection, because its
 * next connection may reach another server. Each client has one listener, because Node would warn of a leak from the eleventh
 * listener on. */
const closings = new WeakMap<Emitter, Set<() => void>>();

function closingsOf(main: Emitter): Set<() => void> {
  let closing = closings.get(main);
  if (closing === undefined) {
    const created = new Set<() => void>();
    for (const event of ["end", "reconnecting"]) {
      main.on(event, () => {
        for (const close of created) close();
      });
    }
    closings.set(main, created);
    closing = created;
  }
  return closing;
}

/** Begins reports of the keys with a prefix on `connection`, a duplicate of the client `main`. They end with either connection.
 * `losses` are the events by which the duplicate reports a lost connection. */
export async function beginReports(
  connection: Connection,
  prefix: Word,
  subscribe: () => Promise<unknown>,
  [main, duplicate]: readonly [Emitter, Emitter],
  losses: readonly string[],
): Promise<ChangeReports> {
  const close = () => connection.close();
  const closing = closingsOf(main);
  const ended = new Promise<void>((resolve) => {
    for (const loss of losses) duplicate.on(loss, () => resolve());
  }).then(() => {
    closing.delete(close);
    close();
  });
  closing.add(close);
  try {
    const id = await connection.command(["CLIENT", "ID"], undefined);
    const words = ["CLIENT", "TRACKING", "ON", "REDIRECT", String(id), "BCAST", "PREFIX", prefix];
    await connection.command(words, undefined);
    await subscribe();
  } catch (error) {
    closing.delete(close);
    close();
    throw error;
  }
  return { ended, close };
}
