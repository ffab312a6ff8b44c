/** A web service in front of PostgreSQL. Its reads go through the guard: ids that do not exist cost no query, and a popular row
 * costs one query per minute. Its writes announce each row.
 *
 * DATABASE_URL, REDIS_URL and PORT configure it; README.md in this folder describes how to run it. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import { Filter, FilterExists, fillFilter, Guard, Json } from "bloomgate";
import { connect } from "bloomgate/redis";
import pg from "pg";

const FILTER = "users";

interface User {
  id: number;
  name: string;
}

const { DATABASE_URL, REDIS_URL = "redis://127.0.0.1:6379", PORT = "8000" } = process.env;
const pool = new pg.Pool({ connectionString: DATABASE_URL });
// Without listeners, a lost connection would end the process.
pool.on("error", () => {}).on("connect", (session) => session.on("error", () => {}));
const client = await connect(REDIS_URL);
const users = new Guard(client, FILTER, { codec: new Json<User>(), ttl: 60, absentTtl: 10, failSafe: 3600 });

/** Fills the filter with the ids of the table, before the first row is written through the guard. */
async function fill(): Promise<void> {
  await pool.query("CREATE TABLE IF NOT EXISTS users (id bigint PRIMARY KEY, name text NOT NULL)");
  if ((await new Filter(client, FILTER).card()) > 0) return;
  const { rows } = await pool.query<{ id: string }>("SELECT id FROM users");
  const ids = rows.map((row) => row.id);
  try {
    await fillFilter(client, FILTER, ids, 0.001, Math.max(2 * ids.length, 10_000), { hash: "siphash" });
  } catch (error) {
    if (!(error instanceof FilterExists)) throw error;
    throw new Error("another process is filling the filter, or died while it did: delete {users}~filling", { cause: error });
  }
}

async function findUser(id: number): Promise<User | undefined> {
  const { rows } = await pool.query<{ name: string }>("SELECT name FROM users WHERE id = $1", [id]);
  return rows[0] && { id, name: rows[0].name };
}

/** Runs a statement that changes rows, and returns or throws once its outcome is known. */
async function write(statement: string, values: unknown[]): Promise<void> {
  const session = await pool.connect();
  let pid: number | undefined;
  try {
    pid = (await session.query<{ pid: number }>("SELECT pg_backend_pid() AS pid")).rows[0]?.pid;
    await session.query(statement, values);
    session.release();
  } catch (error) {
    session.release(true);
    // If the connection is lost, the commit may still happen until the session has ended.
    if (!(error instanceof pg.DatabaseError) && pid !== undefined) await untilEnded(pid);
    throw error;
  }
}

async function untilEnded(pid: number): Promise<void> {
  for (;;) {
    const query = "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE pid = $1";
    const sessions = await pool.query(query, [pid]).catch(() => undefined);
    if (sessions?.rowCount === 0) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const [, id] = /^\/users\/(\d{1,15})$/.exec(request.url ?? "") ?? [];
  if (request.url === "/counts") return send(response, 200, users.counts);
  if (id === undefined) return send(response, 404);
  const key = Number(id);
  if (request.method === "GET") {
    const left = new AbortController();
    response.once("close", () => left.abort());
    const user = await users.get(key, findUser, { signal: left.signal });
    return user === null ? send(response, 404) : send(response, 200, user);
  }
  if (request.method === "PUT") {
    const { name } = JSON.parse(await text(request)) as User;
    const statement = "INSERT INTO users VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET name = excluded.name";
    await users.changed(key, () => write(statement, [key, name]));
    return send(response, 204);
  }
  if (request.method === "DELETE") {
    await users.changed(key, () => write("DELETE FROM users WHERE id = $1", [key]));
    return send(response, 204);
  }
  return send(response, 405);
}

function send(response: ServerResponse, status: number, body?: unknown): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(body === undefined ? "" : `${JSON.stringify(body)}\n`);
}

await fill();
const server = createServer((request, response) => {
  answer(request, response).catch((error: unknown) => {
    if (response.closed) return;
    console.error(error);
    send(response, 500);
  });
});
server.listen(Number(PORT), "127.0.0.1", () => console.log(`http://127.0.0.1:${PORT}/users/1`));
process.once("SIGTERM", async () => {
  server.close();
  server.closeAllConnections();
  await pool.end();
  client.destroy();
});
