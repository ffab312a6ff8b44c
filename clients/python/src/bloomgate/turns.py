"""Commands of many tasks in batches: the rows that tasks request in one turn of the event loop are fetched by one BF.MFETCH,
and their fills are sent together. Only a few batches are sent at a time, so that in a large crowd no task times out while it
waits for a connection."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Generic, TypeVar

from .guard_steps import BATCH, BATCH_BYTES, GuardSteps
from .guard_words import Fetched
from .steps import SETTLE_S, Ask, AsyncClient, aask, adrive, keep
from .waiting import connections_of

T = TypeVar("T")

IN_FLIGHT = 16
"""The most batches of a kind that are sent at a time; with few connections, a quarter of them."""


class Seat(Generic[T]):
    """A task's place in a batch, where it waits for its part of the answer. The task `sent` sends the batch."""

    def __init__(self, part: T, outcome: asyncio.Future[Any]) -> None:
        self.part = part
        self.outcome = outcome
        self.sent: asyncio.Task[None] | None = None


class Turns(Generic[T]):
    """Batches of one kind in one event loop."""

    def __init__(self, client: AsyncClient, error: type[Exception]) -> None:
        self.client = client
        self.error = error
        self.loop: asyncio.AbstractEventLoop | None = None
        self.queue: deque[Seat[T]] = deque()
        self.free = 0

    def join(self, part: T) -> Seat[T]:
        """Queues a part of the next batch."""
        loop = asyncio.get_running_loop()
        if self.loop is not loop:
            self.loop = loop
            self.queue.clear()
            self.free = max(1, min(IN_FLIGHT, connections_of(self.client) // 4))
        if not self.queue:
            loop.call_soon(self.start)
        seat = Seat(part, loop.create_future())
        self.queue.append(seat)
        return seat

    def start(self) -> None:
        loop = self.loop

        def ended(_: Any) -> None:
            if self.loop is loop:
                self.free += 1
                self.start()

        while self.queue and self.free and loop is not None:
            if batch := [seat for seat in self.next_batch() if not seat.outcome.done()]:
                self.free -= 1
                task = loop.create_task(self.run(batch))
                keep(task)
                task.add_done_callback(ended)
                for seat in batch:
                    seat.sent = task

    async def run(self, batch: list[Seat[T]]) -> None:
        try:
            await self.send_batch(batch)
        except BaseException as trouble:
            # The client itself has failed, or the event loop ends.
            for seat in batch:
                if isinstance(trouble, Exception) and not seat.outcome.done():
                    seat.outcome.set_exception(trouble)
                seat.outcome.cancel()
            raise

    def next_batch(self) -> list[Seat[T]]:
        raise NotImplementedError

    async def send_batch(self, batch: list[Seat[T]]) -> None:
        raise NotImplementedError


class Fills(Turns[Ask]):
    """Sends the fills of many tasks together, and a guard's other commands for single rows. Steps are sent in the order of
    their arrival, and the commands of a step stay together."""

    async def send(self, step: Ask) -> list[Any]:
        """Sends commands together with the commands of other tasks. Returns the outcomes of this step's commands."""
        found: list[Any] = await self.join(step).outcome
        return found

    def next_batch(self) -> list[Seat[Ask]]:
        batch: list[Seat[Ask]] = []
        count = size = 0
        while self.queue:
            calls = self.queue[0].part.calls
            count += len(calls)
            size += sum(len(word) for call in calls for word in call.words if isinstance(word, bytes))
            if batch and (count > BATCH or size > BATCH_BYTES):
                break
            batch.append(self.queue.popleft())
        return batch

    async def send_batch(self, batch: list[Seat[Ask]]) -> None:
        found = iter(await aask(self.client, self.error, Ask([call for seat in batch for call in seat.part.calls])))
        for seat in batch:
            answers = [next(found) for _ in seat.part.calls]
            if not seat.outcome.done():
                seat.outcome.set_result(answers)


class Fetches(Turns[bytes]):
    """The fetches of one guard, turn by turn."""

    def __init__(self, client: AsyncClient, error: type[Exception], commands: GuardSteps[Any]) -> None:
        super().__init__(client, error)
        self.commands = commands

    async def fetch(self, id: bytes) -> Fetched | Exception:
        """Fetches a row together with the rows that other tasks request. If this task is cancelled, its lease is passed to
        another task that requests the row. If there is none, the task gives the lease up, and ends a moment later."""
        seat = self.join(id)
        try:
            answer: Fetched | Exception = await seat.outcome
            return answer
        except asyncio.CancelledError:
            undoing = seat.sent
            if not seat.outcome.cancelled() and isinstance(found := seat.outcome.result(), Fetched) and found.token:
                undoing = asyncio.create_task(self.give_up({id: found.token}))
                keep(undoing)
            if undoing is not None:
                await asyncio.wait([undoing], timeout=SETTLE_S)
            raise

    def next_batch(self) -> list[Seat[bytes]]:
        batch: list[Seat[bytes]] = []
        ids: set[bytes] = set()
        while self.queue and (len(ids) < BATCH or self.queue[0].part in ids):
            ids.add(self.queue[0].part)
            batch.append(self.queue.popleft())
        return batch

    async def send_batch(self, batch: list[Seat[bytes]]) -> None:
        """Fetches rows, and delivers the answer to each seat."""
        wanted: dict[bytes, list[Seat[bytes]]] = {}
        for seat in batch:
            wanted.setdefault(seat.part, []).append(seat)
        ids = list(wanted)
        if len(ids) == 1 and self.commands.is_simple():
            answers = await aask(self.client, self.error, Ask([self.commands.fetch_call(ids[0])], is_small=True))
            self.commands.record(answers)
        else:
            answers = await adrive(self.client, self.error, self.commands.fetch(ids), is_background=True)
        pairs = zip(wanted.items(), answers, strict=True)
        await self.give_up({id: answer.token for (id, seats), answer in pairs if not self.deliver(seats, answer)})

    def deliver(self, seats: list[Seat[bytes]], answer: Fetched | Exception) -> bool:
        """Delivers an answer to all waiting tasks. Returns False if it has a lease and no task accepts it."""
        is_lease = isinstance(answer, Fetched) and bool(answer.token)
        present = [seat for seat in seats if not seat.outcome.done()]
        for seat in present:
            seat.outcome.set_result(answer)
            if isinstance(answer, Fetched):
                if seat is not present[0]:
                    self.commands.count(answer.word)
                elif is_lease:
                    answer = Fetched("hit", value=answer.value) if answer.word == "stale" else Fetched("wait")
        return bool(present) or not is_lease

    async def give_up(self, tokens: dict[bytes, bytes]) -> None:
        if tokens:
            await aask(self.client, self.error, Ask(self.commands.give_up_calls(tokens)))
