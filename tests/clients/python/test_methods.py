"""Every BF method of redis-py and valkey-py, with the clients' own parsing of replies, in both protocols and in both forms of
replies that redis-py offers."""

import asyncio
from dataclasses import dataclass
from types import ModuleType

import pytest
import redis
import valkey

from server import PATIENCE


@dataclass
class Mode:
    """A client library, its protocol, and the form of its replies."""

    library: ModuleType
    options: dict
    boolean: type
    info: str

    def client(self, server, **options):
        made = getattr(self.library, {"redis": "Redis", "valkey": "Valkey"}[self.library.__name__])
        client = made(port=server.port, socket_timeout=PATIENCE, **self.options, **options)
        server.clients.append(client)
        return client


MODES = {
    "redis-py": Mode(redis, {}, bool, "attributes"),
    "redis-py-resp2": Mode(redis, {"protocol": 2}, int, "attributes"),
    "redis-py-resp3": Mode(redis, {"protocol": 3}, bool, "dict"),
    "redis-py-resp2-unified": Mode(redis, {"protocol": 2, "legacy_responses": False}, int, "attributes"),
    "redis-py-resp3-unified": Mode(redis, {"protocol": 3, "legacy_responses": False}, bool, "attributes"),
    "valkey-py-resp2": Mode(valkey, {"protocol": 2}, int, "attributes"),
    "valkey-py-resp3": Mode(valkey, {"protocol": 3}, bool, "dict"),
}


@pytest.fixture(params=MODES.values(), ids=MODES.keys())
def mode(request):
    return request.param


@pytest.fixture
def client(mode, server):
    return mode.client(server)


@pytest.fixture
def bf(client):
    return client.bf()


@pytest.fixture
def answers(mode):
    """Checks one answer, or a list of them: equal to 1 and 0, integers in RESP2 and booleans in RESP3."""

    def check(reply, expected):
        assert reply == expected
        for answer in reply if isinstance(reply, list) else [reply]:
            assert type(answer) is mode.boolean

    return check


def fields(mode, info):
    """Returns the five fields of BF.INFO from the client's form of the reply."""
    if mode.info == "dict":
        names = [b"Capacity", b"Size", b"Number of filters", b"Number of items inserted", b"Expansion rate"]
        assert list(info) == names, "no field more, none less, in this order"
        return list(info.values())
    assert type(info).__name__ == "BFInfo"
    return [info.capacity, info.size, info.filterNum, info.insertedNum, info.expansionRate]


def test_reserve_and_create(bf, mode):
    assert bf.reserve("k", 0.01, 1000) is True
    assert bf.create("expanding", 0.0001, 1000, expansion=4) is True
    assert bf.create("fixed", 0.01, 1000, noScale=True) is True
    assert bf.create("zero", 0.01, 1000, expansion=0) is True
    assert [fields(mode, bf.info(key))[4] for key in ["k", "expanding", "fixed", "zero"]] == [2, 4, None, None]
    with pytest.raises(mode.library.ResponseError, match="^item exists$"):
        bf.create("k", 0.01, 1000)


def test_add_and_exists(bf, answers):
    answers(bf.add("k", "a"), 1)
    answers(bf.add("k", "a"), 0)
    answers(bf.exists("k", "a"), 1)
    answers(bf.exists("k", "b"), 0)
    answers(bf.exists("missing", "a"), 0)


def test_madd_and_mexists(bf, answers):
    answers(bf.madd("k", "a", "b", "a"), [1, 1, 0])
    answers(bf.madd("k", "b", "c"), [0, 1])
    answers(bf.madd("k", "c"), [0])
    answers(bf.mexists("k", "a", "x", "c", "a"), [1, 0, 1, 1])
    answers(bf.mexists("missing", "a", "b"), [0, 0])


