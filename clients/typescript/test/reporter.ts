/** A reporter for node:test: one line for each group of tests, every failure in full, and the totals at the end. One line per
 * test would hide the failures. */

import { basename } from "node:path";
import type { EventData } from "node:test";
import type { TestEvent } from "node:test/reporters";
import { inspect } from "node:util";

type Outcome = EventData.TestPass | EventData.TestFail;

/** Writes the report of a run. */
export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  /** The name of the reported test after the names of its groups. */
  const names: string[] = [];
  let counts: Record<string, number> = {};
  for await (const { type, data } of events) {
    if (type === "test:start") {
      names.splice(data.nesting, names.length, data.name);
    } else if (type === "test:pass" || type === "test:fail") {
      names.splice(data.nesting, names.length, data.name);
      const word = data.skip ? "skipped" : type === "test:pass" ? "passed" : "FAILED";
      if (data.details.type !== "suite") counts[word] = (counts[word] ?? 0) + 1;
      if (data.skip) yield `skipped: ${names.join(" > ")}: ${data.skip}\n`;
      if (type === "test:fail") yield failure(names, data);
      if (data.nesting === 0) {
        yield summary(data, counts);
        counts = {};
      }
    } else if (type === "test:stdout" || type === "test:stderr" || type === "test:diagnostic") {
      yield type === "test:diagnostic" ? `${data.message}\n` : data.message;
    }
  }
}

/** Returns the line of a group, or of a test without a group. */
function summary({ name, file, details }: Outcome, counts: Record<string, number>): string {
  const results = Object.entries(counts).map(([word, count]) => `${count} ${word}`);
  const seconds = (details.duration_ms / 1000).toFixed(1);
  return `${basename(file ?? "", ".test.js")}: ${name}: ${results.join(", ")} (${seconds} s)\n`;
}

/** Returns the error and the location of a test, or undefined for a group whose tests have reported their errors. */
function failure(names: readonly string[], { file, line, details }: EventData.TestFail): string {
  const { error } = details;
  if ("failureType" in error && error.failureType === "subtestsFailed") return "";
  return `\nFAILED: ${names.join(" > ")} (${file}:${line})\n${inspect(error.cause ?? error, { depth: 10 })}\n\n`;
}
