"""The guard in front of a database. docs/guard.md has the protocol, and docs/guard-proof.md its reasons."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .codec import Bytes, Codec, V
from .creation import CreationOptions, creation_words
from .errors import named
from .filter import collect, with_answers
from .flavours import Prepared, Threads, method
from .flights import wait_permits_of
from .guard_commands import PAUSED
from .guard_options import Fetched, GuardArguments, GuardOptions, check_socket_timeout, filling_name, milliseconds
from .guard_reads import GuardReads, chosen, is_direct
from .items import Item, Items, Key, item_bytes, windows_of
from .near import Tracking
from .replication import Durability
from .steps import Ask, Call, Client, Event, Steps, ask, client_error, drive, next_window, send

if TYPE_CHECKING:
    from typing_extensions import Unpack

Id = TypeVar("Id", bound=bytes | str | int)
R = TypeVar("R")


class GuardMethods(Prepared, Generic[V]):
    """The calls of a guard that threads and tasks share."""

    def __init__(
        self,
        client: object,
        filter: Key,
        codec: Any,
        load: Any,
        load_many: Any,
        options: GuardOptions,
        make_event: Callable[[], Event],
    ) -> None:
        check_socket_timeout(client, options.longest_wait)
        self._load, self._load_many = load, load_many
        chosen_codec: Any = codec or Bytes()
        self._steps: GuardReads[V] = GuardReads(filter, chosen_codec, options, wait_permits_of(client), make_event)
        self._steps.durability.check_client(client)
        self._tracking: Tracking | None = None
        if options.near is not None:
            self._tracking = tracking = Tracking(client, options.near, self._steps.prefix)
            self._steps.has_reports = lambda: tracking.is_active

    @property
    def counts(self) -> Counter[str]:
        """The guard's events by name."""
        return self._steps.counts

    @method
    def announce(self, *ids: Item) -> Steps[None]:
        """Announces changes before their commit. If it raises, do not commit. With `feed=True` it does nothing."""
        return self._steps.announce(ids)

    @method
    def confirm(self, *ids: Item) -> Steps[None]:
        """Confirms changes after their commit. Repeats failed confirmations for up to `patience` seconds, then raises
        Unconfirmed.

        If the outcome of the commit is unknown, determine it before this call, or end the database session: a commit after
        this call leaves the old row cached.

        With `feed=True` it does nothing."""
        return self._steps.confirm(ids)

    @method
    def forget(self, *ids: Item) -> Steps[None]:
        """Deletes ids from the filter after their rows were deleted inside `changed`. Deleted ids must never be used again.
        The filter needs `hash="siphash"`. With `feed=True` it does nothing: the follower deletes the ids of deleted rows."""
        return self._steps.forget(ids)

    def _prepared(self, steps: Steps[R]) -> Steps[R]:
        if self._tracking is not None:
            self._tracking.start()
        return steps


