"""Runs the steps of one case."""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import queue
import time
from typing import Any

import redis
from server import PATIENCE

import bloomgate

from .calls import Call, Fatal, LoadError, Threads
from .scripted import Arrival, Connection, ScriptedServer
from .words import SpecificationError, command_matches, item_list, known

STEPS = {
    "call": {"with", "process", "result", "error", "message", "answers", "ids"},
    "start": {"call", "with", "process"},
    "start_together": set(),
    "expect": {"reply", "hold", "on", "not_on"},
    "expect_all": set(),
    "answer": {"reply"},
    "called": {"ids"},
    "return": {"value"},
    "raise": {"message", "fatal"},
    "cancel": set(),
    "end": {"result", "error", "message", "answers", "ids"},
    "quiet": set(),
    "pause": set(),
}
"""The steps, and the further members of each."""

STEP_S = 0.25
BACKGROUND_S = 5
"""How long a command may take that a client sends after its calls have ended."""

UNANSWERED_S = 15
"""How long a call may take while a command is unanswered that the case does not expect yet."""

SCRIPTED_ONLY = {"expect", "expect_all", "answer", "quiet"}
"""Steps that are skipped on real servers."""

NAMED = {
    "BadDump",
    "FilterExists",
    "FilterFull",
    "FilterLoading",
    "FilterMissing",
    "LoadFailed",
    "ModuleMissing",
    "ShardMissing",
    "ShardsChanged",
    "Unconfirmed",
}


class Run:
    """One run of one case, on a scripted server or, with `server=None`, on a real one."""

    def __init__(self, case: dict[str, Any], actors: Threads, server: ScriptedServer | None) -> None:
        self.case = case
        self.actors = actors
        self.server = server
        self.calls: dict[str, Call] = {}
        self.running: set[str] = set()
        self.held: dict[str, Arrival] = {}
        self.connections: dict[str, Connection] = {}

    def run(self) -> None:
        for number, step in enumerate(self.case["steps"], 1):
            name = next(iter(step))
            if name not in STEPS:
                raise SpecificationError(f"unknown step {step}")
            known(f"step {number}", set(step) - {name}, STEPS[name])
            if self.server is None and name in SCRIPTED_ONLY:
                continue
            try:
                getattr(self, f"do_{name}")(step)
            except AssertionError as error:
                raise AssertionError(f"step {number}, {step}: {error}") from error
        self.check_end()

    def check_end(self) -> None:
        assert not self.running, f"these calls have no step `end`: {', '.join(self.running)}"
        if self.server is not None:
            assert self.server.arrived.empty(), f"an unexpected command: {self.server.arrived.get()}"
            assert not self.server.violations, self.server.violations

    def begin(self, step: dict[str, Any]) -> Call:
        known("start", set(step), {"start", *STEPS["start"]})
        call = self.calls[step["start"]] = Call(step["call"], dict(step.get("with", {})))
        self.running.add(step["start"])
        return call

    def do_call(self, step: dict[str, Any]) -> None:
        call = Call(step["call"], dict(step.get("with", {})))
        self.actors.start(step.get("process", "A"), [call])
        self.check_outcome(call, step)

    def do_start(self, step: dict[str, Any]) -> None:
        self.actors.start(step.get("process", "A"), [self.begin(step)])

    def do_start_together(self, step: dict[str, Any]) -> None:
        self.actors.start("A", [self.begin(one) for one in step["start_together"]])

    def scripted(self) -> ScriptedServer:
        assert self.server is not None
        return self.server

    def next_command(self) -> Arrival:
        """Takes the next command from the queue. If every call has ended, only those commands can still arrive that a client
        sends in the background, and the wait is short."""
        waited_s = 0.0
        while waited_s < PATIENCE:
            with contextlib.suppress(queue.Empty):
                return self.scripted().arrived.get(timeout=STEP_S)
            is_over = all(self.calls[actor].ended.done() for actor in self.running)
            waited_s += STEP_S * (PATIENCE / BACKGROUND_S if is_over else 1)
        ended = [f"{actor}: {call.ended!r}" for actor, call in self.calls.items() if call.ended.done()]
        raise AssertionError(f"no command arrived; the calls that have ended: {ended}")

    def do_expect(self, step: dict[str, Any]) -> None:
        arrival = self.next_command()
        assert command_matches(step["expect"], arrival.words), f"`{arrival}` arrived"
        self.serve(step, arrival)

    def do_expect_all(self, step: dict[str, Any]) -> None:
        left = list(step["expect_all"])
        while left:
            arrival = self.next_command()
            found = [one for one in left if command_matches(one["expect"], arrival.words)]
            assert found, f"`{arrival}` arrived"
            known("expect", set(found[0]), {"expect", *STEPS["expect"]})
            left.remove(found[0])
            self.serve(found[0], arrival)

    def serve(self, step: dict[str, Any], arrival: Arrival) -> None:
        """Checks the connection of a command, and replies to it or holds it."""
        if "on" in step:
            named = self.connections.setdefault(step["on"], arrival.connection)
            assert named is arrival.connection, f"`{arrival}` arrived on another connection than {step['on']}"
        if "not_on" in step:
            other = self.connections[step["not_on"]]
            assert other is not arrival.connection, f"`{arrival}` arrived on the connection {step['not_on']}"
        if "hold" in step:
            self.held[step["hold"]] = arrival
        else:
            self.scripted().answer(arrival, step["reply"])

    def do_answer(self, step: dict[str, Any]) -> None:
        self.scripted().answer(self.held.pop(step["answer"]), step["reply"])

    def do_called(self, step: dict[str, Any]) -> None:
        argument = self.calls[step["called"]].wait_until_called()
        if "ids" in step:
            assert sorted(argument, key=str) == sorted(item_list(step["ids"]), key=str), f"called with {argument}"

    def do_return(self, step: dict[str, Any]) -> None:
        self.calls[step["return"]].take_pending().set_result(step["value"])

    def do_raise(self, step: dict[str, Any]) -> None:
        self.calls[step["raise"]].take_pending().set_exception((Fatal if step.get("fatal") else LoadError)(step["message"]))

    def do_cancel(self, step: dict[str, Any]) -> None:
        self.actors.cancel(self.calls[step["cancel"]])  # type: ignore[attr-defined]

    def do_end(self, step: dict[str, Any]) -> None:
        self.running.remove(step["end"])
        self.check_outcome(self.calls[step["end"]], step)

    def check_outcome(self, call: Call, step: dict[str, Any]) -> None:
        self.wait_until_ended(call)
        try:
            result = call.ended.result()
        except SpecificationError:
            raise
        except BaseException as error:
            check_error(step, error)
        else:
            assert "error" not in step, f"no error, the result is {result!r}"
            assert equal(step["result"], result), f"the result is {result!r}"
        assert call.called.empty(), f"{call.name} called its function once more"

    def wait_until_ended(self, call: Call) -> None:
        """Waits less long if a command has arrived that the case does not expect yet: the call may wait for its reply."""
        for second in range(PATIENCE):
            concurrent.futures.wait([call.ended], 1)
            if call.ended.done():
                return
            if second >= UNANSWERED_S and self.server is not None and not self.server.arrived.empty():
                raise AssertionError(f"{call.name} has not ended, and `{self.server.arrived.get()}` arrived")
        raise AssertionError(f"{call.name} has not ended")

    def do_quiet(self, step: dict[str, Any]) -> None:
        time.sleep(step["quiet"] / 1000)
        assert self.scripted().arrived.empty(), f"`{self.scripted().arrived.get()}` arrived"

    def do_pause(self, step: dict[str, Any]) -> None:
        time.sleep(step["pause"] / 1000)


