"""Batches the commands of many tasks: one BF.MFETCH fetches the rows that tasks request in one iteration of the event loop, and
their fills are sent together. Only a few batches are in flight at a time, so that no task times out while it waits for a
connection."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Generic, TypeVar

from .flights import connections_of
from .guard_commands import BATCH, BATCH_BYTES, GuardCommands
from .guard_options import Fetched
from .steps import UNDO_TIMEOUT_S, Ask, AsyncClient, aask, adrive, keep

T = TypeVar("T")

IN_FLIGHT = 16
"""The maximum number of batches of a kind in flight; with few connections, a quarter of the connections."""


class Pending(Generic[T]):
    """A task's part of a batch, and the future of its answer. The task `sent` sends the batch."""

    def __init__(self, part: T, outcome: asyncio.Future[Any]) -> None:
        self.part = part
        self.outcome = outcome
        self.sent: asyncio.Task[None] | None = None


class Batcher(Generic[T]):
    """Sends batches of one kind in one event loop."""

    def __init__(self, client: AsyncClient, error: type[Exception]) -> None:
        self.client = client
        self.error = error
        self.loop: asyncio.AbstractEventLoop | None = None
        self.queue: deque[Pending[T]] = deque()
        self.free = 0

    def join(self, part: T) -> Pending[T]:
        """Queues a part of the next batch."""
        loop = asyncio.get_running_loop()
        if self.loop is not loop:
            self.loop = loop
            self.queue.clear()
            self.free = max(1, min(IN_FLIGHT, connections_of(self.client) // 4))
        if not self.queue:
            loop.call_soon(self.start)
        pending = Pending(part, loop.create_future())
        self.queue.append(pending)
        return pending

    def start(self) -> None:
        loop = self.loop

        def ended(_: Any) -> None:
            if self.loop is loop:
                self.free += 1
                self.start()

        while self.queue and self.free and loop is not None:
            if batch := [pending for pending in self.next_batch() if not pending.outcome.done()]:
                self.free -= 1
                task = loop.create_task(self.run(batch))
                keep(task)
                task.add_done_callback(ended)
                for pending in batch:
                    pending.sent = task

    async def run(self, batch: list[Pending[T]]) -> None:
        try:
            await self.send_batch(batch)
        except BaseException as failure:
            # The client itself has failed, or the event loop ends.
            for pending in batch:
                if isinstance(failure, Exception) and not pending.outcome.done():
                    pending.outcome.set_exception(failure)
                pending.outcome.cancel()
            raise

    def next_batch(self) -> list[Pending[T]]:
        raise NotImplementedError

    async def send_batch(self, batch: list[Pending[T]]) -> None:
        raise NotImplementedError


class FillBatcher(Batcher[Ask]):
    """Batches the fills of many tasks, and a guard's other commands for single rows. Steps are sent in the order of their
    arrival, and the commands of a step are not separated."""

    async def send(self, step: Ask) -> list[Any]:
        """Sends commands together with the commands of other tasks. Returns the outcomes of this step's commands."""
        found: list[Any] = await self.join(step).outcome
        return found

    def next_batch(self) -> list[Pending[Ask]]:
        batch: list[Pending[Ask]] = []
        count = size = 0
        while self.queue:
            calls = self.queue[0].part.calls
            count += len(calls)
            size += sum(len(word) for call in calls for word in call.words if isinstance(word, bytes))
            if batch and (count > BATCH or size > BATCH_BYTES):
                break
            batch.append(self.queue.popleft())
        return batch

    async def send_batch(self, batch: list[Pending[Ask]]) -> None:
        found = iter(await aask(self.client, self.error, Ask([call for pending in batch for call in pending.part.calls])))
        for pending in batch:
            answers = [next(found) for _ in pending.part.calls]
            if not pending.outcome.done():
                pending.outcome.set_result(answers)


class FetchBatcher(Batcher[bytes]):
    """Batches the fetches of one guard."""

    def __init__(self, client: AsyncClient, error: type[Exception], commands: GuardCommands[Any]) -> None:
        super().__init__(client, error)
        self.commands = commands

    async def fetch(self, id: bytes) -> Fetched | Exception:
        """Fetches a row together with the rows that other tasks request. If this task is cancelled, its lease is passed to
        another task that requests the row. If there is none, the task gives the lease up, and ends a moment later."""
        pending = self.join(id)
        try:
            answer: Fetched | Exception = await pending.outcome
            return answer
        except asyncio.CancelledError:
            undoing = pending.sent
            if not pending.outcome.cancelled() and isinstance(found := pending.outcome.result(), Fetched) and found.token:
                undoing = asyncio.create_task(self.give_up({id: found.token}))
                keep(undoing)
            if undoing is not None:
                await asyncio.wait([undoing], timeout=UNDO_TIMEOUT_S)
            raise

    def next_batch(self) -> list[Pending[bytes]]:
        batch: list[Pending[bytes]] = []
        ids: set[bytes] = set()
        while self.queue and (len(ids) < BATCH or self.queue[0].part in ids):
            ids.add(self.queue[0].part)
            batch.append(self.queue.popleft())
        return batch

    async def send_batch(self, batch: list[Pending[bytes]]) -> None:
        """Fetches rows, and delivers the answer to each caller."""
        wanted: dict[bytes, list[Pending[bytes]]] = {}
        for pending in batch:
            wanted.setdefault(pending.part, []).append(pending)
        ids = list(wanted)
        if len(ids) == 1 and self.commands.is_simple():
            answers = await aask(self.client, self.error, Ask([self.commands.fetch_call(ids[0])], is_small=True))
            self.commands.record(answers)
        else:
            answers = await adrive(self.client, self.error, self.commands.fetch(ids), is_background=True)
        pairs = zip(wanted.items(), answers, strict=True)
        await self.give_up({id: answer.token for (id, callers), answer in pairs if not self.deliver(callers, answer)})

    def deliver(self, callers: list[Pending[bytes]], answer: Fetched | Exception) -> bool:
        """Delivers an answer to all waiting tasks. Returns False if it has a lease and no task accepts it."""
        is_lease = isinstance(answer, Fetched) and bool(answer.token)
        present = [pending for pending in callers if not pending.outcome.done()]
        for pending in present:
            pending.outcome.set_result(answer)
            if isinstance(answer, Fetched):
                if pending is not present[0]:
                    self.commands.count(answer.word)
                elif is_lease:
                    answer = Fetched("hit", value=answer.value) if answer.word == "stale" else Fetched("wait")
        return bool(present) or not is_lease

    async def give_up(self, tokens: dict[bytes, bytes]) -> None:
        if tokens:
            await aask(self.client, self.error, Ask(self.commands.give_up_calls(tokens)))
