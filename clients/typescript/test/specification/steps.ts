/** Runs the steps of one case. */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { isReply } from "../../src/errors.js";
import {
  BadDump,
  type BloomgateError,
  Disconnected,
  FilterExists,
  FilterFull,
  FilterLoading,
  FilterMissing,
  LoadFailed,
  ModuleMissing,
  ShardMissing,
  ShardsChanged,
  TimeoutError,
  Unconfirmed,
} from "../../src/index.js";
import { settledBy } from "../../src/promises.js";
import { PATIENCE_MS } from "../server.js";
import { Call, equal, LoadError, type Process } from "./calls.js";
import type { Arrival, Connection, ScriptedServer } from "./scripted.js";
import { type Case, commandMatches, itemList, type Json, known, SpecificationError, type Step } from "./words.js";

/** The steps, and the further members of each. */
const STEPS: { [name: string]: string[] } = {
  call: ["with", "process", "result", "error", "message", "answers", "ids"],
  start: ["call", "with", "process"],
  start_together: [],
  expect: ["reply", "hold", "on", "not_on"],
  expect_all: [],
  answer: ["reply"],
  called: ["ids"],
  return: ["value"],
  raise: ["message", "fatal"],
  cancel: [],
  end: ["result", "error", "message", "answers", "ids"],
  quiet: [],
  pause: [],
};

/** Steps that are skipped on real servers. */
const SCRIPTED_ONLY = ["expect", "expect_all", "answer", "quiet"];

const NAMED = [
  BadDump,
  FilterExists,
  FilterFull,
  FilterLoading,
  FilterMissing,
  LoadFailed,
  ModuleMissing,
  ShardMissing,
  ShardsChanged,
  Unconfirmed,
];

/** One run of one case, on a scripted server or, without one, on a real one. */
export class Run {
  readonly #case: Case;
  readonly #process: (name: string) => Promise<Process>;
  readonly #scripted: ScriptedServer | undefined;
  readonly #calls = new Map<string, Call>();
  readonly #running = new Set<string>();
  readonly #held = new Map<string, Arrival>();
  readonly #connections = new Map<string, Connection>();

  constructor(from: Case, process: (name: string) => Promise<Process>, scripted: ScriptedServer | undefined) {
    this.#case = from;
    this.#process = process;
    this.#scripted = scripted;
  }

