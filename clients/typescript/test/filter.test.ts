/** A filter at one key, on both libraries and in both protocols. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { createClientPool, createSentinel } from "redis";
import { type Client, Filter, ModuleMissing, plan } from "../src/index.js";
import { LIBRARIES, openClient } from "./clients.js";
import { Cleanup, Server, startServer } from "./server.js";

for (const library of LIBRARIES) {
  for (const protocol of [2, 3] as const) {
    describe(`${library}, RESP${protocol}`, () => {
      let server: Server;
      let client: Client;
      const cleanup = new Cleanup();
      before(async () => {
        server = await startServer(cleanup);
        client = await openClient(cleanup, library, server.port, protocol);
      });
      after(() => cleanup.run());

      test("items and batches", async () => {
        const seen = new Filter(client, "items");
        await seen.reserve(0.001, 10_000);
        await seen.add("a");
        assert.deepEqual(await seen.addMany([Buffer.from("a"), 17, 17n, "17"]), [false, true, false, false]);
        const numbers = Array.from({ length: 9000 }, (_, number) => number + 100);
        assert.ok((await seen.addMany(numbers)).filter(Boolean).length > 8900);
        assert.ok((await seen.existsMany(numbers)).every(Boolean));
        let found = 0;
        for await (const answer of seen.existsEach(numbers)) found += Number(answer);
        assert.equal(found, 9000);
        async function* generated() {
          yield* ["new", "a"];
        }
        assert.deepEqual(await seen.addMany(generated()), [true, false]);
        assert.equal((await seen.info()).items, await seen.card());
      });

      test("numbers of a filter and of a plan", async () => {
        const filter = new Filter(client, "numbers");
        await filter.reserve(0.01, 1000, { nonscaling: true, seed: 700 });
        const { bitsPerItem, layers, sizeBytes } = await plan(client, 0.01, 1000, { nonscaling: true });
        assert.ok(bitsPerItem > 9 && bitsPerItem < 12);
        assert.equal((await filter.info()).sizeBytes, sizeBytes);
        assert.equal((await filter.info()).expansion, null);
        const stats = await filter.stats();
        assert.equal(stats.errorRate, 0.01);
        assert.equal(stats.layers[0]?.sizeBytes, layers[0]?.sizeBytes);
        assert.ok((await filter.debug())[0]?.startsWith("size:"));
      });

      test("whole filters", async () => {
        const [one, two] = [new Filter(client, "one"), new Filter(client, "two")];
        for (const [filter, item] of [
          [one, "a"],
          [two, "b"],
        ] as const) {
          await filter.insert([item], { capacity: 1000, rate: 0.001, seed: 7 });
        }
        await one.merge("two");
        assert.deepEqual(await one.existsMany(["a", "b"]), [true, true]);
        const windowed = new Filter(client, "windowed");
        await windowed.reserve(0.01, 100, { window: 3600 });
        assert.equal(await windowed.rotate(), 0);
      });
    });
  }
}

test("a server without the module", async (context) => {
  const server = new Server([], false);
  context.after(() => server.end());
  await server.start();
  for (const library of LIBRARIES) {
    const client = await openClient(context, library, server.port);
    await assert.rejects(new Filter(client, "seen").exists("a"), ModuleMissing);
  }
});

test("values that are not clients", () => {
  assert.throws(() => new Filter({} as Client, "seen"), /a client of node-redis or ioredis is needed/);
  const sentinel = createSentinel({ name: "main", sentinelRootNodes: [{ host: "127.0.0.1", port: 26379 }] });
  // @ts-expect-error: the types refuse it, too.
  assert.throws(() => new Filter(sentinel, "seen"), /createSentinel of node-redis is not supported/);
  const pool = createClientPool();
  // @ts-expect-error: the types refuse it, too.
  assert.throws(() => new Filter(pool, "seen"), /a client of node-redis or ioredis is needed/);
});
