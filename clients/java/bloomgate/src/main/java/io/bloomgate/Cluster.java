package io.bloomgate;

import io.bloomgate.BloomgateException.Disconnected;
import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** The nodes of a cluster. Lettuce's client knows the owner of each slot; this package opens the connections. */
final class Cluster implements Connection {
    /** The maximum number of redirections per command. */
    private static final int REDIRECTIONS = 5;

    private static final Node UNKNOWN = new Node(
            () -> CompletableFuture.failedFuture(new Disconnected("the nodes of the cluster are not known", null)), 0);

    private final Supplier<? extends AbstractRedisClient> clients;
    private final Function<RedisURI, Node> connect;
    private final Map<String, Node> nodes = new ConcurrentHashMap<>();
    private volatile @Nullable RedisClusterClient client;
    /** The last client that requested the topology. */
    private volatile @Nullable RedisClusterClient known;
    private @Nullable CompletableFuture<Void> refreshing;

    Cluster(Supplier<? extends AbstractRedisClient> clients, Function<RedisURI, Node> connect) {
        this.clients = clients;
        this.connect = connect;
    }

    /** Requests the topology, unless a request is in flight. */
    private synchronized CompletableFuture<Void> refresh() {
        if (refreshing == null || refreshing.isDone()) {
            RedisClusterClient asked = client;
            refreshing = asked.refreshPartitionsAsync().toCompletableFuture().thenRun(() -> known = asked);
        }
        return refreshing;
    }

    /** Ends once the nodes are known. */
    private CompletableFuture<Void> known() {
        RedisClusterClient current = (RedisClusterClient) clients.get();
        if (current != client) {
            follow(current);
        }
        return current == known ? CompletableFuture.completedFuture(null) : refresh();
    }

    /** Switches to another client of Lettuce, which may have other nodes. */
    private void follow(RedisClusterClient next) {
        List<Node> before;
        synchronized (this) {
            if (next == client) {
                return;
            }
            before = List.copyOf(nodes.values());
            nodes.clear();
            refreshing = null;
            client = next;
        }
        before.forEach(Node::close);
    }

    private RedisURI address(byte @Nullable [] key) {
        RedisClusterNode found = key == null ? null : client.getPartitions().getPartitionBySlot(SlotHash.getSlot(key));
        return (found == null ? client.getPartitions().getPartition(0) : found).getUri();
    }

    private Node node(RedisURI uri) {
        return nodes.computeIfAbsent(uri.getHost() + ":" + uri.getPort(), name -> connect.apply(uri));
    }

    @Override
    public Node node(byte @Nullable [] key) {
        return known != null && known == client ? node(address(key)) : UNKNOWN;
    }

    /** A node without a connection fails its own commands only. */
    @Override
    public CompletableFuture<?> ready(List<Command> commands) {
        return Caller.attempt(() -> known().thenCompose(nothing -> CompletableFuture.allOf(commands.stream()
                .map(command -> node(command.key())).distinct().map(node -> node.ready(commands)).toArray(CompletableFuture[]::new))
                .exceptionally(error -> null)));
    }

    @Override
    public List<CompletableFuture<Object>> send(List<Command> commands) {
        Map<Node, List<Command>> byNode = new LinkedHashMap<>();
        commands.forEach(command -> byNode.computeIfAbsent(node(command.key()), node -> new ArrayList<>()).add(command));
        Map<Command, CompletableFuture<Object>> replies = new IdentityHashMap<>();
        byNode.forEach((node, some) -> {
            List<CompletableFuture<Object>> sent = node.send(some);
            for (int index = 0; index < sent.size(); index++) {
                replies.put(some.get(index), redirected(some.get(index), sent.get(index), REDIRECTIONS));
            }
        });
        return commands.stream().map(replies::get).toList();
    }

    /** Returns the reply to a command that was sent, after following redirections. */
    private CompletableFuture<Object> redirected(Command command, CompletableFuture<Object> sent, int left) {
        return sent.handle((reply, error) -> {
            String text = LettuceConnection.errorText(reply);
            boolean isMoved = text.startsWith("MOVED ");
            if (isMoved || error != null || text.startsWith("CLUSTERDOWN ")) {
                refresh();
            }
            if (left == 0 || !isMoved && !text.startsWith("ASK ")) {
                return sent;
            }
            String target = text.substring(text.lastIndexOf(' ') + 1);
            int colon = target.lastIndexOf(':');
            RedisURI known = address(command.key());
            String host = colon == 0 ? known.getHost() : target.substring(0, colon);
            int port = Integer.parseInt(target.substring(colon + 1));
            Node node = node(RedisURI.builder(known).withHost(host).withPort(port).build());
            List<CompletableFuture<Object>> again = node.send(isMoved ? List.of(command)
                    : List.of(new Command(command.key(), List.of(Keys.ascii("ASKING"))), command));
            return redirected(command, again.get(again.size() - 1), left - 1);
        }).thenCompose(next -> next);
    }

    @Override
    public void close() {
        nodes.values().forEach(Node::close);
    }
}
