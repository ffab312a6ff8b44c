package io.bloomgate.spring;

import org.springframework.util.ClassUtils;

/** Classes that have another package in Spring Boot 4. */
final class Boot {
    private Boot() {}

    /** Returns the class of the first name that the release under test has. */
    static Class<?> type(String... names) {
        for (String name : names) {
            if (ClassUtils.isPresent(name, null)) {
                return ClassUtils.resolveClassName(name, null);
            }
        }
        throw new IllegalArgumentException(String.join(", ", names));
    }
}
