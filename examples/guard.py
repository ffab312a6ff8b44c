"""The guard from Python, with redis-py: how a service reads, writes and deletes rows. docs/guard.md has the protocol. The
client's socket timeout must be longer than LEASE_MS, because the server may withhold a reply for that long."""

import time

import redis

LEASE_MS = 3000  # how long one caller may take to load a row, and how long the others wait for it
STALE_MS = 5000  # a value with less than this to live is refreshed by one caller
VALUE_SECONDS = 60  # the time to live of a cached row
NONE_SECONDS = 10  # the time to live of the knowledge that there is no row
ATTEMPTS = 3  # how often a caller waits before it asks the database itself


class Guard:
    """Rows of a database, with a filter and a cache in front of them. The filter has the id of every row."""

    def __init__(self, client, filter):
        self.client = client
        self.filter = filter

    def read(self, id, load):
        """Returns a row as bytes, or None. `load` reads it from the database, in a transaction that begins with the call."""
        for _ in range(ATTEMPTS):
            try:
                word, *rest = self._ask("BF.FETCH", id, "LEASE", LEASE_MS, "STALE", STALE_MS, "WAIT", LEASE_MS)
            except redis.RedisError:
                break  # the server failed: ask the database, and fill nothing
            if word == b"absent":
                return None
            if word == b"hit":
                return rest[0]
            if word in (b"load", b"stale"):
                return self._load(id, rest[-1], load)
            # b"wait": another caller is loading it, and takes longer than WAIT.
        return load()

    def write(self, id, transaction):
        """Inserts or changes a row. `transaction` commits it, and returns once the outcome is known."""
        self._ask("BF.CHANGED", id)  # if this fails, do not commit
        try:
            return transaction()
        finally:
            self._changed_for_certain(id)

    def delete(self, id, transaction):
        """Deletes a row whose id never returns."""
        try:
            transaction()
        finally:
            self._changed_for_certain(id)
        self.client.execute_command("BF.DEL", self.filter, id)

    def _load(self, id, token, load):
        try:
            row = load()
        except Exception:
            self._give_up(id, token)
            raise
        value = ("NONE", "EX", NONE_SECONDS) if row is None else ("VALUE", row, "EX", VALUE_SECONDS)
        try:
            self._ask("BF.FILL", id, token, *value)
        except redis.RedisError:
            self._give_up(id, token)  # out of memory, for instance: the row is correct, but not cached
        return row

    def _give_up(self, id, token):
        """Lets a waiting caller load the row instead."""
        try:
            self._ask("BF.FILL", id, token, "GIVEUP")
        except redis.RedisError:
            pass  # the lease ends after LEASE_MS

    def _changed_for_certain(self, id):
        while True:
            try:
                return self._ask("BF.CHANGED", id)
            except redis.RedisError:
                time.sleep(0.1)  # the row is committed: repeat until the server answers

    def _ask(self, command, id, *words):
        # In a cluster, the key {rows}:17 is in the slot of the filter rows.
        return self.client.execute_command(command, self.filter, id, f"{{{self.filter}}}:{id}", *words)
