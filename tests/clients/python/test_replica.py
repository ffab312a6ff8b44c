"""Reading from a replica: what the primary added is there to the bit, whatever carried it, and nothing can be added."""

import pytest
import redis

from server import eventually

WRITING = [
    "BF.ADD k x",
    "BF.MADD k x y",
    "BF.INSERT k ITEMS x",
    "BF.RESERVE r 0.01 100",
    "BF.LOADCHUNK r 1 data",
]


@pytest.fixture
def pair(start, protocol):
    """A primary and its replica, both with a client. The replica would make other filters, if it made any."""
    primary = start()
    replica = start(
        f"replicaof 127.0.0.1 {primary.port}", "bf.error-rate 0.2", "bf.initial-size 7", "bf.expansion-factor 5"
    )
    client, mirror = primary.client(protocol), replica.client(protocol)
    eventually("the replica to be in step", lambda: mirror.info("replication")["master_link_status"] == "up")
    return client, mirror


def digest(client, key):
    return client.execute_command("DEBUG", "DIGEST-VALUE", key)


def in_step(client, mirror):
    """Waits until the replica has all that the primary sent."""
    assert client.wait(1, 60_000) == 1
    for key in client.keys():
        assert digest(mirror, key) == digest(client, key), key


def test_a_replica_answers_and_refuses(pair):
    client, mirror = pair
    client.bf().madd("k", "a", "b")
    in_step(client, mirror)
    bf = mirror.bf()
    assert bf.exists("k", "a") == 1
    assert bf.mexists("k", "a", "b", "x") == [1, 1, 0]
    assert bf.card("k") == 2
    info, original = bf.info("k"), client.bf().info("k")
    assert info == original if isinstance(info, dict) else vars(info) == vars(original)
    assert bf.scandump("k", 0)[1] == client.bf().scandump("k", 0)[1]
    for line in WRITING:
        with pytest.raises(redis.ReadOnlyError):
            mirror.execute_command(*line.split())
    assert mirror.keys() == [b"k"]


def test_every_way_of_adding_arrives(pair):
    client, mirror = pair
    bf = client.bf()
    bf.create("reserved", 0.003, 50, expansion=3)
    bf.create("fixed", 0.0001, 3, noScale=True)
    bf.add("reserved", "a")
    bf.madd("fixed", "a", "b", "c", "d", "a")
    bf.insert("inserted", ["a", "a", "b"], capacity=77, error=0.007)
    bf.madd("grown", *range(2000))
    client.eval("redis.call('BF.ADD', KEYS[1], 'a') redis.call('BF.ADD', KEYS[2], 'b')", 2, "scripted", "reserved")
    pipe = client.pipeline()
    pipe.bf().add("reserved", "c")
    pipe.bf().insert("queued", ["a"])
    pipe.execute()
    in_step(client, mirror)
    iterator = 0
    while (record := bf.scandump("grown", iterator))[0]:
        iterator, _ = record
        bf.loadchunk("loaded", *record)
    in_step(client, mirror)
    assert sorted(mirror.keys()) == sorted(client.keys()) and len(client.keys()) == 7
    assert all(mirror.bf().mexists("loaded", *range(2000)))


def test_what_changes_nothing_is_not_sent(pair):
    client, mirror = pair
    bf = client.bf()
    bf.create("full", 1e-9, 1, noScale=True)
    bf.add("full", "a")
    bf.madd("k", "a", "b")
    in_step(client, mirror)

    def ran_on_replica():
        # The primary's pings move the offset, too; the commands that the replica ran are what tells.
        stats = mirror.info("commandstats")
        return {name: value["calls"] for name, value in stats.items() if name.startswith("cmdstat_bf.")}

    before = ran_on_replica()
    for _ in range(100):
        bf.add("k", "a")
        bf.madd("k", "a", "b")
        bf.insert("k", ["b"])
        bf.exists("k", "z")
        with pytest.raises(redis.ResponseError):
            bf.add("full", "z")
    in_step(client, mirror)
    assert ran_on_replica() == before
    bf.add("k", "c")
    in_step(client, mirror)
    assert sum(ran_on_replica().values()) == sum(before.values()) + 1


def test_a_promoted_replica_goes_on(pair):
    client, mirror = pair
    client.bf().create("k", 1e-9, 100)
    client.bf().madd("k", *range(500))
    in_step(client, mirror)
    before = digest(client, "k")
    mirror.replicaof("NO", "ONE")
    assert digest(mirror, "k") == before
    assert mirror.bf().add("k", "on its own") == 1
    assert all(mirror.bf().mexists("k", *range(500)))
    assert client.bf().exists("k", "on its own") == 0


def test_a_replica_that_comes_late_gets_what_is_there(start, protocol):
    primary = start()
    client = primary.client(protocol)
    client.bf().create("large", 0.001, 2_000_000)
    client.bf().madd("large", *range(3000))
    client.bf().madd("small", *range(300))
    iterator, data = client.bf().scandump("small", 0)
    client.bf().loadchunk("arriving", iterator, data)
    mirror = start(f"replicaof 127.0.0.1 {primary.port}").client(protocol)
    eventually("the replica to be in step", lambda: mirror.info("replication")["master_link_status"] == "up")
    in_step(client, mirror)
    assert all(mirror.bf().mexists("large", *range(3000)))
    with pytest.raises(redis.ResponseError, match="^filter is still being loaded$"):
        mirror.bf().exists("arriving", 1)
