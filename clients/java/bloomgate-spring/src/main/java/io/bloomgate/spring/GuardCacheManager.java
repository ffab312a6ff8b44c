package io.bloomgate.spring;

import io.bloomgate.Bloomgate;
import io.bloomgate.Codec;
import io.bloomgate.Guard;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.function.Function;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;
import org.springframework.core.serializer.DefaultDeserializer;
import org.springframework.core.serializer.DefaultSerializer;
import org.springframework.core.serializer.support.SerializationDelegate;
import org.springframework.util.ClassUtils;

/** Guards as Spring caches: given caches next to the caches of another manager, or one guard per name, created on first use. */
public final class GuardCacheManager implements CacheManager, DisposableBean {
    private final Function<String, Guard<Object, Object>> guards;
    private final CacheManager others;
    private final ConcurrentMap<String, GuardCache> caches = new ConcurrentHashMap<>();

    /**
     * Creates a manager of caches with the default options. Each cache's filter has the cache's name, and values are stored by Java's
     * serialization. Classes are loaded by this thread's class loader: with devtools, each restart of the program has a new one.
     */
    public GuardCacheManager(Bloomgate client) {
        this(client, serialization(ClassUtils.getDefaultClassLoader()));
    }

    private GuardCacheManager(Bloomgate client, Codec<Object> codec) {
        this(name -> Guard.builder(client, name, codec).build());
    }

    /** Creates a manager of caches. The function creates the guard for a cache's name. */
    public GuardCacheManager(Function<String, Guard<Object, Object>> guards) {
        this.guards = guards;
        others = null;
    }

    /** Creates a manager of the given caches, and of the caches of another manager unless it is null. */
    public GuardCacheManager(Collection<GuardCache> caches, CacheManager others) {
        guards = null;
        this.others = others;
        caches.forEach(cache -> this.caches.put(cache.getName(), cache));
    }

    /**
     * Returns a codec that stores values by Java's serialization, as Spring's Redis cache does by default. Use it only with a server to
     * which only trusted programs can write.
     */
    public static Codec<Object> serialization(ClassLoader loader) {
        return new Serialization(loader);
    }

    /** Codecs with the same class loader are equal, because several managers may have caches of one filter. */
    private static final class Serialization implements Codec<Object> {
        private final ClassLoader loader;
        private final SerializationDelegate delegate;

        Serialization(ClassLoader loader) {
            this.loader = loader;
            delegate = new SerializationDelegate(new DefaultSerializer(), new DefaultDeserializer(loader));
        }

        @Override
        public byte[] encode(Object row) throws Exception {
            return delegate.serializeToByteArray(row);
        }

        @Override
        public Object decode(byte[] bytes) throws Exception {
            return delegate.deserializeFromByteArray(bytes);
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Serialization codec && loader == codec.loader;
        }

        @Override
        public int hashCode() {
            return System.identityHashCode(loader);
        }
    }

    @Override
    public Cache getCache(String name) {
        if (guards != null) {
            return caches.computeIfAbsent(name, key -> new GuardCache(key, guards.apply(key)));
        }
        Cache own = caches.get(name);
        return own != null || others == null ? own : others.getCache(name);
    }

    Collection<GuardCache> guarded() {
        return caches.values();
    }

    @Override
    public Collection<String> getCacheNames() {
        Set<String> names = new LinkedHashSet<>(caches.keySet());
        if (others != null) {
            names.addAll(others.getCacheNames());
        }
        return names;
    }

    /** Waits until the confirmations in progress have succeeded or the guards have given up. */
    @Override
    public void destroy() {
        caches.values().forEach(GuardCache::awaitConfirmations);
    }
}
