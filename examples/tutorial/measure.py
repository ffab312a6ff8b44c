"""`measure.py FUNCTION` counts the queries of a function of shop.py in three kinds of traffic."""

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg

import shop

find = getattr(shop, sys.argv[1])
*users, popular = random.sample(range(1, 100_001), 101)


def lookups_of_users():
    for id in 10 * users:
        find(id)


def lookups_of_invented_ids():
    for _ in range(1000):
        find(random.randrange(10**9, 10**12))


def readers_of_one_user():
    with psycopg.connect("dbname=shop") as slow, ThreadPoolExecutor(20) as readers:
        slow.execute("LOCK TABLE users")  # until the commit, queries wait
        names = readers.map(find, 20 * [popular])
        time.sleep(0.5)
        slow.commit()
        assert len(set(names)) == 1


print(f"{'queries':>37}")
for title, traffic in {
    "1,000 lookups of 100 users": lookups_of_users,
    "1,000 lookups of invented ids": lookups_of_invented_ids,
    "20 readers of one user": readers_of_one_user,
}.items():
    shop.queries.clear()
    traffic()
    count = len(shop.queries)
    print(f"{title:30} {count:6,} {'█' * -(-count // 25)}".rstrip())
