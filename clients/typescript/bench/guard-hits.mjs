/** Compares hits of the guard with the client library's own GET. Prints `library,hits per second,GETs per second` for each
 * round.
 *
 * `node bench/guard-hits.mjs [--callers N] [--rounds N] [--lookups N] URL`, after `npm run build`. The server needs the module;
 * all its keys are deleted. 1000 rows of 200 bytes are cached; each caller looks up one random row after another. */

import { parseArgs } from "node:util";
import { Filter, Guard } from "bloomgate";
import { connect as connectIoredis } from "bloomgate/ioredis";
import { connect as connectRedis } from "bloomgate/redis";

const ROWS = 1000;
const options = {
  callers: { type: "string", default: "64" },
  rounds: { type: "string", default: "7" },
  lookups: { type: "string", default: "64000" },
};
const { values, positionals } = parseArgs({ options, allowPositionals: true });
const url = positionals[0] ?? "redis://127.0.0.1:6379";
const [callers, rounds, lookups] = [values.callers, values.rounds, values.lookups].map(Number);

/** Returns how many lookups a second the callers make together. */
async function rate(look) {
  const begun = performance.now();
  let left = lookups;
  const caller = async () => {
    while (left-- > 0) await look(Math.floor(Math.random() * ROWS));
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return Math.round((lookups / (performance.now() - begun)) * 1000);
}

async function measure(library, client) {
  await client.flushall?.();
  await client.flushAll?.();
  const ids = Array.from({ length: ROWS }, (_, id) => id);
  await new Filter(client, "rows").insert(ids, { capacity: ROWS, rate: 0.001 });
  const guard = new Guard(client, "rows", { ttl: 3600 });
  for (const id of ids) await guard.get(id, () => Buffer.alloc(200, "x"));
  const fail = () => {
    throw new Error("every row is cached");
  };
  for (let round = 0; round < rounds; round++) {
    const hits = await rate((id) => guard.get(id, fail));
    const gets = await rate((id) => client.get(`{rows}:${id}`));
    console.log(`${library},${hits},${gets}`);
  }
}

const redis = await connectRedis(url);
await measure("node-redis", redis);
redis.destroy();
const ioredis = await connectIoredis(url);
await measure("ioredis", ioredis);
ioredis.disconnect();
