"""ACL permissions on keys (`%R~`, `%W~`), on commands, and by category if the server supports categories of modules."""

import pytest
import redis
from redis.exceptions import NoPermissionError

from server import version

READING = [
    "BF.EXISTS {key} a",
    "BF.MEXISTS {key} a b",
    "BF.INFO {key}",
    "BF.INFO {key} CAPACITY",
    "BF.CARD {key}",
    "BF.DEBUG {key}",
    "BF.SCANDUMP {key} 0",
    "BF.COUNT {key} a",
    "BF.STATS {key}",
]
KEYLESS = ["BF.PLAN 0.01 100"]
WRITING = [
    "BF.ADD {key} new",
    "BF.MADD {key} new newer",
    "BF.INSERT {key} ITEMS new",
    "BF.INSERT {key} NOCREATE ITEMS new",
    "BF.RESERVE {key} 0.01 100",
    "BF.LOADCHUNK {key} 1 data",
    "BF.LOAD {key} data",
    "BF.ROTATE {key}",
]
# Commands that delete from the key, or that also read other keys.
CHANGING = [
    "BF.DEL {key} new",
    "BF.MDEL {key} new newer",
    "BF.MERGE {key} {key}",
    "BF.CLEAR {key}",
    "BF.FILL {key} new {key} 0 GIVEUP",
    "BF.CHANGED {key} new {key}",
    "BF.MCHANGED {key} ITEMS new {key}",
]
# They read two keys, and their replies are for users who may write.
FETCHING = ["BF.FETCH {key} new {key}", "BF.MFETCH {key} ITEMS new {key}"]


@pytest.fixture
def user(client, server, protocol):
    """Creates a user with these rules, and returns a client logged in as that user."""

    def make(*rules):
        client.execute_command("ACL", "SETUSER", "somebody", "reset", "on", ">secret", "+hello", *rules)
        return server.client(protocol, username="somebody", password="secret")

    client.bf().madd("seen:1", "a", "b")
    client.bf().madd("other:1", "a", "b")
    return make


def outcome(client, line, key):
    """Returns `allowed`, whatever the command replies, or the reason for which the server did not execute it."""
    try:
        client.execute_command(*line.format(key=key).split())
    except NoPermissionError as error:
        # 7.0 and 7.2 word the reasons differently; both say whether the key or the command is denied.
        return "no key" if "access" in str(error) and "key" in str(error) else "no command"
    except redis.ResponseError:
        return "allowed"
    return "allowed"


def test_a_user_who_may_only_read_a_key_can_look_up_but_not_add(user, client):
    reader = user("+@all", "%R~seen:*")
    for line in READING:
        assert outcome(reader, line, "seen:1") == "allowed", line
        assert outcome(reader, line, "other:1") == "no key", line
    before = client.execute_command("DEBUG", "DIGEST-VALUE", "seen:1")
    for line in WRITING:
        for key in ["seen:1", "seen:missing", "other:1"]:
            assert outcome(reader, line, key) == "no key", f"{line} {key}"
    assert client.execute_command("DEBUG", "DIGEST-VALUE", "seen:1") == before
    assert client.exists("seen:missing") == 0
    assert reader.bf().exists("seen:1", "a") == 1
    assert reader.bf().card("seen:1") == 2


def test_a_user_who_may_only_write_a_key_can_add_but_not_look_up(user, client):
    writer = user("+@all", "%W~seen:*")
    for line in WRITING:
        assert outcome(writer, line, "seen:1") == "allowed", line
        assert outcome(writer, line, "other:1") == "no key", line
    for line in READING:
        assert outcome(writer, line, "seen:1") == "no key", line
    assert writer.bf().add("seen:2", "a") == 1
    assert client.bf().exists("seen:2", "a") == 1


def test_a_user_who_may_read_and_write_one_key(user):
    both = user("+@all", "%RW~seen:*", "%R~other:*")
    for line in READING + WRITING + CHANGING + FETCHING:
        assert outcome(both, line, "seen:1") == "allowed", line
    for line in READING:
        assert outcome(both, line, "other:1") == "allowed", line
    for line in WRITING:
        assert outcome(both, line, "other:1") == "no key", line


