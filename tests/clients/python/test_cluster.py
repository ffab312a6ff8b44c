"""A cluster of two nodes with half of the slots each: the methods of the cluster client, and its pipelines."""

import pytest
import redis

from server import PATIENCE, eventually

# The timeout is long enough that a node on a busy machine is not taken for dead.
CLUSTER = ["cluster-enabled yes", "cluster-node-timeout 60000", "cluster-require-full-coverage yes"]


@pytest.fixture(scope="module")
def cluster_of_two(start_for_all):
    servers = [start_for_all(*CLUSTER) for _ in range(2)]
    first, second = clients = [server.client() for server in servers]
    first.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
    second.execute_command("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
    for number, client in enumerate(clients, 1):
        client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number)
        client.execute_command("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
    eventually("the nodes to know one another", lambda: all(knows(client) == 2 for client in clients))
    eventually("the cluster", lambda: all(client.cluster("INFO")["cluster_state"] == "ok" for client in clients))
    return servers


@pytest.fixture
def nodes(cluster_of_two):
    """The two nodes, empty. Forming a cluster takes seconds, so all tests of this file share it."""
    for server in cluster_of_two:
        server.client().flushall()
    return cluster_of_two


def knows(client):
    return int(client.cluster("INFO")["cluster_known_nodes"])


@pytest.fixture
def cluster(nodes, protocol):
    """The cluster's client in each protocol."""

    def all_there():
        try:
            port = nodes[0].port
            client = redis.RedisCluster(host="127.0.0.1", port=port, protocol=protocol, socket_timeout=PATIENCE)
            if len(client.get_nodes()) == 2:
                return client
            client.close()
        except redis.RedisError:
            pass

    client = eventually("the cluster's client", all_there)
    yield client
    client.close()


def test_the_cluster_client_has_every_method(cluster):
    bf = cluster.bf()
    for number in range(20):
        key = f"key:{number}"
        assert bf.create(key, 0.001, 1000) is True
        assert bf.add(key, "a") == 1
        assert bf.madd(key, "a", "b") == [0, 1]
        assert bf.insert(key, ["b", "c"], noCreate=True) == [0, 1]
        assert bf.exists(key, "c") == 1
        assert bf.mexists(key, "a", "x") == [1, 0]
        assert bf.card(key) == 3
        info = bf.info(key)
        assert (info[b"Capacity"] if isinstance(info, dict) else info.capacity) == 1000
        iterator = 0
        while (record := bf.scandump(key, iterator))[0]:
            iterator, data = record
            assert bf.loadchunk(f"copy of {key}", iterator, data) in (b"OK", "OK")
        assert bf.mexists(f"copy of {key}", "a", "b", "c", "x") == [1, 1, 1, 0]
    assert 0 < cluster.dbsize(target_nodes=cluster.get_primaries()[0]) < 40


def test_a_pipeline_over_the_nodes(cluster):
    pipe = cluster.pipeline()
    for number in range(100):
        pipe.execute_command("BF.ADD", f"key:{number}", "a")
    for number in range(100):
        pipe.execute_command("BF.EXISTS", f"key:{number}", "a")
    assert pipe.execute() == [1] * 200
