/** Where the items of a sharded filter are: the contract that all clients of the project share.
 *
 * A sharded filter NAME with n shards is n filters at the keys `NAME:{0}` to `NAME:{n-1}`, and n in decimal at `NAME:shards`. The
 * braces are part of the key: shard i of every sharded filter is in the slot of "i". */

import { crc32 } from "./crc32.js";
import { type Key, keyBytes } from "./items.js";

export const MOST_SHARDS = 16384;

/** Returns the shard of an item: the CRC-32 of its bytes (ISO 3309, as in zlib) modulo the number of shards. */
export function shardOf(item: Uint8Array, shards: number): number {
  return crc32(item) % shards;
}

export function shardKey(name: Key, shard: number): Buffer {
  return Buffer.concat([keyBytes(name), Buffer.from(`:{${shard}}`)]);
}

export function countKey(name: Key): Buffer {
  return Buffer.concat([keyBytes(name), Buffer.from(":shards")]);
}

/** Returns the capacity of one shard: its part and four standard deviations, so that chance fills none before the others. */
export function shardCapacity(capacity: number, shards: number): number {
  const part = capacity / shards;
  return Math.ceil(part + 4 * Math.sqrt(part));
}

export function checkShards(shards: number): number {
  if (!Number.isInteger(shards) || shards < 1 || shards > MOST_SHARDS) {
    throw new RangeError(`a sharded filter has 1 to ${MOST_SHARDS} shards, not ${shards}`);
  }
  return shards;
}
