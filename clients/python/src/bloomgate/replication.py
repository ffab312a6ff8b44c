"""Whether a write survives a failover or a restart: WAIT and WAITAOF after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .guard_options import check_number, milliseconds
from .steps import Call, is_cluster


@dataclass(frozen=True)
class Durability:
    """How many replicas must acknowledge a write, and with `aof` whether it must be in the append-only files on disk,
    including the primary's."""

    replicas: int = 0
    timeout: float = 1.0
    aof: bool = False

    def __post_init__(self) -> None:
        check_number("replicas", self.replicas)
        milliseconds("replicas_timeout", self.timeout)

    def check_client(self, client: object) -> None:
        if (self.replicas or self.aof) and is_cluster(client):
            raise ValueError("replicas and aof need a plain client: a cluster's client cannot send WAIT to a certain node")

    def calls(self) -> list[Call[Any]]:
        """Returns the command to send after writes, **on the same connection**: WAIT and WAITAOF wait for the writes on their
        own connection, and answer at once on another."""
        timeout_ms = milliseconds("replicas_timeout", self.timeout)
        if self.aof:
            return [Call(["WAITAOF", 1, self.replicas, timeout_ms])]
        return [Call(["WAIT", self.replicas, timeout_ms])] if self.replicas else []

    @property
    def wait_s(self) -> float:
        """How long the server may withhold the reply to `calls`."""
        return self.timeout if self.calls() else 0.0

    def take_error(self, outcomes: list[Any]) -> Exception | None:
        """Removes the outcome of `calls` from the end of the outcomes. Returns its error, if any."""
        if not self.calls():
            return None
        outcome = outcomes.pop()
        if isinstance(outcome, Exception):
            return outcome
        on_disk, replicas = (bool(outcome[0]), int(outcome[1])) if self.aof else (True, int(outcome))
        if not on_disk:
            return TimeoutError("the write is not in the server's append-only file yet")
        if replicas < self.replicas:
            return TimeoutError(f"{replicas} of {self.replicas} replica(s) have the write")
        return None
