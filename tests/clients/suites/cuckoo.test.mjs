// Every CF method of node-redis, with its own parsing of replies: the calls and the answers of its own tests, which no published package
// contains.

import assert from "node:assert/strict";

import { ofBuffers, withEachClient } from "../node/clients.mjs";

const refused = (promise, text) => assert.rejects(promise, (error) => (assert.equal(error.message, text), true));

const NUMBERS = [
  "Size",
  "Number of buckets",
  "Number of filters",
  "Number of items inserted",
  "Number of items deleted",
  "Bucket size",
  "Expansion rate",
  "Max iterations",
];

withEachClient("cf.reserve and cf.info", async ({ client: { cf } }) => {
  assert.equal(await cf.reserve("k", 4), "OK");
  const info = await cf.info("k");
  assert.deepEqual(Object.keys(info), NUMBERS);
  assert(Object.values(info).every((number) => typeof number === "number"), JSON.stringify(info));
  assert.equal(await cf.reserve("sized", 400, { BUCKETSIZE: 4, MAXITERATIONS: 9, EXPANSION: 2 }), "OK");
  const { Size: size, ...numbers } = await cf.info("sized");
  assert.deepEqual({ ...numbers, Size: size }, {
    ...Object.fromEntries(NUMBERS.map((name) => [name, 0])),
    Size: 40 + 16 + 4 * 128,
    "Number of buckets": 128,
    "Number of filters": 1,
    "Bucket size": 4,
    "Expansion rate": 2,
    "Max iterations": 9,
  });
  await refused(cf.reserve("k", 4), "ERR item exists");
  await refused(cf.info("missing"), "ERR not found");
});

withEachClient("cf.add, cf.addNX and cf.count", async ({ client: { cf } }) => {
  assert.equal(await cf.count("k", "a"), 0);
  assert.equal(await cf.add("k", "a"), true);
  assert.equal(await cf.add("k", "a"), true);
  assert.equal(await cf.count("k", "a"), 2);
  assert.equal(await cf.addNX("k", "a"), false);
  assert.equal(await cf.addNX("k", "b"), true);
});

// Version 6 returns the numbers of CF.INSERTNX, version 5 booleans.
withEachClient("cf.insert and cf.insertNX", async ({ client: { cf } }) => {
  assert.deepEqual(await cf.insert("k", "a"), [true]);
  assert.deepEqual(await cf.insert("k", ["a", "b"], { CAPACITY: 100 }), [true, true]);
  await refused(cf.insert("missing", "a", { NOCREATE: true }), "ERR not found");
  assert.deepEqual((await cf.insertNX("k", ["a", "c", "c"], { NOCREATE: true })).map(Number), [0, 1, 0]);
  await refused(cf.insertNX("missing", "a", { NOCREATE: true }), "ERR not found");
});

withEachClient("cf.exists and cf.del", async ({ client: { cf } }) => {
  assert.equal(await cf.exists("k", "a"), false);
  await refused(cf.del("k", "a"), "Not found");
  await cf.reserve("k", 4);
  assert.equal(await cf.del("k", "a"), false);
  await cf.add("k", "a");
  assert.equal(await cf.exists("k", "a"), true);
  assert.equal(await cf.del("k", "a"), true);
  assert.equal(await cf.exists("k", "a"), false);
});

withEachClient("cf.scanDump and cf.loadChunk", async ({ client, types }) => {
  await client.cf.reserve("k", 4);
  assert.deepEqual(await client.cf.scanDump("k", 0), { iterator: 0, chunk: null });
  const items = Array.from({ length: 3000 }, (_, number) => `item-${number}`);
  await client.cf.insert("k", items.slice(0, 2), { NOCREATE: true });
  await client.cf.insert("many", items);
  const { cf } = ofBuffers(client, types);
  for (const key of ["k", "many"]) {
    for (let dump = await cf.scanDump(key, 0); dump.iterator !== 0; dump = await cf.scanDump(key, dump.iterator)) {
      assert.equal((await cf.loadChunk(`${key}:copy`, dump.iterator, dump.chunk)).toString(), "OK");
    }
    assert.deepEqual(await client.cf.info(`${key}:copy`), await client.cf.info(key));
  }
  const found = await Promise.all(items.map((item) => client.cf.exists("many:copy", item)));
  assert(found.every((found) => found === true));
});
