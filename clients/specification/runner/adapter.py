"""The program that makes the calls of the cases in a client's language. README.md, in the folder above, specifies the
messages."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import queue
import subprocess
import threading
from concurrent.futures import Future
from typing import Any

PATIENCE_S = 60
"""How long the runner waits for an expected message: far longer than a slow machine needs."""


class AdapterError(Exception):
    """The adapter has ended, or has not completed a request."""


class AdapterEnded(AdapterError):
    """The adapter has ended, and makes no more calls."""


class Call:
    """A call that an adapter has begun. Whenever the client calls a function, its number and the ids are added to `called`."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.called: queue.Queue[tuple[int, Any]] = queue.Queue()
        self.pending: int | None = None
        self.ended: Future[dict[str, Any]] = Future()

    def __str__(self) -> str:
        return f"{self.name}: {json.dumps(self.ended.result())}" if self.ended.done() else f"{self.name} has not ended"


class Adapter:
    """One adapter, which all cases share. `abilities` are its abilities that cases may need, and `skips` the cases that its
    client library cannot pass, with the reasons."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin and self.process.stdout
        self.input, self.output = self.process.stdin, self.process.stdout
        self.lock = threading.Lock()
        self.last = 0
        self.calls: dict[int, Call] = {}
        self.requests: dict[int, Future[None]] = {}
        first = self.output.readline()
        if not first:
            raise AdapterEnded(f"the adapter ended at once, with status {self.process.wait(PATIENCE_S)}")
        told = json.loads(first)
        self.abilities: set[str] = set(told["abilities"])
        self.skips: dict[str, str] = told.get("skips", {})
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        """Reads messages until the adapter ends, or writes an unknown message."""
        ended = "the adapter has ended"
        try:
            for line in self.output:
                self.take(json.loads(line))
        except (ValueError, KeyError):
            ended = f"the adapter wrote {line!r:.300}"
        with self.lock:
            for waiting in [*(call.ended for call in self.calls.values()), *self.requests.values()]:
                waiting.set_exception(AdapterEnded(ended))

    def take(self, message: dict[str, Any]) -> None:
        if "called" in message:
            self.calls[message["called"]].called.put((message["function"], message.get("ids")))
        elif "end" in message:
            self.calls.pop(message["end"]).ended.set_result(message)
        elif "error" in message:
            self.requests.pop(message["done"]).set_exception(AdapterError(message["error"]))
        else:
            self.requests.pop(message["done"]).set_result(None)

    def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        with self.lock:
            try:
                self.input.write(line)
                self.input.flush()
            except OSError as error:
                raise AdapterEnded("the adapter has ended") from error

    def number(self) -> int:
        with self.lock:
            self.last += 1
            return self.last

    def ask(self, message: dict[str, Any]) -> None:
        """Sends a message, and waits until the adapter has executed it."""
        number = self.number()
        done = self.requests[number] = Future()
        self.send({**message, "id": number})
        try:
            done.result(PATIENCE_S)
        except concurrent.futures.TimeoutError as error:
            raise AdapterError(f"the adapter did not complete {json.dumps(message)}") from error

    def start(self, process: int, calls: list[tuple[str, dict[str, Any]]]) -> list[Call]:
        """Begins calls together."""
        begun = [Call(self.number(), name) for name, _ in calls]
        self.calls.update({call.number: call for call in begun})
        start = [{"id": call.number, "call": call.name, "with": given} for call, (_, given) in zip(begun, calls, strict=True)]
        self.send({"start": start, "process": process})
        return begun

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.input.close()
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AdapterError("the adapter has not ended with its input") from None
        if status != 0:
            raise AdapterError(f"the adapter ended with status {status}")
