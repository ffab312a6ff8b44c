"""Key space events, and the module's section of INFO."""

import pytest
import redis

from server import PATIENCE, eventually


class Listener:
    """Collects the events of all keys."""

    def __init__(self, client):
        client.config_set("notify-keyspace-events", "KEA")
        self.pubsub = client.pubsub(ignore_subscribe_messages=True)
        self.pubsub.psubscribe("__keyspace@0__:*")
        # The confirmation comes first, then nothing.
        assert self.pubsub.get_message(timeout=PATIENCE) is None
        self.client = client

    def events(self):
        """Returns the events since the last call as `key event`, in order."""
        self.client.set("end", "x")
        seen = []
        while True:
            message = self.pubsub.get_message(timeout=PATIENCE)
            assert message is not None, "the last event is missing"
            key = message["channel"].decode().removeprefix("__keyspace@0__:")
            if key == "end":
                return seen
            event = message["data"].decode()
            # Redis 8 and Valkey also send an event for a new key, if all events are enabled.
            if event != "new":
                seen.append(f"{key} {event}")


@pytest.fixture
def listener(server, client):
    listener = Listener(server.client(protocol=2))
    yield listener
    listener.pubsub.close()


def test_each_change_is_an_event(client, listener):
    bf = client.bf()
    bf.create("k", 0.01, 100)
    assert listener.events() == ["k bloom.reserve"]
    bf.add("k", "a")
    assert listener.events() == ["k bloom.add"]
    bf.madd("k", "a", "b", "c")
    assert listener.events() == ["k bloom.add"], "one for the command, not one for each item"
    bf.insert("k", ["d"], noCreate=True)
    assert listener.events() == ["k bloom.add"]
    bf.add("other", "a")
    assert listener.events() == ["other bloom.reserve", "other bloom.add"]
    bf.insert("third", ["a"], capacity=10)
    assert listener.events() == ["third bloom.reserve", "third bloom.add"]
    client.delete("other")
    assert listener.events() == ["other del"]


def test_a_command_without_effect_sends_no_event(client, listener):
    bf = client.bf()
    bf.create("full", 1e-9, 1, noScale=True)
    bf.madd("full", "a")
    client.set("string", "x")
    listener.events()
    bf.add("full", "a")
    bf.madd("full", "a", "z")
    bf.insert("full", ["a"])
    bf.exists("full", "a")
    bf.card("full")
    bf.info("full")
    bf.scandump("full", 0)
    for line in ["BF.ADD full z", "BF.ADD string x", "BF.RESERVE full 0.01 9", "BF.INSERT missing NOCREATE ITEMS a"]:
        with pytest.raises(redis.ResponseError):
            client.execute_command(*line.split())
    # A full filter sends the event each time it refuses an item.
    assert listener.events() == ["full bloom.full"] * 2


def test_growth_is_a_separate_event(client, listener):
    bf = client.bf()
    bf.create("k", 1e-9, 10)
    layers = 1
    listener.events()
    for number in range(100):
        bf.add("k", number)
        grown = filters_of(bf.info("k"))
        assert sorted(listener.events()) == ["k bloom.add", "k bloom.scale"][: 1 + (grown > layers)], number
        layers = grown
    assert layers == 4, "10 + 20 + 40 + 80"
    bf.madd("k", *range(1000, 2000))
    assert sorted(listener.events()) == ["k bloom.add", "k bloom.scale"], "one, however many layers a command adds"


def filters_of(info):
    return info[b"Number of filters"] if isinstance(info, dict) else info.filterNum


def test_events_of_a_transaction_and_a_script(client, listener):
    pipe = client.pipeline()
    pipe.bf().add("k", "a")
    pipe.bf().add("k", "a")
    pipe.bf().add("k", "b")
    pipe.execute()
    assert listener.events() == ["k bloom.reserve", "k bloom.add", "k bloom.add"]
    client.eval("redis.call('BF.ADD', KEYS[1], 'a') redis.call('BF.ADD', KEYS[1], 'c')", 1, "k")
    assert listener.events() == ["k bloom.add"]


def test_a_replica_also_sends_events(start, protocol):
    primary = start()
    replica = start(f"replicaof 127.0.0.1 {primary.port}")
    client, mirror = primary.client(protocol), replica.client()
    mirror.config_set("notify-keyspace-events", "KEA")
    eventually("the replica to be in step", lambda: mirror.info("replication")["master_link_status"] == "up")
    pubsub = mirror.pubsub(ignore_subscribe_messages=True)
    pubsub.psubscribe("__keyevent@0__:bloom.*")
    assert pubsub.get_message(timeout=PATIENCE) is None
    client.bf().add("k", "a")
    client.bf().add("k", "a")
    client.bf().add("k", "b")
    seen = []
    while len(seen) < 3:
        message = pubsub.get_message(timeout=PATIENCE)
        assert message is not None, seen
        seen.append(message["channel"].decode().split(":")[-1])
    assert seen == ["bloom.reserve", "bloom.add", "bloom.add"]
    pubsub.close()


def test_the_section_is_shown_with_all_modules(client):
    section = client.info("modules")
    assert section["bf_bloom_num_objects"] == 0
    assert "bf_bloom_num_objects" in client.info("everything")
