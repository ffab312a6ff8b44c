package io.bloomgate;

/**
 * Converts the rows of a guard to the bytes that are cached, and back. If {@code decode} throws, the guard loads the row and replaces
 * the cached value. Every caller gets what {@code decode} returns, the one that loaded the row included.
 */
public interface Codec<V> {
    /** Returns the bytes of a row. */
    byte[] encode(V row) throws Exception;

    /** Returns the row of some bytes, which {@code encode} has returned, perhaps that of another version of the program. */
    V decode(byte[] bytes) throws Exception;

    /** Returns a codec that leaves bytes as they are. */
    static Codec<byte[]> bytes() {
        record Bytes() implements Codec<byte[]> {
            @Override
            public byte[] encode(byte[] row) {
                return row;
            }

            @Override
            public byte[] decode(byte[] bytes) {
                return bytes;
            }
        }
        return new Bytes();
    }

    /**
     * Returns a codec for JSON by Jackson 2 or, if that is not in the class path, by Jackson 3. Numbers that JSON does not have are refused.
     * With a mapper of one's own: {@link JsonCodec} and {@link Json3Codec}.
     */
    static <T> Codec<T> json(Class<T> type) {
        try {
            return JsonCodec.of(type);
        } catch (NoClassDefFoundError missing) {
            return Json3Codec.of(type);
        }
    }
}
