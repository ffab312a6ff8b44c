"""The judge's driver for the Python package in threads. README.md has the protocol."""

import itertools
import json
import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import redis

import bloomgate

settings = json.loads(sys.argv[1])
url, near = f"redis://{settings['address']}", settings["near"]
if settings["cluster"]:
    client = redis.RedisCluster.from_url(url, socket_timeout=1)
else:
    client = bloomgate.connect(url)
guard = bloomgate.Guard(
    client,
    "rows",
    codec=bloomgate.Json(),
    load=lambda id: ask("load", [id]).get(id),
    load_many=lambda ids: ask("load", ids),
    announce_to=["{rows}~filling"],
    near=bloomgate.NearCache(1000, near) if near else None,
    **settings["guard"],
)
numbers, answers, output = itertools.count(), {}, threading.Lock()


def tell(*words):
    with output:
        print(json.dumps(words), flush=True)


def ask(word, value):
    number, answer = next(numbers), Future()
    answers[number] = answer
    tell(word, number, value)
    return answer.result()


def call(word, number, ids):
    try:
        if word == "write":
            with guard.changed(*ids):
                ask("commit", number)
            tell(word, number, None)
        else:
            tell(word, number, guard.get_many(ids) if len(ids) > 1 else {ids[0]: guard.get(ids[0])})
    except BaseException as error:
        tell("error", number, repr(error))


pool = ThreadPoolExecutor(64)
tell("ready", 0, None)
for line in sys.stdin:
    word, number, value = json.loads(line)
    if word == "row":
        answers.pop(number).set_result(value)
    elif word == "fail":
        answers.pop(number).set_exception(OSError(value))
    elif word in ("read", "write"):
        pool.submit(call, word, number, value)
os._exit(0)
