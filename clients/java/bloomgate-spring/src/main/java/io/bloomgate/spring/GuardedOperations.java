package io.bloomgate.spring;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.aopalliance.aop.Advice;
import org.aopalliance.intercept.MethodInterceptor;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.springframework.beans.factory.config.BeanPostProcessor;
import org.springframework.cache.interceptor.BeanFactoryCacheOperationSourceAdvisor;
import org.springframework.cache.interceptor.CacheEvictOperation;
import org.springframework.cache.interceptor.CacheOperation;
import org.springframework.cache.interceptor.CacheOperationSource;
import org.springframework.cache.interceptor.CachePutOperation;
import org.springframework.cache.interceptor.CacheableOperation;
import org.springframework.context.expression.AnnotatedElementKey;
import org.springframework.core.KotlinDetector;
import org.springframework.core.PriorityOrdered;
import org.springframework.core.ReactiveAdapterRegistry;
import org.springframework.util.StringUtils;

/**
 * Adapts the annotations of a program to guards, so that existing services need no changes. Operations of other caches, and operations with
 * a cache manager or a cache resolver, are unchanged.
 *
 * <ul>
 * <li>{@code @Cacheable} behaves as with {@code sync = true}. The condition {@code #result == null} of {@code unless} is dropped: a change
 * always ends a cached absence. Spring refuses {@code sync} with another {@code unless}, several caches, or several operations; such a
 * method reads the cache without filling it, and a warning is logged at the start.
 * <li>{@code @CacheEvict} and {@code @CachePut} announce the change before the method runs, and so before its transaction begins. {@link
 * CachedCall} confirms it afterwards. If the key depends on the result, the change is only confirmed.
 * </ul>
 */
public final class GuardedOperations implements BeanPostProcessor, PriorityOrdered {
    private static final Log LOG = LogFactory.getLog(GuardedOperations.class);

    private final Predicate<String> isGuarded;
    private final String manager;

    /** For programs that guard all caches. */
    public GuardedOperations() {
        this(name -> true);
    }

    /** For programs that guard some caches. */
    public GuardedOperations(Predicate<String> isGuarded) {
        this(isGuarded, null);
    }

    /** For programs that guard some caches. `manager` is the bean of the guards' manager, because annotations may have another default. */
    GuardedOperations(Predicate<String> isGuarded, String manager) {
        this.isGuarded = isGuarded;
        this.manager = manager;
    }

    /** Runs before the post-processor that creates proxies, because it reads the operations. */
    @Override
    public int getOrder() {
        return HIGHEST_PRECEDENCE;
    }

    @Override
    public Object postProcessAfterInitialization(Object bean, String name) {
        if (bean instanceof BeanFactoryCacheOperationSourceAdvisor advisor && advisor.getAdvice() instanceof MethodInterceptor caching) {
            Advice noting = (MethodInterceptor) invocation -> CachedCall.run(invocation, caching);
            advisor.setAdvice(noting);
        }
        return bean instanceof CacheOperationSource source ? new Source(source) : bean;
    }

    private final class Source implements CacheOperationSource {
        private final CacheOperationSource source;
        private final Map<AnnotatedElementKey, Optional<Collection<CacheOperation>>> adapted = new ConcurrentHashMap<>();

        Source(CacheOperationSource source) {
            this.source = source;
        }

        @Override
        public boolean isCandidateClass(Class<?> type) {
            return source.isCandidateClass(type);
        }

        @Override
        public Collection<CacheOperation> getCacheOperations(Method method, Class<?> type) {
            return adapted.computeIfAbsent(new AnnotatedElementKey(method, type), key ->
                    Optional.ofNullable(source.getCacheOperations(method, type)).map(found -> adapt(found, method))).orElse(null);
        }
    }

