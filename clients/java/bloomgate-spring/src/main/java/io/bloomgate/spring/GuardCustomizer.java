package io.bloomgate.spring;

import io.bloomgate.Guard;

/** Sets options of the guards that are not properties, such as {@code failSafeFor} and {@code listener}. Declare it as a bean. */
@FunctionalInterface
public interface GuardCustomizer {
    /** Changes the options of a cache's guard. For {@code failSafeFor}, the method's exception is the cause of the error. */
    void customize(String cache, Guard.Builder<Object> builder);
}