def test_insert(bf, mode, answers):
    answers(bf.insert("k", ["a", "b", "a"]), [1, 1, 0])
    answers(bf.insert("described", ["a"], capacity=500, error=0.001, expansion=3), [1])
    assert fields(mode, bf.info("described"))[0] == 500
    assert fields(mode, bf.info("described"))[4] == 3
    answers(bf.insert("fixed", ["a"], capacity=500, noScale=True), [1])
    assert fields(mode, bf.info("fixed"))[4] is None
    answers(bf.insert("k", ["b", "c"], noCreate=True), [0, 1])
    with pytest.raises(mode.library.ResponseError, match="^not found$"):
        bf.insert("missing", ["a"], noCreate=True)
    answers(bf.insert("k", ["c"], capacity=7, error=0.5), [0])
    assert fields(mode, bf.info("k"))[0] == 100, "the options of a creation say nothing to a filter that is there"


def test_info(bf, mode, client):
    bf.create("k", 0.01, 1000)
    bf.madd("k", "a", "b", "c")
    capacity, size, filters, items, expansion = fields(mode, bf.info("k"))
    assert (capacity, filters, items, expansion) == (1000, 1, 3, 2)
    # 1000 items at 1% need about 1200 bytes of bits.
    assert 1000 < size < 4000
    # Size counts 120 bytes of fields, of which a small filter takes half.
    assert size - 120 < client.memory_usage("k")
    with pytest.raises(mode.library.ResponseError, match="^not found$"):
        bf.info("missing")


def test_info_of_a_filter_that_grew(bf, mode):
    bf.create("k", 0.01, 10, expansion=3)
    bf.madd("k", *range(35))
    capacity, _, filters, items, expansion = fields(mode, bf.info("k"))
    assert (capacity, filters, expansion) == (10 + 30, 2, 3)
    assert items == bf.card("k")


def test_info_of_one_field(mode, server):
    # The clients have no method for one field, and parse only whole replies; a fresh client has no parser installed yet.
    client = mode.client(server)
    client.execute_command("BF.RESERVE", "k", "0.01", 1000, "NONSCALING")
    asked = {
        "CAPACITY": (b"Capacity", 1000),
        "filters": (b"Number of filters", 1),
        "Items": (b"Number of items inserted", 0),
        "EXPANSION": (b"Expansion rate", None),
    }
    for word, (name, value) in asked.items():
        expected = {name: value} if mode.boolean is bool else [value]
        assert client.execute_command("BF.INFO", "k", word) == expected
    with pytest.raises(mode.library.ResponseError, match="^Invalid information value$"):
        client.execute_command("BF.INFO", "k", "COLOUR")


def test_card(bf, mode):
    assert bf.card("missing") == 0
    bf.madd("k", "a", "b", "a")
    assert bf.card("k") == 2
    assert type(bf.card("k")) is int
    bf.create("empty", 0.01, 100)
    assert bf.card("empty") == 0


def test_scandump_and_loadchunk(bf, answers, client):
    bf.create("k", 1e-6, 5000)
    bf.madd("k", *range(5000))
    records, iterator = [], 0
    while True:
        iterator, data = bf.scandump("k", iterator)
        if iterator == 0:
            assert data == b""
            break
        assert type(iterator) is int and type(data) is bytes
        records.append((iterator, data))
    for record in records:
        assert bf.loadchunk("copy", *record) in (b"OK", "OK")
    assert all(bf.mexists("copy", *range(5000)))
    assert client.execute_command("BF.DEBUG", "copy") == client.execute_command("BF.DEBUG", "k")
    answers(bf.add("copy", "and on it goes"), 1)


def test_debug(bf, client):
    bf.create("k", 0.01, 10, expansion=2)
    bf.madd("k", *range(25))
    lines = [line.decode() for line in client.execute_command("BF.DEBUG", "k")]
    assert lines[0] == f"size:{bf.card('k')}"
    assert len(lines) == 3
    for line, capacity in zip(lines[1:], [10, 20]):
        words = dict(word.split(":") for word in line.split(" "))
        assert list(words) == ["bytes", "bits", "hashes", "hashwidth", "capacity", "size", "ratio"]
        assert int(words["bits"]) == 8 * int(words["bytes"])
        assert int(words["capacity"]) == capacity
        assert 0 < float(words["ratio"]) < 0.01


