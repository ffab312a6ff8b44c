package io.bloomgate;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.JsonGeneratorDelegate;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JavaType;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;

/** A codec for JSON with Jackson 2. Refuses numbers that JSON lacks, such as NaN, which Jackson writes as strings. */
public final class JsonCodec<V> implements Codec<V> {
    private final ObjectMapper mapper;
    private final JavaType type;
    private final boolean isDefault;

    private JsonCodec(ObjectMapper mapper, JavaType type, boolean isDefault) {
        this.mapper = mapper;
        this.type = type;
        this.isDefault = isDefault;
    }

    /** Returns a codec with Jackson's defaults and the modules on the class path. */
    public static <T> JsonCodec<T> of(Class<T> type) {
        ObjectMapper mapper = JsonMapper.builder().findAndAddModules()
                .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS).build();
        return new JsonCodec<>(mapper, mapper.constructType(type), true);
    }

    /**
     * Returns a codec with a custom mapper, for rows of a type such as {@code mapper.constructType(new TypeReference<List<User>>() {})}.
     */
    public static <T> JsonCodec<T> of(ObjectMapper mapper, JavaType type) {
        return new JsonCodec<>(mapper, type, false);
    }

    @Override
    public byte[] encode(V row) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        JsonFactory factory = mapper.getFactory();
        try (JsonGenerator generator = new Finite(factory.createGenerator(bytes))) {
            mapper.writerFor(type).writeValue(generator, row);
        }
        return bytes.toByteArray();
    }

    @Override
    public V decode(byte[] bytes) throws IOException {
        return mapper.readValue(bytes, type);
    }

    /** Whether another codec has the same type, and the same mapper or the default one. */
    @Override
    public boolean equals(Object other) {
        return other instanceof JsonCodec<?> codec && type.equals(codec.type)
                && (mapper == codec.mapper || isDefault && codec.isDefault);
    }

    @Override
    public int hashCode() {
        return type.hashCode();
    }

    private static final class Finite extends JsonGeneratorDelegate {
        Finite(JsonGenerator generator) {
            super(generator, false);
        }

        @Override
        public void writeNumber(double number) throws IOException {
            super.writeNumber(Options.finite(number));
        }

        @Override
        public void writeNumber(float number) throws IOException {
            Options.finite(number);
            super.writeNumber(number);
        }

        @Override
        public void writeArray(double[] numbers, int offset, int length) throws IOException {
            for (int index = offset; index < offset + length; index++) {
                Options.finite(numbers[index]);
            }
            super.writeArray(numbers, offset, length);
        }
    }
}
