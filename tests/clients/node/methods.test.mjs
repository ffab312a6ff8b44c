// Every BF method of node-redis, with its own parsing of replies.

import assert from "node:assert/strict";

import { withEachClient } from "./clients.mjs";

const refused = (promise, text) => assert.rejects(promise, (error) => (assert.equal(error.message, text), true));

withEachClient("reserve", async ({ client: { bf } }) => {
  assert.equal(await bf.reserve("k", 0.01, 1000), "OK");
  assert.equal(await bf.reserve("expanding", 0.0001, 1000, { EXPANSION: 4 }), "OK");
  assert.equal(await bf.reserve("fixed", 0.01, 1000, { NONSCALING: true }), "OK");
  assert.equal((await bf.info("k"))["Expansion rate"], 2);
  assert.equal((await bf.info("expanding"))["Expansion rate"], 4);
  assert.equal((await bf.info("fixed"))["Expansion rate"], null);
  await refused(bf.reserve("k", 0.01, 1000), "ERR item exists");
  await refused(bf.reserve("x", 2, 1000), "ERR error rate must be in the range (0.000000, 1.000000)");
  await refused(bf.reserve("x", 0.01, 0), "ERR capacity must be in the range [1, 1073741824]");
  await refused(bf.reserve("x", 0.01, 9, { EXPANSION: 2, NONSCALING: true }), "Nonscaling filters cannot expand");
});

withEachClient("add and exists", async ({ client: { bf } }) => {
  assert.equal(await bf.add("k", "a"), true);
  assert.equal(await bf.add("k", "a"), false);
  assert.equal(await bf.exists("k", "a"), true);
  assert.equal(await bf.exists("k", "b"), false);
  assert.equal(await bf.exists("missing", "a"), false);
});

withEachClient("mAdd and mExists", async ({ client: { bf } }) => {
  assert.deepEqual(await bf.mAdd("k", ["a", "b", "a"]), [true, true, false]);
  assert.deepEqual(await bf.mAdd("k", "b"), [false]);
  assert.deepEqual(await bf.mExists("k", ["a", "x", "b"]), [true, false, true]);
  assert.deepEqual(await bf.mExists("missing", ["a", "b"]), [false, false]);
  const items = Array.from({ length: 5000 }, (_, number) => `item-${number}`);
  const added = await bf.mAdd("many", items);
  assert.equal(added.length, 5000);
  assert((await bf.mExists("many", items)).every((found) => found === true), "no item that was added is denied");
  assert.equal(await bf.card("many"), added.filter((added) => added).length);
});

withEachClient("insert", async ({ client: { bf } }) => {
  assert.deepEqual(await bf.insert("k", ["a", "b", "a"]), [true, true, false]);
  const options = { CAPACITY: 500, ERROR: 0.001, EXPANSION: 3 };
  assert.deepEqual(await bf.insert("described", "a", options), [true]);
  assert.equal((await bf.info("described"))["Capacity"], 500);
  assert.equal((await bf.info("described"))["Expansion rate"], 3);
  assert.deepEqual(await bf.insert("fixed", ["a"], { NONSCALING: true }), [true]);
  assert.equal((await bf.info("fixed"))["Expansion rate"], null);
  assert.deepEqual(await bf.insert("k", ["b", "c"], { NOCREATE: true }), [false, true]);
  await refused(bf.insert("missing", "a", { NOCREATE: true }), "ERR not found");
  await refused(bf.insert("missing", "a", { CAPACITY: "x" }), "Bad capacity");
  await refused(bf.insert("missing", "a", { ERROR: "x" }), "Bad error rate");
});

withEachClient("info", async ({ client }) => {
  await client.bf.reserve("k", 0.01, 1000);
  await client.bf.mAdd("k", ["a", "b", "c"]);
  const { Size: size, ...info } = await client.bf.info("k");
  assert.deepEqual(
    { ...info },
    { Capacity: 1000, "Number of filters": 1, "Number of items inserted": 3, "Expansion rate": 2 },
  );
  assert(size > 1000 && size < 4000, `1000 items at 1% are some 1200 bytes of bits, not ${size}`);
  await refused(client.bf.info("missing"), "ERR not found");
});

