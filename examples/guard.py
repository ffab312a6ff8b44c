"""The guard from Python, with redis-py: how a service reads a row, writes one and deletes one. docs/guard.md has the
reasons. A client needs a socket timeout that is longer than LEASE_MS, for it is made to wait that long."""

import time

import redis

LEASE_MS = 3000  # how long one caller may take to load a row, and how long the others wait for it
STALE_MS = 5000  # a value with less than this to live is refreshed by one caller
VALUE_SECONDS = 60  # what is cached is forgotten after this long,
NONE_SECONDS = 10  # and that there is no row
ATTEMPTS = 3  # so many leases came to nothing: the database is asked


class Guard:
    """Rows of a database, with a filter and a cache in front of them. The filter has the id of every row."""

    def __init__(self, client, filter):
        self.client = client
        self.filter = filter

    def read(self, id, load):
        """A row as bytes, or None. `load` reads it from the database, in a transaction that begins when it is called."""
        for _ in range(ATTEMPTS):
            try:
                word, *rest = self._ask("BF.FETCH", id, "LEASE", LEASE_MS, "STALE", STALE_MS, "WAIT", LEASE_MS)
            except redis.RedisError:
                break  # no answer: the database is asked, and nothing is filled
            if word == b"absent":
                return None
            if word == b"hit":
                return rest[0]
            if word in (b"load", b"stale"):
                return self._load(id, rest[-1], load)
            # b"wait": somebody else loads it, and takes longer than WAIT.
        return load()

    def write(self, id, transaction):
        """Inserts or changes a row. `transaction` commits it, and returns when it is known what became of that."""
        self._ask("BF.CHANGED", id)  # where this fails, nothing may be committed
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
            self._give_up(id, token)  # a server that is full, say: the row is right, and is not cached
        return row

    def _give_up(self, id, token):
        """One of those who wait may load in our place."""
        try:
            self._ask("BF.FILL", id, token, "GIVEUP")
        except redis.RedisError:
            pass  # the lease ends by itself

    def _changed_for_certain(self, id):
        while True:
            try:
                return self._ask("BF.CHANGED", id)
            except redis.RedisError:
                time.sleep(0.1)  # after the commit: again until it is answered

    def _ask(self, command, id, *words):
        # In a cluster a key {rows}:17 is where the filter rows is.
        return self.client.execute_command(command, self.filter, id, f"{{{self.filter}}}:{id}", *words)
