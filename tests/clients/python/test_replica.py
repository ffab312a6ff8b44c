"""Reading from a replica: the client reads there what it reads from the primary, and nothing can be added."""

import pytest
import redis

from server import PATIENCE, eventually

WRITING = [
    "BF.ADD k x",
    "BF.MADD k x y",
    "BF.INSERT k ITEMS x",
    "BF.RESERVE r 0.01 100",
    "BF.LOADCHUNK r 1 data",
]


def test_a_replica_answers_and_refuses(start, protocol):
    primary = start()
    client, mirror = primary.client(protocol), start(f"replicaof 127.0.0.1 {primary.port}").client(protocol)
    eventually("the replica to be in step", lambda: mirror.info("replication")["master_link_status"] == "up")
    client.bf().madd("k", "a", "b")
    assert client.wait(1, PATIENCE * 1000) == 1
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
