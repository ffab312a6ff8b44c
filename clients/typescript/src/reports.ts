/** Reports of changed keys: `CLIENT TRACKING` with BCAST, on a connection of its own that redirects them to itself. In RESP2 they
 * are messages of a channel, which both libraries can subscribe to. */

import type { ChangeReports, Connection } from "./connection.js";
import type { Word } from "./words.js";

/** The channel on which the server sends the names of changed keys, or null after FLUSHALL. */
export const CHANNEL = "__redis__:invalidate";

/** The events of a client of either library. */
interface Emitter {
  // biome-ignore lint/suspicious/noExplicitAny: node's EventEmitter has these types.
  on(event: string, listener: (...args: any[]) => void): unknown;
}

/** What closes the connections that report changes for a client: they end with its connection, because its next one may lead to
 * another server. Each client has one listener, because Node would warn of a leak from the eleventh on. */
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
 * `losses` are the events of the duplicate that mean that its connection is lost. */
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
