"""The guard in front of a database. docs/guard.md has the protocol, and docs/guard-proof.md its reasons."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .codec import Bytes, Codec, V
from .filling import TIMEOUT_S, fill_steps
from .flavours import Prepared, Threads, method
from .guard_reads import GuardReads, chosen, is_direct
from .guard_steps import PAUSED
from .guard_words import Fetched, GuardOptions, GuardWords, check_socket_timeout, milliseconds
from .items import Item, Key, item_bytes
from .near import Tracking
from .replication import Durability
from .steps import Ask, Client, Event, Steps, ask, client_error, drive
from .waiting import slots_of
from .words import Words

if TYPE_CHECKING:
    from typing_extensions import Unpack

Id = TypeVar("Id", bound=bytes | str | int)
R = TypeVar("R")


class GuardMethods(Prepared, Generic[V]):
    """What a guard does, in threads and in tasks."""

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
        self._steps: GuardReads[V] = GuardReads(filter, chosen_codec, options, slots_of(client), make_event)
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
        """A writer's first call, before the commit. If it raises, do not commit. With `feed=True` it does nothing."""
        return self._steps.announce(ids)

    @method
    def confirm(self, *ids: Item) -> Steps[None]:
        """A writer's second call, after the commit. It is repeated for up to `patience` seconds until the server answers;
        then it raises Unconfirmed.

        If the outcome of the commit is unknown, find it out before this call, or end the database's session: a commit that
        lands after this call leaves the old row cached.

        With `feed=True` it does nothing."""
        return self._steps.confirm(ids)

    @method
    def forget(self, *ids: Item) -> Steps[None]:
        """Deletes ids that never return from the filter, after their rows were deleted inside of `changed`. The filter needs
        `hash="siphash"`. With `feed=True` it does nothing: the follower deletes the ids of deleted rows."""
        return self._steps.forget(ids)

    def _prepared(self, steps: Steps[R]) -> Steps[R]:
        if self._tracking is not None:
            self._tracking.start()
        return self._steps.checked(steps)


