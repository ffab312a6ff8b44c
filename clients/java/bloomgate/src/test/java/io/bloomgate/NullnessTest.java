package io.bloomgate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.AnnotatedElement;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

/** The annotations of JSpecify, from which Kotlin and other compilers determine where null is possible. */
class NullnessTest {
    @Test
    void nullIsOnlyWhereItIsAnnotated() throws Exception {
        assertTrue(Guard.class.getPackage().isAnnotationPresent(NullMarked.class));
        assertTrue(isNullable(Guard.Loader.class.getMethod("load", Object.class).getAnnotatedReturnType()), "no row");
        Set<String> nullable = Stream.of(Info.class, Plan.class, Stats.class, Stats.Layer.class, Stats.Bucket.class)
                .flatMap(type -> Arrays.stream(type.getRecordComponents())).filter(one -> isNullable(one.getAnnotatedType()))
                .map(one -> one.getName()).collect(Collectors.toSet());
        assertEquals(Set.of("expansion", "itemsDeleted", "roomForDeleted", "windowS", "items", "fill", "beginMs", "endMs"), nullable);
        for (Method method : Guard.class.getMethods()) {
            List<Class<?>> types = List.of(method.getParameterTypes());
            if (types.contains(Duration.class)) {
                assertTrue(isNullable(method.getAnnotatedParameterTypes()[types.indexOf(Duration.class)]), method.toString());
            }
        }
    }

    private static boolean isNullable(AnnotatedElement type) {
        return type.isAnnotationPresent(Nullable.class);
    }
}
