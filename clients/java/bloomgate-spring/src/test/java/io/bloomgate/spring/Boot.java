package io.bloomgate.spring;

import java.lang.reflect.Proxy;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.util.ClassUtils;

/** Differences between the releases of Spring Boot. */
final class Boot {
    private Boot() {}

    /** Returns the first of these classes that exists in the release under test: packages of Spring Boot 4 have other names. */
    static Class<?> type(String... names) {
        for (String name : names) {
            if (ClassUtils.isPresent(name, null)) {
                return ClassUtils.resolveClassName(name, null);
            }
        }
        throw new IllegalArgumentException(String.join(", ", names));
    }

    /**
     * Returns a factory with which Spring's Redis cache waits for its writes, because Spring Data Redis 4 evicts in the background with
     * Lettuce.
     */
    static RedisConnectionFactory blocking(LettuceConnectionFactory factory) {
        return (RedisConnectionFactory) Proxy.newProxyInstance(Boot.class.getClassLoader(), new Class<?>[] {RedisConnectionFactory.class},
                (proxy, method, arguments) -> method.invoke(factory, arguments));
    }
}
