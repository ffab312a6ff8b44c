"""The guard in front of a database, from threads. docs/guard.md has the protocol and its reasons."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .codec import Bytes, Codec, V
from .filter import Filter
from .guard_many import ManyRows
from .guard_steps import GuardSteps
from .guard_words import GuardOptions, GuardWords, check_socket_timeout, filling_name
from .items import Item, Key, item_bytes
from .steps import Client, Steps, client_error, drive, is_cluster
from .waiting import slots_of
from .words import Words

if TYPE_CHECKING:
    from typing_extensions import Unpack

Id = TypeVar("Id", bound=bytes | str | int)
R = TypeVar("R")


class Guard(Generic[V]):
    """Rows of a database by id, with a filter and a cache in front of them. The filter has the id of every row.

    `ttl`, `absent_ttl`: seconds for which a row is cached, and that there is none. `lease_ms`: how long one caller may take
    to load a row while the others wait. `wait_ms`: how long these wait inside the server, less than the client's
    socket_timeout; 0 asks again at once. `stale_ms`: a value with less than this to live is refreshed by one caller.
    `attempts`: after so many waits in vain the database is asked. `patience`: seconds for which `confirm` is repeated.
    `prefix`: of the cache keys, by default `{filter}:`. `announce_to`: filters that are being filled, which get
    each id first. `replicas`, `replicas_timeout_ms`: how many replicas have to have a change before it counts (WAIT).

    `counts` has how often BF.FETCH answered what, and what else happened: `filled`, `lease lost`, `stale served`,
    `undecodable`, `errors`, and `unguarded`: loads that were not filled."""

    @overload
    def __init__(
        self: Guard[bytes], client: Client, filter: Key, *, codec: None = None, **options: Unpack[GuardWords]
    ) -> None: ...

    @overload
    def __init__(self, client: Client, filter: Key, *, codec: Codec[V], **options: Unpack[GuardWords]) -> None: ...

    def __init__(self, client: Client, filter: Key, *, codec: Any = None, **options: Unpack[GuardWords]) -> None:
        chosen = GuardOptions(**options)
        check_socket_timeout(client, chosen.wait_ms)
        if chosen.replicas and is_cluster(client):
            raise ValueError("replicas needs a plain client: that of a cluster cannot WAIT for one node's replicas")
        self.client = client
        self._error = client_error(client)
        chosen_codec: Any = codec or Bytes()
        self._steps: GuardSteps[V] = GuardSteps(filter, chosen_codec, chosen, slots_of(client), threading.Event)

    @property
    def counts(self) -> Counter[str]:
        return self._steps.counts

    def get(self, id: Item, load: Callable[[], V | None], ttl: float | None = None) -> V | None:
        """A row, or None where there is none. `load` reads it from the database that has every commit, in a transaction
        that begins when it is called; None says that there is no such row. `ttl`: seconds, in the place of the guard's.

        Where the server does not answer, the database is asked and nothing is filled; no error of the server's is raised.
        What `load` raises is raised, after the lease was given up; while a stale value is there, that is served instead."""
        return self._run(self._steps.get(id, load, ttl))

    def get_many(
        self, ids: Iterable[Id], load_many: Callable[[list[Id]], Mapping[Id, V]], ttl: float | None = None
    ) -> dict[Id, V | None]:
        """Returns rows by id, fetched together: each id as it was passed, with its row or None. `load_many` gets the ids
        that this caller has to load, and returns a mapping without those that have no row. It is called once, and again for
        rows that other callers were loading and did not bring."""
        return self._run(ManyRows(self._steps, ids, load_many, ttl).get())

    def announce(self, *ids: Item) -> None:
        """A writer's first call: before the commit. Where it raises, do not commit."""
        self._run(self._steps.announce(ids))

    def confirm(self, *ids: Item) -> None:
        """A writer's second call: after the commit, also where its outcome is unknown. Repeated for `patience`
        seconds until it is answered; then raises Unconfirmed."""
        self._run(self._steps.confirm(ids))

    @contextmanager
    def changed(self, *ids: Item) -> Iterator[None]:
        """Around the transaction that inserts, changes or deletes the rows. The commit has to be inside."""
        self.announce(*ids)
        try:
            yield
        finally:
            self.confirm(*ids)

    def forget(self, *ids: Item) -> None:
        """Takes ids that never return out of the filter, after their rows were deleted inside of `changed`. The filter needs
        `hash="siphash"`."""
        self._run(self._steps.forget(ids))

    def _run(self, steps: Steps[R]) -> R:
        return drive(self.client, self._error, steps)


def fill_filter(client: Client, key: Key, ids: Iterable[Item], rate: float, capacity: int, **words: Unpack[Words]) -> int:
    """Makes the filter of a guard before rows are written through it: under another name until all ids are in. Gives how
    many were new. Raises FilterExists where somebody else fills it, or died while filling it: then delete
    `{key}~filling`."""
    name = filling_name(item_bytes(key))
    filter = Filter(client, name, create=False)
    filter.reserve(rate, capacity, **words)
    new = sum(filter.add_each(ids))
    client.execute_command("RENAME", name, key)
    return new
