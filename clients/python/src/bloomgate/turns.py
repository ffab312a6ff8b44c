"""Commands of many tasks in batches: what they ask for in one turn of the event loop is one BF.MFETCH, and their fills go out
together. A few batches are sent at a time, so that none of a large crowd waits for a connection until its time limit ends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from .guard_steps import BATCH, BATCH_BYTES, GuardSteps
from .guard_words import Fetched
from .steps import SETTLE_S, Ask, AsyncClient, aask, adrive, keep
from .waiting import connections_of

IN_FLIGHT = 16
"""The most batches of a kind that are sent at a time; with few connections, a quarter of them."""


Seat = asyncio.Future[Any]
"""Where a task waits for its part of a batch: the answer for its row, a Fetched or an exception, or the outcomes of its
commands."""


class Sending:
    """Batches of one kind in one event loop: how many are under way, and those that wait."""

    def __init__(self, client: AsyncClient) -> None:
        self.loop = asyncio.get_running_loop()
        self.free = max(1, min(IN_FLIGHT, connections_of(client) // 4))

    def run(self, batch: Any, next: Callable[[], None]) -> asyncio.Task[None]:
        """Runs a batch in a task of its own, and `next` when it has ended."""

        def ended(_: Any) -> None:
            self.free += 1
            next()

        self.free -= 1
        task = self.loop.create_task(batch)
        keep(task)
        task.add_done_callback(ended)
        return task


class Fills:
    """Sends the fills of many tasks together, and a guard's other commands for single rows. Steps are sent in the order in which
    they came, and the commands of a step stay together."""

    def __init__(self, client: AsyncClient, error: type[Exception]) -> None:
        self.client = client
        self.error = error
        self.queue: deque[tuple[Ask, Seat]] = deque()
        self.sending: Sending | None = None

    async def send(self, step: Ask) -> list[Any]:
        """Sends commands with those of other tasks. Returns the outcomes of its own."""
        if self.sending is None or self.sending.loop is not asyncio.get_running_loop():
            self.queue.clear()
            self.sending = Sending(self.client)
        outcome: Seat = self.sending.loop.create_future()
        if not self.queue:
            self.sending.loop.call_soon(self.start)
        self.queue.append((step, outcome))
        found: list[Any] = await outcome
        return found

    def start(self) -> None:
        while self.queue and self.sending is not None and self.sending.free:
            self.sending.run(self.ask(self.next_batch()), self.start)

    def next_batch(self) -> list[tuple[Ask, Seat]]:
        batch: list[tuple[Ask, Seat]] = []
        count = size = 0
        while self.queue:
            calls = self.queue[0][0].calls
            count += len(calls)
            size += sum(len(word) for call in calls for word in call.words if isinstance(word, bytes))
            if batch and (count > BATCH or size > BATCH_BYTES):
                break
            batch.append(self.queue.popleft())
        return batch

    async def ask(self, batch: list[tuple[Ask, Seat]]) -> None:
        left = [outcome for _, outcome in batch]
        try:
            found = iter(await aask(self.client, self.error, Ask([call for step, _ in batch for call in step.calls])))
            for step, outcome in batch:
                answers = [next(found) for _ in step.calls]
                if not outcome.done():
                    outcome.set_result(answers)
        except BaseException as trouble:
            fail(left, trouble)
            raise


def fail(seats: list[Seat], trouble: BaseException) -> None:
    """Passes on that the client has failed in a way that is not the server's, or that the event loop ends."""
    for seat in seats:
        if not seat.done():
            if isinstance(trouble, Exception):
                seat.set_exception(trouble)
            else:
                seat.cancel()


class Batch:
    """The rows that tasks ask for in one turn, and the task that fetches them."""

    def __init__(self, sending: Sending) -> None:
        self.sending = sending
        self.seats: dict[bytes, list[Seat]] = {}
        self.sent: asyncio.Task[None] | None = None


class Turns:
    """The fetches of one guard, turn by turn."""

    def __init__(self, client: AsyncClient, error: type[Exception], commands: GuardSteps[Any]) -> None:
        self.client = client
        self.error = error
        self.commands = commands
        self.open: Batch | None = None
        self.sending: Sending | None = None
        self.queue: deque[Batch] = deque()

    async def fetch(self, id: bytes) -> Fetched | Exception:
        """Fetches a row together with those that other tasks ask for. If this task is cancelled, another task that wants the
        row gets its lease, or the lease is given up."""
        batch = self.open
        loop = asyncio.get_running_loop()
        if self.sending is None or self.sending.loop is not loop:
            self.sending, batch = Sending(self.client), None
            self.queue.clear()
        if batch is None or len(batch.seats) >= BATCH:
            batch = self.open = Batch(self.sending)
            self.queue.append(batch)
            loop.call_soon(self.send)
        seat: Seat = loop.create_future()
        batch.seats.setdefault(id, []).append(seat)
        try:
            answer: Fetched | Exception = await seat
            return answer
        except asyncio.CancelledError:
            await self.leave(batch, id, seat)
            raise

    def send(self) -> None:
        while self.queue and self.queue[0].sending.free:
            batch = self.queue.popleft()
            if self.open is batch:
                self.open = None
            wanted = {id: seats for id, seats in batch.seats.items() if not all(seat.done() for seat in seats)}
            batch.seats = wanted
            if wanted:
                batch.sent = batch.sending.run(self.ask(batch), self.send)

    async def ask(self, batch: Batch) -> None:
        """Fetches the rows of a batch, and gives each seat its answer."""
        ids = list(batch.seats)
        try:
            if len(ids) == 1 and self.commands.is_simple(ids[0]):
                answers = await aask(self.client, self.error, Ask([self.commands.fetch_call(ids[0])], is_small=True))
                self.commands.record(answers)
            else:
                answers = await adrive(self.client, self.error, self.commands.fetch(ids), is_background=True)
        except BaseException as trouble:
            fail([seat for seats in batch.seats.values() for seat in seats], trouble)
            raise
        unneeded: dict[bytes, bytes] = {}
        for (id, seats), answer in zip(batch.seats.items(), answers, strict=True):
            if not self.deliver(seats, answer):
                unneeded[id] = answer.token
        if unneeded:
            await aask(self.client, self.error, self.commands.give_up(unneeded))

    def deliver(self, seats: list[Seat], answer: Fetched | Exception) -> bool:
        """Gives one answer to all that wait for it. Returns False if it has a lease and nobody takes it."""
        is_lease = isinstance(answer, Fetched) and bool(answer.token)
        present = [seat for seat in seats if not seat.done()]
        for seat in present:
            seat.set_result(answer)
            if seat is present[0] and is_lease:
                assert isinstance(answer, Fetched)
                answer = Fetched("hit", value=answer.value) if answer.word == "stale" else Fetched("wait")
            elif seat is not present[0] and isinstance(answer, Fetched):
                self.commands.count(answer.word)
        return bool(present) or not is_lease

    async def leave(self, batch: Batch, id: bytes, seat: Seat) -> None:
        """Stays for a moment until the lease of a cancelled task, if it gets or has got one, is given up."""
        if not seat.cancelled():
            answer = seat.result()
            if isinstance(answer, Fetched) and answer.token:
                giving_up = asyncio.create_task(self.give_up(id, answer.token))
                keep(giving_up)
                await asyncio.wait([giving_up], timeout=SETTLE_S)
        elif batch.sent is not None:
            await asyncio.wait([batch.sent], timeout=SETTLE_S)

    async def give_up(self, id: bytes, token: bytes) -> None:
        await aask(self.client, self.error, self.commands.give_up({id: token}))
