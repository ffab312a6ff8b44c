import com.alicp.jetcache.redis.lettuce.RedisLettuceCacheBuilder;
import com.alicp.jetcache.support.Fastjson2KeyConvertor;
import com.alicp.jetcache.support.JavaValueDecoder;
import com.alicp.jetcache.support.JavaValueEncoder;
import io.bloomgate.Bloomgate;
import io.bloomgate.Codec;
import io.bloomgate.Guard;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.springframework.cache.Cache;
import org.springframework.data.redis.cache.RedisCacheConfiguration;
import org.springframework.data.redis.cache.RedisCacheManager;
import org.springframework.data.redis.cache.RedisCacheWriter;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/** The caches in Java, for scoreboard.py, as contestants.py has those in Python. */
public class Contestants {
    static final Duration TTL = Duration.ofMinutes(1);
    static final Scanner LINES = new Scanner(System.in);

    interface Call { long row(int id) throws Exception; }

    record Access(Call read, Call change) {}

    static long ask(String word, int id) {
        System.out.println(word + " " + id);
        return Long.parseLong(LINES.nextLine());
    }

    static long load(int id) { return ask("load", id); }

    /** The calls of Spring's @Cacheable, with sync = true if the writer locks, and @CacheEvict. */
    static Access spring(String url, boolean isLocking) {
        LettuceConnectionFactory factory = new LettuceConnectionFactory(RedisURI.create(url).getHost(), RedisURI.create(url).getPort());
        factory.start();
        // By default, a change would return before the row is deleted.
        RedisCacheWriter writer = RedisCacheWriter.create(factory, it -> (isLocking ? it.enableLocking() : it).immediateWrites());
        RedisCacheConfiguration configuration = RedisCacheConfiguration.defaultCacheConfig().entryTtl(TTL);
        Cache cache = RedisCacheManager.builder(writer).cacheDefaults(configuration).build().getCache("rows");
        Call cacheable = id -> {
            Long cached = cache.get(id, Long.class);
            if (cached != null) return cached;
            long version = load(id);
            cache.put(id, version);
            return version;
        };
        return new Access(isLocking ? id -> cache.get(id, () -> load(id)) : cacheable, id -> { ask("commit", id); cache.evict(id); return 0; });
    }

    static Access jetCache(String url) {
        com.alicp.jetcache.Cache<Integer, Long> cache = RedisLettuceCacheBuilder.createRedisLettuceCacheBuilder()
                .keyConvertor(Fastjson2KeyConvertor.INSTANCE).valueEncoder(JavaValueEncoder.INSTANCE).valueDecoder(JavaValueDecoder.INSTANCE)
                .redisClient(RedisClient.create(url)).keyPrefix("rows").expireAfterWrite(TTL.toSeconds(), TimeUnit.SECONDS).buildCache();
        return new Access(id -> cache.computeIfAbsent(id, Contestants::load), id -> { ask("commit", id); cache.remove(id); return 0; });
    }

    static Access guard(String url) {
        Guard<Integer, Long> rows = Guard.builder(Bloomgate.connect(url), "rows", Codec.json(Long.class)).ttl(TTL).build(Contestants::load);
        return new Access(id -> rows.get(id).orElseThrow(), id -> rows.changed(id, () -> ask("commit", id)));
    }

    /** Returns the version in the name of the archive that has a class. */
    static String version(Class<?> type) {
        return type.getProtectionDomain().getCodeSource().getLocation().getPath().replaceAll(".*-([0-9.]+)[.]jar", "$1");
    }

    public static void main(String[] arguments) throws Exception {
        String spring = "RedisCacheManager " + version(RedisCacheManager.class);
        Map<String, Function<String, Access>> caches = new TreeMap<>(Map.of(
                spring + ", @Cacheable", url -> spring(url, false), spring + ", locking, sync", url -> spring(url, true),
                "JetCache " + version(RedisLettuceCacheBuilder.class), Contestants::jetCache,
                "bloomgate " + System.getenv("BLOOMGATE_VERSION"), Contestants::guard));
        if (arguments.length == 0) {
            System.out.println(String.join("\n", caches.keySet()));
            return;
        }
        Access access = caches.get(arguments[0]).apply(arguments[1]);
        while (LINES.hasNextLine()) {
            String[] words = LINES.nextLine().split(" ");
            int id = Integer.parseInt(words[1]);
            System.out.println("done " + (words[0].equals("read") ? access.read.row(id) : access.change.row(id)));
        }
        System.exit(0);
    }
}
