"""BF commands in registered scripts and in functions."""

import pytest
import redis

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

def test_a_registered_script(client):
    add_each = client.register_script(ADD_EACH)
    assert add_each(keys=["k"], args=["a", "b", "a"]) == 2
    assert add_each(keys=["k"], args=["b", "c"]) == 1
    assert client.bf().card("k") == 3
    pipe = client.pipeline()
    add_each(keys=["k"], args=["d"], client=pipe)
    pipe.bf().exists("k", "d")
    assert pipe.execute() == [1, 1]


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
