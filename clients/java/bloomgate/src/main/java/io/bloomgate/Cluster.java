package io.bloomgate;

import io.bloomgate.BloomgateException.Disconnected;
import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;
import java.util.function.Supplier;

/** The nodes of a cluster. Lettuce's client knows which node has a slot; the connections to the nodes are this package's. */
final class Cluster implements Connection {
    /** How often a command follows a redirection. */
    private static final int REDIRECTIONS = 5;

    private final Supplier<? extends AbstractRedisClient> clients;
    private final Map<String, Node> nodes = new ConcurrentHashMap<>();
    private final BiFunction<RedisClient, RedisURI, Node> connect;
    private volatile RedisClusterClient client;
    /** Makes the connections. */
    private volatile RedisClient connecting;
    private boolean isKnown;
    private CompletableFuture<Void> refreshing;

    Cluster(Supplier<? extends AbstractRedisClient> clients, BiFunction<RedisClient, RedisURI, Node> connect) {
        this.clients = clients;
        this.connect = connect;
    }

    /** Asks the cluster for its nodes, unless that is under way. */
    private synchronized CompletableFuture<Void> refresh() {
        if (refreshing == null || refreshing.isDone()) {
            RedisClusterClient asked = client;
            refreshing = asked.refreshPartitionsAsync().toCompletableFuture().thenRun(() -> {
                synchronized (this) {
                    isKnown |= asked == client;
                }
            });
        }
        return refreshing;
    }

    /** Ends once the nodes are known. Another client of Lettuce than before may lead to other nodes. */
    private synchronized CompletableFuture<Void> known() {
        RedisClusterClient current = (RedisClusterClient) clients.get();
        if (current != client) {
            close();
            nodes.clear();
            client = current;
            connecting = RedisClient.create(current.getResources());
            connecting.setOptions(current.getOptions());
            isKnown = false;
            refreshing = null;
        }
        return isKnown ? CompletableFuture.completedFuture(null) : refresh();
    }

    private synchronized boolean isKnown() {
        return isKnown;
    }

    private RedisURI address(byte[] key) {
        RedisClusterNode found = key == null ? null : client.getPartitions().getPartitionBySlot(SlotHash.getSlot(key));
        return (found == null ? client.getPartitions().getPartition(0) : found).getUri();
    }

    private static String name(RedisURI uri) {
        return uri.getHost() + ":" + uri.getPort();
    }

    private Node node(RedisURI uri) {
        return nodes.computeIfAbsent(name(uri), name -> connect.apply(connecting, uri));
    }

    private Node nodeOf(byte[] key) {
        return node(address(key));
    }

    @Override
    public CompletableFuture<?> ready(List<Command> commands) {
        return known().thenCompose(nothing -> CompletableFuture.allOf(commands.stream()
                .map(command -> nodeOf(command.key())).distinct().map(node -> node.ready(commands)).toArray(CompletableFuture[]::new)));
    }

    @Override
    public List<CompletableFuture<Object>> send(List<Command> commands) {
        List<CompletableFuture<Object>> replies = new ArrayList<>();
        commands.forEach(command -> replies.add(new CompletableFuture<>()));
        known().whenComplete((nothing, error) -> {
            try {
                if (error == null) {
                    route(commands, replies);
                    return;
                }
            } catch (Throwable unroutable) {
                error = unroutable;
            }
            Disconnected unknown = new Disconnected("the nodes of the cluster are not known", error);
            replies.forEach(reply -> reply.complete(unknown));
        });
        return replies;
    }

    private void route(List<Command> commands, List<CompletableFuture<Object>> replies) {
        Map<Node, List<Integer>> byNode = new LinkedHashMap<>();
        for (int index = 0; index < commands.size(); index++) {
            byNode.computeIfAbsent(nodeOf(commands.get(index).key()), node -> new ArrayList<>()).add(index);
        }
        byNode.forEach((node, indexes) -> {
            List<CompletableFuture<Object>> sent = node.send(indexes.stream().map(commands::get).toList());
            for (int at = 0; at < sent.size(); at++) {
                int index = indexes.get(at);
                sent.get(at).thenAccept(reply -> redirect(commands.get(index), reply, replies.get(index), REDIRECTIONS));
            }
        });
    }

    private void redirect(Command command, Object reply, CompletableFuture<Object> result, int left) {
        try {
            follow(command, reply, result, left);
        } catch (Throwable error) {
            result.complete(new Disconnected("the redirection of " + command.name() + " could not be followed: " + error, error));
        }
    }

    /** Sends a command to the node to which its reply redirects it, or ends it with the reply. */
    private void follow(Command command, Object reply, CompletableFuture<Object> result, int left) {
        String text = Wire.isReply(reply) ? String.valueOf(((RuntimeException) reply).getMessage()) : "";
        boolean isMoved = text.startsWith("MOVED ");
        if (isMoved || reply instanceof Disconnected || text.startsWith("CLUSTERDOWN ")) {
            refresh();
        }
        if (left == 0 || !isMoved && !text.startsWith("ASK ")) {
            result.complete(reply);
            return;
        }
        String target = text.substring(text.lastIndexOf(' ') + 1);
        int colon = target.lastIndexOf(':');
        RedisURI known = address(command.key());
        String host = colon == 0 ? known.getHost() : target.substring(0, colon);
        int port = Integer.parseInt(target.substring(colon + 1));
        Node node = node(RedisURI.builder(known).withHost(host).withPort(port).build());
        List<Command> commands = new ArrayList<>();
        if (!isMoved) {
            commands.add(new Command(command.key(), List.of(Keys.ascii("ASKING"))));
        }
        commands.add(command);
        List<CompletableFuture<Object>> sent = node.send(commands);
        sent.get(sent.size() - 1).thenAccept(next -> redirect(command, next, result, left - 1));
    }

    @Override
    public CompletableFuture<Wire> separate(byte[] key) {
        return known().thenCompose(nothing -> nodeOf(key).separate(key));
    }

    @Override
    public String node(byte[] key) {
        return isKnown() ? name(address(key)) : "";
    }

    @Override
    public boolean isCluster() {
        return true;
    }

    @Override
    public void replace(List<Command> commands) {
        if (isKnown()) {
            commands.forEach(command -> nodeOf(command.key()).replace(commands));
        }
    }

    @Override
    public synchronized void close() {
        nodes.values().forEach(Node::close);
        if (connecting != null) {
            connecting.shutdownAsync();
        }
    }
}
