package io.bloomgate.spring;

import java.lang.annotation.Annotation;
import java.lang.reflect.AccessibleObject;
import java.lang.reflect.AnnotatedParameterizedType;
import java.lang.reflect.AnnotatedType;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.core.ReactiveAdapter;
import org.springframework.core.ReactiveAdapterRegistry;
import org.springframework.core.ResolvableType;

/**
 * A call of a method with cache annotations. It records which changes are announced before the method runs, and confirms them after the
 * method has ended. With Spring's default order of interceptors, the method's transaction begins and ends inside the call.
 */
final class CachedCall {
    private static final ThreadLocal<CachedCall> CURRENT = new ThreadLocal<>();
    private static final Map<Class<?>, Supplier<Object>> EMPTY = Map.of(List.class, ArrayList::new, Collection.class, ArrayList::new,
            Iterable.class, ArrayList::new, Set.class, LinkedHashSet::new, Map.class, LinkedHashMap::new);

    private final CachedCall outer = CURRENT.get();
    private final ChangedKeys keys = new ChangedKeys();
    private final MethodInvocation invocation;
    private boolean isInMethod;

    private CachedCall(MethodInvocation invocation) {
        this.invocation = invocation;
    }

    /** Calls a method through the interceptor that evaluates its annotations. */
    static Object run(MethodInvocation invocation, MethodInterceptor caching) throws Throwable {
        CachedCall call = new CachedCall(invocation);
        CURRENT.set(call);
        Object result;
        try {
            result = caching.invoke(call.new Proceeding());
        } catch (Throwable error) {
            // Possibly the error of a commit, whose outcome is unknown.
            call.keys.confirm(false);
            throw error;
        } finally {
            if (call.outer == null) {
                CURRENT.remove();
            } else {
                CURRENT.set(call.outer);
            }
        }
        if (result instanceof CompletableFuture<?> future) {
            future.whenComplete((value, error) -> call.keys.confirm(error == null));
        } else {
            call.keys.confirm(true);
        }
        return result;
    }

    /** Returns the call whose annotations this thread is evaluating, or null. It is null inside the method and its callees. */
    static CachedCall evaluating() {
        CachedCall call = CURRENT.get();
        return call == null || call.isInMethod ? null : call;
    }

    /** Returns whether a call in this thread's stack has announced a key. */
    static boolean haveChanged(GuardCache cache, Object id) {
        for (CachedCall call = CURRENT.get(); call != null; call = call.outer) {
            if (call.keys.contains(cache, id)) {
                return true;
            }
        }
        return false;
    }

    /**
     * Returns whether the method can return {@link #none} for a missing row: if its value or its future's value is an {@code Optional}, a
     * collection or annotated as nullable, or if its type is reactive and may be empty.
     */
    boolean hasNone() {
        Class<?> type = valueType();
        ReactiveAdapter adapter = ReactiveAdapterRegistry.getSharedInstance().getAdapter(type);
        return adapter != null ? adapter.supportsEmpty() : type == Optional.class || EMPTY.containsKey(type) || isNullable();
    }

    /** Returns an empty collection of the method's type, otherwise null, which Spring converts to an empty {@code Optional}. */
    Object none() {
        Supplier<Object> empty = EMPTY.get(valueType());
        return empty == null ? null : empty.get();
    }

    /** Returns whether the method returns a future of an {@code Optional}, whose value Spring passes to a cache unchanged. */
    boolean isFutureOfOptional() {
        return isFuture() && valueType() == Optional.class;
    }

    private boolean isFuture() {
        return CompletionStage.class.isAssignableFrom(invocation.getMethod().getReturnType());
    }

    private Class<?> valueType() {
        ResolvableType type = ResolvableType.forMethodReturnType(invocation.getMethod());
        return (isFuture() ? type.as(CompletionStage.class).getGeneric() : type).toClass();
    }

    /** Returns whether the method, or the value of the future that it returns, has an annotation Nullable of any package. */
    private boolean isNullable() {
        Method method = invocation.getMethod();
        AnnotatedType type = method.getAnnotatedReturnType();
        Stream<Annotation> annotations = !isFuture() ? Stream.of(method.getAnnotations(), type.getAnnotations()).flatMap(Arrays::stream)
                : type instanceof AnnotatedParameterizedType future ? Arrays.stream(future.getAnnotatedActualTypeArguments()[0].getAnnotations())
                : Stream.empty();
        return annotations.anyMatch(one -> one.annotationType().getSimpleName().equals("Nullable"));
    }

    void announce(GuardCache cache, Object id) {
        keys.announce(cache, id);
    }

    boolean hasAnnounced(GuardCache cache, Object id) {
        return keys.contains(cache, id);
    }

    /** The invocation that is passed to the interceptor of the annotations. */
    private final class Proceeding implements MethodInvocation {
        /** Calls the method. Throws instead if an announcement failed and an error handler swallowed its error. */
        @Override
        public Object proceed() throws Throwable {
            keys.check();
            boolean wasInMethod = isInMethod;
            isInMethod = true;
            try {
                return invocation.proceed();
            } finally {
                isInMethod = wasInMethod;
            }
        }

        @Override
        public Method getMethod() {
            return invocation.getMethod();
        }

        @Override
        public Object[] getArguments() {
            return invocation.getArguments();
        }

        @Override
        public Object getThis() {
            return invocation.getThis();
        }

        @Override
        public AccessibleObject getStaticPart() {
            return invocation.getStaticPart();
        }
    }
}
