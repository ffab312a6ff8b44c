// Measures Redisson's RBloomFilter, which sends scripts, and its RBloomFilterNative, which sends BF.* commands, with filters for a
// million items at 1%: the server's time for an item, and the memory. scripts/bench-from runs it, with the server's port as the
// argument.

import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RBloomFilter;
import org.redisson.api.RBloomFilterNative;
import org.redisson.api.RFuture;
import org.redisson.api.RObject;
import org.redisson.api.RedissonClient;
import org.redisson.api.redisnode.RedisNode;
import org.redisson.api.redisnode.RedisNodes;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public class Bench {
    static final int CAPACITY = 1_000_000;
    static final int BATCHES = 100_000;
    static final int SINGLE = 10_000;
    static final int BATCH = 100;
    static final int ABSENT = 1_000_000_000;

    static RedissonClient client;

    public static void main(String[] words) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + words[0]);
        client = Redisson.create(config);

        RBloomFilter<String> scripted = client.getBloomFilter("scripted", StringCodec.INSTANCE);
        scripted.tryInit(CAPACITY, 0.01);
        measure("RBloomFilter", scripted, scripted::addAsync, scripted::add, scripted::containsAsync, scripted::exists);

        RBloomFilterNative<String> commands = client.getBloomFilterNative("commands", StringCodec.INSTANCE);
        commands.init(0.01, CAPACITY);
        measure("RBloomFilterNative", commands, commands::addAsync, commands::add, commands::existsAsync, commands::exists);
        client.shutdown();
    }

    static void measure(String filter, RObject key, Function<String, RFuture<?>> add, Consumer<List<String>> addBatch,
            Function<String, RFuture<?>> contains, Consumer<List<String>> containsBatch) {
        double batches = batches(addBatch, 0);
        double adds = singles(add, BATCHES);
        double lookups = singles(contains, ABSENT);
        double lookupBatches = batches(containsBatch, ABSENT);
        System.out.printf("%s\t%g\t%g\t%g\t%g\t%g%n", filter, adds, batches, lookups, lookupBatches, (double) key.sizeInMemory() / CAPACITY);
        key.delete();
    }

    // Many commands are on their way at once, so that the server does not wait for the client and lose what its caches hold.
    static double singles(Function<String, RFuture<?>> command, int begin) {
        double before = serverTime();
        for (int i = begin; i < begin + SINGLE; i += BATCH) {
            var replies = IntStream.range(i, i + BATCH).mapToObj(n -> command.apply(item(n))).toList();
            replies.forEach(reply -> reply.toCompletableFuture().join());
        }
        return (serverTime() - before) / SINGLE;
    }

    static double batches(Consumer<List<String>> command, int begin) {
        double before = serverTime();
        for (int i = begin; i < begin + BATCHES; i += BATCH) {
            command.accept(IntStream.range(i, i + BATCH).mapToObj(Bench::item).toList());
        }
        return (serverTime() - before) / BATCHES;
    }

    static String item(int i) {
        return String.format("https://www.example.org/archive/of-the-news/2024/articles/%012d", i);
    }

    // The microseconds that the server has spent in scripts and in BF.* commands. The time of a script includes the commands that it
    // calls, which the server also counts by themselves.
    static double serverTime() {
        RedisNode node = client.getRedisNodes(RedisNodes.SINGLE).getInstance();
        Map<String, String> statistics = node.info(RedisNode.InfoSection.COMMANDSTATS);
        return statistics.entrySet().stream()
                .filter(command -> command.getKey().matches("(?i)cmdstat_(eval|bf\\.).*"))
                .mapToDouble(command -> Double.parseDouble(command.getValue().replaceAll(".*[,]usec=(\\d+),.*", "$1")))
                .sum();
    }
}
