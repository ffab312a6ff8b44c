// The caches in Node, for scoreboard.py, as contestants.py has those in Python.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { createKeyv } from "@keyv/redis";
import { createCache } from "cache-manager";
import { connect } from "../../../clients/typescript/dist/connect-redis.js";
import { Guard, Json } from "../../../clients/typescript/dist/index.js";

const TTL_S = 60;
const [name, url] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ask(word, id) {
  process.stdout.write(`${word} ${id}\n`);
  return Number((await lines.next()).value);
}

function cacheManager() {
  const cache = createCache({ stores: [createKeyv(url)], ttl: 1000 * TTL_S });
  const read = (id) => cache.wrap(id, () => ask("load", id));
  return { read, change: (id) => ask("commit", id).then(() => cache.del(id)) };
}

async function guard() {
  const rows = new Guard(await connect(url), "rows", { load: (id) => ask("load", id), codec: new Json(), ttl: TTL_S });
  return { read: (id) => rows.get(id), change: (id) => rows.changed(id, () => ask("commit", id)) };
}

const { version } = JSON.parse(readFileSync(new URL("node_modules/cache-manager/package.json", import.meta.url)));
const caches = { [`cache-manager ${version}, wrap`]: cacheManager, [`bloomgate ${process.env.BLOOMGATE_VERSION}`]: guard };
if (name === undefined) {
  process.stdout.write(Object.keys(caches).join("\n"));
  process.exit();
}
const { read, change } = await caches[name]();
for (let line = await lines.next(); !line.done; line = await lines.next()) {
  const [word, id] = line.value.split(" ");
  const answer = await (word === "read" ? read : change)(id);
  process.stdout.write(`done ${word === "read" ? answer : 0}\n`);
}
process.exit();
