// Every version of node-redis that this Node can run, in each protocol. They are installed outside the source tree, in the folder
// `BLOOMGATE_NODE`.

import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";

import { PATIENCE, startServer } from "./server.mjs";

const installed = createRequire(join(process.env.BLOOMGATE_NODE ?? "", "package.json"));
const nodeMajor = Number(process.versions.node.split(".")[0]);

const VERSIONS = [
  { name: "redis-5", node: 18 },
  { name: "redis-6", node: 20 },
];

// Runs a test with its own server and a connected client of each version in each protocol. The test gets `client`,
// `connect(options)` for more clients, `types` for replies of other types, and `protocol`.
export function withEachClient(title, body) {
  for (const { name, node } of VERSIONS) {
    for (const protocol of [2, 3]) {
      const skip = nodeMajor < node && `${name} needs Node ${node}, this is ${process.version}`;
      test(`${title} (${name}, RESP${protocol})`, { skip }, async (test) => {
        const { createClient, RESP_TYPES: types } = installed(name);
        const port = await startServer(test);
        const connect = async (options = {}) => {
          // By default, version 6 gives up on a command five seconds after the call, even if it is not sent yet.
          const commandOptions = { timeout: PATIENCE };
          const client = createClient({ url: `redis://127.0.0.1:${port}`, RESP: protocol, commandOptions, ...options });
          client.on("error", () => {});
          await client.connect();
          test.after(() => client.destroy());
          return client;
        };
        await body({ client: await connect(), connect, types, protocol });
      });
    }
  }
}

// A client that returns bulk strings as buffers, because records of a dump are binary.
export function ofBuffers(client, types) {
  return client.withTypeMapping({ [types.BLOB_STRING]: Buffer });
}
