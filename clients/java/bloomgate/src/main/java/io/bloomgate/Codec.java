package io.bloomgate;

/**
 * Converts a row to the bytes that the guard caches, and back. If {@code decode} throws, the guard loads the row and replaces the cached
 * value. Every caller gets the result of {@code decode}, including the caller that loaded the row.
 */
public interface Codec<V> {
    /** Encodes a row. */
    byte[] encode(V row) throws Exception;

    /** Decodes a row. Another version of the program may have encoded it. */
    V decode(byte[] bytes) throws Exception;

    /** Returns a codec that returns bytes unchanged. */
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
     * Returns a codec for JSON with Jackson 2 or, if that is not on the class path, Jackson 3. Refuses numbers that JSON lacks, such as
     * NaN. {@link JsonCodec} and {@link Json3Codec} accept a custom mapper.
     */
    static <T> Codec<T> json(Class<T> type) {
        try {
            return JsonCodec.of(type);
        } catch (NoClassDefFoundError missing) {
            return Json3Codec.of(type);
        }
    }
}
