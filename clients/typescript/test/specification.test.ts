/** Runs the cases of clients/specification against this package, on each library. */

import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { Client } from "../src/index.js";
import { LIBRARIES, type Library, openClient, openCluster } from "./clients.js";
import { Cleanup, type Context, type Server, startCluster, startServer } from "./server.js";
import { Process } from "./specification/calls.js";
import { ScriptedServer } from "./specification/scripted.js";
import { Run } from "./specification/steps.js";
import { type Case, readCases } from "./specification/words.js";

// From .build/test.
const FOLDER = fileURLToPath(new URL("../../../specification", import.meta.url));

/** Returns what makes the processes of a case. */
function processes(from: Case, open: () => Promise<Client>): (name: string) => Promise<Process> {
  const made = new Map<string, Promise<Process>>();
  return (name) => {
    const process = made.get(name) ?? open().then((client) => new Process(client, from));
    made.set(name, process);
    return process;
  };
}

async function runScripted(context: Context, from: Case, library: Library, protocol: 2 | 3): Promise<void> {
  const server = new ScriptedServer();
  context.after(() => server.close());
  const port = await server.start();
  await new Run(
    from,
    processes(from, () => openClient(context, library, port, protocol)),
    server,
  ).run();
}

async function runReal(from: Case, servers: readonly Server[], open: () => Promise<Client>): Promise<void> {
  for (const server of servers) await server.probe.flushAll();
  const process = processes(from, open);
  await (await process("A")).setup();
  await new Run(from, process, undefined).run();
}

const cases = readCases(FOLDER);
const on = (server: string) => cases.filter((one) => one.servers.includes(server));

/** Says why a case cannot run on this package. */
const lacks = (one: Case) => {
  // A client has one connection for commands that do not wait. The test of `Flights` shows what these cases do.
  if (one.needs?.includes("pool")) return { skip: "needs a connection for each command" };
  // All that a function throws is shared alike. A test of the guard shows it.
  if (one.needs?.includes("fatal")) return { skip: "needs failures that are no errors" };
  return { skip: false };
};

// What a scripted server shows is the same on every server.
const protocols = process.env["BLOOMGATE_SCRIPTED"] === "no" ? [] : ([2, 3] as const);

for (const library of LIBRARIES) {
  for (const protocol of protocols) {
    const other = protocol === 2 ? "resp3" : "resp2";
    // Each case has a server of its own, and most of its time passes with waiting. Those with a short time limit run by themselves:
    // others would keep this process from answering in time.
    for (const [suite, isTimed] of [
      ["a scripted server", false],
      ["time limits", true],
    ] as const) {
      describe(`${library}, RESP${protocol}, ${suite}`, { concurrency: 8 }, () => {
        for (const from of on("scripted")) {
          if (from.needs?.includes(other) || (from.client?.timeout_ms !== undefined) !== isTimed) continue;
          test(from.name, lacks(from), (context) => runScripted(context, from, library, protocol));
        }
      });
    }
  }

  describe(`${library}, a real server`, () => {
    const cleanup = new Cleanup();
    let server: Server;
    before(async () => {
      server = await startServer(cleanup);
    });
    after(() => cleanup.run());
    for (const from of on("real")) {
      test(from.name, lacks(from), (context) => runReal(from, [server], () => openClient(context, library, server.port)));
    }
  });

  describe(`${library}, a cluster`, () => {
    const cleanup = new Cleanup();
    let servers: Server[];
    before(async () => {
      servers = await startCluster(cleanup);
    });
    after(() => cleanup.run());
    for (const from of on("cluster")) {
      test(from.name, lacks(from), (context) =>
        runReal(from, servers, () =>
          openCluster(
            context,
            library,
            servers.map((server) => server.port),
          ),
        ),
      );
    }
  });
}
