package io.bloomgate;

/**
 * Converts the rows of a guard to the bytes that are cached, and back. If {@code decode} throws, the guard loads the row and replaces
 * the cached value. Every caller gets what {@code decode} returns, the one that loaded the row included.
 *
 * @param <V> the type of the rows
 */
public interface Codec<V> {
    /**
     * Converts a row.
     *
     * @param row the row
     * @return its bytes
     * @throws Exception if the row cannot be converted
     */
    byte[] encode(V row) throws Exception;

    /**
     * Converts bytes back.
     *
     * @param bytes what {@code encode} has returned, perhaps that of another version of the program
     * @return the row
     * @throws Exception if the bytes are no row
     */
    V decode(byte[] bytes) throws Exception;

    /**
     * Returns a codec that leaves bytes as they are.
     *
     * @return the codec
     */
    static Codec<byte[]> bytes() {
        return new Codec<>() {
            @Override
            public byte[] encode(byte[] row) {
                return row;
            }

            @Override
            public byte[] decode(byte[] bytes) {
                return bytes;
            }
        };
    }

    /**
     * Returns a codec for JSON by Jackson 2, which has to be in the class path. Numbers that JSON does not have are refused.
     *
     * @param <T> the type of the rows
     * @param type the class of the rows
     * @return the codec
     */
    static <T> Codec<T> json(Class<T> type) {
        return JsonCodec.of(type);
    }
}
