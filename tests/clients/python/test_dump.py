"""BF.SCANDUMP and BF.LOADCHUNK through the client's own methods: dumps of filters in use, and records of different dumps.
tests/server tests which records are refused, and when a filter becomes usable."""

import itertools

import pytest
import redis

# Larger than three of the dump's chunks, which are 1 MiB.
CAPACITY = 2_000_000
MEMBERS = range(3000)


@pytest.fixture
def bf(client):
    """The client's methods, and a filter `k` of several chunks."""
    client.bf().create("k", 0.001, CAPACITY)
    client.bf().madd("k", *MEMBERS)
    return client.bf()


def records(bf, key, between=lambda: None):
    """Returns the records of a dump: iterators and data, without the final one."""
    iterator = 0
    while True:
        iterator, data = bf.scandump(key, iterator)
        if iterator == 0:
            assert data == b""
            return
        yield iterator, data
        between()


def load(bf, key, dump):
    for iterator, data in dump:
        assert bf.loadchunk(key, iterator, data) in (b"OK", "OK")


def digest(client, key):
    return client.execute_command("DEBUG", "DIGEST-VALUE", key)


def refusal(bf, key, iterator, data):
    """Returns the error for a record, which must leave the key unchanged."""
    before = digest(bf.client, key)
    with pytest.raises(redis.ResponseError) as caught:
        bf.loadchunk(key, iterator, data)
    assert digest(bf.client, key) == before
    return str(caught.value)


def test_a_copy_is_equal_bit_for_bit(bf, client):
    dump = list(records(bf, "k"))
    assert len(dump) >= 4, "a header and some chunks"
    assert all(0 < iterator < 2**53 for iterator, _ in dump), "a number in every client"
    load(bf, "copy", dump)
    assert digest(client, "copy") == digest(client, "k")
    assert all(bf.mexists("copy", *MEMBERS))
    assert bf.add("copy", "one more") == 1


def test_a_dump_loads_on_another_server_in_the_other_protocol(bf, client, start, protocol):
    other = start().client(protocol=5 - protocol)
    load(other.bf(), "k", records(bf, "k"))
    assert digest(other, "k") == digest(client, "k")
    assert all(other.bf().mexists("k", *MEMBERS))


def test_a_filter_that_grows_during_a_dump(client):
    bf = client.bf()
    bf.create("k", 0.01, 100)
    members = list(range(1000))
    bf.madd("k", *members)
    numbers = itertools.count(10_000)
    dump = list(records(bf, "k", lambda: bf.madd("k", *itertools.islice(numbers, 1000))))
    load(bf, "copy", dump)
    assert all(bf.mexists("copy", *members))
    debug = client.execute_command("BF.DEBUG", "copy"), client.execute_command("BF.DEBUG", "k")
    assert len(debug[0]) < len(debug[1]), "the copy has the layers that were there at the beginning"


@pytest.mark.parametrize(
    "replace",
    [
        ["DEL k", "BF.RESERVE k 0.001 2000000"],
        ["BF.ADD other a", "RENAME other k"],
        ["COPY k other", "RENAME other k"],
        ["FLUSHALL", "BF.INSERT k CAPACITY 2000000 ERROR 0.001 ITEMS a"],
    ],
    ids=["created anew", "renamed", "a copy of itself", "flushed"],
)
def test_a_key_that_is_replaced_during_a_dump(bf, client, replace):
    dump = records(bf, "k")
    next(dump)
    next(dump)
    for line in replace:
        client.execute_command(*line.split())
    with pytest.raises(redis.ResponseError, match="^the filter was replaced since the dump began$"):
        next(dump)


def test_a_key_that_is_deleted_during_a_dump(bf, client):
    dump = records(bf, "k")
    next(dump)
    client.delete("k")
    with pytest.raises(redis.ResponseError, match="^not found$"):
        next(dump)
    client.set("k", "x")
    with pytest.raises(redis.ResponseError, match="^WRONGTYPE"):
        bf.scandump("k", 0)


def test_records_of_two_filters(bf, client):
    bf.create("other", 0.001, CAPACITY)
    bf.madd("other", *range(50_000, 52_000))
    dump, other = list(records(bf, "k")), list(records(bf, "other"))
    assert len(dump) == len(other)
    load(bf, "copy", dump[:1])
    for record in other:
        assert "another dump" in refusal(bf, "copy", *record)
    load(bf, "copy", dump[1:])
    assert digest(client, "copy") == digest(client, "k")
    assert refusal(bf, "copy", *other[0]), "nor over a filter that is whole"
    assert refusal(bf, "other", *dump[0])


def test_a_dump_continues_after_a_restart(bf, server, protocol):
    dump = records(bf, "k")
    next(dump)
    next(dump)
    server.restart()
    bf.create("k", 0.001, CAPACITY)
    with pytest.raises(redis.ResponseError, match="^the filter was replaced since the dump began$"):
        next(dump)


def test_a_dump_in_a_pipeline(bf, client):
    dump = list(records(bf, "k"))
    for transaction in [False, True]:
        pipe = client.pipeline(transaction=transaction)
        for record in dump:
            pipe.bf().loadchunk("copy", *record)
        pipe.bf().mexists("copy", *MEMBERS)
        *loaded, found = pipe.execute()
        assert set(loaded) <= {b"OK", "OK"} and len(loaded) == len(dump)
        assert all(found)
        client.delete("copy")
