"""A FastAPI service in front of PostgreSQL, with the guard. It prints its queries. examples/README.md describes how to run it."""

import asyncio
import contextlib
import os
from typing import Annotated

import psycopg
from fastapi import Body, FastAPI, HTTPException, Path
from psycopg_pool import AsyncConnectionPool

from bloomgate import Json
from bloomgate.asyncio import Guard, connect

client = connect(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
database = AsyncConnectionPool(os.environ["DATABASE_URL"], open=False, kwargs={"autocommit": True})
users = Guard(client, "users", codec=Json(), ttl=60, absent_ttl=10, fail_safe=3600)
Id = Annotated[int, Path(ge=0, lt=2**63)]
UPSERT = "INSERT INTO users VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET name = excluded.name"
TERMINATE = "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE pid = %s"


@contextlib.asynccontextmanager
async def lifespan(_):
    async with client, database:
        yield


app = FastAPI(lifespan=lifespan)


@users.cached
async def find_user(id):
    print("SELECT", id, flush=True)
    async with database.connection() as session:
        row = await (await session.execute("SELECT name FROM users WHERE id = %s", [id])).fetchone()
    return row and {"id": id, "name": row[0]}


@app.get("/users/{id}")
async def get(id: Id):
    if user := await find_user(id):
        return user
    raise HTTPException(404)


@app.put("/users/{id}", status_code=204)
async def put(id: Id, name: Annotated[str, Body(embed=True)]):
    async with users.changed(id), database.connection() as session:
        try:
            await session.execute(UPSERT, [id, name])
        except psycopg.OperationalError:
            # A session whose connection was lost may still commit, until it has ended.
            while not await has_ended(session.info.backend_pid):
                await asyncio.sleep(0.1)
            raise


async def has_ended(pid):
    with contextlib.suppress(psycopg.OperationalError):
        async with database.connection() as session:
            return (await session.execute(TERMINATE, [pid])).rowcount == 0
