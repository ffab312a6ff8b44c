package io.bloomgate.spring;

import io.bloomgate.Bloomgate;
import io.bloomgate.Codec;
import io.bloomgate.Guard;
import java.util.Collection;
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

/** Guards as Spring caches. A cache is made when it is used first. Its filter has the cache's name, and every id of its table. */
public final class GuardCacheManager implements CacheManager, DisposableBean {
    private final Function<String, Guard<Object>> guards;
    private final ConcurrentMap<String, GuardCache> caches = new ConcurrentHashMap<>();

    /** Makes a manager of caches with the default options, whose values are written by Java's serialization. */
    public GuardCacheManager(Bloomgate client) {
        this(name -> Guard.builder(client, name, serialization(GuardCacheManager.class.getClassLoader())).build());
    }

    /** Makes a manager of caches, whose guards a function makes by the names of the caches. */
    public GuardCacheManager(Function<String, Guard<Object>> guards) {
        this.guards = guards;
    }

    /**
     * Returns a codec that writes values by Java's serialization, as Spring's Redis cache does by default. Use it only with a server that
     * nobody else can write to.
     */
    public static Codec<Object> serialization(ClassLoader loader) {
        return new Serialization(loader);
    }

    /** Codecs with one class loader are equal: several managers may have caches of one filter. */
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
        return caches.computeIfAbsent(name, key -> new GuardCache(key, guards.apply(key)));
    }

    @Override
    public Collection<String> getCacheNames() {
        return Set.copyOf(caches.keySet());
    }

    /** Waits for the confirmations that are under way, for as long as the guards repeat them. */
    @Override
    public void destroy() {
        caches.values().forEach(GuardCache::awaitConfirmations);
    }
}
