"""Where the callers of one process wait for a row that another caller loads.

A caller that waits inside the server (`BF.FETCH ... WAIT`) occupies its connection, and gets the lease if the loading caller
gives up. So at most one caller per row waits there; the others wait in the process until that caller is done, and share what
the next fetch answers. They cost no connections, and a cancelled crowd leaves no lease behind at connections that are about to
close."""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from .errors import LoadFailed
from .guard_words import Fetched
from .steps import Event

DEFAULT_CONNECTIONS = 100
"""The connections of redis-py's pools, where a client does not say how many it has."""


class Slots:
    """Limits how many connections of one client wait inside the server, so that the others are free for loading, filling
    and announcing. A caller that finds no connection to fill a row delays every caller that waits for the row."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Takes a slot; False where all are taken."""
        with self._lock:
            if self._free <= 0:
                return False
            self._free -= 1
            return True

    def give_back(self) -> None:
        with self._lock:
            self._free += 1


_slots: WeakKeyDictionary[Any, Slots] = WeakKeyDictionary()


def connections_of(client: object) -> int:
    """Returns the most connections of a client, or of each node of a cluster's client."""
    pool = getattr(client, "connection_pool", None)
    if pool is not None:
        return int(getattr(pool, "max_connections", DEFAULT_CONNECTIONS))
    nodes = getattr(client, "nodes_manager", client)
    return int(getattr(nodes, "connection_kwargs", {}).get("max_connections") or DEFAULT_CONNECTIONS)


def slots_of(client: object) -> Slots:
    """Returns the slots that all guards of one connection pool share: half of its connections. The nodes of a cluster have
    a pool each; there the guards of one client share the slots of one node."""
    pool = getattr(client, "connection_pool", None)
    return _slots.setdefault(client if pool is None else pool, Slots(connections_of(client) // 2))


def shared_error(id: bytes, error: BaseException) -> tuple[Exception, TracebackType | None]:
    """Returns the error, with its traceback, for callers that wait for a failed load. A BaseException such as SystemExit becomes
    the cause of a LoadFailed: raised in each of them, it would end their threads, or the event loop."""
    if isinstance(error, Exception):
        return error, error.__traceback__
    failed = LoadFailed(id)
    failed.__cause__ = error
    return failed, None


class Row:
    """The flights of one row: how many are active, and those that wait in the process, in the order in which they came."""

    def __init__(self) -> None:
        self.active = 0
        self.waiting: OrderedDict[Flight, None] = OrderedDict()


class Flight:
    """One caller's interest in one row. It is `active` while the caller fetches the row, waits for it inside the server or
    loads it.

    At its end it shares with those that wait: `found`, the answer that ends its call, with those that began before this was
    asked for; or `error`, if its load failed, with all. They have that as `given` or `given_error`, the error with its
    traceback. If `found` is an error of the server, all waiters resume. `was_early` says whether its last wait in the
    server ended early."""

    def __init__(self, id: bytes, row: Row, number: int) -> None:
        self.id = id
        self.row = row
        self.number = number
        self.active = True
        self.event: Event | None = None
        self.asked = 0
        self.was_early = False
        self.found: Fetched | Exception | None = None
        self.error: BaseException | None = None
        self.given: Fetched | None = None
        self.given_error: tuple[Exception, TracebackType | None] | None = None


class Flights:
    """The rows that callers of this process fetch and load now. While flights of a row wait, another one is active."""

    def __init__(self, make_event: Callable[[], Event]) -> None:
        self._make_event = make_event
        self._numbers = itertools.count(1)
        self._start_empty()

    def _start_empty(self) -> None:
        self._rows: dict[bytes, Row] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    @contextmanager
    def flight(self, id: bytes) -> Iterator[Flight]:
        """Begins a flight, and ends it with the `with` block."""
        flight = self.begin(id)
        try:
            yield flight
        finally:
            self.end(flight)

    def begin(self, id: bytes) -> Flight:
        """Begins an active flight."""
        if self._process != os.getpid():
            # This process was forked. The callers of these flights are in the other process.
            self._start_empty()
        with self._lock:
            row = self._rows.setdefault(id, Row())
            row.active += 1
            return Flight(id, row, next(self._numbers))

    def ask(self, flight: Flight) -> None:
        """To call right before a fetch is sent: its answer may be shared with the flights that began earlier. One that began
        later may know of a change that the answer does not have."""
        flight.asked = next(self._numbers)

    def end(self, *flights: Flight) -> None:
        """Ends flights, and resumes the callers that share their outcome. If others still wait for a row and none is active,
        the first of them resumes, and fetches for the others."""
        with self._lock:
            for flight in flights:
                self._end(flight)

    def _end(self, flight: Flight) -> None:
        row = flight.row
        if flight.active:
            flight.active = False
            row.active -= 1
        else:
            row.waiting.pop(flight, None)
        for other in list(row.waiting):
            if flight.error is not None:
                other.given_error = shared_error(flight.id, flight.error)
            elif isinstance(flight.found, Fetched):
                if other.number > flight.asked:
                    break
                # It stays as old as it is if the other one hands it on.
                other.given, other.asked = flight.found, flight.asked
            elif flight.found is None:
                break
            self._resume(other)
        if row.waiting and not row.active:
            self._resume(next(iter(row.waiting)))
        if not row.active and self._rows.get(flight.id) is row:
            del self._rows[flight.id]

    def begin_wait(self, flight: Flight) -> Event | None:
        """Makes an active flight wait for the event that is returned. If it is the only active one of its row, it stays
        active, and nothing is returned."""
        row = flight.row
        with self._lock:
            if row.active == 1:
                return None
            flight.active = False
            flight.given = None
            row.active -= 1
            flight.event = self._make_event()
            row.waiting[flight] = None
            return flight.event

    def begin_waits(self, flights: Iterable[Flight], event: Event) -> list[Flight]:
        """Makes flights wait for one event, until one of them is resumed. Returns those that need not wait: they are alone in their
        rows, or have got a row or an error."""
        free = []
        with self._lock:
            for flight in flights:
                if flight.given is not None or flight.given_error is not None or (flight.active and flight.row.active == 1):
                    free.append(flight)
                    continue
                if flight.active:
                    flight.active = False
                    flight.row.active -= 1
                    flight.row.waiting[flight] = None
                flight.event = event
        return free

    def end_wait(self, flight: Flight) -> None:
        """Makes a flight active again whose event was set, or that has waited for long enough."""
        with self._lock:
            if not flight.active:
                self._activate(flight)

    @staticmethod
    def _activate(flight: Flight) -> None:
        del flight.row.waiting[flight]
        flight.active = True
        flight.row.active += 1

    def _resume(self, flight: Flight) -> None:
        # It is active as soon as its event is set, though its caller may be cancelled before it notices: then the end of the
        # flight lets the next one go on.
        self._activate(flight)
        if flight.event is not None:
            flight.event.set()
