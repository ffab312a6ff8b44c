"""The set-up of each cache in Python, as its own documentation describes it (README.md has the pages). Each function returns how to read
a row and how to change it: both are functions, or coroutine functions for asyncio. scoreboard.py runs this program."""

import asyncio
import inspect
import os
import sys
from asyncio import to_thread
from functools import partial
from importlib.metadata import version

TTL = 60


def ask(word, id):
    print(word, id, flush=True)
    return int(sys.stdin.readline())


load, commit = partial(ask, "load"), partial(ask, "commit")


def then(delete):
    """Returns how to change a row with asyncio: commit, then delete it from the cache."""

    async def change(id):
        await to_thread(commit, id)
        await delete(f"row:{id}")

    return change


def read_aside(url):
    from redis import Redis
    client = Redis.from_url(url)

    def read(id):
        if (cached := client.get(f"row:{id}")) is not None:
            return int(cached)
        version = load(id)
        client.set(f"row:{id}", version, ex=TTL)
        return version

    return read, lambda id: (commit(id), client.delete(f"row:{id}"))


def dogpile_lock(url):
    from dogpile.cache import make_region
    arguments = {"url": url, "redis_expiration_time": TTL, "distributed_lock": True, "thread_local_lock": False}
    region = make_region().configure("dogpile.cache.redis", arguments=arguments)

    @region.cache_on_arguments()
    def read(id):
        return load(id)

    return read, lambda id: (commit(id), read.invalidate(id))


def django_get_or_set(url):
    from django.conf import settings
    from django.core.cache import cache
    settings.configure(CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url}})

    def read(id):
        return cache.get_or_set(f"row:{id}", partial(load, id), TTL)

    return read, lambda id: (commit(id), cache.delete(f"row:{id}"))


def cashews(url, **options):
    from cashews import cache
    cache.setup(url)

    @cache(ttl=TTL, key="row:{id}", **options)
    async def read(id):
        return await to_thread(load, id)

    return read, then(cache.delete)


def aiocache(url, decorator):
    import aiocache
    from aiocache.serializers import PickleSerializer
    server = {"cache": aiocache.Cache.REDIS, "endpoint": "127.0.0.1", "port": int(url.rpartition(":")[2])}

    @getattr(aiocache, decorator)(ttl=TTL, key_builder=lambda function, id: f"row:{id}", serializer=PickleSerializer(), **server)
    async def read(id):
        return await to_thread(load, id)

    return read, then(read.cache.delete)


def guard_threads(url):
    from bloomgate import Guard, Json, connect
    guard = Guard(connect(url), "rows", load=load, codec=Json(), ttl=TTL)

    def change(id):
        with guard.changed(id):
            commit(id)

    return guard.get, change


def guard_asyncio(url):
    from bloomgate import Json
    from bloomgate.asyncio import Guard, connect
    guard = Guard(connect(url), "rows", load=partial(to_thread, load), codec=Json(), ttl=TTL)

    async def change(id):
        async with guard.changed(id):
            await to_thread(commit, id)

    return guard.get, change


CACHES = {
    f"redis-py {version('redis')}: GET, SET, DEL": read_aside,
    f"dogpile.cache {version('dogpile.cache')}, distributed lock": dogpile_lock,
    f"Django {version('django')}, get_or_set": django_get_or_set,
    f"cashews {version('cashews')}": cashews,
    f"cashews {version('cashews')}, lock": partial(cashews, lock=True),
    f"aiocache {version('aiocache')}, cached": partial(aiocache, decorator="cached"),
    f"aiocache {version('aiocache')}, cached_stampede": partial(aiocache, decorator="cached_stampede"),
    f"bloomgate {os.environ['BLOOMGATE_VERSION']}, threads": guard_threads,
    f"bloomgate {os.environ['BLOOMGATE_VERSION']}, asyncio": guard_asyncio,
}


async def main(name, url):
    read, change = CACHES[name](url)
    while line := await to_thread(sys.stdin.readline):
        word, id = line.split()
        answer = read(int(id)) if word == "read" else change(int(id))
        answer = await answer if inspect.isawaitable(answer) else answer
        print("done", answer if word == "read" else 0, flush=True)


if len(sys.argv) > 1:
    asyncio.run(main(*sys.argv[1:]))
else:
    print(*CACHES, sep="\n")