class Guard(GuardMethods[V], Threads):
    """Rows of a database by id, with a filter and a cache in front of them. The filter has the id of every row.

    Every time is in seconds. Times to live: `ttl` of a cached row; `absent_ttl` of the knowledge that there is no row.

    Waiting: `lease` is how long one caller may take to load a row while the others wait. They wait for up to `wait`, and for
    that long again until they have waited `attempts` times; then they ask the database themselves. With `wait=0` they ask it
    at once. The client's time limit for a command is that much longer where it waits (the socket_timeout of a
    cluster's client is not, and has to be longer than `wait`). After a command has taken longer, callers ask the database
    at once for two seconds.

    Outages: `fail_safe` is how long a value stays in the cache after its `ttl`. One caller refreshes such a value;
    the others get it meanwhile, and everybody gets it where the load fails. Then nobody asks the database for the row before
    a back-off has passed; callers without an old value get LoadFailed. If a load takes longer than `soft_timeout` and
    there is an old value, that is served, and the load continues in a thread of its own.

    Renewal: `beta` multiplies how long before its end a value is renewed, which follows the duration of loads; 1 suits most, 0
    turns early renewal off. Times to live are shortened by up to a tenth at random.

    `near` keeps values in this process as well; see NearCache.

    Writing: `confirm` is repeated for up to `patience`. `replicas`: how many replicas must have a change before it
    counts (WAIT), within `replicas_timeout`; `aof`: whether it must be in the append-only file on disk (WAITAOF).
    `announce_to`: filters that are being filled, to which each id is announced first.

    Feed: `feed=True` is for a table that `bloomgate follow` follows (docs/feed.md). The writers need no guard then: `changed`,
    `announce`, `confirm` and `forget` do nothing, because the follower makes these calls for every writer. No row is absent
    unless the follower's heartbeat exists, and a row with a write in flight is waited for. `announce_to`, `replicas` and
    `aof` are refused. The follower's `cache-key` must be `prefix`, followed by its `item`. `fresh` is how old an answer may be
    while the heartbeat is missing: then each row is loaded again after this time. It is at least `lease`, and 0 sets no limit.

    `prefix` of the cache keys is by default `{filter}:`. `codec` converts rows to bytes and back; by default they are bytes.
    `load` and `load_many` are the loaders of calls that bring none of their own.

    `counts` has the guard's events by name; clients/python/README.md lists them."""

    @overload
    def __init__(
        self: Guard[bytes],
        client: Client,
        filter: Key,
        *,
        codec: None = None,
        load: Callable[[Any], bytes | None] | None = None,
        load_many: Callable[[list[Any]], Mapping[Any, bytes]] | None = None,
        **options: Unpack[GuardWords],
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
        **options: Unpack[GuardWords],
    ) -> None: ...

    def __init__(
        self,
        client: Client,
        filter: Key,
        *,
        codec: Any = None,
        load: Any = None,
        load_many: Any = None,
        **options: Unpack[GuardWords],
    ) -> None:
        Threads.__init__(self, client)
        GuardMethods.__init__(self, client, filter, codec, load, load_many, GuardOptions(**options), threading.Event)

    def get(self, id: Id, load: Callable[[Id], V | None] | None = None, ttl: float | None = None) -> V | None:
        """Returns a row, or None if there is none. `load`, by default the guard's, gets the id. It reads the row from the
        database that has every commit, in a transaction that begins when `load` is called, and returns None if there is no
        row. `ttl`, in seconds, replaces the guard's.

        If the server fails, the database is asked and nothing is filled: errors of the server are logged, not raised. What
        `load` raises is raised, after the lease was given up, in all callers of this process that waited for it; but if an old
        value is cached, that is served instead."""
        steps = self._steps
        key = item_bytes(id)
        load = chosen(load, self._load)
        begun = steps.clock()
        if steps.near is not None or is_direct(steps, key):
            return self._run(steps.get(key, partial(load, id), ttl, begun))
        if ttl is not None:
            milliseconds("ttl", ttl)
        if steps.is_struck and steps.is_paused():
            return self._run(steps.get(key, partial(load, id), ttl, begun, PAUSED))
        [found] = ask(self.client, self._error, Ask([steps.fetch_call(key)], is_small=True))
        steps.record([found])
        if steps.is_checked and isinstance(found, Fetched):
            # Nearly all calls end here.
            if found.word == "absent":
                return None
            if found.word == "hit":
                try:
                    return steps.codec.decode(found.value)
                except Exception:
                    # It is counted, and replaced.
                    pass
        return self._run(steps.get(key, partial(load, id), ttl, begun, found))

    def get_in_transaction(self, id: Id, load: Callable[[Id], V | None] | None = None) -> V | None:
        """Returns a row inside a transaction of the caller's that may see other rows than the database's commits: its own
        changes, or an older snapshot. A cached row is returned; otherwise, also if the filter answers that there is none,
        `load` is called. What it returns is neither cached nor shared, and does not pass through the codec.

        If the transaction has changed the row, call `load` yourself: the cached row may be the one before the change."""
        return self._run(self._steps.get_in_transaction(item_bytes(id), partial(chosen(load, self._load), id)))

    def get_many(
        self, ids: Iterable[Id], load_many: Callable[[list[Id]], Mapping[Id, V]] | None = None, ttl: float | None = None
    ) -> dict[Id, V | None]:
        """Returns rows by id, fetched together: each id as it was passed, with its row or None. `load_many`, by default the
        guard's, gets the ids that this caller has to load, and returns a mapping without those that have no row. It is called
        once, and again for rows that other callers were loading and did not bring."""
        return self._run(self._steps.get_many(ids, chosen(load_many, self._load_many), ttl))

    def cached(self, load: Callable[[Id], V | None]) -> Callable[[Id], V | None]:
        """Decorates a function that loads a row by its id: a call of it becomes `get`."""

        @wraps(load)
        def get(id: Id) -> V | None:
            return self.get(id, load)

        return get

    @contextmanager
    def changed(self, *ids: Item) -> Iterator[None]:
        """Announces ids, and confirms them at the end of the `with` block, whatever happens in it. The transaction that
        inserts, changes or deletes the rows has to end inside the block, its outcome known.

        With `feed=True` it does nothing: the follower announces each change."""
        self.announce(*ids)
        try:
            yield
        finally:
            self.confirm(*ids)


def fill_filter(
    client: Client,
    key: Key,
    ids: Iterable[Item],
    rate: float,
    capacity: int,
    *,
    replicas: int = 0,
    replicas_timeout: float = TIMEOUT_S,
    aof: bool = False,
    **words: Unpack[Words],
) -> int:
    """Fills the filter of a guard as `{key}~filling`, and renames it to `key` once every id is in it. Returns how many ids
    were new. Writers that are active meanwhile have to announce to both names.

    A filter that lost ids denies their rows. To make it survive a failover, pass as `replicas` the number of all replicas
    that may be promoted; to make it survive a restart, pass `aof=True`. Each batch, and the new name, must then have reached
    them within `replicas_timeout` seconds; otherwise this raises TimeoutError.

    If this raises, `{key}~filling` may be left: delete it and begin again. As long as it exists, FilterExists is raised,
    because another client may be filling it."""
    durability = Durability(replicas, replicas_timeout, aof)
    return drive(client, client_error(client), fill_steps(client, key, ids, rate, capacity, durability, words))