class Guard(GuardMethods[V], Threads):
    """Reads database rows by id through a filter and a cache. The filter contains the id of every row.

    All times are in seconds. `ttl` is the time to live of a cached row, `absent_ttl` of a cached absence.

    Waiting: `lease` is how long one caller may load a row while others wait. A caller waits for up to `wait` at a time and
    `attempts` times in all, then queries the database. With `wait=0` it queries at once. A command that waits extends the
    client's time limit by `wait`; the socket_timeout of a cluster client is not extended and must exceed `wait`. After a
    command times out, callers query the database directly for two seconds.

    Outages: `fail_safe` is how long a value stays cached after its `ttl`. One caller refreshes such a value; others get the old
    value until then, and every caller gets it if the load fails. The row is then not loaded again until a back-off ends;
    callers without an old value get LoadFailed. If a load exceeds `soft_timeout` and an old value is cached, the old value is
    returned, and the load continues in its own thread.

    Renewal: values are renewed before they expire, earlier if loads take longer. `beta` scales how early: 1 suits most uses,
    0 turns early renewal off. Times to live are shortened by up to a tenth at random.

    `near` keeps values in this process as well; see NearCache.

    Writing: `patience` is how long a confirmation is repeated. `replicas` is how many replicas must acknowledge a change
    (WAIT) within `replicas_timeout`. With `aof`, the append-only file on disk must contain it (WAITAOF). `announce_to` lists
    filters that are being filled; each id is announced to them first.

    Feed: `feed=True` is for a table that is followed by `bloomgate follow` (docs/feed.md). Writers then need no guard:
    `changed`, `announce`, `confirm` and `forget` do nothing, because the follower announces every writer's changes. A row is
    reported absent only while the follower's heartbeat exists, and callers wait for rows with a write in flight.
    `announce_to`, `replicas` and `aof` are refused. The follower's `cache-key` must be `prefix` followed by its `item`.
    `fresh` limits the age of an answer while the heartbeat is missing: rows are loaded again after that time. It is at least
    `lease`; 0 sets no limit.

    `prefix` is the prefix of cache keys, by default `{filter}:`. `codec` converts rows to bytes and back; by default rows are
    bytes. `load` and `load_many` are the default loaders of calls.

    `counts` are the guard's events by name; clients/python/README.md lists them."""

    @overload
    def __init__(
        self: Guard[bytes],
        client: Client,
        filter: Key,
        *,
        codec: None = None,
        load: Callable[[Any], bytes | None] | None = None,
        load_many: Callable[[list[Any]], Mapping[Any, bytes]] | None = None,
        **options: Unpack[GuardArguments],
    ) -> None: ...

    @overload
    def __init__(
        self,
        client: Client,
        filter: Key,
        *,
        codec: Codec[V],
        load: Callable[[Any], V | None] | None = None,
        load_many: Callable[[list[Any]], Mapping[Any, V]] | None = None,
        **options: Unpack[GuardArguments],
    ) -> None: ...

    def __init__(
        self,
        client: Client,
        filter: Key,
        *,
        codec: Any = None,
        load: Any = None,
        load_many: Any = None,
        **options: Unpack[GuardArguments],
    ) -> None:
        Threads.__init__(self, client)
        GuardMethods.__init__(self, client, filter, codec, load, load_many, GuardOptions(**options), threading.Event)

    def get(self, id: Id, load: Callable[[Id], V | None] | None = None, ttl: float | None = None) -> V | None:
        """Returns a row, or None if it does not exist. `load(id)`, by default the guard's loader, reads the row from the
        primary database in a transaction that begins with the call, and returns None if the row does not exist. `ttl`, in
        seconds, replaces the guard's.

        If the server fails, the row is read from the database and not cached: errors of the server are logged, not raised. An
        exception of `load` ends the lease and is raised in every caller of this process that waited for the load. If an old
        value is cached, it is returned instead."""
        steps = self._steps
        key = item_bytes(id)
        load = chosen(load, self._load)
        begun = steps.clock()
        if steps.near is not None or is_direct(steps, key):
            return self._run(steps.get(key, partial(load, id), ttl, begun))
        if ttl is not None:
            milliseconds("ttl", ttl)
        if steps.is_unresponsive and steps.is_paused():
            return self._run(steps.get(key, partial(load, id), ttl, begun, PAUSED))
        [found] = ask(self.client, self._error, Ask([steps.fetch_call(key)], is_small=True))
        steps.record([found])
        if isinstance(found, Fetched):
            # Nearly all calls end here.
            if found.word == "absent":
                return None
            if found.word == "hit":
                try:
                    return steps.codec.decode(found.value)
                except Exception:
                    # `steps.get` counts the failure, and replaces the value.
                    pass
        return self._run(steps.get(key, partial(load, id), ttl, begun, found))

    def get_in_transaction(self, id: Id, load: Callable[[Id], V | None] | None = None) -> V | None:
        """Returns a row inside the caller's transaction, whose view may differ from the committed rows: it may see its own
        changes, or an older snapshot. Returns a cached row; otherwise calls `load`, even if the filter does not contain the
        id. The loaded row is neither cached nor shared, and is not encoded.

        If the transaction has changed the row, call `load` directly: the cached row may be older than the change."""
        return self._run(self._steps.get_in_transaction(item_bytes(id), partial(chosen(load, self._load), id)))

    def get_many(
        self, ids: Iterable[Id], load_many: Callable[[list[Id]], Mapping[Id, V]] | None = None, ttl: float | None = None
    ) -> dict[Id, V | None]:
        """Returns a row or None for each id, fetched together. `load_many(ids)`, by default the guard's loader, returns a
        mapping that omits ids without a row. It is called once with the ids that this caller has to load, and again with ids
        whose loads by other callers did not complete."""
        return self._run(self._steps.get_many(ids, chosen(load_many, self._load_many), ttl))

    def cached(self, load: Callable[[Id], V | None]) -> Callable[[Id], V | None]:
        """Decorates a function that loads a row by id, so that calling it reads the row by `get`."""

        @wraps(load)
        def get(id: Id) -> V | None:
            return self.get(id, load)

        return get

    @contextmanager
    def changed(self, *ids: Item) -> Iterator[None]:
        """Announces ids, and confirms them at the end of the `with` block, even if it raises. The transaction that inserts,
        changes or deletes the rows must end inside the block, with a known outcome.

        With `feed=True` it does nothing: the follower announces each change."""
        self.announce(*ids)
        try:
            yield
        finally:
            self.confirm(*ids)


