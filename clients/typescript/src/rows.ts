/** The names of a guard's keys, and the rows that callers request. */

import type { Word } from "./creation.js";
import { type Item, itemWord, type Key, keyBytes, keyText } from "./items.js";

/** Returns the bytes of a word as a string with one character per byte, for comparisons and as the key of a map. */
export function binary(word: Word): string {
  if (typeof word !== "string") return word.toString("latin1");
  return isAscii(word) ? word : Buffer.from(word).toString("latin1");
}

function isAscii(word: string): boolean {
  for (let index = 0; index < word.length; index++) {
    if (word.charCodeAt(index) > 0x7f) return false;
  }
  return true;
}

function joined(first: Word, second: Word): Word {
  if (typeof first === "string" && typeof second === "string") return first + second;
  return Buffer.concat([first, second].map((word) => (typeof word === "string" ? Buffer.from(word) : word)));
}

/** One row of the table. Ids with the same bytes, such as 7 and "7", name one row. */
export class Row {
  /** The bytes of the item, for comparisons. */
  readonly id: string;
  readonly item: Word;
  readonly cacheKey: Word;

  constructor(item: Item, prefix: Word) {
    this.item = itemWord(item);
    this.id = binary(this.item);
    this.cacheKey = joined(prefix, this.item);
  }
}

/** Returns a prefix of key names in the cluster slot of the filter. Its hash tag is the text between the first `{` and the next
 * `}`, or else the whole name. */
function inSlotOf(filter: Word): Word {
  const name = binary(filter);
  const opened = name.indexOf("{");
  const closed = opened < 0 ? -1 : name.indexOf("}", opened + 1);
  if (closed > opened + 1) return filter;
  if (name.includes("}")) {
    throw new RangeError(
      `no other key shares the slot of ${keyText(filter)}: rename the filter, or, without a feed, pass a prefix`,
    );
  }
  return joined(joined("{", filter), "}");
}

export function keyWord(key: Key): Word {
  return typeof key === "string" ? key : keyBytes(key);
}

/** Returns the prefix of cache keys. */
export function cachePrefix(filter: Word): Word {
  return joined(inSlotOf(filter), ":");
}

/** Returns the name under which a filter is filled. No cache key has this name. */
export function fillingName(filter: Word): Word {
  return joined(inSlotOf(filter), "~filling");
}

/** Returns the keys that `bloomgate follow` uses for a filter: its heartbeat, and the hash of the writes in flight.
 * crates/follow/src/config.rs defines their names. */
export function feedKeys(filter: Word): [heartbeat: Word, inFlight: Word] {
  const base = inSlotOf(filter);
  return [joined(base, ":feed"), joined(base, ":feed:open")];
}
