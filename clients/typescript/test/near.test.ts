/** The near cache: the values that it keeps, and every way in which a value is dropped. */

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { connectionOf } from "../src/ask.js";
import type { Connection } from "../src/connection.js";
import { type Client, Filter, Guard, type GuardOptions, Json, NearCache } from "../src/index.js";
import { LIBRARIES, openClient } from "./clients.js";
import { Cleanup, eventually, PATIENCE_MS, type Server, startServer } from "./server.js";

const HOUR = 3600;

const fails = () => assert.fail("the database is not asked");

/** Returns the connection of a client with some methods replaced. */
function altered(client: Client, methods: Partial<Connection>): Connection {
  const connection = connectionOf(client);
  return {
    isCluster: connection.isCluster,
    command: (...words) => connection.command(...words),
    duplicate: (key) => connection.duplicate(key),
    close: () => connection.close(),
    ...methods,
  };
}

/** A client that reports no change, although its connection for reports seems to be open. */
function untracked(client: Client): Connection {
  return altered(client, { reportChanges: async () => ({ ended: new Promise(() => {}), close: () => {} }) });
}

/** Waits until the first connection for reports is open, which the first fetch requests. */
async function started(guard: Guard<unknown>): Promise<void> {
  await guard.get(100, fails);
}

async function fill(server: Server): Promise<void> {
  for (let id = 0; id < 10; id++) await server.probe.set(`{rows}:${id}`, "one");
}

/** Returns how many connections report changes. */
async function reporting({ probe }: Server): Promise<number> {
  return ((await probe.sendCommand(["CLIENT", "LIST"])) as unknown as string).match(/ redir=\d/g)?.length ?? 0;
}

/** Waits until the near cache serves values, and has dropped them again. */
async function tracked(server: Server, guard: Guard<unknown>, near: NearCache): Promise<void> {
  const before = guard.counts.near_hit;
  await eventually("the tracking", async () => {
    await guard.get(9, fails);
    return guard.counts.near_hit > before;
  });
  await server.probe.set("{rows}:9", "one");
  await eventually("the report", () => near.size === 0);
}

