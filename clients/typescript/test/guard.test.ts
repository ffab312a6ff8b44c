/** The parts of the guard that the specification's cases do not cover: turns of the event loop, aborted calls, slow databases,
 * and servers that die. */

import assert from "node:assert/strict";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { after, before, beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connectionOf } from "../src/ask.js";
import type { Connection } from "../src/connection.js";
import { Flights, type Shared } from "../src/flights.js";
import { type Client, Filter, Guard, type GuardOptions, Json, type Loaders, TimeoutError, Unconfirmed } from "../src/index.js";
import { connectIoredis, connectRedis, LIBRARIES, openClient, openCluster } from "./clients.js";
import { ScriptedServer } from "./scripted.js";
import { Cleanup, eventually, freePort, PATIENCE_MS, type Server, startCluster, startServer } from "./server.js";

/** Longer than any test waits, so that a lease that is not given up makes a test fail. */
const LEASE_MS = 3_600_000;

/** A promise that a test settles. */
function deferred<T = void>() {
  let resolve!: (value: T) => void;
  let reject!: (error: Error) => void;
  const promise = new Promise<T>((settle, fail) => {
    resolve = settle;
    reject = fail;
  });
  return { promise, resolve, reject };
}

const row = Buffer.from("row");

test("an answer is shared with flights that began before its fetch", () => {
  const flights = new Flights();
  const asking = flights.begin("1");
  const early = flights.begin("1");
  flights.ask(asking);
  const late = flights.begin("1");
  flights.ask(early);
  const wakes: string[] = [];
  void flights.wait(early)?.then(() => wakes.push("early"));
  void flights.wait(late)?.then(() => wakes.push("late"));
  asking.share({ word: "hit", value: row });
  flights.end(asking);
  assert.deepEqual([early.given, late.given], [{ word: "hit", value: row }, undefined]);
  assert.equal(late.row.waiting.has(late), true);
  // A shared outcome is not shared again.
  early.share(early.given as Shared);
  flights.end(early);
  assert.deepEqual([late.given, late.row.waiting.has(late)], [undefined, false]);
});

/** A client whose server is down. */
const down: Connection = {
  isCluster: false,
  command: () => Promise.reject(new Error("down")),
  duplicate: () => Promise.reject(new Error("down")),
  close: () => {},
};

describe("without a server", () => {
  test("a failed call does not affect the loads of its other rows", async () => {
    const guard = new Guard(down, "rows", { warn: () => {} });
    const [first, both] = [deferred<Buffer>(), deferred<Map<number, Buffer>>()];
    const failing = guard.get(1, () => first.promise);
    await eventually("the load", () => guard.counts.unguarded === 1);
    const many = guard.getMany([1, 2], () => both.promise);
    await eventually("the load of the other row", () => guard.counts.unguarded === 2);
    first.reject(new Error("the database is down"));
    await assert.rejects(failing, /the database is down/);
    await assert.rejects(many, /the database is down/);
    const later = guard.get(2, () => Buffer.from("new"));
    for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
    assert.equal(guard.counts.unguarded, 2, "one load of a row at a time");
    both.resolve(new Map([[2, Buffer.from("old")]]));
    assert.equal(String(await later), "new");
  });

  test("a load that never ends does not block its row forever", async (context) => {
    const guard = new Guard(down, "rows", { warn: () => {} });
    const begun = deferred();
    void guard.get(1, () => {
      begun.resolve();
      return new Promise<Buffer>(() => {});
    });
    await begun.promise;
    context.mock.timers.enable({ apis: ["setTimeout"] });
    const calls = [1, 2, 3].map(() => guard.get(1, () => row));
    for (let turn = 0; turn < 10; turn++) await new Promise(setImmediate);
    context.mock.timers.tick(60_000);
    assert.deepEqual(await Promise.all(calls), [row, row, row]);
    assert.equal(guard.counts.unguarded, 2);
  });
});

