/** An Express service in front of PostgreSQL, with the guard. It prints its queries. examples/README.md describes how to run it. */

import { setTimeout } from "node:timers/promises";
import { Guard, Json } from "bloomgate";
import { connect } from "bloomgate/redis";
import express from "express";
import pg from "pg";

const { DATABASE_URL, REDIS_URL = "redis://127.0.0.1:6379", PORT = "8000" } = process.env;
const database = new pg.Pool({ connectionString: DATABASE_URL });
// Without listeners, a lost connection would end the process.
database.on("error", () => {}).on("connect", (session) => session.on("error", () => {}));
const users = new Guard(await connect(REDIS_URL), "users", { load: findUser, codec: new Json(), ttl: 60, absentTtl: 10, failSafe: 3600 });
const app = express().use(express.json());

async function findUser(id) {
  console.log("SELECT", id);
  const { rows } = await database.query("SELECT name FROM users WHERE id = $1", [id]);
  return rows[0] && { id, name: rows[0].name };
}

app.param("id", (request, response, next, id) => (/^\d{1,15}$/.test(id) ? next() : response.sendStatus(404)));

app.get("/users/:id", async (request, response) => {
  const user = await users.get(Number(request.params.id));
  if (user === null) response.sendStatus(404);
  else response.json(user);
});

app.put("/users/:id", async (request, response) => {
  const id = Number(request.params.id);
  const upsert = "INSERT INTO users VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET name = excluded.name";
  await users.changed(id, () => write(upsert, [id, request.body.name]));
  response.sendStatus(204);
});

/** Returns or throws once the outcome is known: a session whose connection was lost may still commit until it has ended. */
async function write(statement, values) {
  const session = await database.connect();
  try {
    await session.query(statement, values);
    session.release();
  } catch (error) {
    session.release(true);
    const terminate = "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE pid = $1";
    while (!(error instanceof pg.DatabaseError)) {
      if ((await database.query(terminate, [session.processID]).catch(() => undefined))?.rowCount === 0) break;
      await setTimeout(100);
    }
    throw error;
  }
}

app.listen(Number(PORT), "127.0.0.1", () => console.log(`http://127.0.0.1:${PORT}/users/1`));