    private Collection<CacheOperation> adapt(Collection<CacheOperation> operations, Method method) {
        List<CacheOperation> all = new ArrayList<>();
        for (CacheOperation operation : operations) {
            Set<String> guarded = operation.getCacheNames().stream().filter(isGuarded).collect(Collectors.toSet());
            boolean isElsewhere = StringUtils.hasText(operation.getCacheResolver())
                    || StringUtils.hasText(operation.getCacheManager()) && !operation.getCacheManager().equals(manager);
            if (guarded.isEmpty() || isElsewhere) {
                if (!guarded.isEmpty()) {
                    LOG.info(method + " is not adapted to the guards of " + guarded
                            + ": its annotation names a cacheManager or a cacheResolver");
                }
                all.add(operation);
                continue;
            }
            all.add(operation instanceof CacheableOperation read ? adaptRead(read, guarded, operations.size(), method)
                    : adaptChange(operation, guarded, method));
            Set<String> others = operation.getCacheNames().stream().filter(isGuarded.negate()).collect(Collectors.toSet());
            if (!others.isEmpty()) {
                all.add(copy(operation, others));
            }
        }
        return List.copyOf(all);
    }

    private CacheOperation adaptRead(CacheableOperation read, Set<String> guarded, int operations, Method method) {
        String unless = read.getUnless();
        boolean isAlways = !StringUtils.hasText(unless) || unless.replace(" ", "").equals("#result==null");
        String reason = operations > 1 ? "it is not the only annotation for caches of its method"
                : read.getCacheNames().size() > 1 ? "it names several caches, " + read.getCacheNames()
                : !isAlways ? "it has unless = \"" + unless + "\"" : null;
        CacheableOperation.Builder builder = copy(read, guarded, manager, new CacheableOperation.Builder());
        if (reason == null) {
            builder.setSync(true);
        } else {
            LOG.warn("@Cacheable of " + method + " caches no rows in the guarded caches " + guarded + ": " + reason
                    + ", so Spring loads the rows, and a guard caches only rows that it loads itself");
            builder.setUnless("true");
        }
        return builder.build();
    }

    /** Returns an eviction in place of an eviction or a put. It runs before the method if the key is known by then. */
    private CacheOperation adaptChange(CacheOperation change, Set<String> guarded, Method method) {
        CacheEvictOperation.Builder builder = copy(change, guarded, manager, new CacheEvictOperation.Builder());
        boolean isEviction = change instanceof CacheEvictOperation;
        boolean isAll = isEviction && ((CacheEvictOperation) change).isCacheWide();
        boolean isBefore = isEviction && ((CacheEvictOperation) change).isBeforeInvocation();
        boolean isMovedBefore = !isAll && !isBefore && canPrecede(change, method);
        if (isMovedBefore && change.getCondition().contains("#result")) {
            // The method may change the row. An unnecessary announcement costs only one load.
            builder.setCondition("");
        }
        builder.setCacheWide(isAll);
        builder.setBeforeInvocation(isBefore || isMovedBefore);
        return builder.build();
    }

    /** Returns a copy of an operation for some of its caches. */
    private static CacheOperation copy(CacheOperation operation, Set<String> names) {
        if (operation instanceof CacheEvictOperation eviction) {
            CacheEvictOperation.Builder builder = copy(operation, names, null, new CacheEvictOperation.Builder());
            builder.setCacheWide(eviction.isCacheWide());
            builder.setBeforeInvocation(eviction.isBeforeInvocation());
            return builder.build();
        } else if (operation instanceof CachePutOperation put) {
            CachePutOperation.Builder builder = copy(operation, names, null, new CachePutOperation.Builder());
            builder.setUnless(put.getUnless());
            return builder.build();
        }
        CacheableOperation.Builder builder = copy(operation, names, null, new CacheableOperation.Builder());
        builder.setUnless(((CacheableOperation) operation).getUnless());
        return builder.build();
    }

    private static <B extends CacheOperation.Builder> B copy(CacheOperation operation, Set<String> names, String manager, B builder) {
        builder.setName(operation.getName());
        builder.setCacheNames(names.toArray(String[]::new));
        builder.setKey(operation.getKey());
        builder.setKeyGenerator(operation.getKeyGenerator());
        builder.setCondition(operation.getCondition());
        if (manager != null) {
            builder.setCacheManager(manager);
        }
        return builder;
    }

    /** Whether the key is known before the method runs, and the method has ended when it returns. */
    private static boolean canPrecede(CacheOperation operation, Method method) {
        Class<?> type = method.getReturnType();
        boolean isReactive = !CompletableFuture.class.isAssignableFrom(type) && ReactiveAdapterRegistry.getSharedInstance().getAdapter(type) != null;
        return !operation.getKey().contains("#result") && !isReactive && !KotlinDetector.isSuspendingFunction(method);
    }
}