for (const library of LIBRARIES) {
  describe(library, () => {
    const cleanup = new Cleanup();
    let server: Server;
    let client: Client;
    before(async () => {
      server = await startServer(cleanup);
      client = await openClient(cleanup, library, server.port);
    });
    after(() => cleanup.run());
    beforeEach(async () => {
      await server.probe.flushAll();
      await new Filter(client, "rows").reserve(0.0001, 2000, { hash: "siphash" });
      await new Filter(client, "rows").addMany(Array.from({ length: 1000 }, (_, id) => id));
    });

    function guarded(options: GuardOptions & Loaders<Uint8Array> = {}): Guard {
      return new Guard(client, "rows", { leaseMs: LEASE_MS, timeoutMs: PATIENCE_MS, warn: () => {}, ...options });
    }

    const leases = () => server.number("bf", "bf_bloom_leases");
    const settled = () => eventually("no lease to be left", async () => (await leases()) === 0);

    async function calls(command: string): Promise<number> {
      const info = await server.probe.info("commandstats");
      return Number(new RegExp(`^cmdstat_${command}:calls=(\\d+)`, "im").exec(info)?.[1] ?? 0);
    }

    test("the callers of one turn share the row of the caller that gets the lease in the server", async () => {
      const guard = guarded({ waitMs: PATIENCE_MS });
      const words = ["rows", "1", "{rows}:1"];
      const lease = ["BF.FETCH", ...words, "LEASE", String(LEASE_MS)];
      const [, token] = (await server.probe.sendCommand(lease)) as unknown as string[];
      await server.probe.configResetStat();
      const loading = deferred<Buffer>();
      const crowd = Array.from({ length: 10 }, () => guard.get(1, () => loading.promise));
      await eventually("the wait", async () => (await server.number("clients", "blocked_clients")) === 1);
      await server.probe.sendCommand(["BF.FILL", ...words, String(token), "GIVEUP"]);
      await eventually("the load", () => guard.counts.load === 1);
      loading.resolve(row);
      assert.deepEqual(new Set((await Promise.all(crowd)).map(String)), new Set(["row"]));
      assert.equal(guard.counts.shared, 9);
      assert.equal(await calls("bf.fetch"), 2, "the turn and the wait");
    });

    test("any value that a load throws is shared with waiting callers", async () => {
      const faults: { [name: string]: () => Buffer } = {
        undefined: () => {
          throw undefined;
        },
        text: () => {
          throw "text";
        },
        "a row that cannot be encoded": () => "text" as unknown as Buffer,
      };
      for (const [name, fault] of Object.entries(faults)) {
        const guard = guarded();
        const begun = deferred();
        const first = guard.get(1, async () => {
          await begun.promise;
          return fault();
        });
        await eventually("the load", () => guard.counts.load === 1);
        const others = Array.from({ length: 10 }, () => guard.get(1, () => assert.fail("one load is enough")));
        await eventually("the others to wait", () => guard.counts.wait === 10);
        begun.resolve();
        const outcomes = await Promise.allSettled([first, ...others]);
        const reasons = outcomes.map((one) => (one.status === "rejected" ? one.reason : assert.fail(`${name} was not thrown`)));
        assert.equal(new Set(reasons).size, 1);
        await settled();
      }
    });

    test("a call for a row inside its load loads it", async () => {
      const guard = guarded({ waitMs: PATIENCE_MS });
      const inner = async (id: number) => {
        const rows = await guard.getMany([id, 2], (ids) => new Map(ids.map((one) => [one, Buffer.from(`many ${one}`)])));
        return Buffer.from([...rows.values()].join(", "));
      };
      let later = Promise.resolve<Uint8Array | null>(null);
      const outer = (id: number) => {
        later = sleep(0)
          .then(() => eventually("the fill", () => guard.counts.filled === 2))
          .then(() => guard.get(id, inner));
        return guard.get(id, inner);
      };
      assert.equal(String(await guard.get(1, outer)), "many 1, many 2");
      assert.equal(await server.probe.get("{rows}:2"), "many 2");
      assert.equal(guard.counts.unguarded, 2);
      assert.equal(String(await later), "many 1, many 2");
      assert.equal(guard.counts.hit, 1, "what a load has started is not inside of it once it has ended");
    });

    test("a loader of the call or of the guard gets the id", async () => {
      const guard = guarded({
        load: (id: number | string) => Buffer.from(`${typeof id} ${id}`),
        loadMany: (ids: number[]) => new Map(ids.map((id) => [id, Buffer.from(`many ${id}`)])),
      });
      assert.equal(String(await guard.get(1)), "number 1");
      assert.equal(String(await guard.get("2", { ttl: 1 })), "string 2");
      assert.equal(String(await guard.get(3, (id) => Buffer.from(`of the call ${id}`))), "of the call 3");
      assert.deepEqual([...(await guard.getMany([4, 5])).values()].map(String), ["many 4", "many 5"]);
      const { signal } = new AbortController();
      for (const options of [
        { signal: AbortSignal.abort(), ttl: 1 },
        { signal, ttl: 0 },
      ]) {
        await assert.rejects(guard.get(1, options));
        await assert.rejects(guard.getMany([1], options));
      }
      await assert.rejects(guarded().get(1), /there is no loader/);
      await assert.rejects(guarded().getMany([1]), /there is no loader/);
    });

    test("any number of calls share a signal without a warning", async (context) => {
      const warnings: Error[] = [];
      const listener = (warning: Error) => warnings.push(warning);
      process.on("warning", listener);
      context.after(() => process.off("warning", listener));
      const guard = guarded();
      const { signal } = new AbortController();
      const ids = Array.from({ length: 20 }, (_, id) => id);
      await Promise.all(ids.map((id) => guard.get(id, () => row, { signal, ttl: undefined })));
      const load = (some: number[]) => new Map(some.map((id) => [id, row]));
      const other = new AbortController().signal;
      await Promise.all(ids.map((id) => guard.getMany([id, id + 500], load, { signal: other })));
      assert.deepEqual(warnings, []);
    });

    test("calls that are aborted at any moment leave no lease", async () => {
      const guard = guarded();
      const counters = async () => {
        const info = await server.probe.info("bf");
        const names = ["bf_bloom_fetches_load", "bf_bloom_fills", "bf_bloom_fills_refused"];
        return names.map((name) => Number(new RegExp(`^${name}:(\\d+)`, "m").exec(info)?.[1]));
      };
      const before = await counters();
      for (let round = 0; round < 60; round++) {
        const controllers = [0, 1, 2, 3].map(() => new AbortController());
        const load = round % 2 ? () => row : () => new Promise<Buffer>(() => {});
        const loadMany = async (ids: number[]) => {
          const loaded = await load();
          return new Map(ids.map((id) => [id, loaded]));
        };
        const tasks = controllers.map(({ signal }, index) =>
          index < 3 ? guard.get(round, load, { signal }) : guard.getMany([round, round + 100], loadMany, { signal }),
        );
        const ended = Promise.allSettled(tasks);
        for (let turn = round % 13; turn > 0; turn--) await (turn % 3 ? new Promise(setImmediate) : sleep(0));
        for (const controller of controllers) controller.abort();
        await ended;
        // The server may get a command of an aborted call later.
        await eventually(`each lease to end, round ${round}`, async () => {
          const [granted, fills, refused] = (await counters()).map((now, index) => now - (before[index] ?? 0));
          assert.equal(refused, 0, `round ${round}: no lease ends twice`);
          return granted === fills && (await leases()) === 0;
        });
      }
    });

    test("an old value is served while a load is slow", async () => {
      const guard = guarded({ ttl: 0.001, failSafe: 3600, softTimeout: 0.01, beta: 0 });
      await server.probe.set("{rows}:1", "old", { expiration: { type: "EX", value: 3000 } });
      const loading = deferred<Buffer>();
      const controller = new AbortController();
      assert.equal(String(await guard.get(1, () => loading.promise, { signal: controller.signal })), "old");
      assert.equal(String(await guard.get(1, () => assert.fail("the lease is held"))), "old");
      assert.equal(guard.counts.soft_timeout, 1);
      controller.abort();
      loading.resolve(Buffer.from("new"));
      await eventually("the load to fill", () => guard.counts.filled === 1);
      assert.equal(await server.probe.get("{rows}:1"), "new");
    });

    test("an old value is counted once if a slow load fails", async () => {
      const guard = guarded({ ttl: 0.001, failSafe: 3600, softTimeout: 0.01, beta: 0 });
      await server.probe.set("{rows}:1", "old", { expiration: { type: "EX", value: 3000 } });
      const loading = deferred<Buffer>();
      assert.equal(String(await guard.get(1, () => loading.promise)), "old");
      loading.reject(new Error("the database is down"));
      await eventually("the back-off", async () => (await calls("bf.fill")) > 0 && (await leases()) === 0);
      assert.equal(String(await guard.get(1, () => assert.fail("nobody loads during a back-off"))), "old");
      const { soft_timeout: slow, stale_served: failed } = guard.counts;
      assert.deepEqual({ slow, failed }, { slow: 1, failed: 0 });
    });

    test("10,000 rows that are loaded at once are cached, with few commands in flight", async () => {
      const connection = connectionOf(client);
      const underWay = new Map<string, number>();
      const most = new Map<string, number>();
      const from: Connection = {
        isCluster: false,
        duplicate: (key) => connection.duplicate(key),
        close: () => {},
        async command(words, key) {
          const name = String(words[0]);
          const now = (underWay.get(name) ?? 0) + 1;
          underWay.set(name, now);
          most.set(name, Math.max(now, most.get(name) ?? 0));
          try {
            return await connection.command(words, key);
          } finally {
            underWay.set(name, (underWay.get(name) ?? 0) - 1);
          }
        },
      };
      const ids = Array.from({ length: 10_000 }, (_, id) => id);
      await new Filter(client, "rows").addMany(ids);
      const guard = new Guard(from, "rows", { timeoutMs: PATIENCE_MS, warn: () => {} });
      await Promise.all(ids.map((id) => guard.get(id, () => row)));
      assert.equal(await server.probe.dbSize(), 10_001);
      assert.ok(Number(most.get("BF.MFETCH")) <= 8, String(most.get("BF.MFETCH")));
      assert.ok(Number(most.get("BF.FILL")) <= 4000, String(most.get("BF.FILL")));
      const { filled, errors } = guard.counts;
      assert.deepEqual({ filled, errors }, { filled: 10_000, errors: 0 });

      // Large values are fetched one by one once their size is known.
      const large = Buffer.alloc(4 << 20);
      const some = ids.slice(0, 40);
      await server.probe.del(some.map((id) => `{rows}:${id}`));
      await Promise.all(some.map((id) => guard.get(id, () => large)));
      most.clear();
      const rows = await Promise.all(some.map((id) => guard.get(id, () => assert.fail("it is cached"))));
      assert.ok(rows.every((found) => found?.length === large.length));
      assert.deepEqual([most.get("BF.MFETCH"), most.get("BF.FETCH")], [undefined, 8]);
    });

    test("callers wait for a slow load if the row was changed", async () => {
      const guard = guarded({ ttl: 0.001, failSafe: 3600, softTimeout: 0.01, beta: 0 });
      await server.probe.set("{rows}:1", "old", { expiration: { type: "EX", value: 3000 } });
      const loading = deferred<Buffer>();
      const begun = deferred();
      const got = guard.get(1, () => {
        begun.resolve();
        return loading.promise;
      });
      await begun.promise;
      await guard.changed(1, () => {});
      await eventually("the soft timeout", () => guard.counts.wait);
      loading.resolve(Buffer.from("new"));
      assert.equal(String(await got), "new");
      assert.equal(guard.counts.lease_lost, 1);
    });

    test("the result of a transaction, and its error", async () => {
      const guard = guarded();
      assert.equal(await guard.changed(1, () => 7), 7);
      const error = new Error("constraint");
      await assert.rejects(
        guard.changedMany([1, 2], () => Promise.reject(error)),
        error,
      );
      const dead = new Guard(await openDead(), "rows", { patience: 0, warn: () => {} });
      await assert.rejects(dead.confirm(1), Unconfirmed);
      async function openDead(): Promise<Client> {
        const other = await startServer(cleanup);
        const client = await openClient(cleanup, library, other.port);
        await other.probe.sendCommand(["REPLICAOF", "127.0.0.1", "1"]);
        return client;
      }
    });

    test("every caller gets the decoded form of a row", async () => {
      const codec = new Json<{ born: unknown; none?: undefined }>();
      const [row, decoded] = [{ born: new Date(0), none: undefined }, { born: "1970-01-01T00:00:00.000Z" }];
      const guard = new Guard(client, "rows", { codec, load: () => row, failSafe: 3600, ttl: 0.001, beta: 0 });
      const many = (ids: number[]) => new Map(ids.map((id) => [id, row]));
      assert.deepEqual(await guard.get(1), decoded);
      assert.deepEqual([...(await guard.getMany([1, 2], many)).values()], [decoded, decoded]);
      const unguarded = new Guard(down, "rows", { codec, load: () => row, warn: () => {} });
      assert.deepEqual(await unguarded.get(1), decoded);
      assert.deepEqual([...(await unguarded.getMany([1, 2], many)).values()], [decoded, decoded]);
      assert.equal(unguarded.counts.unguarded, 3);
      assert.throws(() => codec.encode({ born: Number.NaN }), /JSON cannot represent NaN/);
    });

    test("invalid options", async () => {
      for (const options of [
        { ttl: Number.NaN },
        { leaseMs: 1.5 },
        { attempts: 1.5 },
        { feed: true, replicas: 1 },
        { freshMs: 5000 },
        { feed: true, leaseMs: 3000, freshMs: 2999 },
      ] satisfies GuardOptions[]) {
        assert.throws(() => guarded(options), RangeError, JSON.stringify(options));
      }
      assert.throws(() => guarded({ colour: "red" } as GuardOptions), TypeError);
      await assert.rejects(
        guarded().get(1, () => row, { ttl: 0 }),
        RangeError,
      );
    });
  });

  describe(`${library}, servers that fail`, () => {
    test("a server that dies between the two calls of a writer", async (context) => {
      const server = await startServer(context, "appendonly yes", "appendfsync always");
      const client = await openClient(context, library, server.port);
      await new Filter(client, "rows").reserve(0.01, 100);
      const guard = new Guard(client, "rows", { patience: PATIENCE_MS / 1000, warn: () => {} });
      const committed = deferred();
      const killed = deferred();
      const writer = guard.changed(1, async () => {
        committed.resolve();
        await killed.promise;
      });
      await committed.promise;
      await server.kill();
      killed.resolve();
      await eventually("an attempt that fails", () => guard.counts.errors);
      await server.start();
      await writer;
      assert.deepEqual(await guard.get(1, () => row), row);
      assert.equal(await guard.get(2, () => assert.fail("the filter has one row")), null);
    });

    test("a failover whose old primary keeps running", async (context) => {
      const primary = await startServer(context);
      const replica = await startServer(context, `replicaof 127.0.0.1 ${primary.port}`);
      let target = primary.port;
      const sockets = new Set<Socket>();
      const proxy = createServer((socket) => {
        const other = connect(target, "127.0.0.1");
        for (const one of [socket, other]) sockets.add(one.on("error", () => {}));
        socket.pipe(other).pipe(socket);
      });
      await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
      context.after(() => {
        proxy.close();
        for (const socket of sockets) socket.destroy();
      });
      const client = await openClient(context, library, (proxy.address() as AddressInfo).port);
      await new Filter(client, "rows").insert([1], { capacity: 100 });
      const guard = new Guard(client, "rows", { patience: PATIENCE_MS / 1000, warn: () => {} });
      assert.deepEqual(await guard.get(1, () => row), row);
      // Without the filter, Valkey 8.1 would cache nothing.
      await eventually("the replica to have the row", async () => (await replica.probe.exists(["rows", "{rows}:1"])) === 2);
      await guard.changed(1, async () => {
        target = replica.port;
        await replica.probe.sendCommand(["REPLICAOF", "NO", "ONE"]);
        await primary.probe.sendCommand(["REPLICAOF", "127.0.0.1", String(replica.port)]);
      });
      // The change of role may void the first token of the new primary.
      await eventually("the row to be cached", async () => {
        assert.deepEqual(await guard.get(1, () => row), row);
        return (await replica.probe.get("{rows}:1")) === "row";
      });
    });

    test("no server at all", async () => {
      const port = await freePort();
      await assert.rejects(openClient({ after() {} }, library, port));
    });

    test("an option of connect that is undefined is the default", async (context) => {
      const server = await startServer(context);
      if (library === "redis") {
        const socket = { connectTimeout: undefined, reconnectStrategy: undefined };
        const client = await connectRedis(server.url, { disableOfflineQueue: undefined, socket } as object);
        context.after(() => client.destroy());
        assert.deepEqual([client.options.disableOfflineQueue, client.options.socket?.connectTimeout], [true, 1000]);
      } else {
        const kin = { autoResendUnfulfilledCommands: undefined, connectTimeout: undefined, enableOfflineQueue: undefined };
        const client = await connectIoredis(server.url, { maxRetriesPerRequest: undefined, ...kin } as object);
        context.after(() => client.disconnect());
        const { maxRetriesPerRequest, autoResendUnfulfilledCommands, connectTimeout, enableOfflineQueue } = client.options;
        const found = [maxRetriesPerRequest, autoResendUnfulfilledCommands, connectTimeout, enableOfflineQueue];
        assert.deepEqual(found, [0, false, 1000, false]);
      }
    });

    test("a server that accepts connections and never answers", async (context) => {
      const server = new ScriptedServer();
      server.answersNothing = true;
      context.after(() => server.close());
      const url = `redis://127.0.0.1:${await server.start()}`;
      await assert.rejects((library === "redis" ? connectRedis : connectIoredis)(url, { timeoutMs: 100 }), TimeoutError);
    });

    test("a connection is not replaced while a filter is merged on it", async (context) => {
      const server = new ScriptedServer();
      context.after(() => server.close());
      const client = await openClient(context, library, await server.start());
      const merged = new Filter(client, "all").merge("some");
      const answerMerge = await server.next();
      const guard = new Guard(client, "rows", { timeoutMs: 100, warn: () => {} });
      assert.deepEqual(await guard.get(1, () => row), row);
      answerMerge("+OK\r\n");
      await merged;
    });

    test("a reply is in time while earlier replies arrive", async (context) => {
      const server = new ScriptedServer();
      context.after(() => server.close());
      const client = await openClient(context, library, await server.start());
      const filter = new Filter(client, "rows", { timeoutMs: 4000 });
      const answers = [filter.exists(1), filter.exists(2), filter.exists(3)];
      for (const _ of answers) {
        await sleep(2000);
        const answer = await server.next();
        answer(":1\r\n");
      }
      assert.deepEqual(await Promise.all(answers), [true, true, true]);
    });

    test("a reply that arrived while the process was busy is in time", async (context) => {
      const server = await startServer(context);
      const client = await openClient(context, library, server.port);
      const answer = new Filter(client, "rows", { timeoutMs: 100 }).exists(1);
      // node-redis sends commands at the end of a turn.
      await new Promise(setImmediate);
      for (const begun = performance.now(); performance.now() - begun < 1000; );
      assert.equal(await answer, false);
    });
  });
}

