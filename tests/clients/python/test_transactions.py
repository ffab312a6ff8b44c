"""Long pipelines and transactions, and a dump that is loaded under WATCH."""

import pytest
import redis


@pytest.mark.parametrize("transaction", [False, True], ids=["pipeline", "multi"])
def test_ten_thousand_adds_in_one_pipeline(client, transaction):
    pipe = client.pipeline(transaction=transaction)
    for number in range(10_000):
        pipe.bf().add("k", number)
    new = pipe.execute()
    assert len(new) == 10_000 and sum(new) == client.bf().card("k") > 9_800
    assert all(client.bf().mexists("k", *range(10_000)))


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
