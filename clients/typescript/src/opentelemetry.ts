/** Records the events and loads of guards with OpenTelemetry. It is exported as `bloomgate/opentelemetry`, and needs
 * `@opentelemetry/api`. */

import { metrics, SpanStatusCode, trace } from "@opentelemetry/api";
import type { Telemetry } from "./telemetry.js";

/** Returns the telemetry of guards: the counter `bloomgate.guard.events`, and a span `bloomgate.load` for each load, inside the
 * caller's span. They go to the providers that are registered when this is called. */
export function openTelemetry(): Telemetry {
  const counter = metrics.getMeter("bloomgate").createCounter("bloomgate.guard.events", {
    unit: "{event}",
    description: "Answers of BF.FETCH and other events of a guard",
  });
  const tracer = trace.getTracer("bloomgate");
  return {
    count: (events, attributes) => counter.add(events, { ...attributes }),
    load: (attributes, load) =>
      tracer.startActiveSpan("bloomgate.load", { attributes: { ...attributes } }, async (span) => {
        try {
          return await load();
        } catch (error) {
          span.recordException(error instanceof Error ? error : String(error));
          span.setStatus({ code: SpanStatusCode.ERROR, message: String(error) });
          throw error;
        } finally {
          span.end();
        }
      }),
  };
}
