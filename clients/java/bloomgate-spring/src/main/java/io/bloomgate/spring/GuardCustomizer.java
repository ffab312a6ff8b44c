package io.bloomgate.spring;

import io.bloomgate.Guard;

/** Sets options of the guards that have no property, such as {@code failSafeFor} and {@code listener}. Declare it as a bean. */
@FunctionalInterface
public interface GuardCustomizer {
    /** Changes the options of the guard of a cache. For {@code failSafeFor}, the cause of an error is what the method has thrown. */
    void customize(String cache, Guard.Builder<Object> builder);
}
