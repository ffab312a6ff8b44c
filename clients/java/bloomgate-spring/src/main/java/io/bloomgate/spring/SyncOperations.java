package io.bloomgate.spring;

import java.lang.reflect.Method;
import java.util.Collection;
import java.util.List;
import org.springframework.beans.factory.config.BeanPostProcessor;
import org.springframework.cache.interceptor.CacheOperation;
import org.springframework.cache.interceptor.CacheOperationSource;
import org.springframework.cache.interceptor.CacheableOperation;
import org.springframework.core.PriorityOrdered;

/**
 * Makes each {@code @Cacheable} of a program behave as with {@code sync = true}, which a guard needs, so that existing services need no
 * changes. For programs that guard all caches.
 *
 * <p>Spring itself refuses {@code sync} for methods with several caches or operations, and with {@code unless}. The condition {@code
 * #result == null} is dropped: a change always ends a cached absence.
 */
public final class SyncOperations implements BeanPostProcessor, PriorityOrdered {
    /** Runs before the post-processor that creates proxies, because it reads the operations. */
    @Override
    public int getOrder() {
        return HIGHEST_PRECEDENCE;
    }

    @Override
    public Object postProcessAfterInitialization(Object bean, String name) {
        return bean instanceof CacheOperationSource source ? new Source(source) : bean;
    }

    private record Source(CacheOperationSource source) implements CacheOperationSource {
        @Override
        public boolean isCandidateClass(Class<?> type) {
            return source.isCandidateClass(type);
        }

        @Override
        public Collection<CacheOperation> getCacheOperations(Method method, Class<?> type) {
            Collection<CacheOperation> operations = source.getCacheOperations(method, type);
            if (operations == null || operations.size() != 1
                    || !(operations.iterator().next() instanceof CacheableOperation operation) || operation.isSync()) {
                return operations;
            }
            CacheableOperation.Builder builder = new CacheableOperation.Builder();
            builder.setName(operation.getName());
            builder.setCacheNames(operation.getCacheNames().toArray(String[]::new));
            builder.setKey(operation.getKey());
            builder.setKeyGenerator(operation.getKeyGenerator());
            builder.setCacheManager(operation.getCacheManager());
            builder.setCacheResolver(operation.getCacheResolver());
            builder.setCondition(operation.getCondition());
            String unless = operation.getUnless();
            builder.setUnless(unless != null && unless.replace(" ", "").equals("#result==null") ? "" : unless);
            builder.setSync(true);
            return List.of(builder.build());
        }
    }
}
