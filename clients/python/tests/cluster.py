"""A cluster of three servers. `Start` is a function that starts a server with lines of configuration."""

from __future__ import annotations

from collections.abc import Callable

import redis
from server import Server, eventually

# The timeout is long, so that on a busy machine a slow node is not considered dead.
LINES = ["cluster-enabled yes", "cluster-node-timeout 60000", "cluster-require-full-coverage yes"]
Start = Callable[..., Server]

SLOTS = [(0, 5460), (5461, 10922), (10923, 16383)]


def cluster_of_three(start: Start) -> list[int]:
    servers = [start(*LINES) for _ in SLOTS]
    clients = [server.client() for server in servers]
    for number, (client, slots) in enumerate(zip(clients, SLOTS, strict=True), 1):
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
        client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number)
        client.execute_command("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
    eventually("the nodes to know one another", lambda: all(info(client, "known_nodes") == "3" for client in clients))
    eventually("the cluster", lambda: all(info(client, "state") == "ok" for client in clients))
    ports = [server.port for server in servers]
    eventually("the cluster's client", lambda: sees_all(ports[0]))
    return ports


def info(client: redis.Redis, name: str) -> str:
    return str(client.cluster("INFO")[f"cluster_{name}"])


def sees_all(port: int) -> bool:
    try:
        with redis.RedisCluster(host="127.0.0.1", port=port) as client:
            return len(client.get_nodes()) == 3
    except redis.RedisError:
        return False
