"""Waiting callers: the flights of a process under random interleavings, and the connections that waiting callers leave to
loading callers."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from rows import Rows, waiting_for
from server import PATIENCE, eventually

from bloomgate import Guard
from bloomgate.flights import Failed, Flight, Flights
from bloomgate.guard_options import ABSENT, Fetched

ID = b"row"


class Model:
    """Callers that fetch one row step by step, in an order that a seed chooses, from a server that has one lease. Some callers
    are cancelled between two steps, some stop waiting early, some loads fail, and the row sometimes changes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.flights = Flights()
        self.clock = itertools.count(1).__next__
        self.version = 0
        self.cached: bytes | None = None
        self.is_leased = False
        self.server_waiters = 0
        self.local_waiters: set[int] = set()
        self.shared = 0

    def check(self) -> None:
        row = self.flights._rows.get(ID)
        if self.local_waiters:
            assert row is not None
            assert row.active >= 1, "flights wait, and none is left to let them go on"
            assert len(row.waiting) <= len(self.local_waiters)
        assert self.server_waiters <= 1, "at most one caller of a process waits in the server"

    def change(self) -> None:
        """The effect of BF.CHANGED: a caller that begins from now on must not get the earlier value."""
        self.version += 1
        self.cached = None
        self.is_leased = False

    def caller(self, number: int) -> Iterator[Callable[[], bool]]:
        """One caller. Between its steps, yields a function that returns whether it can continue."""
        begun = self.version
        [flight] = self.flights.begin([ID], self.clock())
        try:
            while True:
                flight.asked = self.clock()
                yield lambda: True  # the command is sent
                answer = self.cached
                if answer is not None:
                    assert int(answer) >= begun
                    yield lambda: True  # the answer arrives
                    flight.shares = Fetched("hit", value=answer)
                    return
                if not self.is_leased:
                    self.is_leased = True
                    version = self.version
                    try:
                        yield lambda: True  # the row is loaded
                        if self.chance.random() < 0.2:
                            flight.shares = Failed(ID, OSError())
                        else:
                            flight.shares = Fetched("hit", value=b"%d" % version)
                            if version == self.version:
                                self.cached = b"%d" % version
                    finally:
                        if version == self.version:
                            self.is_leased = False
                    return
                flight.given, event = None, threading.Event()
                if self.flights.wait([flight], event):
                    self.server_waiters += 1
                    try:
                        yield lambda: self.cached is not None or not self.is_leased
                    finally:
                        self.server_waiters -= 1
                    continue
                patience = self.chance.choice([3, 1000])
                self.local_waiters.add(number)
                try:
                    for _ in range(patience):
                        yield event.is_set if patience == 1000 else lambda: True
                        if event.is_set():
                            break
                finally:
                    self.local_waiters.discard(number)
                given = self.flights.stop(flight)
                if isinstance(given, Fetched):
                    assert int(given.value) >= begun, "a value from before a change that this caller knows of"
                    self.shared += 1
                    return
                if given is not None:
                    return
        finally:
            self.flights.end([flight])

    def run(self) -> None:
        callers: dict[int, Iterator[Callable[[], bool]]] = {}
        can_go_on: dict[int, Callable[[], bool]] = {}
        left = self.chance.randint(2, 8)
        while callers or left:
            if left and (not callers or self.chance.random() < 0.3):
                left -= 1
                callers[left] = self.caller(left)
                can_go_on[left] = next(callers[left])
            if self.chance.random() < 0.1:
                self.change()
            ready = [number for number in callers if can_go_on[number]()]
            assert ready, "every caller waits for another"
            number = self.chance.choice(ready)
            if self.chance.random() < 0.1:
                number = self.chance.choice(list(callers))
                callers.pop(number).close()  # type: ignore[attr-defined]
            else:
                try:
                    can_go_on[number] = next(callers[number])
                except StopIteration:
                    del callers[number]
            self.check()
        assert not self.flights._rows, "nothing is left of the row"


def test_flights_under_any_interleaving() -> None:
    shared = 0
    for seed in range(5000):
        model = Model(seed)
        model.run()
        shared += model.shared
    assert shared > 100


def begin(flights: Flights, begun: int) -> Flight:
    [flight] = flights.begin([ID], begun)
    return flight


def test_a_shared_answer_is_not_shared_again() -> None:
    """A caller that began after the fetch was sent may know of a change that the answer lacks."""
    flights = Flights()
    first, second = begin(flights, 1), begin(flights, 2)
    first.asked = 3
    third = begin(flights, 4)
    second.asked = 5
    assert not flights.wait([second], threading.Event()) and not flights.wait([third], threading.Event())
    first.shares = ABSENT
    flights.end([first])
    assert second.given is ABSENT
    second.shares = second.given
    flights.end([second])
    assert third.active and third.given is None


def test_a_forked_process_has_its_own_flights() -> None:
    flights = Flights()
    mine = begin(flights, 1)
    child = os.fork()
    if child == 0:
        os._exit(0 if flights.wait([begin(flights, 2)], threading.Event()) else 1)
    _, status = os.waitpid(child, 0)
    flights.end([mine])
    assert os.waitstatus_to_exitcode(status) == 0 and not flights._rows


def test_more_callers_than_connections(bloom: Any, probe: redis.Redis, port: int) -> None:
    with bloom.connect(f"redis://127.0.0.1:{port}", max_connections=3, timeout=PATIENCE) as client:
        guard, rows = bloom.Guard(client, "rows"), Rows()
        for id in range(100):
            rows.save(id, b"%d" % id)
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for id in range(50):
                    assert guard.get(id, rows.load) == b"%d" % id
                with guard.changed(50 + number):
                    rows.save(50 + number, b"changed")
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert not failures and rows.queries == 50
        assert guard.counts["errors"] == 0 and guard.counts["unguarded"] == 0


def test_a_load_that_is_cancelled_by_gevent(probe: redis.Redis) -> None:
    """The cancellation is not an outcome for the row, so another caller loads it."""
    guard = Guard(probe, "rows")
    timeout = type("Timeout", (BaseException,), {"__module__": "gevent.timeout"})
    began, end = threading.Event(), threading.Event()

    def load(_: Any) -> bytes:
        began.set()
        assert end.wait(PATIENCE)
        raise timeout

    def first() -> None:
        with pytest.raises(timeout):
            guard.get(5, load)

    thread, found = threading.Thread(target=first), []
    thread.start()
    assert began.wait(PATIENCE)
    other = threading.Thread(target=lambda: found.append(guard.get(5, lambda _: b"row")))
    other.start()
    eventually("the other caller to wait", lambda: waiting_for(guard))
    end.set()
    other.join()
    thread.join()
    assert found == [b"row"] and guard.counts["load_failed"] == 0
