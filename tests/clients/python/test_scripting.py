"""BF commands in Lua scripts and in functions, in the protocol of the client and in that of the script."""

import pytest
import redis

from server import version

ADD_EACH = """
local new = 0
for _, item in ipairs(ARGV) do
  new = new + redis.call('BF.ADD', KEYS[1], item)
end
return new
"""

LIBRARY = """#!lua name=seen
local function first_time(keys, args)
  return redis.call('BF.ADD', keys[1], args[1])
end
local function was_seen(keys, args)
  return redis.call('BF.EXISTS', keys[1], args[1])
end
local function fields(keys)
  redis.setresp(3)
  return redis.call('BF.INFO', keys[1])
end
redis.register_function('first_time', first_time)
redis.register_function{function_name='was_seen', callback=was_seen, flags={'no-writes'}}
redis.register_function{function_name='fields', callback=fields, flags={'no-writes'}}
redis.register_function{function_name='reads_but_adds', callback=first_time, flags={'no-writes'}}
"""

# The names of the fields are simple strings, which Lua gets as tables.
FIELD = """
redis.setresp(3)
for name, value in pairs(redis.call('BF.INFO', %s)['map']) do
  if name.ok == 'Number of items inserted' then return value end
end
"""


def test_a_registered_script(client):
    add_each = client.register_script(ADD_EACH)
    assert add_each(keys=["k"], args=["a", "b", "a"]) == 2
    assert add_each(keys=["k"], args=["b", "c"]) == 1
    assert client.bf().card("k") == 3
    pipe = client.pipeline()
    add_each(keys=["k"], args=["d"], client=pipe)
    pipe.bf().exists("k", "d")
    assert pipe.execute() == [1, 1]


def test_what_a_script_sees(client):
    def run(body):
        return client.eval(body, 1, "k", "a", "b")

    assert run("return redis.call('BF.RESERVE', KEYS[1], 0.001, 100)") in (b"OK", "OK")
    assert run("return redis.call('BF.MADD', KEYS[1], ARGV[1], ARGV[2], ARGV[1])") == [1, 1, 0]
    assert run("return redis.call('BF.INSERT', KEYS[1], 'NOCREATE', 'ITEMS', ARGV[1], 'c')") == [0, 1]
    assert run("return redis.call('BF.MEXISTS', KEYS[1], ARGV[1], 'x')") == [1, 0]
    assert run("return redis.call('BF.CARD', KEYS[1])") == 3
    assert run("return type(redis.call('BF.EXISTS', KEYS[1], 'a'))") == b"number"
    assert run("return redis.call('BF.INFO', KEYS[1])[1].ok") == b"Capacity"
    assert run("return redis.call('BF.INFO', KEYS[1], 'ITEMS')[1]") == 3
    assert run("return #redis.call('BF.SCANDUMP', KEYS[1], 0)[2]") > 100
    # In protocol 3 a script sees what a client of that protocol sees.
    assert run("redis.setresp(3); return type(redis.call('BF.EXISTS', KEYS[1], 'a'))") == b"boolean"
    assert run(FIELD % "KEYS[1]") == 3
    assert run(FIELD % "KEYS[1], 'ITEMS'") == 3


def test_errors_in_a_script(client):
    client.bf().create("k", 1e-9, 1, noScale=True)
    client.bf().add("k", "a")

    def caught(words):
        return client.eval(f"return redis.pcall({words}).err", 1, "k").decode()

    assert caught("'BF.RESERVE', KEYS[1], 0.01, 100") == "ERR item exists"
    assert caught("'BF.ADD', KEYS[1], 'b'") == "ERR non scaling filter is full"
    assert caught("'BF.INSERT', KEYS[1], 'CAPACITY', 'x', 'ITEMS', 'a'") == "Bad capacity"
    assert caught("'BF.INFO', KEYS[1], 'COLOUR'") == "Invalid information value"
    with pytest.raises(redis.ResponseError, match="non scaling filter is full"):
        client.eval("return redis.call('BF.ADD', KEYS[1], 'b')", 1, "k")
    adds = "return redis.call('BF.MADD', KEYS[1], 'a', 'b', 'c')"
    number, is_valkey = version(client)
    if is_valkey and number >= (9, 1):
        # An error within an array ends the script there, too.
        with pytest.raises(redis.ResponseError, match="non scaling filter is full"):
            client.eval(adds, 1, "k")
    else:
        reply = client.eval(adds, 1, "k")
        assert reply[0] == 0 and len(reply) == 2
        assert str(reply[1]) == "non scaling filter is full"


def test_a_dump_inside_a_script(client):
    client.bf().madd("k", *range(500))
    copied = client.eval(
        """
        local iterator, records = 0, 0
        while true do
          local record = redis.call('BF.SCANDUMP', KEYS[1], iterator)
          if record[1] == 0 then return records end
          iterator, records = record[1], records + 1
          redis.call('BF.LOADCHUNK', KEYS[2], iterator, record[2])
        end
        """,
        2,
        "k",
        "copy",
    )
    assert copied > 2, "a header and at least two layers"
    assert all(client.bf().mexists("copy", *range(500)))


def test_functions(client, protocol):
    assert client.function_load(LIBRARY) in (b"seen", "seen")
    assert client.fcall("first_time", 1, "k", "a") == 1
    assert client.fcall("first_time", 1, "k", "a") == 0
    assert client.fcall_ro("was_seen", 1, "k", "a") == 1
    assert client.fcall_ro("was_seen", 1, "k", "b") == 0
    info = client.fcall_ro("fields", 1, "k")
    if protocol == 3:
        assert info[b"Capacity"] == 100 and len(info) == 5
    else:
        assert info[info.index(b"Capacity") + 1] == 100 and len(info) == 10
    with pytest.raises(redis.ResponseError):
        client.fcall("reads_but_adds", 1, "k", "b")
    with pytest.raises(redis.ResponseError):
        client.fcall_ro("first_time", 1, "k", "b")
    assert client.bf().exists("k", "b") == 0


def test_functions_outlive_a_restart(start, protocol):
    server = start("appendonly yes", "appendfsync always")
    client = server.client(protocol)
    client.function_load(LIBRARY)
    assert client.fcall("first_time", 1, "k", "a") == 1
    server.restart()
    client = server.client(protocol)
    assert client.fcall_ro("was_seen", 1, "k", "a") == 1
    assert client.fcall("first_time", 1, "k", "a") == 0
