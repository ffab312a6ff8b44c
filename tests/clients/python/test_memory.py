"""At `maxmemory`: what would need memory is refused, what only looks is answered, and refused adds leave no trace."""

import pytest
import redis
from redis.exceptions import OutOfMemoryError

WRITING = [
    "BF.ADD k new",
    "BF.MADD k new newer",
    "BF.INSERT k ITEMS new",
    "BF.RESERVE r 0.01 100",
    "BF.LOADCHUNK r 1 data",
]


@pytest.fixture
def filled(client):
    """A filter of `a` and `b` on a server that is above its limit."""
    client.bf().madd("k", "a", "b")
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    yield client
    client.config_set("maxmemory", 0)


def test_adding_is_refused_and_looking_is_not(filled):
    before = filled.execute_command("DEBUG", "DIGEST-VALUE", "k")
    for line in WRITING:
        with pytest.raises(OutOfMemoryError):
            filled.execute_command(*line.split())
    bf = filled.bf()
    assert bf.exists("k", "a") == 1
    assert bf.mexists("k", "a", "x") == [1, 0]
    assert bf.card("k") == 2
    info = bf.info("k")
    assert (info[b"Number of items inserted"] if isinstance(info, dict) else info.insertedNum) == 2
    assert len(bf.scandump("k", 0)[1]) > 0
    assert filled.execute_command("BF.DEBUG", "k")[0] == b"size:2"
    assert filled.execute_command("DEBUG", "DIGEST-VALUE", "k") == before
    assert filled.exists("r") == 0
    filled.config_set("maxmemory", 0)
    assert bf.add("k", "new") == 1


def test_the_error_is_the_server_s_own(filled):
    # redis-py takes the word in front, OOM, for the kind of exception, and leaves it out of the text.
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


def test_a_filter_that_does_not_fit_is_refused_with_both_sizes(client):
    client.config_set("maxmemory", "100mb")
    with pytest.raises(
        redis.ResponseError, match=r"^Insufficient memory to create filter: (\d+) bytes asked, (\d+) available$"
    ) as caught:
        client.bf().create("k", 0.0001, 1_000_000_000)
    asked, available = (int(word) for word in str(caught.value).split() if word.isdigit())
    # A billion items at 1 in 10,000 need some 20 bits each.
    assert 2_000_000_000 < asked < 4_000_000_000
    assert 50 << 20 < available < 100 << 20
    with pytest.raises(redis.ResponseError, match="^Insufficient memory"):
        client.bf().insert("k", ["a"], capacity=1_000_000_000, error=0.0001)
    assert client.exists("k") == 0
    assert client.bf().create("k", 0.01, 1_000_000) is True


def test_a_filter_that_cannot_grow_any_more_keeps_what_it_has(start, protocol):
    server = start("bf.max-filter-bytes 20kb")
    client = server.client(protocol)
    bf = client.bf()
    refused = None
    for begin in range(0, 100_000, 100):
        reply = bf.madd("k", *range(begin, begin + 100))
        if isinstance(reply[-1], redis.ResponseError):
            refused = begin + len(reply) - 1
            break
    assert refused, "the ceiling was never met"
    assert str(reply[-1]).startswith("Insufficient memory to create filter: ")
    assert all(bf.mexists("k", *range(refused))), "what went in before is in"
    with pytest.raises(redis.ResponseError, match="^Insufficient memory"):
        bf.add("k", refused)
    assert bf.add("k", 0) == 0
    assert client.memory_usage("k", samples=0) <= 21 * 1024


def test_an_evicted_filter_is_a_missing_one(start, protocol):
    server = start("maxmemory 8mb", "maxmemory-policy allkeys-lru")
    client = server.client(protocol)
    bf = client.bf()
    for number in range(6):
        bf.create(f"filter:{number}", 0.001, 200_000)
        bf.add(f"filter:{number}", "a")
    # Which key goes is left to chance.
    for number in range(10_000):
        client.set(f"string:{number}", "x" * 100_000)
        if len(client.keys("filter:*")) < 6:
            break
    # Near the limit any command, even one that only asks, may find the server a little above it, and evicts first.
    client.config_set("maxmemory", 0)
    kept = client.keys("filter:*")
    assert len(kept) < 6
    for number in range(6):
        key = f"filter:{number}".encode()
        assert bf.exists(key, "a") == bf.card(key) == (key in kept)
    assert client.info("bf")["bf_bloom_num_objects"] == len(client.keys("filter:*"))
