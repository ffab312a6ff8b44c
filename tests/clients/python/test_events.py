"""Key space events of transactions, scripts and replicas, and the module's section of INFO."""

import pytest

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
