"""BF commands in the client's pipelines and transactions, and under WATCH."""

import pytest
import redis


@pytest.mark.parametrize("transaction", [False, True], ids=["pipeline", "multi"])
def test_each_command_answers_as_it_does_alone(client, transaction):
    client.set("string", "x")
    pipe = client.pipeline(transaction=transaction)
    bf = pipe.bf()
    bf.create("k", 1e-9, 2, noScale=True)
    bf.create("k", 0.01, 100)
    bf.add("k", "a")
    bf.madd("k", "a", "b", "c")
    bf.exists("k", "b")
    bf.add("string", "a")
    bf.insert("k", ["a"], noCreate=True)
    pipe.execute_command("BF.INSERT", "k", "FROBNICATE", "ITEMS", "a")
    bf.mexists("k", "a", "c")
    bf.card("k")
    bf.info("k")
    pipe.execute_command("BF.INFO", "missing")
    replies = pipe.execute(raise_on_error=False)

    texts = [str(reply) if isinstance(reply, redis.ResponseError) else reply for reply in replies]
    assert texts[:3] == [True, "item exists", 1]
    assert texts[3][:2] == [0, 1] and str(texts[3][2]) == "non scaling filter is full" and len(texts[3]) == 3
    assert texts[4:10] == [
        1,
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        [0],
        "Unknown argument received",
        [1, 0],
        2,
    ]
    info = texts[10]
    assert (info[b"Number of items inserted"] if isinstance(info, dict) else info.insertedNum) == 2
    assert texts[11] == "not found"


@pytest.mark.parametrize("transaction", [False, True], ids=["pipeline", "multi"])
def test_ten_thousand_adds_in_one_pipeline(client, transaction):
    pipe = client.pipeline(transaction=transaction)
    for number in range(10_000):
        pipe.bf().add("k", number)
    new = pipe.execute()
    assert len(new) == 10_000 and sum(new) == client.bf().card("k") > 9_800
    assert all(client.bf().mexists("k", *range(10_000)))


def test_a_discarded_transaction_adds_nothing(client):
    with client.client() as connection:
        connection.execute_command("MULTI")
        assert connection.execute_command("BF.ADD", "k", "a") in (b"QUEUED", "QUEUED")
        connection.execute_command("DISCARD")
    assert client.exists("k") == 0


def test_a_repeated_record_of_a_dump_does_not_break_a_watch(client, server):
    client.bf().madd("k", "a", "b")
    iterator, header = client.bf().scandump("k", 0)
    client.bf().loadchunk("copy", iterator, header)
    for key, survives in [("copy", True), ("another", False)]:
        with client.pipeline() as pipe:
            pipe.watch(key)
            server.client().bf().loadchunk(key, iterator, header)
            pipe.multi()
            pipe.ping()
            if survives:
                assert pipe.execute() == [True]
            else:
                with pytest.raises(redis.WatchError):
                    pipe.execute()


def test_a_guard_that_adds_once_under_watch(client, server):
    """The usual pattern with WATCH: look up, decide, add, and start again if another client was faster."""
    attempts = []

    def add_if_absent(pipe):
        attempts.append(pipe.bf().exists("k", "a"))
        if len(attempts) == 1:
            server.client().bf().add("k", "from another client")
        pipe.multi()
        pipe.bf().add("k", "a")

    assert client.transaction(add_if_absent, "k") == [1]
    assert attempts == [0, 0], "the first attempt was broken, the second went through"
    assert client.bf().card("k") == 2
