/** CRC-32 (ISO 3309), for dumps and for the shards of items. Node has it as `zlib.crc32` from 20.15 on. */

import * as zlib from "node:zlib";

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc;
});

/** Continues the CRC-32 `before` with some bytes. */
export function tableCrc32(bytes: Uint8Array, before = 0): number {
  let crc = ~before;
  for (const byte of bytes) crc = (crc >>> 8) ^ (TABLE[(crc ^ byte) & 0xff] ?? 0);
  return ~crc >>> 0;
}

const builtIn = (zlib as { crc32?: (data: Uint8Array, value?: number) => number }).crc32;

export const crc32: (bytes: Uint8Array, before?: number) => number = builtIn ?? tableCrc32;
