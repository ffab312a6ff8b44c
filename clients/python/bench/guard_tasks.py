"""Lookups per second of one process whose asyncio tasks read rows through the guard. Most lookups are for rows that do not
exist. A query takes 2 ms. The server needs the module; the benchmark deletes the keys that begin with `bench`."""

from __future__ import annotations

import argparse
import asyncio
import random
import time

from bloomgate import asyncio as bloom


class Table:
    """Rows with the ids 0 to `size` - 1."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.queries = 0

    async def load(self, id: int) -> bytes | None:
        self.queries += 1
        await asyncio.sleep(0.002)
        return b"row %d" % id if id < self.size else None


async def run(options: argparse.Namespace, seed: int) -> tuple[float, float, float]:
    """Returns the lookups per second, the lookups per second of this process's CPU time, and the queries per 100 lookups."""
    table = Table(options.rows)
    async with bloom.connect(options.url) as client:
        await client.unlink("bench", *[f"{{bench}}:{id}" for id in range(options.rows)])
        await bloom.fill_filter(client, "bench", range(options.rows), 0.001, options.rows)
        guard = bloom.Guard(client, "bench", ttl=3600)
        left = options.lookups

        async def work(chance: random.Random) -> None:
            nonlocal left
            while left > 0:
                left -= 1
                exists = chance.random() * 100 >= options.absent
                id = chance.randrange(options.rows) if exists else options.rows + chance.randrange(10**9)
                await guard.get(id, table.load)

        begun, worked = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work(random.Random(f"{seed} {number}")) for number in range(options.tasks)))
        seconds, worked = time.perf_counter() - begun, time.process_time() - worked
        return options.lookups / seconds, options.lookups / worked, 100 * table.queries / options.lookups


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="redis://host:port")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--lookups", type=int, default=200_000)
    parser.add_argument("--rows", type=int, default=12_500, help="rows that exist")
    parser.add_argument("--absent", type=float, default=90, help="how many lookups in 100 are for rows that do not exist")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for round in range(options.rounds):
        rate, busy_rate, queries = asyncio.run(run(options, round))
        print(f"{rate:,.0f} lookups a second, {busy_rate:,.0f} per second of processor time, {queries:.1f} queries in 100")


if __name__ == "__main__":
    main()
