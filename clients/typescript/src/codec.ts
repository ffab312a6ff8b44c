/** Converts values to the bytes that the guard caches, and back. */

/** Converts a value to bytes and back. If `decode` throws, the guard loads the row and replaces the cached value. Every caller gets
 * the result of `decode`, including the caller that loaded the row. */
export interface Codec<V> {
  encode(value: V): Uint8Array;
  decode(data: Buffer): V;
}

/** Returns bytes unchanged. The guard's default. */
export class Bytes implements Codec<Uint8Array> {
  encode(value: Uint8Array): Uint8Array {
    if (value instanceof Uint8Array) return value;
    throw new TypeError(`the loaded value is ${typeof value}, not a Uint8Array: pass a codec to the guard`);
  }

  decode(data: Buffer): Uint8Array {
    return data;
  }
}

function finite(_: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) throw new RangeError(`JSON cannot represent ${value}`);
  return value;
}

/** Converts values that JSON can represent, in UTF-8. Refuses numbers that are not finite, which JSON.stringify turns into null. */
export class Json<V> implements Codec<V> {
  encode(value: V): Uint8Array {
    const text = JSON.stringify(value, finite) as string | undefined;
    if (text === undefined) throw new TypeError(`JSON cannot represent ${typeof value}`);
    return Buffer.from(text);
  }

  decode(data: Buffer): V {
    return JSON.parse(data.toString()) as V;
  }
}
