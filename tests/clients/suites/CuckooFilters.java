import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.Consumer;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.bloom.CFInsertParams;
import redis.clients.jedis.bloom.CFReserveParams;
import redis.clients.jedis.exceptions.JedisDataException;

/**
 * The methods of Jedis for cuckoo filters: the calls and the answers of its own tests, which no published package contains. The arguments are the
 * port of a server, and the names of the cases to omit.
 */
public class CuckooFilters {
    static final Map<String, Consumer<RedisClient>> CASES = new LinkedHashMap<>();

    static {
        CASES.put("numbersOfReserveWithACapacity", jedis -> {
            jedis.cfReserve("k", 10);
            equal(numbers(8, 72, 2, 1), jedis.cfInfo("k"));
        });
        CASES.put("numbersOfReserveWithOptions", jedis -> {
            var options = CFReserveParams.reserveParams().bucketSize(10);
            jedis.cfReserve("a", 200, options);
            equal(numbers(32, 376, 10, 1), jedis.cfInfo("a"));
            jedis.cfReserve("b", 200, options.maxIterations(20));
            equal(numbers(32, 376, 10, 1), jedis.cfInfo("b"));
            jedis.cfReserve("c", 200, options.expansion(4));
            equal(numbers(32, 376, 10, 4), jedis.cfInfo("c"));
        });
        CASES.put("add", jedis -> {
            equal("OK", jedis.cfReserve("k", 64_000));
            equal(true, jedis.cfAdd("k", "a"));
            equal(1L, jedis.cfInfo("k").get("Number of items inserted"));
            equal(true, jedis.cfAdd("k", "a"));
            equal(2L, jedis.cfCount("k", "a"));
        });
        CASES.put("addNx", jedis -> {
            equal(true, jedis.cfAddNx("k", "a"));
            equal(false, jedis.cfAddNx("k", "a"));
        });
        CASES.put("insert", jedis -> {
            equal(List.of(true), jedis.cfInsert("k", "a"));
            equal(List.of(true), jedis.cfInsert("sized", CFInsertParams.insertParams().capacity(1000), "a"));
            var noCreate = CFInsertParams.insertParams().noCreate();
            refused("ERR not found", () -> jedis.cfInsert("missing", noCreate, "a", "b"));
            equal(List.of(true, true), jedis.cfInsert("k", noCreate, "a", "b"));
        });
        CASES.put("insertNx", jedis -> {
            equal(List.of(true), jedis.cfInsertNx("k", "a"));
            equal(List.of(false), jedis.cfInsertNx("k", CFInsertParams.insertParams().capacity(1000), "a"));
            equal(List.of(false, true, false), jedis.cfInsertNx("k", "a", "b", "b"));
            refused("ERR not found", () -> jedis.cfInsertNx("missing", CFInsertParams.insertParams().noCreate(), "a", "b"));
        });
        CASES.put("exists", jedis -> {
            equal(false, jedis.cfExists("k", "a"));
            equal(List.of(false), jedis.cfMExists("k", "a"));
            jedis.cfInsert("k", "a");
            equal(true, jedis.cfExists("k", "a"));
            equal(List.of(true, false), jedis.cfMExists("k", "a", "b"));
            equal(List.of(false, true), jedis.cfMExists("k", "b", "a"));
        });
        CASES.put("del", jedis -> {
            refused("Not found", () -> jedis.cfDel("k", "a"));
            jedis.cfInsert("k", "a");
            equal(false, jedis.cfDel("k", "b"));
            equal(true, jedis.cfDel("k", "a"));
            equal(false, jedis.cfExists("k", "a"));
        });
        CASES.put("count", jedis -> {
            equal(0L, jedis.cfCount("k", "a"));
            jedis.cfInsert("k", "a");
            equal(1L, jedis.cfCount("k", "a"));
            equal(0L, jedis.cfCount("k", "b"));
        });
        CASES.put("infoOfAMissingKey", jedis -> refused("ERR not found", () -> jedis.cfInfo("k")));
        CASES.put("scanDumpAndLoadChunk", jedis -> {
            for (int item = 0; item < 3000; item++) {
                jedis.cfAdd("k", "item" + item);
            }
            for (var record = jedis.cfScanDump("k", 0); record.getKey() != 0; record = jedis.cfScanDump("k", record.getKey())) {
                equal("OK", jedis.cfLoadChunk("copy", record.getKey(), record.getValue()));
            }
            equal(jedis.cfInfo("k"), jedis.cfInfo("copy"));
            for (int item = 0; item < 3000; item++) {
                equal(true, jedis.cfExists("copy", "item" + item));
            }
        });
    }

    public static void main(String[] arguments) {
        var omitted = Set.of(arguments);
        for (var protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
            var config = DefaultJedisClientConfig.builder().protocol(protocol).timeoutMillis(120_000).build();
            int count = 0;
            try (var client = RedisClient.builder().hostAndPort("localhost", Integer.parseInt(arguments[0])).clientConfig(config).build()) {
                for (var test : CASES.entrySet()) {
                    if (!omitted.contains(test.getKey())) {
                        client.flushAll();
                        test.getValue().accept(client);
                        count++;
                    }
                }
            }
            System.out.println(count + " passed in " + protocol);
        }
    }

    /** Returns the reply of CF.INFO for an empty filter of one layer. */
    static Map<String, Object> numbers(long buckets, long size, long bucketSize, long expansion) {
        return Map.of(
                "Size", size, "Number of buckets", buckets, "Number of filters", 1L, "Number of items inserted", 0L,
                "Number of items deleted", 0L, "Bucket size", bucketSize, "Expansion rate", expansion, "Max iterations", 20L);
    }

    static void equal(Object expected, Object actual) {
        if (!Objects.equals(expected, actual)) {
            throw new AssertionError("expected " + expected + ", not " + actual);
        }
    }

    static void refused(String text, Runnable call) {
        try {
            call.run();
        } catch (JedisDataException refused) {
            equal(text, refused.getMessage());
            return;
        }
        throw new AssertionError("expected the error " + text);
    }
}
