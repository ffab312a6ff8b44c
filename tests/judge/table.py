"""The truth: a table in memory with every version of its rows, and the law that every answer of a guard must obey."""

import random
import threading
import time


class Table:
    """Rows by id, as lists of versions: a text, or None where there was no row. Every list begins with None."""

    def __init__(self, ids):
        self.versions = {id: [None] for id in ids}
        # The versions that were confirmed and the times, by id, oldest first.
        self._confirmed = {id: [(0.0, 0)] for id in ids}
        self._lock = threading.Lock()

    def commit(self, id, is_deleted=False):
        """Writes the next version of a row. Returns its number. Some rows are long, so that a reply comes in several parts."""
        with self._lock:
            number = len(self.versions[id])
            padding = "x" * (20_000 if int(id) % 50 == 7 else int(id) % 100)
            self.versions[id].append(None if is_deleted else f"{id}:{number}:{padding}")
            return number

    def confirm(self, id, number):
        """Records that a change was confirmed: no read that begins from now on may return an older version."""
        with self._lock:
            last = self._confirmed[id][-1][1]
            self._confirmed[id].append((time.monotonic(), max(number, last)))

    def load(self, ids):
        """Returns the rows that exist."""
        return {id: self.versions[id][-1] for id in ids if self.versions[id][-1] is not None}

    def oldest(self, id, age):
        """Returns the number of the oldest version that is right in a read that begins now and may be `age` seconds behind."""
        at = time.monotonic() - age
        return next(number for when, number in reversed(self._confirmed[id]) if when <= at)

    def judge(self, id, oldest, answer):
        """Returns what is wrong with an answer, or None. All versions since `oldest` are right: rows change during reads."""
        versions = self.versions[id]
        if answer in versions[oldest:]:
            return None
        expected = f"versions {oldest} to {len(versions) - 1} of row {id}"
        if answer is None:
            return f"absent instead of {expected}"
        if answer in versions:
            return f"version {versions.index(answer)} instead of {expected}"
        return f"{answer[:40]!r} instead of {expected}"


class Ids:
    """The ids that callers choose: half of the time one of a few hot rows. A third of the others never gets a row."""

    def __init__(self, number=3000, hot=40):
        self.all = [str(id) for id in range(number)]
        self.hot = self.all[:hot]
        self.existing = self.all[: number * 2 // 3]
        self.invented = frozenset(self.all[number * 2 // 3 :])

    def one(self):
        return random.choice(self.hot if random.random() < 0.5 else self.all)

    def written(self):
        return random.choice(self.hot if random.random() < 0.5 else self.existing)
