"""BF commands in pipelines, in MULTI/EXEC, and under WATCH: an add that changed nothing is no change."""

import pytest
import redis

# Word lines that leave the filter `k` of `a` and `b`, and the full filter `full` of `a`, as they were.
CHANGES_NOTHING = [
    "BF.ADD k a",
    "BF.MADD k a b a",
    "BF.INSERT k ITEMS b",
    "BF.INSERT k NOCREATE CAPACITY 9 ITEMS b",
    "BF.EXISTS k z",
    "BF.MEXISTS k a z",
    "BF.CARD k",
    "BF.INFO k",
    "BF.INFO k ITEMS",
    "BF.DEBUG k",
    "BF.SCANDUMP k 0",
    "BF.RESERVE k 0.01 100",
    "BF.ADD full z",
    "BF.MADD full a z",
    "BF.INSERT missing NOCREATE ITEMS a",
    "BF.INSERT missing CAPACITY x ITEMS a",
    "BF.EXISTS missing a",
    "BF.LOADCHUNK missing 2 rubbish",
]
CHANGES = [
    "BF.ADD k c",
    "BF.MADD k a c",
    "BF.INSERT k ITEMS c",
    "BF.ADD missing a",
    "BF.RESERVE missing 0.01 100",
    "BF.INSERT missing CAPACITY 9 ITEMS a",
]


@pytest.fixture
def filters(client):
    client.execute_command("BF.RESERVE", "k", "0.0001", 1000)
    client.execute_command("BF.MADD", "k", "a", "b")
    client.execute_command("BF.RESERVE", "full", "1e-9", 1, "NONSCALING")
    client.execute_command("BF.ADD", "full", "a")


@pytest.mark.parametrize("transaction", [False, True], ids=["pipeline", "multi"])
def test_each_command_answers_as_it_would_alone(client, transaction):
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


def test_a_word_too_few_aborts_the_transaction(client):
    pipe = client.pipeline()
    pipe.bf().add("k", "a")
    pipe.execute_command("BF.ADD", "k")
    with pytest.raises(redis.ResponseError):
        pipe.execute()
    assert client.exists("k") == 0


def test_a_discarded_transaction_adds_nothing(client):
    with client.client() as connection:
        connection.execute_command("MULTI")
        assert connection.execute_command("BF.ADD", "k", "a") in (b"QUEUED", "QUEUED")
        connection.execute_command("DISCARD")
    assert client.exists("k") == 0


@pytest.mark.parametrize("line", CHANGES_NOTHING)
def test_what_changes_nothing_does_not_break_a_watch(client, server, filters, line):
    assert exec_survives(client, server, line)


@pytest.mark.parametrize("line", CHANGES)
def test_what_changes_something_breaks_a_watch(client, server, filters, line):
    assert not exec_survives(client, server, line)


def test_a_record_of_a_dump_that_comes_again_does_not_break_a_watch(client, server, filters):
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


def exec_survives(client, server, line):
    """Whether a transaction that watches is executed although another client sends the line before it."""
    with client.pipeline() as pipe:
        pipe.watch("k", "full", "missing")
        try:
            server.client().execute_command(*line.split())
        except redis.ResponseError:
            pass
        pipe.multi()
        pipe.set("executed", "yes")
        try:
            pipe.execute()
        except redis.WatchError:
            assert client.get("executed") is None
            return False
    assert client.get("executed") == b"yes"
    return True


def test_a_guard_that_adds_once_under_watch(client, server):
    """The pattern that WATCH is for: look, decide, add, and begin anew when somebody else was faster."""
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
