"""Coalesces the fetches of a process: callers wait here for a row that another caller loads.

A caller that waits inside the server (`BF.FETCH ... WAIT`) occupies its connection, and gets the lease if the loading caller
gives up. So at most one caller per row waits there; the others wait in the process until that caller is done, and share the
answer of the next fetch. They occupy no connections, and if many callers are cancelled, no lease is granted to connections
that are about to close."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from .errors import LoadFailed
from .guard_options import Fetched
from .steps import Event

DEFAULT_CONNECTIONS = 100
"""The size of redis-py's pools for clients that do not set one."""


class Permits:
    """Limits how many connections of one client wait inside the server, so that the others are free for loading, filling and
    announcing. If a caller has no connection to fill a row, every caller that waits for the row is delayed."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()

    def acquire(self) -> bool:
        """Acquires a permit. Returns False if none is free."""
        with self._lock:
            if self._free <= 0:
                return False
            self._free -= 1
            return True

    def release(self) -> None:
        with self._lock:
            self._free += 1


_wait_permits: WeakKeyDictionary[Any, Permits] = WeakKeyDictionary()


def connections_of(client: object) -> int:
    """Returns the most connections of a client, or of each node of a cluster's client."""
    pool = getattr(client, "connection_pool", None)
    if pool is not None:
        return int(getattr(pool, "max_connections", DEFAULT_CONNECTIONS))
    nodes = getattr(client, "nodes_manager", client)
    return int(getattr(nodes, "connection_kwargs", {}).get("max_connections") or DEFAULT_CONNECTIONS)


def wait_permits_of(client: object) -> Permits:
    """Returns the permits that all guards of one connection pool share: half of its connections. The nodes of a cluster have
    a pool each; there the guards of one client share the permits of one node."""
    pool = getattr(client, "connection_pool", None)
    return _wait_permits.setdefault(client if pool is None else pool, Permits(connections_of(client) // 2))


class Failed:
    """A failed load, as seen by the callers that wait for it. A BaseException such as SystemExit becomes the cause of a
    LoadFailed: raised in each waiting caller, it would end their threads or the event loop."""

    def __init__(self, id: bytes, error: BaseException) -> None:
        self.error, self.traceback = error, error.__traceback__
        if not isinstance(error, Exception):
            self.error, self.traceback = LoadFailed(id), None
            self.error.__cause__ = error


Outcome = Fetched | Exception | Failed
"""The outcome that a flight shares when it ends: an answer or a row, an error of the server, or the error of its load."""


class Row:
    """The flights of one row: the number of active ones, and the waiting ones in the order of their arrival."""

    def __init__(self) -> None:
        self.active = 0
        self.waiting: OrderedDict[Flight, None] = OrderedDict()


class Flight:
    """One caller's interest in one row. It is active while the caller fetches the row, waits for it inside the server or loads
    it. `begun` and `asked` are times of the guard's clock: the beginning of the call, and the time at which the last fetch was
    sent or the load began. `token` is the token of its lease; `replaces` is set if the caller could not decode the cached
    value.

    At its end it `shares` an outcome with waiting flights, which receive it as `given`: an error with all, so that a crowd
    causes one failed load; an answer or a row with flights that began before its fetch. A later flight may know of a change
    that the outcome lacks."""

    def __init__(self, id: bytes, row: Row, begun: int) -> None:
        self.id = id
        self.row = row
        self.begun = begun
        self.asked = 0
        self.active = True
        self.ended = False
        self.event: Event | None = None
        self.token = b""
        self.replaces = False
        self.shares: Outcome | None = None
        self.given: Outcome | None = None


class Flights:
    """The rows that callers of this process are fetching and loading. While flights of a row wait, another flight is active."""

    def __init__(self) -> None:
        self._start_empty()

    def _start_empty(self) -> None:
        self._rows: dict[bytes, Row] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    def begin(self, ids: Iterable[bytes], begun: int) -> list[Flight]:
        """Begins active flights of a call."""
        if self._process != os.getpid():
            # This process was forked, and the callers of these flights are in the parent process.
            self._start_empty()
        with self._lock:
            flights = [Flight(id, self._rows.setdefault(id, Row()), begun) for id in ids]
            for flight in flights:
                flight.row.active += 1
            return flights

    def wait(self, flights: Iterable[Flight], event: Event) -> list[Flight]:
        """Makes flights wait for one event, until one of them is resumed. Returns the flights that need not wait, because they
        were given an outcome or are the only active flights of their rows. These stay active."""
        free = []
        with self._lock:
            for flight in flights:
                if flight.given is not None or (flight.active and flight.row.active == 1):
                    free.append(flight)
                    continue
                if flight.active:
                    flight.active = False
                    flight.row.active -= 1
                    flight.row.waiting[flight] = None
                flight.event = event
        return free

    def stop(self, flight: Flight) -> Outcome | None:
        """Ends the wait of a flight, which becomes active again. Returns the outcome that it was given, if any."""
        with self._lock:
            self._activate(flight)
        return flight.given

    def end(self, flights: Iterable[Flight]) -> None:
        """Ends flights, and resumes the callers that share their outcomes. If flights still wait for a row without an active
        flight, the first of them resumes, and fetches for the others."""
        with self._lock:
            for flight in flights:
                if flight.ended:
                    continue
                self._activate(flight)
                flight.active, flight.ended = False, True
                row, shares = flight.row, flight.shares
                row.active -= 1
                for other in list(row.waiting) if shares is not None else ():
                    if not isinstance(shares, Fetched) or other.begun < flight.asked:
                        # The flight does not share this outcome again, which would make it look newer than it is.
                        other.given, other.asked = shares, 0
                        self._resume(other)
                if row.waiting and not row.active:
                    self._resume(next(iter(row.waiting)))
                if not row.active and self._rows.get(flight.id) is row:
                    del self._rows[flight.id]

    @staticmethod
    def _activate(flight: Flight) -> None:
        if not flight.active:
            flight.active = True
            del flight.row.waiting[flight]
            flight.row.active += 1

    def _resume(self, flight: Flight) -> None:
        # The flight is active as soon as its event is set. If its caller is cancelled before it notices, the end of the flight
        # resumes the next one.
        self._activate(flight)
        if flight.event is not None:
            flight.event.set()
