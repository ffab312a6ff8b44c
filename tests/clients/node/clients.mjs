// Every version of node-redis that this Node can run, in each protocol. They are installed outside of the source tree:
// `BLOOMGATE_NODE` names the folder.

import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";

import { startServer } from "./server.mjs";

const installed = createRequire(join(process.env.BLOOMGATE_NODE ?? "", "package.json"));
const nodeMajor = Number(process.versions.node.split(".")[0]);

const VERSIONS = [
  { name: "redis-5", node: 18 },
  { name: "redis-6", node: 20 },
];

// Runs a test with a server of its own and a connected client of each version in each protocol. What the test gets:
// `client`, `connect(options)` for further ones, `types` for replies as other types, `protocol`.
export function withEachClient(title, body) {
  for (const { name, node } of VERSIONS) {
    for (const protocol of [2, 3]) {
      const skip = nodeMajor < node && `${name} needs Node ${node}, this is ${process.version}`;
      test(`${title} (${name}, RESP${protocol})`, { skip }, async (test) => {
        const { createClient, RESP_TYPES: types } = installed(name);
        const port = await startServer(test);
        const connect = async (options = {}) => {
          const client = createClient({ url: `redis://127.0.0.1:${port}`, RESP: protocol, ...options });
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

// A client whose bulk strings are buffers: records of a dump are bytes.
export function ofBuffers(client, types) {
  return client.withTypeMapping({ [types.BLOB_STRING]: Buffer });
}
