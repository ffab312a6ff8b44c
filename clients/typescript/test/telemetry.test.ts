/** Metrics and spans of OpenTelemetry. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type MeterProvider, metrics, type SpanStatus, SpanStatusCode, type TracerProvider, trace } from "@opentelemetry/api";
import { Filter, Guard } from "../src/index.js";
import { openTelemetry } from "../src/opentelemetry.js";
import { openClient } from "./clients.js";
import { startServer } from "./server.js";

/** The records of a provider: the counter's values by event, and the spans in the order of their ends. */
const recorded = { events: new Map<string, number>(), spans: [] as unknown[][] };

/** Providers with the methods of OpenTelemetry that the package uses. */
metrics.setGlobalMeterProvider({
  getMeter: () => ({
    createCounter: (name: string) => ({
      add(number: number, { "bloomgate.filter": filter, "bloomgate.event": event, ...rest }: { [name: string]: string }) {
        assert.deepEqual([name, filter, rest], ["bloomgate.guard.events", "rows", {}]);
        recorded.events.set(String(event), (recorded.events.get(String(event)) ?? 0) + number);
      },
    }),
  }),
} as unknown as MeterProvider);
trace.setGlobalTracerProvider({
  getTracer: () => ({
    startActiveSpan(name: string, { attributes }: { attributes: object }, run: (span: unknown) => unknown) {
      const notes: unknown[] = [];
      return run({
        recordException: (error: Error) => notes.push(error.message),
        setStatus: ({ code }: SpanStatus) => notes.push(code),
        end: () => recorded.spans.push([name, attributes, ...notes]),
      });
    },
  }),
} as unknown as TracerProvider);

after(() => {
  metrics.disable();
  trace.disable();
});

test("events are counted, and loads are spans", async (context) => {
  const server = await startServer(context);
  const client = await openClient(context, "redis", server.port);
  await new Filter(client, "rows").insert([1, 2, 3, 4], { capacity: 100 });
  const guard = new Guard(client, "rows", { telemetry: openTelemetry(), warn: () => {} });
  const row = Buffer.from("row");
  const load = (ids: number[]) => new Map(ids.map((id) => [id, row]));
  assert.deepEqual(await guard.get(1, () => row), row);
  assert.deepEqual(await guard.get(1, () => assert.fail("the row is cached")), row);
  assert.equal(await guard.get(100, () => assert.fail("the row is absent")), null);
  assert.deepEqual([...(await guard.getMany([2, 3, 100], load)).values()], [row, row, null]);
  const error = new Error("the database is down");
  await assert.rejects(
    guard.get(4, () => {
      throw error;
    }),
    error,
  );
  assert.deepEqual(Object.fromEntries(recorded.events), { load: 4, filled: 3, hit: 1, absent: 2, load_failed: 1 });
  const attributes = (rows: number) => ({ "bloomgate.filter": "rows", "bloomgate.rows": rows });
  assert.deepEqual(recorded.spans, [
    ["bloomgate.load", attributes(1)],
    ["bloomgate.load", attributes(2)],
    ["bloomgate.load", attributes(1), "the database is down", SpanStatusCode.ERROR],
  ]);
});