for (const library of LIBRARIES) {
  describe(library, () => {
    const cleanup = new Cleanup();
    let server: Server;
    let client: Client;
    before(async () => {
      server = await startServer(cleanup);
    });
    after(() => cleanup.run());
    beforeEach(async (context) => {
      client = await openClient(context as unknown as Cleanup, library, server.port);
      await server.probe.flushAll();
      await new Filter(client, "rows").insert(
        Array.from({ length: 10 }, (_, id) => id),
        { capacity: 100 },
      );
      await fill(server);
    });

    function guarded(near: NearCache, from = client, options: GuardOptions = {}): Guard {
      return new Guard(from, "rows", { near, warn: () => {}, ...options });
    }

    async function value(guard: Guard, id: number): Promise<string> {
      return String(await guard.get(id, fails));
    }

    test("values are served from memory", async () => {
      const guard = guarded(new NearCache(100, HOUR), untracked(client));
      await started(guard);
      for (let round = 0; round < 3; round++) {
        assert.equal(await value(guard, 1), "one");
        assert.equal(await guard.get(100, fails), null);
        assert.deepEqual([...(await guard.getMany([1, 2, 3], fails)).values()].map(String), ["one", "one", "one"]);
      }
      const { hit, absent, near_hit: nearHit } = guard.counts;
      assert.deepEqual({ hit, absent, nearHit }, { hit: 3, absent: 4, nearHit: 9 });
      await server.probe.set("{rows}:1", "two");
      assert.equal(await value(guard, 1), "one", "it is as old as that");
    });

    test("any number of guards on one client report without a warning", async (context) => {
      const warnings: Error[] = [];
      const listener = (warning: Error) => warnings.push(warning);
      process.on("warning", listener);
      context.after(() => process.off("warning", listener));
      const guards = Array.from({ length: 12 }, () => guarded(new NearCache(10, HOUR)));
      await Promise.all(guards.map((guard) => value(guard, 1)));
      await eventually("the reports", async () => (await reporting(server)) === guards.length);
      assert.deepEqual(warnings, []);
      connectionOf(client).close();
      await eventually("the end of the reports", async () => (await reporting(server)) === 0);
    });

    test("absences and loads are not kept", async () => {
      const near = new NearCache(100, HOUR);
      const guard = guarded(near, untracked(client));
      await started(guard);
      await server.probe.del(["{rows}:1", "{rows}:2"]);
      assert.equal(await guard.get(1, () => null), null);
      assert.equal(await guard.get(100, fails), null);
      assert.equal(String(await guard.get(2, () => Buffer.from("two"))), "two");
      assert.equal(near.size, 0);
      assert.equal(await value(guard, 2), "two");
      assert.equal(near.size, 1);
    });

    test("it is bounded in number and time", async () => {
      const near = new NearCache(2, HOUR);
      const guard = guarded(near, untracked(client));
      await started(guard);
      for (const id of [1, 2, 1, 3]) await value(guard, id);
      assert.equal(near.size, 2);
      assert.equal(await value(guard, 1), "one");
      assert.equal(guard.counts.near_hit, 2, "row 2 was used less recently than row 1");
      const short = guarded(new NearCache(10, 0.001), untracked(client));
      await started(short);
      await value(short, 3);
      await sleep(2);
      await value(short, 3);
      assert.equal(short.counts.near_hit, 0);
      for (const [items, seconds] of [
        [0, 1],
        [1.5, 1],
        [1, 0],
        [1, Number.POSITIVE_INFINITY],
        [1, Number.NaN],
      ] as const) {
        assert.throws(() => new NearCache(items, seconds), RangeError);
      }
    });

    test("callers do not share values", async () => {
      await server.probe.set("{rows}:1", "[1]");
      const guard = new Guard(untracked(client), "rows", { near: new NearCache(100, HOUR), codec: new Json<number[]>() });
      await started(guard);
      for (let round = 0; round < 3; round++) {
        const row = await guard.get(1, fails);
        assert.deepEqual(row, [1]);
        row?.push(2);
      }
      assert.equal(guard.counts.near_hit, 2);
    });

    test("own changes are dropped at once, even if the server refuses them", async () => {
      const guard = guarded(new NearCache(100, HOUR), untracked(client));
      await started(guard);
      assert.equal(await value(guard, 1), "one");
      await guard.changed(1, async () => {
        assert.equal(String(await guard.get(1, () => Buffer.from("early"))), "early");
        assert.equal(await value(guard, 1), "early");
      });
      assert.equal(String(await guard.get(1, () => Buffer.from("new"))), "new");
      assert.equal(await value(guard, 2), "one");
      await server.probe.configSet("min-replicas-to-write", "1");
      await assert.rejects(guard.announce(2));
      await server.probe.configSet("min-replicas-to-write", "0");
      await server.probe.set("{rows}:2", "two");
      assert.equal(await value(guard, 2), "two");
    });

    const changes: { [name: string]: () => Promise<unknown> } = {
      "a change that is announced": () => new Guard(client, "rows", { warn: () => {} }).announce(1),
      DEL: () => server.probe.del("{rows}:1"),
      SET: () => server.probe.set("{rows}:1", "two"),
      "an expired key": () => server.probe.pExpire("{rows}:1", 1),
      FLUSHALL: () => server.probe.flushAll(),
    };
    for (const [name, change] of Object.entries(changes)) {
      test(`others change a row: ${name}`, async () => {
        const near = new NearCache(100, HOUR);
        const guard = guarded(near);
        await tracked(server, guard, near);
        await value(guard, 1);
        await value(guard, 1);
        assert.equal(near.size, 1);
        await change();
        // An expired key is reported when the server notices it.
        await eventually("the report", () => near.size === 0);
      });
    }

    test("a client in RESP2, and keys that are not UTF-8", async (context) => {
      const other = await openClient(context, library, server.port, 2);
      const near = new NearCache(100, HOUR);
      const prefix = Buffer.from([0xff, 0]);
      const guard = guarded(near, other, { prefix });
      await server.probe.sendCommand(["SET", Buffer.concat([prefix, Buffer.from("1")]), "one"]);
      await eventually("the report", async () => {
        assert.equal(await value(guard, 1), "one");
        await server.probe.sendCommand(["SET", Buffer.concat([prefix, Buffer.from("1")]), "one"]);
        await sleep(1);
        return (await reporting(server)) === 1 && near.size === 0;
      });
    });

    test("readers get the last value of another process", async () => {
      const near = new NearCache(100, HOUR);
      const guard = guarded(near);
      await tracked(server, guard, near);
      let isOver = false;
      const readers = Array.from({ length: 4 }, async () => {
        while (!isOver) {
          await value(guard, Math.floor(Math.random() * 10));
          await sleep(0);
        }
      });
      for (let number = 0; number < 300; number++) {
        await server.probe.mSet(Object.fromEntries(Array.from({ length: 10 }, (_, id) => [`{rows}:${id}`, String(number)])));
      }
      const ids = Array.from({ length: 10 }, (_, id) => id);
      await eventually("the last value", async () => {
        const rows = await guard.getMany(ids, fails);
        return [...rows.values()].every((row) => String(row) === "299");
      });
      isOver = true;
      await Promise.all(readers);
    });

    test("a value that changes during its fetch is not kept", async () => {
      const near = new NearCache(100, HOUR);
      const connection = connectionOf(client);
      let report: (keys: Buffer[] | null) => void = () => {};
      let between: () => void = () => {};
      // The report overtakes the reply.
      const from = altered(client, {
        reportChanges: async (_prefix, changed) => {
          report = changed;
          return { ended: new Promise(() => {}), close: () => {} };
        },
        command: async (...words) => {
          const reply = await connection.command(...words);
          between();
          return reply;
        },
      });
      const guard = guarded(near, from);
      await started(guard);
      await value(guard, 1);
      await value(guard, 1);
      assert.equal(near.size, 1);
      for (const keys of [[Buffer.from("{rows}:2"), Buffer.from("{rows}:3")], null]) {
        between = () => report(keys);
        await value(guard, 2);
        between = () => {};
        assert.equal(near.size, keys === null ? 0 : 1);
      }
      await value(guard, 2);
      assert.equal(near.size, 1);
    });

    test("nothing is kept or served before the server reports changes", async () => {
      let begin = () => {};
      const begun = new Promise<void>((resolve) => {
        begin = resolve;
      });
      const connection = connectionOf(client);
      const reportChanges: Connection["reportChanges"] = async (...words) => {
        await begun;
        assert.ok(connection.reportChanges);
        return connection.reportChanges(...words);
      };
      const guard = guarded(new NearCache(100, HOUR), altered(client, { reportChanges }));
      await value(guard, 1);
      await server.probe.set("{rows}:1", "two");
      assert.equal(await value(guard, 1), "two");
      begin();
      await eventually("the value to be kept", async () => {
        assert.equal(await value(guard, 1), "two");
        return guard.counts.near_hit > 0;
      });
    });

    test("a lost connection drops everything, and is replaced", async () => {
      const near = new NearCache(100, HOUR);
      const guard = guarded(near);
      await tracked(server, guard, near);
      await guard.getMany([1, 2, 3], fails);
      assert.equal(near.size, 3);
      const list = (await server.probe.sendCommand(["CLIENT", "LIST"])) as unknown as string;
      const id = /^id=(\d+) .* redir=\d/m.exec(list)?.[1];
      await server.probe.sendCommand(["CLIENT", "KILL", "ID", String(id)]);
      await eventually("everything to be dropped", () => near.size === 0);
      await tracked(server, guard, near);
      assert.equal(await value(guard, 1), "one");
      await server.probe.set("{rows}:1", "two");
      await eventually("the new value", async () => (await value(guard, 1)) === "two");
    });

    test("a client that reconnects drops everything: it may be connected to another server", async (context) => {
      const own = await openClient(context, library, server.port);
      const near = new NearCache(100, HOUR);
      const guard = guarded(near, own);
      await tracked(server, guard, near);
      await value(guard, 1);
      assert.equal(near.size, 1);
      const id = await connectionOf(own).command(["CLIENT", "ID"], undefined);
      await server.probe.sendCommand(["CLIENT", "KILL", "ID", String(id)]);
      await eventually("everything to be dropped", () => near.size === 0);
      await tracked(server, guard, near);
    });

    test("a client that cannot report changes is refused", () => {
      const from = { ...altered(client, {}), isCluster: true };
      assert.throws(() => guarded(new NearCache(100, HOUR), from), RangeError);
    });

    test("a server that dies", async (context) => {
      const other = await startServer(context);
      const own = await openClient(context, library, other.port);
      await new Filter(own, "rows").insert([1, 9], { capacity: 100 });
      await fill(other);
      const near = new NearCache(100, HOUR);
      const guard = guarded(near, own);
      await tracked(other, guard, near);
      assert.equal(await value(guard, 1), "one");
      assert.equal(near.size, 1);
      await other.kill();
      await eventually("everything to be dropped", () => near.size === 0);
      await other.start();
    });

    test("a user that may not track, until it may", async (context) => {
      await server.probe.sendCommand(["ACL", "SETUSER", "limited", "on", "nopass", "~*", "&*", "+@all", "-client|tracking"]);
      const limited = await openClient(context, library, server.port, 3, "limited:any@");
      const warnings: string[] = [];
      const guard = guarded(new NearCache(100, HOUR), limited, { warn: (message) => warnings.push(message) });
      await value(guard, 1);
      await eventually("the warning", () => warnings.find((message) => message.includes("the near cache serves nothing")));
      await value(guard, 1);
      assert.equal(guard.counts.near_hit, 0);
      await server.probe.sendCommand(["ACL", "SETUSER", "limited", "+client|tracking"]);
      await eventually("the value to be kept", async () => {
        await value(guard, 1);
        return guard.counts.near_hit > 0;
      });
    });

    test("no read is old while reports are lost, refused and resumed", async (context) => {
      const user = ["ACL", "SETUSER", "reader"];
      await server.probe.sendCommand([...user, "on", "nopass", "~*", "&*", "+@all"]);
      const table = new Map<number, string>();
      for (let id = 0; id < 10; id++) table.set(id, "0");
      await server.probe.del([...table.keys()].map((id) => `{rows}:${id}`));
      const reader = await openClient(context, library, server.port, 3, "reader:any@");
      let reports = { isUp: false, seen: new Set<string>() };
      const from = altered(reader, {
        async reportChanges(prefix, changed) {
          const these = { isUp: true, seen: new Set<string>() };
          const begun = await connectionOf(reader).reportChanges?.(prefix, (keys) => {
            changed(keys);
            for (const key of keys ?? []) these.seen.add(String(key));
          });
          assert.ok(begun);
          reports = these;
          return {
            ended: begun.ended.then(() => {
              these.isUp = false;
            }),
            close: () => begun.close(),
          };
        },
      });
      const guard = guarded(new NearCache(100, HOUR), from);
      const writer = new Guard(client, "rows", { warn: () => {} });
      const load = (id: number) => Buffer.from(String(table.get(id)));
      const loadMany = (ids: number[]) => new Map(ids.map((id) => [id, load(id)]));
      let old = 0;
      let near = 0;
      for (let round = 0; round < 600; round++) {
        // The phases: open; killed; open again, because the client retries once a second; killed while tracking is refused.
        const phase = Math.floor(round / 50) % 4;
        if (round % 50 === 0 && phase % 2 === 0) {
          await server.probe.sendCommand([...user, "+client|tracking"]);
          near = guard.counts.near_hit;
          await eventually("the near cache to serve", async () => {
            await guard.get(9, load);
            return reports.isUp && guard.counts.near_hit > near;
          });
        } else if (round % 50 === 0) {
          if (phase === 3) await server.probe.sendCommand([...user, "-client|tracking"]);
          const list = String(await server.probe.sendCommand(["CLIENT", "LIST"]));
          const id = /^id=(\d+) .* user=reader redir=\d/m.exec(list)?.[1];
          await server.probe.sendCommand(["CLIENT", "KILL", "ID", String(id)]);
          await eventually("the loss", () => !reports.isUp);
        }
        const these = reports;
        const changed = round % 10;
        await writer.changed(changed, () => table.set(changed, String(round)));
        // Changes before this key's are reported before it.
        await server.probe.set(`{rows}:after-${round}`, "");
        await eventually("the report", () => !these.isUp || these.seen.has(`{rows}:after-${round}`));
        for (const id of [changed, (changed + 3) % 10, changed]) {
          if (String(await guard.get(id, load)) !== table.get(id)) old++;
        }
        for (const [id, row] of await guard.getMany([...table.keys()], loadMany)) {
          if (String(row) !== table.get(id)) old++;
        }
      }
      assert.equal(old, 0);
    });

    test("the connection is closed with the client", async (context) => {
      const own = await openClient(context, library, server.port);
      const near = new NearCache(100, HOUR);
      await tracked(server, guarded(near, own), near);
      connectionOf(own).close();
      await eventually("no tracking", async () => (await reporting(server)) === 0);
    });

    test("the connection is closed once the guard is no longer in use", async () => {
      // A separate function, so that no variable of this one keeps the guard alive.
      await (async () => {
        const near = new NearCache(100, HOUR);
        await tracked(server, guarded(near), near);
      })();
      setFlagsFromString("--expose-gc");
      const collect = runInNewContext("gc") as () => void;
      await eventually("no tracking", async () => {
        collect();
        return (await reporting(server)) === 0;
      });
    });
  });
}

test("a client that is closed is not tracked", async (context) => {
  const server = await startServer(context);
  for (const library of LIBRARIES) {
    const client = await openClient(context, library, server.port);
    connectionOf(client).close();
    const near = new NearCache(100, HOUR);
    const guard = new Guard(client, "rows", { near, warn: () => {}, timeoutMs: PATIENCE_MS });
    await guard.get(1, () => Buffer.from("one"));
    assert.equal(await reporting(server), 0);
  }
});
