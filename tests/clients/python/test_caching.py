"""Client-side caching: a client that has read a filter is notified when the filter changes, and only then."""

import pytest
import redis
from redis.cache import CacheConfig
from redis.connection import Connection

from server import PATIENCE

CHANGES_NOTHING = [
    "BF.ADD k a",
    "BF.MADD k a b",
    "BF.INSERT k ITEMS b a",
    "BF.EXISTS k z",
    "BF.CARD k",
    "BF.INFO k",
    "BF.SCANDUMP k 0",
    "BF.ADD k",
    "BF.RESERVE k 0.01 100",
    "BF.INSERT k CAPACITY x ITEMS z",
    "BF.LOADCHUNK k 1 rubbish",
    "BF.ADD other a",
]
CHANGES = ["BF.ADD k c", "BF.MADD k a d", "BF.INSERT k ITEMS e", "EXPIRE k 1000", "RENAME other k", "DEL k"]


class Tracking:
    """A connection in RESP3 that receives invalidation messages."""

    def __init__(self, server, *words):
        self.invalidated = []
        self.connection = Connection(port=server.port, protocol=3, socket_timeout=PATIENCE)
        self.connection.connect()
        self.connection._parser.set_invalidation_push_handler(self._forget)
        assert self.ask("CLIENT", "TRACKING", "ON", *words) == b"OK"

    def _forget(self, message):
        self.invalidated += message[1]

    def ask(self, *words):
        self.connection.send_command(*words)
        return self.connection.read_response()

    def heard(self):
        """Returns the messages since the last call, which arrive before the reply to the next command."""
        self.ask("PING")
        heard, self.invalidated = self.invalidated, []
        return heard


@pytest.fixture(params=[[], ["BCAST", "PREFIX", "k"]], ids=["default", "broadcast"])
def tracking(server, client, request):
    client.bf().madd("k", "a", "b")
    client.bf().madd("other", "x")
    tracking = Tracking(server, *request.param)
    yield tracking
    tracking.connection.disconnect()


@pytest.mark.parametrize("question", ["BF.EXISTS k a", "BF.MEXISTS k a b", "BF.CARD k", "BF.INFO k", "BF.SCANDUMP k 0"])
def test_a_reader_is_invalidated_by_changes_only(server, tracking, client, question):
    def send(line):
        protocol = client.connection_pool.connection_kwargs["protocol"]
        connection = Connection(port=server.port, protocol=protocol, socket_timeout=PATIENCE)
        connection.send_command(*line.split())
        try:
            connection.read_response()
        except redis.ResponseError:
            pass
        connection.disconnect()

    tracking.ask(*question.split())
    for line in CHANGES_NOTHING:
        send(line)
        assert tracking.heard() == [], line
    for line in CHANGES:
        tracking.ask(*question.split())
        send(line)
        assert set(tracking.heard()) == {b"k"}, line


class CachesFilters(CacheConfig):
    """redis-py caches replies only to commands that it knows, so a user must configure it to cache BF.EXISTS."""

    def is_allowed_to_cache(self, command):
        return command in ("BF.EXISTS", "BF.CARD") or super().is_allowed_to_cache(command)


def test_the_cache_of_the_client_itself(server):
    try:
        cached = server.client(protocol=3, cache_config=CachesFilters())
        cached.ping()
    except redis.ConnectionError as error:
        pytest.skip(f"redis-py refuses to cache what this server says: {error}")
    other = server.client(protocol=3)
    other.bf().madd("k", "a", "b")

    def ran():
        return other.info("commandstats").get("cmdstat_bf.exists", {"calls": 0})["calls"]

    def look(item):
        return cached.execute_command("BF.EXISTS", "k", item, keys=["k"])

    assert (look("a"), look("c"), ran()) == (1, 0, 2)
    assert (look("a"), look("c"), ran()) == (1, 0, 2), "answered out of the cache"
    other.bf().madd("k", "a", "b")
    assert (look("a"), look("c"), ran()) == (1, 0, 2), "an add that changed nothing leaves the cache alone"
    other.bf().add("k", "c")
    assert (look("a"), look("c"), ran()) == (1, 1, 4), "a change empties it"
