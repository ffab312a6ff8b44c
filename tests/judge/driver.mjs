// The judge's driver for the TypeScript package. README.md has the protocol.

import { createInterface } from "node:readline";

const clients = new URL("../../clients/typescript/", import.meta.url);
const { Guard, Json, NearCache } = await import(new URL("dist/index.js", clients));
const { connect } = await import(new URL("dist/connect-redis.js", clients));
const { createCluster } = await import(new URL("node_modules/redis/dist/index.js", clients));

const settings = JSON.parse(process.argv[2]);
const { ttl, absent_ttl, lease, wait, patience, replicas = 0, fail_safe, soft_timeout } = settings.guard;
const answers = new Map();
const calls = new Map();
let last = 0;

const tell = (...words) => process.stdout.write(`${JSON.stringify(words)}\n`);

function ask(word, value) {
  const number = ++last;
  tell(word, number, value);
  return new Promise((resolve, reject) => answers.set(number, { resolve, reject }));
}

async function open(url) {
  if (!settings.cluster) return connect(url);
  const cluster = createCluster({ rootNodes: [{ url }] });
  cluster.on("error", () => {});
  await cluster.connect();
  return cluster;
}

const guard = new Guard(await open(`redis://${settings.address}`), "rows", {
  codec: new Json(),
  load: async (id) => (await ask("load", [id]))[id],
  loadMany: async (ids) => new Map(Object.entries(await ask("load", ids))),
  announceTo: ["{rows}~filling"],
  ttl,
  absentTtl: absent_ttl,
  leaseMs: lease * 1000,
  waitMs: wait * 1000,
  patience,
  replicas,
  failSafe: fail_safe,
  softTimeout: soft_timeout,
  near: settings.near ? new NearCache(1000, settings.near) : undefined,
  warn: () => {},
});

async function call(word, number, ids) {
  const { signal } = calls.get(number);
  if (word === "write") await guard.changedMany(ids, () => ask("commit", number));
  else if (ids.length > 1) return Object.fromEntries(await guard.getMany(ids, { signal }));
  else return { [ids[0]]: await guard.get(ids[0], { signal }) };
}

tell("ready", 0, null);
for await (const line of createInterface({ input: process.stdin })) {
  const [word, number, value] = JSON.parse(line);
  if (word === "row") answers.get(number).resolve(value);
  else if (word === "fail") answers.get(number).reject(new Error(value));
  else if (word === "cancel") calls.get(number)?.abort();
  else if (word === "busy") for (const end = Date.now() + value * 1000; Date.now() < end; );
  else {
    calls.set(number, new AbortController());
    call(word, number, value)
      .then((rows) => tell(word, number, rows))
      .catch((error) => tell("error", number, String(error)))
      .finally(() => calls.delete(number));
  }
}
process.exit(0);
