/** The replies of BF.FETCH, BF.MFETCH and BF.FILL. */

import type { Reply } from "./connection.js";
import { asError } from "./errors.js";
import { array, number, text } from "./replies.js";

/** A reply of BF.FETCH: `value` comes with hit and stale, `token` with load and stale. */
export interface Fetched {
  readonly word: "absent" | "hit" | "stale" | "load" | "wait" | "failed";
  readonly value?: Buffer;
  readonly token?: Buffer;
}

export const ABSENT: Fetched = { word: "absent" };
export const WAIT: Fetched = { word: "wait" };

/** Returns a row in the form of an answer to a fetch. */
export function fetchedRow(data: Buffer | null): Fetched {
  return data === null ? ABSENT : { word: "hit", value: data };
}

/** Returns an answer without its token, for callers that do not load. */
export function withoutToken(found: Fetched): Fetched {
  if (found.token === undefined) return found;
  return found.value === undefined ? WAIT : { word: "hit", value: found.value };
}

export function parseFetch(reply: Reply): Fetched {
  if (reply instanceof Error) throw reply;
  const [first, second, third] = array(reply);
  const word = text(first);
  if (word === "absent" && second === undefined) return ABSENT;
  if (word === "hit" && Buffer.isBuffer(second)) return { word, value: second };
  if (word === "stale" && Buffer.isBuffer(second) && Buffer.isBuffer(third)) return { word, value: second, token: third };
  if (word === "load" && Buffer.isBuffer(second)) return { word, token: second };
  if ((word === "wait" || word === "failed") && number(second) >= 0) return { word };
  throw new TypeError(`BF.FETCH answered ${JSON.stringify(reply)}`);
}

/** Reads a reply of BF.MFETCH. A row has an error in place of an answer if its cache key has another type, or if this package
 * does not support the answer. */
export function parseMfetch(reply: Reply): (Fetched | Error)[] {
  return array(reply).map((one) => {
    try {
      return parseFetch(one);
    } catch (error) {
      return asError(error);
    }
  });
}