  async run(): Promise<void> {
    for (const [index, step] of this.#case.steps.entries()) {
      const [name = "", ...members] = Object.keys(step);
      const allowed = STEPS[name];
      if (allowed === undefined) throw new SpecificationError(`unknown step ${JSON.stringify(step)}`);
      known(`step ${index + 1}`, members, allowed);
      if (this.#scripted === undefined && SCRIPTED_ONLY.includes(name)) continue;
      try {
        await this.#step(name, step);
      } catch (error) {
        throw new Error(`step ${index + 1}, ${JSON.stringify(step)}: ${(error as Error).message}`, { cause: error });
      }
    }
    assert.equal(this.#running.size, 0, `these calls have no step "end": ${[...this.#running].join(", ")}`);
    assert.equal(this.#scripted?.unexpected, undefined, `unexpected: ${this.#scripted?.unexpected}`);
    assert.deepEqual(this.#scripted?.violations ?? [], []);
  }

  async #step(name: string, step: Step): Promise<void> {
    const actor = String(step[name]);
    switch (name) {
      case "call": {
        const call = new Call(actor, step["with"] ?? null);
        await this.#start(String(step["process"] ?? "A"), [call]);
        return this.#checkOutcome(call, step);
      }
      case "start":
        return this.#start(String(step["process"] ?? "A"), [this.#begin(step)]);
      case "start_together":
        return this.#start(
          "A",
          (step["start_together"] as Step[]).map((one) => this.#begin(one)),
        );
      case "expect":
        return this.#expect([step]);
      case "expect_all":
        return this.#expect(step["expect_all"] as Step[]);
      case "answer": {
        const held = this.#held.get(actor);
        assert.ok(held, `no command is held as ${actor}`);
        this.#held.delete(actor);
        this.#scripted?.answer(held, step["reply"] ?? null);
        return;
      }
      case "called": {
        const found = await this.#call(actor).untilCalled();
        if (step["ids"] !== undefined) {
          assert.deepEqual(found.map(String).sort(), itemList(step["ids"]).map(String).sort(), `called with ${found}`);
        }
        return;
      }
      case "return":
        return (await this.#call(actor).takePending()).resolve(step["value"]);
      case "raise":
        return (await this.#call(actor).takePending()).reject(new LoadError(String(step["message"])));
      case "cancel":
        return this.#call(actor).abort.abort();
      case "end":
        assert.ok(this.#running.delete(actor), `${actor} has not begun`);
        return this.#checkOutcome(this.#call(actor), step);
      case "quiet":
        await sleep(Number(step["quiet"]));
        assert.equal(this.#scripted?.unexpected, undefined, `${this.#scripted?.unexpected} arrived`);
        return;
      case "pause":
        await sleep(Number(step["pause"]));
        return;
    }
  }

  #call(actor: string): Call {
    const call = this.#calls.get(actor);
    assert.ok(call, `there is no call ${actor}`);
    return call;
  }

  #begin(step: Step): Call {
    known("start", Object.keys(step), ["start", ...(STEPS["start"] ?? [])]);
    const actor = String(step["start"]);
    const call = new Call(String(step["call"]), step["with"] ?? null);
    this.#calls.set(actor, call);
    this.#running.add(actor);
    return call;
  }

  /** Begins calls in one turn of the event loop. */
  async #start(process: string, calls: Call[]): Promise<void> {
    const made = await this.#process(process);
    for (const call of calls) {
      call.ended = made.perform(call);
      call.ended.catch(() => {});
    }
  }

  /** Takes as many commands as are expected, in any order. */
  async #expect(expected: readonly Step[]): Promise<void> {
    const scripted = this.#scripted as ScriptedServer;
    const left = [...expected];
    while (left.length > 0) {
      const arrival = await scripted.next(left);
      const index = left.findIndex((one) => commandMatches(one["expect"] ?? null, arrival.words));
      assert.ok(index >= 0, `${arrival} arrived`);
      const [step] = left.splice(index, 1) as [Step];
      known("expect", Object.keys(step), ["expect", ...(STEPS["expect"] ?? [])]);
      this.#serve(scripted, step, arrival);
    }
  }

  /** Checks the connection of a command, and replies to it or holds it. */
  #serve(scripted: ScriptedServer, step: Step, arrival: Arrival): void {
    const { on, not_on: notOn, hold } = step;
    if (on !== undefined) {
      const named = this.#connections.get(String(on)) ?? arrival.connection;
      this.#connections.set(String(on), named);
      assert.ok(named === arrival.connection, `${arrival} arrived on another connection than ${on}`);
    }
    if (notOn !== undefined) {
      const other = this.#connections.get(String(notOn));
      assert.ok(other !== undefined && other !== arrival.connection, `${arrival} arrived on the connection ${notOn}`);
    }
    if (hold !== undefined) this.#held.set(String(hold), arrival);
    else scripted.answer(arrival, step["reply"] ?? null);
  }

  async #checkOutcome(call: Call, step: Step): Promise<void> {
    let result: Json;
    try {
      result = (await settledBy(call.ended, PATIENCE_MS, undefined)) as Json;
    } catch (error) {
      if (error instanceof SpecificationError) throw error;
      assert.ok(error instanceof Error, `${call.name} has not ended`);
      checkError(step, error);
      assert.equal(call.called.length, 0, `${call.name} called its function once more`);
      return;
    }
    assert.equal(step["error"], undefined, `no error, the result is ${JSON.stringify(result)}`);
    assert.ok(equal(step["result"] ?? null, result), `the result is ${JSON.stringify(result)}`);
    assert.equal(call.called.length, 0, `${call.name} called its function once more`);
  }
}

function isRight(name: string, error: Error, step: Step): boolean {
  const named = NAMED.find((one) => one.name === name);
  if (named !== undefined) return error instanceof named;
  switch (name) {
    case "refused":
      return error instanceof TypeError || error instanceof RangeError;
    case "load":
    case "shared":
      return error instanceof LoadError && error.message === step["message"];
    case "server":
      return isReply(error);
    case "connection":
      if (error instanceof Disconnected || error instanceof TimeoutError) return true;
      return !isReply(error) && /socket|connection|MaxRetriesPerRequest/i.test(`${error.name} ${error.message}`);
    case "cancelled":
      return error.name === "AbortError";
    case "TimeoutError":
      return error instanceof TimeoutError;
    default:
      throw new SpecificationError(`unknown error ${name}`);
  }
}

function checkError(step: Step, error: Error): void {
  if (step["error"] === undefined) throw error;
  assert.ok(isRight(String(step["error"]), error, step), `the call threw ${error.stack}`);
  if (step["answers"] !== undefined) assert.deepEqual((error as BloomgateError).answers, step["answers"]);
  if (step["ids"] !== undefined) {
    const ids = (error as Unconfirmed).ids.map((id) => Buffer.from(id).toString());
    assert.deepEqual(ids, itemList(step["ids"]).map(String));
  }
}