FILL_TIMEOUT_S = 3.0
"""The time limit for replicas, or the disk, to acknowledge a batch."""


def fill_steps(
    client: object, key: Key, ids: Items, rate: float, capacity: int, durability: Durability, words: CreationOptions
) -> Steps[int]:
    """Fills `{key}~filling`, and renames it to `key`. Returns how many ids were new.

    With SYNC, the server also replicates ids that were not new: another client may have added them, and the replicas may lack
    its writes."""
    source = windows_of(ids)
    durability.check_client(client)
    check_socket_timeout(client, durability.timeout if durability.calls() else 0)
    name = filling_name(item_bytes(key))
    yield from send(Call(["BF.RESERVE", name, rate, capacity, *creation_words(words)]), name)
    new = 0
    while (window := (yield from next_window(source))) is not None:
        adds: list[Call[Any]] = [Call(["BF.INSERT", name, "NOCREATE", "SYNC", "ITEMS", *chunk]) for chunk in window]
        found = yield Ask([*adds, *durability.calls()], wait_s=durability.wait_s)
        lost = durability.take_error(found)
        answers, failure = collect(window, found)
        if failure is not None:
            raise with_answers(failure, name, answers)
        if lost is not None:
            raise lost
        new += sum(bool(answer) for answer in answers)
    found = yield Ask([Call(["RENAME", name, item_bytes(key)]), *durability.calls()], wait_s=durability.wait_s)
    lost = durability.take_error(found)
    for failure in (found[0], lost):
        if isinstance(failure, Exception):
            raise named(failure, name)
    return new


def fill_filter(
    client: Client,
    key: Key,
    ids: Iterable[Item],
    rate: float,
    capacity: int,
    *,
    replicas: int = 0,
    replicas_timeout: float = FILL_TIMEOUT_S,
    aof: bool = False,
    **words: Unpack[CreationOptions],
) -> int:
    """Fills the filter of a guard as `{key}~filling`, then renames it to `key`. Returns the number of new ids. Until the rename,
    writers must announce to both names.

    If the filter loses ids, their rows are reported absent. To survive a failover, set `replicas` to the number of replicas
    that may be promoted; to survive a restart, set `aof=True`. Each batch and the rename must then be acknowledged within
    `replicas_timeout` seconds; otherwise this raises TimeoutError.

    After an exception `{key}~filling` may exist: delete it and start again. While it exists, this raises FilterExists,
    because another client may be filling it."""
    durability = Durability(replicas, replicas_timeout, aof)
    return drive(client, client_error(client), fill_steps(client, key, ids, rate, capacity, durability, words))