def test_a_full_fixed_filter(bf, mode, answers):
    bf.create("k", 1e-9, 2, noScale=True)
    answers(bf.madd("k", "a", "b"), [1, 1])
    full = "^non scaling filter is full$"
    with pytest.raises(mode.library.ResponseError, match=full):
        bf.add("k", "c")
    answers(bf.add("k", "a"), 0)
    for reply in [bf.madd("k", "b", "c", "d", "a"), bf.insert("k", ["b", "c", "d", "a"])]:
        known, error = reply
        assert known == 0 and type(known) is mode.boolean
        assert isinstance(error, mode.library.ResponseError) and str(error) == full.strip("^$")
    answers(bf.mexists("k", "a", "b"), [1, 1])
    assert bf.card("k") == 2


def test_keys_and_items_are_any_bytes(bf, answers):
    items = [b"", b"\x00", b"\x00\x00", b"\xff\xfe", b"a\r\nb", "ключ".encode(), bytes(range(256)), b"x" * 100_000]
    for key in [b"\x00\xff\r\n", b"k"]:
        answers(bf.madd(key, *items), [1] * len(items))
        answers(bf.mexists(key, *items, b"\x00\x00\x00"), [1] * len(items) + [0])
        answers(bf.add(key, b""), 0)
    answers(bf.exists("k", "ключ"), 1)
    answers(bf.add("k", 42), 1)
    answers(bf.exists("k", "42"), 1)


def test_a_client_that_decodes(mode, server, answers):
    client = mode.client(server, decode_responses=True)
    bf = client.bf()
    answers(bf.add("k", "ü"), 1)
    answers(bf.exists("k", "ü"), 1)
    info = bf.info("k")
    assert (info["Capacity"] if mode.info == "dict" else info.capacity) == 100
    iterator, data = bf.scandump("k", 0)
    assert type(data) is bytes, "a record is never text"
    assert bf.loadchunk("copy", iterator, data) == "OK"


# One error of each form. The client removes a leading ERR.
ERRORS = [
    ("BF.ADD string a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("BF.RESERVE k 1 100", "error rate must be in the range (0.000000, 1.000000)"),
    ("BF.RESERVE k 0.01 9 EXPANSION 2 NONSCALING", "Nonscaling filters cannot expand"),
    ("BF.INSERT k ERROR x ITEMS a", "Bad error rate"),
    ("BF.MADD k", "wrong number of arguments for 'bf.madd' command"),
    ("BF.DEBUG missing", "not found"),
    ("BF.LOADCHUNK k x y", "Second argument must be numeric"),
]


def test_errors_read_as_they_do_with_redisbloom(mode, server):
    client = mode.client(server)
    client.set("string", "x")
    for words, text in ERRORS:
        with pytest.raises(mode.library.ResponseError) as caught:
            client.execute_command(*words.split())
        assert str(caught.value) == text, words
        assert client.keys() == [b"string"], f"a refusal changes nothing: {words}"


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_client_without_threads(server, protocol):
    async def run():
        async with redis.asyncio.Redis(port=server.port, protocol=protocol, socket_timeout=PATIENCE) as client:
            bf = client.bf()
            assert await bf.create("k", 0.01, 1000) is True
            assert await bf.add("k", "a") == 1
            assert await bf.madd("k", "a", "b") == [0, 1]
            assert await bf.insert("k", ["b", "c"]) == [0, 1]
            assert await bf.exists("k", "c") == 1
            assert await bf.mexists("k", "a", "x") == [1, 0]
            assert await bf.card("k") == 3
            info = await bf.info("k")
            assert (info[b"Capacity"] if protocol == 3 else info.capacity) == 1000
            iterator, data = await bf.scandump("k", 0)
            assert await bf.loadchunk("copy", iterator, data) == b"OK"
            with pytest.raises(redis.ResponseError, match="^filter is still being loaded$"):
                await bf.exists("copy", "a")
            many = await asyncio.gather(*(bf.add("parallel", number) for number in range(50)))
            assert sum(many) == await bf.card("parallel")

    asyncio.run(run())


def test_the_module_is_found_where_clients_look_for_it(client, mode):
    def text(value):
        return value.decode() if isinstance(value, bytes) else value

    modules = client.module_list()
    found = [{text(name): text(value) for name, value in module.items()} for module in modules]
    assert [module["ver"] for module in found if module["name"] == "bf"] == [80000]
