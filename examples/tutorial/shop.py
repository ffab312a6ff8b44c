"""The service of docs/tutorial.md: finds users by id. `shop.py FUNCTION ARGUMENT...` calls one of its functions, and prints the
result and the number of queries."""

import sys

import psycopg

import bloomgate

client = bloomgate.connect("redis://127.0.0.1:6410")
database = psycopg.connect("dbname=shop", autocommit=True)
queries = []  # the ids that were looked up in the database


def load(id):
    queries.append(id)
    row = database.execute("SELECT name FROM users WHERE id = %s", [id]).fetchone()
    return row and row[0]


def cached(id):
    name = client.get(f"cache:{id}")
    if name is not None:
        return name.decode()
    name = load(id)
    if name is not None:
        client.set(f"cache:{id}", name, ex=600)
    return name


ids = bloomgate.Filter(client, "{users}")


def filtered(id):
    return cached(id) if id in ids else None


guard = bloomgate.Guard(client, "{users}", load=load, codec=bloomgate.Json(), ttl=600)
guarded = guard.get


def rename(id, name):
    with guard.changed(id):
        database.execute("UPDATE users SET name = %s WHERE id = %s", [name, id])
    return name


followed = bloomgate.Guard(client, "{users}", load=load, codec=bloomgate.Json(), ttl=600, feed=True).get


if __name__ == "__main__":
    function, *arguments = sys.argv[1:]
    print(f"{globals()[function](*arguments)} (queries: {len(queries)})")
