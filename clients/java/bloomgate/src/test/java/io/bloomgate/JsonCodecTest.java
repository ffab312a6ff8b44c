package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;

/** The codec for the Jackson on the class path: the build runs this test with Jackson 2, and again with only Jackson 3. */
class JsonCodecTest {
    record User(String name, int age) {}

    @Test
    void theJacksonOfTheClassPathIsUsed() {
        String expected = System.getProperty("jackson", "2").equals("2") ? "JsonCodec" : "Json3Codec";
        assertEquals(expected, Codec.json(User.class).getClass().getSimpleName());
    }

    @Test
    void rowsComeBack() throws Exception {
        Codec<User> codec = Codec.json(User.class);
        User ann = new User("Ann", 7);
        assertEquals(ann, codec.decode(codec.encode(ann)));
        // Jackson 3 sorts the names.
        assertEquals(ann, codec.decode(Keys.ascii("{\"age\":7,\"name\":\"Ann\"}")));
        assertEquals(Codec.json(User.class), codec);
        assertNotEquals(Codec.json(String.class), codec);
    }

    @Test
    void valuesThatAreNotJsonAreRefused() {
        Codec<Object> codec = Codec.json(Object.class);
        for (Object number : List.of(Double.NaN, Float.POSITIVE_INFINITY, new double[] {1, Double.NEGATIVE_INFINITY}, List.of(Double.NaN))) {
            assertThrows(Exception.class, () -> codec.encode(number));
        }
        assertThrows(Exception.class, () -> codec.decode(Keys.ascii("1 2")));
        assertThrows(Exception.class, () -> codec.decode(Keys.ascii("NaN")));
    }
}
