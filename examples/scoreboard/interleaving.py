"""The shortest sequence after which a cache returns an old row, sent step by step to a server, with its replies: interleaving.py URL"""

import sys

import redis

STEPS = [
    ("reader: asks the cache", "GET row:7", "BF.FETCH rows 7 {rows}:7"),
    ("reader: loads version 1", "", ""),
    ("writer: announces", "", "BF.CHANGED rows 7 {rows}:7"),
    ("writer: commits version 2", "", ""),
    ("writer: deletes the cached row", "DEL row:7", "BF.CHANGED rows 7 {rows}:7"),
    ("reader: caches version 1", "SET row:7 1 EX 60", "BF.FILL rows 7 {rows}:7 TOKEN VALUE 1 EX 60"),
    ("next reader: asks the cache", "GET row:7", "BF.FETCH rows 7 {rows}:7"),
]

with redis.Redis.from_url(sys.argv[1], decode_responses=True, protocol=2) as client:
    client.response_callbacks.clear()  # shows the replies as the server sends them
    client.flushall()
    client.execute_command("BF.ADD", "rows", 7)
    token = ""

    def ask(command):
        """Returns a command with its reply, without the token, which a later command uses."""
        global token
        reply = client.execute_command(*command.replace("TOKEN", token).split())
        reply, token = reply if isinstance(reply, list) else (reply, token)
        return f"{command} -> {'(nil)' if reply is None else reply}"

    print(f"{'':<32}{'read-aside':<28}guard")
    for step, *commands in STEPS:
        last = [command and ask(command) for command in commands]
        print(f"{step:<32}{last[0]:<28}{last[1]}".rstrip())
if last != ["GET row:7 -> 1", "BF.FETCH rows 7 {rows}:7 -> load"]:
    sys.exit("the replies are not as expected")
