/** The file format of a filter's dump: the records of BF.SCANDUMP in sequence.
 *
 *     8 bytes      "BLOOMDMP"
 *     each record: 8 bytes iterator, 8 bytes length (both unsigned, little-endian), the record's data,
 *                  4 bytes CRC-32 of the three
 *     the end:     a record with iterator 0 and no data
 *
 * A record has up to 1 MiB of bits, or 16 MiB in RedisBloom's layout. */

import { crc32 } from "./crc32.js";
import { BadDump } from "./errors.js";

const MAGIC = Buffer.from("BLOOMDMP");

/** The longest record: the server's default limit for strings. */
const MOST_BYTES = 512n << 20n;

export interface DumpRecord {
  readonly iterator: bigint;
  readonly data: Buffer;
}

export const END: DumpRecord = { iterator: 0n, data: Buffer.alloc(0) };

export function head(): Buffer {
  return MAGIC;
}

export function recordBytes(record: DumpRecord): Buffer[] {
  const head = Buffer.alloc(16);
  head.writeBigUInt64LE(record.iterator);
  head.writeBigUInt64LE(BigInt(record.data.length), 8);
  const check = Buffer.alloc(4);
  check.writeUInt32LE(crc32(record.data, crc32(head)));
  return [head, record.data, check];
}

/** Reads exactly as many bytes as are asked for. */
class Bytes {
  readonly #source: AsyncIterator<Uint8Array> | Iterator<Uint8Array>;
  #left: Buffer = Buffer.alloc(0);

  constructor(source: Iterable<Uint8Array> | AsyncIterable<Uint8Array>) {
    this.#source = Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]();
  }

  async take(count: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let missing = count; missing > 0; ) {
      if (this.#left.length === 0) {
        const next = await this.#source.next();
        if (next.done) throw new BadDump("the dump ends before its last record");
        this.#left = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
        continue;
      }
      const part = this.#left.subarray(0, missing);
      parts.push(part);
      missing -= part.length;
      this.#left = this.#left.subarray(part.length);
    }
    return parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
  }

  async close(): Promise<void> {
    await this.#source.return?.();
  }
}

/** Reads the records of a dump. Throws BadDump if it is not a dump, is damaged or truncated. */
export async function* readRecords(source: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): AsyncGenerator<DumpRecord> {
  const bytes = new Bytes(source);
  try {
    if (!(await bytes.take(MAGIC.length)).equals(MAGIC)) throw new BadDump("this is not a dump of a filter");
    for (;;) {
      const head = await bytes.take(16);
      const iterator = head.readBigUInt64LE();
      const length = head.readBigUInt64LE(8);
      if (length > MOST_BYTES) throw new BadDump(`a record of ${length} bytes: the dump is damaged`);
      const data = await bytes.take(Number(length));
      if ((await bytes.take(4)).readUInt32LE() !== crc32(data, crc32(head))) {
        throw new BadDump("the checksum of a record is wrong: the dump is damaged");
      }
      if (iterator === 0n) return;
      yield { iterator, data };
    }
  } finally {
    await bytes.close();
  }
}
