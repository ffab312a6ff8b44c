// scanDump and loadChunk of node-redis. Records are binary; a client that decodes them as text, which is the default, changes
// them, and the module detects that.

import assert from "node:assert/strict";

import { ofBuffers, withEachClient } from "./clients.mjs";

const MEMBERS = Array.from({ length: 3000 }, (_, number) => String(number));

// A filter of several chunks.
async function fill({ bf }) {
  await bf.reserve("k", 0.001, 2_000_000);
  await bf.mAdd("k", MEMBERS);
}

async function records(client, key) {
  const records = [];
  let iterator = 0;
  for (;;) {
    const record = await client.bf.scanDump(key, iterator);
    iterator = record.iterator;
    assert(Number.isSafeInteger(iterator));
    if (iterator === 0) {
      assert.equal(record.chunk.length, 0);
      return records;
    }
    records.push(record);
  }
}

const digest = (client, key) => client.sendCommand(["DEBUG", "DIGEST-VALUE", key]);

withEachClient("a copy is equal to the bit", async ({ client, types }) => {
  await fill(client);
  const dump = await records(ofBuffers(client, types), "k");
  assert(dump.length >= 4, "a header and some chunks");
  for (const { iterator, chunk } of dump) {
    if (iterator !== dump[0].iterator) {
      await assert.rejects(client.bf.exists("copy", "1"), { message: "ERR filter is still being loaded" });
    }
    assert.equal(await client.bf.loadChunk("copy", iterator, chunk), "OK");
    assert.equal(await client.bf.loadChunk("copy", iterator, chunk), "OK", "the same again");
  }
  assert.deepEqual(await digest(client, "copy"), await digest(client, "k"));
  assert((await client.bf.mExists("copy", MEMBERS)).every((found) => found));
  assert.equal(await client.bf.add("copy", "one more"), true);
});

withEachClient("records out of order, torn, or read as text", async ({ client, types }) => {
  await fill(client);
  const [header, first, second, ...others] = await records(ofBuffers(client, types), "k");
  const load = ({ iterator, chunk }) => client.bf.loadChunk("copy", iterator, chunk);
  await assert.rejects(load(first), { message: "ERR not found" });
  await load(header);
  const before = await digest(client, "copy");
  await assert.rejects(load(second), /^\w*Error: ERR received bad data: the chunk is out of order/);
  const torn = Buffer.from(first.chunk);
  torn[torn.length >> 1] ^= 1;
  await assert.rejects(load({ ...first, chunk: torn }), /ERR received bad data: the checksum is wrong/);
  await assert.rejects(load({ ...first, chunk: first.chunk.subarray(1) }), /ERR received bad data/);
  const { iterator, chunk: text } = await client.bf.scanDump("k", header.iterator);
  assert.equal(typeof text, "string");
  await assert.rejects(load({ iterator, chunk: text }), /ERR received bad data/);
  assert.deepEqual(await digest(client, "copy"), before, "nothing of it changed anything");
  for (const record of [first, second, ...others]) await load(record);
  assert.deepEqual(await digest(client, "copy"), await digest(client, "k"));
});