describe("a cluster", () => {
  const cleanup = new Cleanup();
  let servers: Server[];
  before(async () => {
    servers = await startCluster(cleanup);
  });
  after(() => cleanup.run());

  for (const library of LIBRARIES) {
    test(`${library}: a call waits on one connection to its node, and leaves none behind`, async (context) => {
      const ports = servers.map((server) => server.port);
      const client = await openCluster(context, library, ports);
      const filter = `{${library}}rows`;
      await new Filter(client, filter).insert([1], { capacity: 100 });
      const words = [filter, "1", `{${library}}:1`];
      let node: Server | undefined;
      for (const server of servers) {
        const isHere = await server.probe.sendCommand(["BF.FETCH", ...words, "LEASE", String(LEASE_MS)]).catch(() => undefined);
        if (isHere !== undefined) node = server;
      }
      assert.ok(node);
      const connections = async () => {
        const lists = await Promise.all(servers.map(({ probe }) => probe.sendCommand(["CLIENT", "LIST", "TYPE", "NORMAL"])));
        return lists.join("").split("\n").filter(Boolean).length;
      };
      // The client of node-redis is connected to all nodes, the client of ioredis to a node from the first command for it.
      const get = (waitMs: number, timeoutMs: number) =>
        new Guard(client, filter, { prefix: `{${library}}:`, waitMs, timeoutMs, attempts: 1, warn: () => {} }).get(
          1,
          () => row,
        );
      const before = await connections();
      const waiting = get(PATIENCE_MS, PATIENCE_MS);
      await eventually("the wait", async () => (await node.number("clients", "blocked_clients")) === 1);
      assert.equal(await connections(), before + 1);
      await node.probe.sendCommand(["DEL", `{${library}}:1`]);
      const stalled = get(3000, 500);
      await eventually("another wait", async () => (await node.number("clients", "blocked_clients")) === 2);
      process.kill(node.pid, "SIGSTOP");
      assert.deepEqual(await stalled, row);
      assert.deepEqual(await get(200, 500), row);
      process.kill(node.pid, "SIGCONT");
      await new Guard(client, filter, { prefix: `{${library}}:`, warn: () => {} }).announce(1);
      assert.deepEqual(await waiting, row);
      connectionOf(client).close();
      await eventually("all connections to be closed", async () => (await connections()) === servers.length);
    });
  }
});
