"""At `maxmemory`: the errors that a client gets, also in transactions and scripts, and an evicted filter."""

import pytest
import redis
from redis.exceptions import OutOfMemoryError

@pytest.fixture
def filled(client):
    """A filter of `a` and `b` on a server that is above its limit."""
    client.bf().madd("k", "a", "b")
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    yield client
    client.config_set("maxmemory", 0)


def test_the_error_is_the_server_s_own(filled):
    # redis-py takes the first word, OOM, as the kind of exception, and removes it from the text.
    with pytest.raises(OutOfMemoryError, match="^command not allowed when used memory > 'maxmemory'"):
        filled.bf().add("k", "new")


def test_a_transaction_and_a_script_are_refused(filled):
    pipe = filled.pipeline()
    pipe.bf().exists("k", "a")
    pipe.bf().add("k", "new")
    with pytest.raises(redis.RedisError):
        pipe.execute()
    with pytest.raises(redis.RedisError, match="OOM|maxmemory"):
        filled.eval("return redis.call('BF.ADD', KEYS[1], 'new')", 1, "k")
    assert filled.eval_ro("return redis.call('BF.EXISTS', KEYS[1], 'a')", 1, "k") == 1
    assert filled.bf().exists("k", "new") == 0


def test_an_evicted_filter_is_missing(start, protocol):
    server = start("maxmemory 8mb", "maxmemory-policy allkeys-lru")
    client = server.client(protocol)
    bf = client.bf()
    for number in range(6):
        bf.create(f"filter:{number}", 0.001, 200_000)
        bf.add(f"filter:{number}", "a")
    # The server evicts a random key.
    for number in range(10_000):
        client.set(f"string:{number}", "x" * 100_000)
        if len(client.keys("filter:*")) < 6:
            break
    # Near the limit, the server may be slightly above it at any command, even one that only reads, and then evicts first.
    client.config_set("maxmemory", 0)
    kept = client.keys("filter:*")
    assert len(kept) < 6
    for number in range(6):
        key = f"filter:{number}".encode()
        assert bf.exists(key, "a") == bf.card(key) == (key in kept)
    assert client.info("bf")["bf_bloom_num_objects"] == len(client.keys("filter:*"))