def check_error(step: dict[str, Any], error: BaseException) -> None:
    if "error" not in step:
        raise AssertionError(f"the call raised {error!r}") from error
    name = step["error"]
    if name in NAMED:
        is_right = isinstance(error, getattr(bloomgate, name))
    elif name == "refused":
        is_right = isinstance(error, (TypeError, ValueError))
    elif name in ("load", "shared"):
        is_right = isinstance(error, LoadError) and str(error) == step["message"]
    elif name == "fatal":
        is_right = isinstance(error, Fatal) and str(error) == step["message"]
    elif name == "connection":
        is_right = isinstance(error, (redis.ConnectionError, redis.TimeoutError))
    elif name == "server":
        is_right = isinstance(error, redis.ResponseError)
    elif name == "cancelled":
        is_right = type(error).__name__ == "CancelledError"
    elif name == "TimeoutError":
        is_right = isinstance(error, TimeoutError)
    else:
        raise SpecificationError(f"unknown error {name}")
    if not is_right:
        raise AssertionError(f"the call raised {error!r}") from error
    if "answers" in step:
        assert equal(step["answers"], getattr(error, "answers", None)), f"answers are {error.answers!r}"  # type: ignore[attr-defined]
    if "ids" in step:
        found = [id.decode() if isinstance(id, bytes) else str(id) for id in error.ids]  # type: ignore[attr-defined]
        assert found == [str(id) for id in item_list(step["ids"])], f"ids are {found!r}"


def equal(expected: Any, found: Any) -> bool:
    """Compares JSON values. Numbers are no booleans, and floating-point numbers are compared with a tolerance."""
    if isinstance(expected, dict) and set(expected) == {"repeat", "times"}:
        expected = [expected["repeat"]] * expected["times"]
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(equal(expected[name], found[name]) for name in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(equal, expected, found))
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, float) or isinstance(found, float):
        return isinstance(found, (int, float)) and math.isclose(expected, found, rel_tol=1e-9)
    return bool(expected == found)
