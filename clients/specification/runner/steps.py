"""Runs the steps of one case."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import queue
import time
from typing import Any

from adapter import PATIENCE_S, Adapter, Call
from cases import SCRIPTED_ONLY, SpecificationError, argument, equal, item_list, named_alike
from resp import command_matches
from scripted import Arrival, Connection, ScriptedServer

STEP_S = 0.25
BACKGROUND_S = 5
"""The time limit for a command that a client sends after its calls have ended."""

UNANSWERED_S = 15
"""The time limit of a call while a command that the case does not expect yet is unanswered."""


class Failed(Exception):
    """The client did not behave as the case specifies."""


class Run:
    """One run of one case, on a scripted server or, with `server=None`, on a real one."""

    def __init__(self, case: dict[str, Any], adapter: Adapter, target: dict[str, Any], server: ScriptedServer | None) -> None:
        self.case = case
        self.adapter = adapter
        self.target = target
        self.server = server
        self.processes: dict[str, int] = {}
        self.begun: list[Call] = []
        self.calls: dict[str, Call] = {}
        self.running: set[str] = set()
        self.held: dict[str, Arrival] = {}
        self.connections: dict[str, Connection] = {}

    def run(self) -> None:
        for number, step in enumerate(self.case["steps"], 1):
            name = next(iter(step))
            if self.server is None and name in SCRIPTED_ONLY:
                continue
            try:
                getattr(self, f"do_{name}")(step)
            except Failed as error:
                raise Failed(f"step {number}, {json.dumps(step)}:\n  {error}") from error
        self.check_end()

    def check_end(self) -> None:
        if self.running:
            raise Failed(f"these calls have no step `end`: {', '.join(self.running)}")
        if self.server is not None:
            self.check_queue(" at the end of the case")
            if self.server.violations:
                raise Failed("; ".join(self.server.violations))

    def check_queue(self, when: str, within_s: float = 0) -> None:
        """Fails if a command is in the queue, or arrives within a time."""
        with contextlib.suppress(queue.Empty):
            raise Failed(f"`{self.scripted().arrived.get(timeout=within_s or None, block=within_s > 0)}` arrived{when}")

    def abandon(self) -> None:
        """Ends the calls of a case that has failed."""
        if self.server is not None:
            self.server.close()
        end = time.monotonic() + BACKGROUND_S
        while time.monotonic() < end and any(not call.ended.done() for call in self.begun):
            for call in self.begun:
                with contextlib.suppress(queue.Empty):
                    number = call.pending or call.called.get_nowait()[0]
                    call.pending = None
                    self.adapter.send({"raise": number, "message": "the case has failed", "fatal": False})
            time.sleep(0.01)

    def close(self) -> None:
        for process in self.processes.values():
            self.adapter.ask({"close": process})

    def process(self, name: str) -> int:
        """Returns the number of a process of the case, and creates the process on first use."""
        if name not in self.processes:
            number = self.adapter.number()
            made = {name: self.case[name] for name in ("client", "filter", "guard", "sharded") if name in self.case}
            self.adapter.ask({"open": number, **self.target, **made})
            self.processes[name] = number
        return self.processes[name]

    def start(self, steps: list[dict[str, Any]]) -> list[Call]:
        """Begins calls, all in the process of the first one."""
        calls = [(step["call"], {name: argument(value) for name, value in step.get("with", {}).items()}) for step in steps]
        begun = self.adapter.start(self.process(steps[0].get("process", "A")), calls)
        self.begun += begun
        for step, call in zip(steps, begun, strict=True):
            if "start" in step:
                self.calls[step["start"]] = call
                self.running.add(step["start"])
        return begun

    def do_call(self, step: dict[str, Any]) -> None:
        self.check_outcome(self.start([step])[0], step)

    def do_start(self, step: dict[str, Any]) -> None:
        self.start([step])

    def do_start_together(self, step: dict[str, Any]) -> None:
        self.start(step["start_together"])

    def scripted(self) -> ScriptedServer:
        assert self.server is not None
        return self.server

    def next_command(self) -> Arrival:
        """Returns the next command from the queue. If every call has ended, only commands that a client sends in the
        background can still arrive, and the wait is short."""
        waited_s = 0.0
        while waited_s < PATIENCE_S:
            with contextlib.suppress(queue.Empty):
                return self.scripted().arrived.get(timeout=STEP_S)
            is_over = all(self.calls[actor].ended.done() for actor in self.running)
            waited_s += STEP_S * (PATIENCE_S / BACKGROUND_S if is_over else 1)
        raise Failed("no command arrived; " + "; ".join(map(str, self.calls.values())))

    def do_expect(self, step: dict[str, Any]) -> None:
        self.expect([step])

    def do_expect_all(self, step: dict[str, Any]) -> None:
        self.expect(step["expect_all"])

    def expect(self, steps: list[dict[str, Any]]) -> None:
        """Receives the expected number of commands, in any order."""
        left = list(steps)
        while left:
            arrival = self.next_command()
            step = next((one for one in left if command_matches(one["expect"], arrival.words)), None)
            if step is None:
                raise Failed(f"`{arrival}` arrived")
            left.remove(step)
            self.serve(step, arrival)

    def serve(self, step: dict[str, Any], arrival: Arrival) -> None:
        """Checks the connection of a command, and replies to it or holds it."""
        if "on" in step and self.connections.setdefault(step["on"], arrival.connection) is not arrival.connection:
            raise Failed(f"`{arrival}` arrived on a connection other than {step['on']}")
        if "not_on" in step and self.connections[step["not_on"]] is arrival.connection:
            raise Failed(f"`{arrival}` arrived on the connection {step['not_on']}")
        if "hold" in step:
            self.held[step["hold"]] = arrival
        else:
            self.scripted().answer(arrival, step["reply"])

    def do_answer(self, step: dict[str, Any]) -> None:
        self.scripted().answer(self.held.pop(step["answer"]), step["reply"])

    def wait_until_called(self, call: Call) -> Any:
        """Returns the ids with which the client calls the function, or null."""
        waited_s = 0.0
        while waited_s < PATIENCE_S:
            # A call that has ended may have called its function before.
            is_over = call.ended.done()
            with contextlib.suppress(queue.Empty):
                call.pending, ids = call.called.get(timeout=STEP_S)
                return ids
            if is_over:
                break
            waited_s += STEP_S
        raise Failed(f"it has not called its function: {call}")

    def take_pending(self, call: Call) -> int:
        if call.pending is None:
            self.wait_until_called(call)
        pending, call.pending = call.pending, None
        assert pending is not None
        return pending

    def do_called(self, step: dict[str, Any]) -> None:
        ids = self.wait_until_called(self.calls[step["called"]])
        if "ids" in step and sorted(ids, key=str) != sorted(item_list(step["ids"]), key=str):
            raise Failed(f"it was called with {json.dumps(ids)}")

    def do_return(self, step: dict[str, Any]) -> None:
        self.adapter.send({"return": self.take_pending(self.calls[step["return"]]), "value": step["value"]})

    def do_raise(self, step: dict[str, Any]) -> None:
        number = self.take_pending(self.calls[step["raise"]])
        self.adapter.send({"raise": number, "message": step["message"], "fatal": step.get("fatal", False)})

    def do_cancel(self, step: dict[str, Any]) -> None:
        self.adapter.ask({"cancel": self.calls[step["cancel"]].number})

    def do_end(self, step: dict[str, Any]) -> None:
        self.running.remove(step["end"])
        self.check_outcome(self.calls[step["end"]], step)

    def do_quiet(self, step: dict[str, Any]) -> None:
        self.check_queue("", step["quiet"] / 1000)

    def do_pause(self, step: dict[str, Any]) -> None:
        time.sleep(step["pause"] / 1000)

    def check_outcome(self, call: Call, step: dict[str, Any]) -> None:
        self.wait_until_ended(call)
        outcome = call.ended.result()
        if "error" in outcome:
            check_error(step, outcome)
        elif "error" in step:
            raise Failed(f"no error, the result is {json.dumps(outcome['result'])}")
        else:
            describes = call.name in ("filter.info", "filter.stats", "plan")
            result = named_alike(outcome["result"]) if describes else outcome["result"]
            if not equal(step["result"], result):
                raise Failed(f"the result is {json.dumps(result)}")
        if not call.called.empty():
            raise Failed(f"{call.name} called its function once more")

    def wait_until_ended(self, call: Call) -> None:
        """Waits for a shorter time if a command has arrived that the case does not expect yet, because the call may wait for
        its reply."""
        for second in range(PATIENCE_S):
            concurrent.futures.wait([call.ended], 1)
            if call.ended.done():
                return
            if second >= UNANSWERED_S and self.server is not None:
                self.check_queue(f" and {call.name} has not ended")
        raise Failed(f"{call.name} has not ended")


def check_error(step: dict[str, Any], outcome: dict[str, Any]) -> None:
    """Compares the error of a call: one of its names, and its contents."""
    names, text = outcome["error"], outcome.get("message", "")
    if names == ["unknown"]:
        raise SpecificationError(f"the adapter: {text}")
    wanted = step.get("error")
    is_right = wanted in names
    if wanted in ("load", "fatal", "shared"):
        is_right = wanted.replace("shared", "load") in names and text == step["message"]
    if wanted == "shared" and "LoadFailed" in names:
        is_right = step["message"] in text
    if not is_right:
        raise Failed(f"the error is {' or '.join(names) or 'without a name'}: {text}")
    if "answers" in step and not equal(step["answers"], outcome.get("answers")):
        raise Failed(f"the answers are {json.dumps(outcome.get('answers'))}")
    if "ids" in step and list(map(str, item_list(step["ids"]))) != outcome.get("ids"):
        raise Failed(f"the ids are {json.dumps(outcome.get('ids'))}")
