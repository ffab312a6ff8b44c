/** The slot of a key in a cluster (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/). */

import type { Word } from "./creation.js";

const SLOTS = 16384;

const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});

/** Returns CRC-16/XMODEM of some bytes. */
function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) crc = ((crc << 8) ^ (TABLE[(crc >> 8) ^ byte] ?? 0)) & 0xffff;
  return crc;
}

/** Returns the hash tag of a key: the text between its first `{` and the next `}`, or else the whole key. */
function hashTag(key: Buffer): Buffer {
  const opened = key.indexOf("{");
  const closed = opened < 0 ? -1 : key.indexOf("}", opened + 1);
  return closed > opened + 1 ? key.subarray(opened + 1, closed) : key;
}

export function slotOf(key: Word): number {
  return crc16(hashTag(typeof key === "string" ? Buffer.from(key) : key)) % SLOTS;
}
