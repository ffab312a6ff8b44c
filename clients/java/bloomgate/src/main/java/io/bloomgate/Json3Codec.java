package io.bloomgate;

import java.io.ByteArrayOutputStream;
import org.jspecify.annotations.Nullable;
import tools.jackson.core.JsonGenerator;
import tools.jackson.core.util.JsonGeneratorDelegate;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.JavaType;
import tools.jackson.databind.ObjectMapper;
import tools.jackson.databind.json.JsonMapper;

/** {@link JsonCodec} with Jackson 3. */
public final class Json3Codec<V> implements Codec<V> {
    private final ObjectMapper mapper;
    private final JavaType type;
    private final boolean isDefault;

    private Json3Codec(ObjectMapper mapper, JavaType type, boolean isDefault) {
        this.mapper = mapper;
        this.type = type;
        this.isDefault = isDefault;
    }

    /** Returns a codec with Jackson's defaults and the modules on the class path. */
    public static <T> Json3Codec<T> of(Class<T> type) {
        ObjectMapper mapper = JsonMapper.builder().findAndAddModules()
                .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS).build();
        return new Json3Codec<>(mapper, mapper.constructType(type), true);
    }

    /**
     * Returns a codec with a custom mapper, for rows of a type such as {@code mapper.constructType(new TypeReference<List<User>>() {})}.
     */
    public static <T> Json3Codec<T> of(ObjectMapper mapper, JavaType type) {
        return new Json3Codec<>(mapper, type, false);
    }

    @Override
    public byte[] encode(V row) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (JsonGenerator generator = new Finite(mapper.createGenerator(bytes))) {
            mapper.writerFor(type).writeValue(generator, row);
        }
        return bytes.toByteArray();
    }

    @Override
    public V decode(byte[] bytes) {
        return mapper.readValue(bytes, type);
    }

    /** Whether another codec has the same type, and the same mapper or the default one. */
    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof Json3Codec<?> codec && type.equals(codec.type)
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
        public JsonGenerator writeNumber(double number) {
            return super.writeNumber(Options.finite(number));
        }

        @Override
        public JsonGenerator writeNumber(float number) {
            Options.finite(number);
            return super.writeNumber(number);
        }

        @Override
        public JsonGenerator writeArray(double[] numbers, int offset, int length) {
            for (int index = offset; index < offset + length; index++) {
                Options.finite(numbers[index]);
            }
            return super.writeArray(numbers, offset, length);
        }
    }
}
