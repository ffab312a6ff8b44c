// Sessions: transactions and WATCH, automatic pipelines, scripts and functions, events, and invalidation messages of client-side
// caching.

import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";

import { withEachClient } from "./clients.mjs";

withEachClient("a transaction", async ({ client }) => {
  const replies = await client
    .multi()
    .bf.reserve("k", 0.001, 1000)
    .bf.add("k", "a")
    .bf.mAdd("k", ["a", "b"])
    .bf.insert("k", ["b", "c"])
    .bf.exists("k", "c")
    .bf.mExists("k", ["a", "x"])
    .bf.card("k")
    .bf.info("k")
    .exec();
  assert.deepEqual(replies.slice(0, 7), ["OK", true, [false, true], [false, true], true, [true, false], 3]);
  assert.equal(replies[7]["Number of items inserted"], 3);
  const failing = client.multi().bf.add("k", "d").bf.reserve("k", 0.01, 100).bf.add("k", "d").exec();
  await assert.rejects(failing, (error) => {
    assert.deepEqual(error.errorIndexes, [1]);
    assert.equal(error.replies[1].message, "ERR item exists");
    // In a transaction with an error, the client does not turn 1 into true.
    assert.equal(Number(error.replies[0]), 1);
    assert.equal(Number(error.replies[2]), 0);
    return true;
  });
});

withEachClient("WATCH", async ({ client, connect }) => {
  const other = await connect();
  await other.bf.mAdd("k", ["a", "b"]);
  const survives = async (change) => {
    await client.watch("k");
    await change(other.bf);
    try {
      assert.deepEqual(await client.multi().ping().exec(), ["PONG"]);
      return true;
    } catch (error) {
      assert.equal(error.constructor.name, "WatchError");
      return false;
    }
  };
  assert.equal(await survives((bf) => bf.add("k", "a")), true);
  assert.equal(await survives((bf) => bf.mAdd("k", ["b", "a"])), true);
  assert.equal(await survives((bf) => bf.insert("k", ["b"])), true);
  assert.equal(await survives((bf) => bf.exists("k", "z")), true);
  assert.equal(await survives((bf) => bf.reserve("k", 0.1, 9).catch(() => {})), true);
  assert.equal(await survives((bf) => bf.add("k", "c")), false);
  assert.equal(await survives((bf) => bf.mAdd("k", ["c", "d"])), false);
});

withEachClient("ten thousand adds at once, which the client puts into a pipeline", async ({ client }) => {
  const items = Array.from({ length: 10_000 }, (_, number) => String(number));
  const added = await Promise.all(items.map((item) => client.bf.add("k", item)));
  assert.equal(added.filter((added) => added).length, await client.bf.card("k"));
  assert((await client.bf.mExists("k", items)).every((found) => found));
});

withEachClient("scripts", async ({ client }) => {
  const script = "local n = 0 for _, item in ipairs(ARGV) do n = n + redis.call('BF.ADD', KEYS[1], item) end return n";
  const words = { keys: ["k"], arguments: ["a", "b", "a"] };
  assert.equal(await client.eval(script, words), 2);
  const hash = await client.scriptLoad(script);
  assert.equal(await client.evalSha(hash, words), 0);
  assert.equal(await client.evalRo("return redis.call('BF.EXISTS', KEYS[1], 'b')", { keys: ["k"] }), 1);
  const adds = client.evalRo("return redis.call('BF.ADD', KEYS[1], 'c')", { keys: ["k"] });
  await assert.rejects(adds, /[Ww]rite commands/);
  assert.equal(await client.bf.exists("k", "c"), false);
});

withEachClient("functions", async ({ client }) => {
  const library = `#!lua name=seen
    redis.register_function('first_time', function(keys, args)
      return redis.call('BF.ADD', keys[1], args[1])
    end)
    redis.register_function{function_name='was_seen', flags={'no-writes'}, callback=function(keys, args)
      return redis.call('BF.EXISTS', keys[1], args[1])
    end}`;
  assert.equal(await client.functionLoad(library), "seen");
  const words = { keys: ["k"], arguments: ["a"] };
  assert.equal(await client.fCall("first_time", words), 1);
  assert.equal(await client.fCall("first_time", words), 0);
  assert.equal(await client.fCallRo("was_seen", words), 1);
  await assert.rejects(client.fCallRo("first_time", words));
});

withEachClient("key space events", async ({ client, connect }) => {
  await client.configSet("notify-keyspace-events", "KEA");
  const subscriber = await connect();
  const heard = [];
  const hear = (key, channel) => heard.push(`${channel.split(":")[1]} ${key}`);
  await subscriber.pSubscribe("__keyevent@0__:bloom.*", hear);
  await client.bf.reserve("k", 1e-9, 2);
  await client.bf.add("k", "a");
  await client.bf.add("k", "a");
  await client.bf.exists("k", "a");
  await client.bf.mAdd("k", ["b", "c"]);
  await client.bf.add("last", "a");
  while (!heard.includes("bloom.add last")) await pause(5);
  assert.deepEqual(heard.slice(0, 2), ["bloom.reserve k", "bloom.add k"]);
  assert.deepEqual(heard.slice(2, 4).sort(), ["bloom.add k", "bloom.scale k"]);
  assert.deepEqual(heard.slice(4), ["bloom.reserve last", "bloom.add last"]);
});

withEachClient("what a client that caches must forget", async ({ client: other, connect, protocol }) => {
  if (protocol === 2) {
    await assert.rejects(connect({ emitInvalidate: true }), /RESP3/);
    return;
  }
  const client = await connect({ emitInvalidate: true });
  const heard = [];
  client.on("invalidate", (key) => heard.push(String(key)));
  await other.bf.mAdd("k", ["a", "b"]);
  // The server's messages arrive before the reply to the next command.
  const after = async (change) => {
    await client.bf.exists("k", "a");
    await change();
    await client.ping();
    return heard.splice(0);
  };
  assert.deepEqual(await after(() => other.bf.add("k", "a")), []);
  assert.deepEqual(await after(() => other.bf.mAdd("k", ["a", "b"])), []);
  assert.deepEqual(await after(() => other.bf.insert("k", ["b"])), []);
  assert.deepEqual(await after(() => other.bf.exists("k", "z")), []);
  assert.deepEqual(await after(() => other.bf.add("k", "c")), ["k"]);
  assert.deepEqual(await after(() => other.bf.mAdd("k", ["c", "d"])), ["k"]);
  assert.deepEqual(await after(() => other.del("k")), ["k"]);
});
