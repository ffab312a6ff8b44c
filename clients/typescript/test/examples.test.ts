/** The examples, run as programs. They use the package as it is built. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { fillFilter } from "../src/index.js";
import { startPostgres } from "./postgres.js";
import { type Context, eventually, freePort, startServer } from "./server.js";

const PACKAGE = fileURLToPath(new URL("../..", import.meta.url));

/** Runs an example, or a program with an absolute path. */
function run(context: Context, name: string, words: string[], environment: { [name: string]: string }): ChildProcess {
  const options = { env: { ...process.env, ...environment }, stdio: ["ignore", "pipe", "inherit"] as const };
  const program = spawn(process.execPath, [resolve(PACKAGE, ".build/examples", name), ...words], {
    ...options,
    stdio: [...options.stdio],
  });
  context.after(() => program.kill("SIGKILL"));
  return program;
}

/** Kills the session of a write that sets a name of the table to "hang", so that PostgreSQL restarts. Returns the write's answer. */
async function loseConnection<T>(table: pg.Pool, write: () => Promise<T>): Promise<T> {
  await table.query(
    "CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3600); RETURN NEW; END'",
  );
  const when = "FOR EACH ROW WHEN (NEW.name = 'hang') EXECUTE FUNCTION hang()";
  await table.query(`CREATE TRIGGER hang BEFORE UPDATE ON users ${when}`);
  const answer = write();
  const sessions = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
  const pid = await eventually("the write", async () => (await table.query<{ pid: number }>(sessions)).rows[0]?.pid);
  process.kill(pid, "SIGKILL");
  return answer;
}

test("web-service", async (context) => {
  const database = await startPostgres(context);
  const server = await startServer(context);
  const table = new pg.Pool({ connectionString: database });
  table.on("error", () => {});
  await table.query("CREATE TABLE users (id bigint PRIMARY KEY, name text NOT NULL)");
  await table.query("INSERT INTO users SELECT n, 'user ' || n FROM generate_series(1, 1000) n");
  const port = String(await freePort());
  const program = run(context, "web-service.js", [], { DATABASE_URL: database, REDIS_URL: server.url, PORT: port });
  assert.ok(program.stdout);
  const [line] = await once(program.stdout, "data");
  assert.equal(String(line), `http://127.0.0.1:${port}/users/1\n`);

  const users = `http://127.0.0.1:${port}/users`;
  const get = async (id: number) => {
    const response = await fetch(`${users}/${id}`);
    return response.status === 200 ? ((await response.json()) as { name: string }).name : response.status;
  };
  assert.deepEqual([await get(17), await get(17), await get(5000)], ["user 17", "user 17", 404]);
  assert.equal((await fetch(`${users}/17`, { method: "PUT", body: JSON.stringify({ name: "Ada" }) })).status, 204);
  assert.equal((await fetch(`${users}/5000`, { method: "PUT", body: JSON.stringify({ name: "Grace" }) })).status, 204);
  assert.deepEqual([await get(17), await get(5000)], ["Ada", "Grace"]);
  assert.equal((await fetch(`${users}/17`, { method: "DELETE" })).status, 204);
  assert.equal(await get(17), 404);
  assert.deepEqual((await table.query("SELECT name FROM users WHERE id IN (17, 5000)")).rows, [{ name: "Grace" }]);
  // A failed write changes nothing, and the change ends.
  assert.equal((await fetch(`${users}/5000`, { method: "PUT", body: JSON.stringify({}) })).status, 500);
  assert.equal(await get(5000), "Grace");

  const body = JSON.stringify({ name: "hang" });
  const answer = await loseConnection(table, () => fetch(`${users}/5000`, { method: "PUT", body }));
  assert.equal(answer.status, 500);
  assert.equal(await get(5000), "Grace");

  // Without the server, rows can be read but not written.
  await server.kill();
  assert.deepEqual([await get(1), await get(5000)], ["user 1", "Grace"]);
  assert.equal((await fetch(`${users}/1`, { method: "PUT", body: JSON.stringify({ name: "never" }) })).status, 500);
  assert.deepEqual((await table.query("SELECT name FROM users WHERE id = 1")).rows, [{ name: "user 1" }]);
  await server.start();
  await table.end();
  program.kill("SIGTERM");
  assert.deepEqual(await once(program, "exit"), [0, null]);
});

