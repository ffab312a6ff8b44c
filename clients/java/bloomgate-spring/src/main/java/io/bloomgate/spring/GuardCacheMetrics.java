package io.bloomgate.spring;

import io.bloomgate.Event;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.binder.cache.CacheMeterBinder;
import java.util.concurrent.TimeUnit;

/**
 * The meters of a guarded cache. The meters of every cache, such as {@code cache.gets}, have Spring Boot's tags. A hit is a read for which
 * the method was not called.
 */
final class GuardCacheMetrics extends CacheMeterBinder<GuardCache> {
    /** Spring Boot's tag for the meters of several managers: the name of the bean without the suffix cacheManager. */
    static final String MANAGER = "bloomgate";

    private final GuardCache cache;
    private final String filter;

    GuardCacheMetrics(GuardCache cache, String filter) {
        super(cache, cache.getName(), Tags.of("cache.manager", MANAGER, "name", cache.getName()));
        this.cache = cache;
        this.filter = filter;
    }

    @Override
    protected Long size() {
        return null;
    }

    @Override
    protected long hitCount() {
        return cache.reads().hits.sum();
    }

    @Override
    protected Long missCount() {
        return cache.reads().misses.sum();
    }

    @Override
    protected Long evictionCount() {
        return null;
    }

    @Override
    protected long putCount() {
        return count(cache, Event.FILLED);
    }

    private static long count(GuardCache cache, Event event) {
        return cache.getNativeCache().counts().get(event);
    }

    @Override
    protected void bindImplementationSpecificMetrics(MeterRegistry registry) {
        FunctionCounter.builder("bloomgate.guard.contradictions", cache, GuardCache::contradictions)
                .tags(getTagsWithCacheName()).description("Existing rows that the guard had reported absent").register(registry);
        for (Event event : Event.values()) {
            FunctionCounter.builder("bloomgate.guard.events", cache, one -> count(one, event)).tags(getTagsWithCacheName())
                    .tags("bloomgate.filter", filter, "bloomgate.event", event.label())
                    .description("Answers of BF.FETCH and other events of a guard").register(registry);
        }
        Timer success = timer("success", registry);
        Timer failure = timer("failure", registry);
        cache.reads().setListener((nanoseconds, isSuccess) ->
                (isSuccess ? success : failure).record(nanoseconds, TimeUnit.NANOSECONDS));
    }

    private Timer timer(String result, MeterRegistry registry) {
        return Timer.builder("bloomgate.guard.loads").tags(getTagsWithCacheName()).tag("result", result)
                .description("Calls of the methods of a cache").register(registry);
    }
}
