/** A filter at one key, on both libraries and in both protocols. */

import assert from "node:assert/strict";
import { createReadStream, promises as fs } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { createClientPool, createSentinel } from "redis";
import { BadDump, type Client, Filter, FilterExists, FilterFull, FilterMissing, ModuleMissing, plan } from "../src/index.js";
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
        assert.equal(await seen.reserve(0.001, 10_000), true);
        assert.equal(await seen.reserve(0.5, 7, { existOk: true }), false);
        await assert.rejects(seen.reserve(0.001, 10_000), FilterExists);
        assert.deepEqual([await seen.add("a"), await seen.add(Buffer.from("a")), await seen.exists("a")], [true, false, true]);
        assert.equal(await seen.exists(Uint8Array.of(0xff, 0)), false);
        assert.deepEqual(await seen.addMany(["b", 17, 17n, "17", "b"]), [true, true, false, false, false]);
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
        assert.deepEqual(await seen.addMany([]), []);
      });

      test("the options of each kind", async () => {
        const counting = new Filter(client, "counting");
        await counting.reserve(0.01, 100, { counting: true });
        await counting.addMany(["a", "a"]);
        assert.equal(await counting.count("a"), 2);
        assert.equal(await counting.delete("a"), true);
        const keyed = new Filter(client, "keyed");
        await keyed.reserve(0.01, 100, { hash: "siphash", ex: 1000 });
        await keyed.addMany(["a", "b"]);
        assert.deepEqual(await keyed.deleteMany(["a", "x"]), [true, false]);
        assert.equal((await keyed.stats()).itemsDeleted, 1);
        const windowed = new Filter(client, "windowed");
        await windowed.reserve(0.01, 100, { window: 3600, sliding: true });
        const stats = await windowed.stats();
        assert.equal(stats.windowS, 3600);
        assert.equal(stats.sliding, true);
        assert.equal(stats.buckets.length, 1);
        assert.equal(await windowed.rotate(), 0);
        await assert.rejects(counting.reserve(0.01, 1, { colour: "red" } as object), TypeError);
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

      test("a batch that fails midway", async () => {
        const filter = new Filter(client, "small");
        await filter.reserve(0.0001, 3, { nonscaling: true });
        await assert.rejects(filter.addMany(["a", "b", "c", "d", "e"]), (error) => {
          assert.ok(error instanceof FilterFull);
          assert.deepEqual(error.answers, [true, true, true, null, null]);
          return true;
        });
        const missing = new Filter(client, "missing", { create: false });
        await assert.rejects(missing.add("a"), FilterMissing);
        await assert.rejects(missing.addMany("a"), TypeError);
        await assert.rejects(missing.add(0.5), TypeError);
        assert.equal(await missing.exists("a"), false);
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
        await one.clear();
        assert.equal(await one.card(), 0);
        assert.equal(await one.drop(), true);
        assert.equal(await one.drop(), false);
      });

      test("a dump into a file, and back", async (context) => {
        const filter = new Filter(client, "dumped");
        await filter.reserve(0.001, 100_000);
        await filter.addMany(Array.from({ length: 20_000 }, (_, number) => number));
        const folder = await fs.mkdtemp(join(tmpdir(), "bloomgate-"));
        context.after(() => fs.rm(folder, { recursive: true }));
        const path = join(folder, "dump");
        await fs.writeFile(path, filter.dump());
        const copy = new Filter(client, "copy");
        assert.ok((await copy.load(createReadStream(path))) > 100_000);
        assert.equal(await copy.card(), await filter.card());
        await assert.rejects(copy.load(createReadStream(path)), FilterExists);
        const bytes = await fs.readFile(path);
        bytes[1000] = 1 ^ (bytes[1000] ?? 0);
        await assert.rejects(copy.load([bytes], { replace: true }), BadDump);
        assert.equal(await server.probe.exists("copy"), 0);
        await assert.rejects(copy.load([(await fs.readFile(path)).subarray(0, -1)]), BadDump);
        assert.equal(await server.probe.exists("copy"), 0);
        await assert.rejects(copy.load([]), BadDump);
      });

      test("an error that the library reports", async () => {
        await server.probe.set("text", "text");
        await assert.rejects(new Filter(client, "text").exists("a"), /WRONGTYPE/);
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

test("what is no client", () => {
  assert.throws(() => new Filter({} as Client, "seen"), /a client of node-redis or ioredis is needed/);
  const sentinel = createSentinel({ name: "main", sentinelRootNodes: [{ host: "127.0.0.1", port: 26379 }] });
  // @ts-expect-error: the types refuse it, too.
  assert.throws(() => new Filter(sentinel, "seen"), /createSentinel of node-redis is not supported/);
  const pool = createClientPool();
  // @ts-expect-error: the types refuse it, too.
  assert.throws(() => new Filter(pool, "seen"), /a client of node-redis or ioredis is needed/);
});