def test_single_commands_can_be_granted(user):
    guard = user("~*", "+bf.exists", "+bf.mexists")
    for line in READING[:2]:
        assert outcome(guard, line, "seen:1") == "allowed", line
    for line in READING[2:] + WRITING:
        assert outcome(guard, line, "seen:1") == "no command", line


def test_a_script_has_the_permissions_of_its_caller(user, client):
    reader = user("+@all", "%R~seen:*")
    assert reader.eval_ro("return redis.call('BF.EXISTS', KEYS[1], 'a')", 1, "seen:1") == 1
    # The key is not declared to EVAL, so that the server checks the call inside the script.
    assert reader.eval("return redis.call('BF.EXISTS', ARGV[1], 'a')", 0, "seen:1") == 1
    with pytest.raises(redis.RedisError, match="ACL failure in script|executing the script can't access"):
        reader.eval("return redis.call('BF.ADD', ARGV[1], 'new')", 0, "seen:1")
    assert client.bf().exists("seen:1", "new") == 0


def test_a_refusal_inside_a_transaction_aborts_it(user, client):
    reader = user("+@all", "%R~seen:*")
    pipe = reader.pipeline()
    pipe.bf().exists("seen:1", "a")
    pipe.bf().add("seen:1", "new")
    with pytest.raises(redis.RedisError):
        pipe.execute()
    assert client.bf().exists("seen:1", "new") == 0


def test_the_server_knows_the_position_of_the_key(client):
    for lines, expected in [(READING, {b"RO", b"access"}), (WRITING, {b"RW", b"insert"})]:
        for line in lines:
            [(key, flags)] = client.execute_command("COMMAND GETKEYSANDFLAGS", *line.format(key="seen:1").split())
            assert (key, set(flags)) == (b"seen:1", expected), line


def lists_modules(client):
    """Whether ACL CAT lists a module's commands: Redis 7.4.1 and Valkey 8.0.1 omit them, although the permissions work."""
    number, is_valkey = version(client)
    return number >= ((8, 1) if is_valkey else (8, 0))


def verbs_in(client, category):
    """Returns our commands in a category."""
    names = {name.decode() for name in client.execute_command("ACL", "CAT", category)}
    return {name for name in names if name.startswith("bf.")}


def verbs(lines):
    return {line.split()[0].lower() for line in lines}


def test_categories_of_the_server(user, client):
    if version(client)[0] < (7, 2):
        pytest.skip("this server cannot put a module's command into a category (Redis 7.2 and Valkey can)")
    if lists_modules(client):
        assert verbs_in(client, "read") == verbs(READING + KEYLESS)
        assert verbs_in(client, "write") == verbs(WRITING + CHANGING + FETCHING)
        assert verbs_in(client, "fast") == {"bf.fetch", "bf.reserve", "bf.info", "bf.card", "bf.count", "bf.plan"}
    reader = user("~*", "+@read", "-@write")
    for line in READING:
        assert outcome(reader, line, "seen:1") == "allowed", line
    for line in WRITING + CHANGING + FETCHING:
        assert outcome(reader, line, "seen:1") == "no command", line


def test_the_category_of_the_module(user, client):
    number, is_valkey = version(client)
    if number < ((8, 0) if is_valkey else (7, 4)):
        pytest.skip("this server has no categories of modules (Redis 7.4 and Valkey 8 have)")
    if lists_modules(client):
        assert verbs_in(client, "bloom") == verbs(READING + KEYLESS + WRITING + CHANGING + FETCHING)
    member = user("~seen:*", "-@all", "+@bloom")
    for line in READING + WRITING + CHANGING + FETCHING:
        assert outcome(member, line, "seen:1") == "allowed", line
        assert outcome(member, line, "other:1") == "no key", line
    assert outcome(member, "GET {key}", "seen:1") == "no command"
