"""Fetches of many tasks as one command: what they ask for in one turn of the event loop is one BF.MFETCH."""

from __future__ import annotations

import asyncio
from typing import Any

from .guard_steps import BATCH, GuardSteps
from .guard_words import Fetched
from .steps import SETTLE_S, AsyncClient, aask, adrive, keep

Seat = asyncio.Future[Any]
"""Where a task waits for the answer for its row: a Fetched, or the exception in its place."""


class Batch:
    """The rows that tasks ask for in one turn, and the task that fetches them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.seats: dict[bytes, list[Seat]] = {}
        self.sent: asyncio.Task[None] | None = None


class Turns:
    """The fetches of one guard, turn by turn."""

    def __init__(self, client: AsyncClient, error: type[Exception], commands: GuardSteps[Any]) -> None:
        self.client = client
        self.error = error
        self.commands = commands
        self.open: Batch | None = None

    async def fetch(self, id: bytes) -> Fetched | Exception:
        """Fetches a row together with those that other tasks ask for. If this task is cancelled, another task that wants the
        row gets its lease, or the lease is given up."""
        batch = self.open
        loop = asyncio.get_running_loop()
        if batch is None or batch.loop is not loop or len(batch.seats) >= BATCH:
            batch = self.open = Batch(loop)
            loop.call_soon(self.send, batch)
        seat: Seat = loop.create_future()
        batch.seats.setdefault(id, []).append(seat)
        try:
            answer: Fetched | Exception = await seat
            return answer
        except asyncio.CancelledError:
            await self.leave(batch, id, seat)
            raise

    def send(self, batch: Batch) -> None:
        if self.open is batch:
            self.open = None
        wanted = {id: seats for id, seats in batch.seats.items() if not all(seat.done() for seat in seats)}
        batch.seats = wanted
        if wanted:
            batch.sent = batch.loop.create_task(self.ask(batch))
            keep(batch.sent)

    async def ask(self, batch: Batch) -> None:
        """Fetches the rows of a batch, and gives each seat its answer."""
        try:
            answers = await adrive(self.client, self.error, self.commands.fetch(list(batch.seats)))
        except BaseException as trouble:
            # The client has failed in a way that is not the server's, or the event loop ends.
            for seat in (seat for seats in batch.seats.values() for seat in seats if not seat.done()):
                if isinstance(trouble, Exception):
                    seat.set_exception(trouble)
                else:
                    seat.cancel()
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
