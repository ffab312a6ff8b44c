"""The judge's driver for the Python package under asyncio. README.md has the protocol."""

import asyncio
import itertools
import json
import os
import sys
import time

import redis.asyncio

import bloomgate
import bloomgate.asyncio

settings = json.loads(sys.argv[1])
numbers, answers, tasks = itertools.count(), {}, {}


def tell(*words):
    print(json.dumps(words), flush=True)


async def ask(word, value):
    number = next(numbers)
    answers[number] = answer = asyncio.get_running_loop().create_future()
    tell(word, number, value)
    return await answer


async def load(id):
    return (await ask("load", [id])).get(id)


async def call(guard, word, number, ids):
    try:
        if word == "write":
            async with guard.changed(*ids):
                await ask("commit", number)
            tell(word, number, None)
        else:
            tell(word, number, await guard.get_many(ids) if len(ids) > 1 else {ids[0]: await guard.get(ids[0])})
    except BaseException as error:
        tell("error", number, repr(error))


def ended(number):
    if tasks.pop(number).cancelled():
        tell("error", number, "cancelled before it began")


def receive(guard, word, number, value):
    if word == "busy":
        time.sleep(value)
    elif word == "cancel":
        if number in tasks:
            tasks[number].cancel()
    elif word in ("read", "write"):
        tasks[number] = task = asyncio.create_task(call(guard, word, number, value))
        task.add_done_callback(lambda _: ended(number))
    elif not (answer := answers.pop(number)).done():
        answer.set_result(value) if word == "row" else answer.set_exception(OSError(value))


async def main():
    url, near = f"redis://{settings['address']}", settings["near"]
    if settings["cluster"]:
        client = redis.asyncio.RedisCluster.from_url(url, socket_timeout=1)
    else:
        client = bloomgate.asyncio.connect(url)
    guard = bloomgate.asyncio.Guard(
        client,
        "rows",
        codec=bloomgate.Json(),
        load=load,
        load_many=lambda ids: ask("load", ids),
        announce_to=["{rows}~filling"],
        near=bloomgate.NearCache(1000, near) if near else None,
        **settings["guard"],
    )
    reader = asyncio.StreamReader(1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tell("ready", 0, None)
    while line := await reader.readline():
        receive(guard, *json.loads(line))
    os._exit(0)


asyncio.run(main())