test("express", async (context) => {
  const database = await startPostgres(context);
  const server = await startServer(context);
  const table = new pg.Pool({ connectionString: database });
  table.on("error", () => {});
  await table.query("CREATE TABLE users (id bigint PRIMARY KEY, name text CHECK (name <> 'no'))");
  await table.query("INSERT INTO users SELECT n, 'user ' || n FROM generate_series(1, 1000) n");
  await fillFilter(
    server.probe,
    "users",
    Array.from({ length: 1000 }, (_, index) => index + 1),
    0.001,
    10_000,
    { hash: "siphash" },
  );
  // The folder of an application that has installed the packages.
  const folder = mkdtempSync(join(tmpdir(), "bloomgate-"));
  context.after(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(PACKAGE, join(folder, "node_modules/bloomgate"));
  for (const name of ["express", "pg", "redis"])
    symlinkSync(join(PACKAGE, "node_modules", name), join(folder, "node_modules", name));
  const file = join(folder, "service.mjs");
  copyFileSync(join(PACKAGE, "../../examples/express/service.mjs"), file);
  const port = String(await freePort());
  const program = run(context, file, [], { DATABASE_URL: database, REDIS_URL: server.url, PORT: port, NODE_ENV: "test" });
  assert.ok(program.stdout);
  const lines: string[] = [];
  createInterface(program.stdout).on("line", (line) => lines.push(line));
  await eventually("the service", () => lines.length > 0);
  assert.deepEqual(lines.splice(0), [`http://127.0.0.1:${port}/users/1`]);

  const get = async (id: number | string) => {
    const response = await fetch(`http://127.0.0.1:${port}/users/${id}`);
    return response.status === 200 ? await response.json() : response.status;
  };
  const put = async (id: number, body: unknown) => {
    const options = { method: "PUT", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
    return (await fetch(`http://127.0.0.1:${port}/users/${id}`, options)).status;
  };
  const old = { id: 17, name: "user 17" };
  assert.deepEqual([await get(17), await get(17), await get(5000)], [old, old, 404]);
  assert.deepEqual(lines, ["SELECT 17"]);
  assert.deepEqual([await put(17, { name: "Ada" }), await put(5000, { name: "Grace" })], [204, 204]);
  assert.deepEqual(
    [await get(17), await get(5000)],
    [
      { id: 17, name: "Ada" },
      { id: 5000, name: "Grace" },
    ],
  );
  assert.deepEqual(lines, ["SELECT 17", "SELECT 17", "SELECT 5000"]);
  assert.deepEqual([await get("x"), await get(1e16)], [404, 404]);

  assert.equal(await put(17, { name: "no" }), 500, "a statement that fails");
  assert.equal(await loseConnection(table, () => put(17, { name: "hang" })), 500);
  assert.deepEqual(await get(17), { id: 17, name: "Ada" });
  assert.equal(await put(17, { name: "Eve" }), 204);
  assert.deepEqual(await get(17), { id: 17, name: "Eve" });
  await table.end();
});

test("crawler", async (context) => {
  const server = await startServer(context);
  const fetched: string[] = [];
  const site = createServer((request, response) => {
    const number = Number(/^\/(\d+)$/.exec(request.url ?? "")?.[1] ?? Number.NaN);
    fetched.push(String(request.url));
    const links = [2 * number + 1, 2 * number + 2, 0, 7].filter((link) => link < 200);
    response.writeHead(number < 200 ? 200 : 404);
    response.end(`${links.map((link) => `<a href="/${link}#top">${link}</a>`)}<a href="https://example.org/">away</a>`);
  });
  site.listen(0, "127.0.0.1");
  await once(site, "listening");
  context.after(() => {
    site.close();
    site.closeAllConnections();
  });
  const start = `http://127.0.0.1:${(site.address() as AddressInfo).port}/0`;
  const crawl = async () => {
    const program = run(context, "crawler.js", [start], { REDIS_URL: server.url });
    assert.ok(program.stdout);
    const [lines, [status]] = await Promise.all([text(program.stdout), once(program, "exit")]);
    assert.equal(status, 0);
    return lines.split("\n").filter(Boolean);
  };
  assert.equal((await crawl()).length, 200);
  assert.equal(new Set(fetched).size, 200);
  assert.equal(fetched.length, 200);
  assert.deepEqual(await crawl(), []);
  await eventually("the filter", async () => (await server.probe.keys("crawler:*")).length === 1);
});