withEachClient("info as a Map and as an array", async ({ client, types }) => {
  await client.bf.reserve("k", 0.01, 10, { EXPANSION: 3 });
  await client.bf.mAdd("k", Array.from({ length: 35 }, (_, number) => String(number)));
  const asMap = await client.withTypeMapping({ [types.MAP]: Map }).bf.info("k");
  assert(asMap instanceof Map);
  assert.deepEqual([...asMap.keys()], [
    "Capacity",
    "Size",
    "Number of filters",
    "Number of items inserted",
    "Expansion rate",
  ]);
  assert.equal(asMap.get("Capacity"), 10 + 30);
  assert.equal(asMap.get("Number of filters"), 2);
  const asArray = await client.withTypeMapping({ [types.MAP]: Array }).bf.info("k");
  assert.deepEqual(asArray, [...asMap].flat());
});

withEachClient("info of one field, and debug", async ({ client, protocol }) => {
  await client.bf.add("k", "a");
  const one = await client.sendCommand(["BF.INFO", "k", "CAPACITY"]);
  assert.deepEqual(protocol === 3 ? { ...one } : one, protocol === 3 ? { Capacity: 100 } : [100]);
  await refused(client.sendCommand(["BF.INFO", "k", "COLOUR"]), "Invalid information value");
  const lines = await client.sendCommand(["BF.DEBUG", "k"]);
  assert.equal(lines.length, 2);
  assert.equal(lines[0], "size:1");
  assert.match(lines[1], /^bytes:\d+ bits:\d+ hashes:\d+ hashwidth:\d+ capacity:100 size:1 ratio:0\.\d+$/);
});

withEachClient("card", async ({ client: { bf } }) => {
  assert.equal(await bf.card("missing"), 0);
  await bf.mAdd("k", ["a", "b", "a"]);
  assert.equal(await bf.card("k"), 2);
});

withEachClient("a full fixed filter", async ({ client, protocol }) => {
  const { bf } = client;
  await bf.reserve("k", 1e-9, 2, { NONSCALING: true });
  assert.deepEqual(await bf.mAdd("k", ["a", "b"]), [true, true]);
  await refused(bf.add("k", "c"), "ERR non scaling filter is full");
  assert.equal(await bf.add("k", "a"), false);
  // The array ends with the error. In RESP2 node-redis turns everything that is not 1 into false, the error included.
  const [known, full, ...others] = await bf.mAdd("k", ["b", "c", "d", "a"]);
  assert.equal(known, false);
  if (protocol === 3) assert.equal(full.message, "ERR non scaling filter is full");
  else assert.equal(full, false);
  assert.deepEqual(others, []);
  const raw = await client.sendCommand(["BF.MADD", "k", "b", "c", "d", "a"]);
  assert.equal(raw.length, 2);
  assert.equal(raw[1].message, "ERR non scaling filter is full");
  assert.equal(await bf.card("k"), 2);
});

withEachClient("keys and items are any bytes", async ({ client: { bf } }) => {
  const items = ["", "\0", "ключ", "a\r\nb", "x".repeat(100_000)].map((text) => Buffer.from(text));
  items.push(Buffer.from([0xff, 0xfe]), Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)));
  const key = Buffer.from([0, 0xff, 13, 10]);
  assert.deepEqual(await bf.mAdd(key, items), items.map(() => true));
  assert.deepEqual(await bf.mExists(key, [...items, "absent"]), [...items.map(() => true), false]);
  assert.equal(await bf.exists(key, "ключ"), true);
  assert.equal(await bf.add(key, ""), false);
});

withEachClient("a key of another type", async ({ client }) => {
  const text = "WRONGTYPE Operation against a key holding the wrong kind of value";
  await client.set("string", "x");
  const { bf } = client;
  await refused(bf.add("string", "a"), text);
  await refused(bf.mAdd("string", ["a"]), text);
  await refused(bf.insert("string", "a"), text);
  await refused(bf.exists("string", "a"), text);
  await refused(bf.mExists("string", ["a"]), text);
  await refused(bf.card("string"), text);
  await refused(bf.info("string"), text);
  await refused(bf.reserve("string", 0.01, 100), text);
  await refused(bf.scanDump("string", 0), text);
  await refused(bf.loadChunk("string", 1, "data"), text);
  assert.equal(await client.get("string"), "x");
});
