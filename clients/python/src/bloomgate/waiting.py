"""Where the callers of one process wait for a row that another caller loads.

A caller that waits inside the server (`BF.FETCH ... WAIT`) occupies its connection, and gets the lease if the loading caller
gives up. So at most one caller per row waits there; the others wait in the process until that caller is done, and share what
the next fetch answers. They cost no connections, and a cancelled crowd leaves no lease behind at connections that are about to
close."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from .errors import LoadFailed
from .guard_words import Fetched
from .steps import Event

DEFAULT_CONNECTIONS = 100
"""The size of redis-py's pools for clients that do not set one."""


class Slots:
    """Limits how many connections of one client wait inside the server, so that the others are free for loading, filling
    and announcing. A caller that finds no connection to fill a row delays every caller that waits for the row."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Takes a slot. Returns False if all are taken."""
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
    """The flights of one row: how many are active, and those that wait in the process, in the order in which they came."""

    def __init__(self) -> None:
        self.active = 0
        self.waiting: OrderedDict[Flight, None] = OrderedDict()


class Flight:
    """One caller's interest in one row. It is active while the caller fetches the row, waits for it inside the server or loads
    it. `begun` and `asked` are times of the guard's clock: when its call began, and when the last fetch was sent or the load
    began. It has the `token` of its lease, and `replaces` a value that its caller could not decode.

    At its end it `shares` an outcome with those that wait, which have it as `given`: an error with all, so that a crowd sees
    one failed load; an answer or a row with those that began before it was asked for. One that began later may know of a change
    that it does not have."""

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
            # This process was forked. The callers of these flights are in the other process.
            self._start_empty()
        with self._lock:
            flights = [Flight(id, self._rows.setdefault(id, Row()), begun) for id in ids]
            for flight in flights:
                flight.row.active += 1
            return flights

    def wait(self, flights: Iterable[Flight], event: Event) -> list[Flight]:
        """Makes flights wait for one event, until one of them is resumed. Returns those that need not wait: they have been
        given an outcome, or are the only active ones of their rows, and stay active."""
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
        """Makes a flight active again whose event was set, or that has waited for long enough. Returns what it was given."""
        with self._lock:
            self._activate(flight)
        return flight.given

    def end(self, flights: Iterable[Flight]) -> None:
        """Ends flights, and resumes the callers that share their outcomes. If others still wait for a row and none is active,
        the first of them resumes, and fetches for the others."""
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
                        # It shares nothing of what it is given: that stays as old as it is.
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
        # It is active as soon as its event is set, though its caller may be cancelled before it notices: then the end of the
        # flight lets the next one go on.
        self._activate(flight)
        if flight.event is not None:
            flight.event.set()
