"""The servers of a run, a primary with a replica or a cluster, and the faults injected into them.

A fault is a method whose name ends in `_fault`. It returns when the servers are whole again."""

import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import redis

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests" / "clients" / "python"), str(ROOT / "clients" / "python" / "tests")]

from cluster import SLOTS, cluster_of_three, info  # noqa: E402
from server import Server, eventually  # noqa: E402

FILTER, FILLING = "rows", "{rows}~filling"
DURABLE = ["appendonly yes", "appendfsync always", "maxmemory-policy volatile-lru", "bf.auto-create no"]


def preload_clock(folder):
    """Makes servers that are started later read the shift of their wall clock from a file. Returns whether that is possible."""
    library = Path(folder) / "clock.so"
    source = ROOT / "crates" / "testing" / "src" / "clock.c"
    if sys.platform != "linux" or subprocess.call(["cc", "-shared", "-fPIC", "-o", library, source]):
        return False
    os.environ["LD_PRELOAD"] = str(library)
    return True


class Servers:
    """The common part of both kinds of servers. `server` is the one that has the keys."""

    durable_replicas = 0

    def __init__(self, table, ids, writes):
        # `writes` returns the changes that are under way, as futures' `done` functions.
        self.table, self.ids, self.writes = table, ids, writes
        self.all = []
        self.faults = sorted(name for name in dir(self) if name.endswith("_fault"))

    def start_server(self, *lines):
        server = Server(*DURABLE, *lines)
        (server.folder / "clock").write_bytes(struct.pack("=q", 0))
        self.all.append(server)
        return server.start()

    def admin(self, server=None):
        """Returns a new client, which follows a server through changes of its port as long as its connection lives."""
        return redis.Redis(port=(server or self.server).port, socket_timeout=60, single_connection_client=True)

    def fill(self):
        """Fills the filter as docs/guard.md says, while rows are written."""
        client = self.admin()
        client.execute_command("BF.RESERVE", FILLING, 0.001, 10_000)
        for is_done in self.writes():
            eventually("the writers that may not have known of the filling", is_done)
        for start in range(0, len(self.ids.existing), 500):
            batch = self.ids.existing[start : start + 500]
            pipe = client.pipeline(transaction=False)
            pipe.execute_command("BF.INSERT", FILLING, "NOCREATE", "SYNC", "ITEMS", *batch)
            self.confirm(pipe)
        pipe = client.pipeline(transaction=False)
        pipe.rename(FILLING, FILTER)
        self.confirm(pipe)

    def confirm(self, pipe):
        pipe.execute_command("WAIT", self.durable_replicas, 60_000)
        assert pipe.execute()[-1] >= self.durable_replicas, "the replica did not confirm the filter"

    def kill_fault(self):
        self.server.restart()

    def stop_fault(self):
        os.kill(self.server.process.pid, signal.SIGSTOP)
        time.sleep(random.choice([0.3, 1.5, 4]))
        os.kill(self.server.process.pid, signal.SIGCONT)

    def lost_filter_fault(self):
        client = self.admin()
        client.flushall() if random.random() < 0.5 else client.delete(FILTER)
        time.sleep(random.random())
        self.fill()

    def lost_values_fault(self):
        self.admin().delete(*(f"{{rows}}:{id}" for id in random.sample(self.ids.all, 1000)))

    def eviction_fault(self):
        client = self.admin()
        client.config_set("maxmemory", client.info("memory")["used_memory"] - random.choice([0, 200_000]))
        time.sleep(2)
        client.config_set("maxmemory", 0)

    def cut_connections_fault(self):
        self.admin().execute_command("CLIENT", "KILL", "TYPE", "normal")

    def clock_fault(self):
        for seconds in random.sample([-3600, -5, 5, 3600], 2):
            self.shift_clock(seconds)
            time.sleep(1)
        self.shift_clock(0)

    def shift_clock(self, seconds):
        with (self.server.folder / "clock").open("r+b") as file:
            file.write(struct.pack("=q", seconds))

    def end(self):
        for server in self.all:
            server.end()


class Pair(Servers):
    """A primary and a replica. Clients always reach the primary at one port: the replica that takes over moves to it."""

    durable_replicas = 1

    def __init__(self, *arguments):
        super().__init__(*arguments)
        lines = ["min-replicas-to-write 1"]
        self.server, self.replica = self.start_server(*lines), self.start_server(*lines)
        self.follow()
        self.address = f"127.0.0.1:{self.server.port}"

    def follow(self):
        """Makes a replica of the other server."""
        client = self.admin(self.replica)
        client.replicaof("127.0.0.1", self.server.port)
        eventually("the replica", lambda: client.info("replication")["master_link_status"] == "up")
        primary = self.admin()
        eventually("the primary", lambda: primary.info("replication").get("min_slaves_good_slaves") == 1)

    def swap(self):
        self.server, self.replica = self.replica, self.server
        self.server.port, self.replica.port = self.replica.port, self.server.port

    def kill_fault(self):
        super().kill_fault()
        self.follow()

    def replica_fault(self):
        self.replica.restart()
        self.follow()

    def reports_fault(self):
        """The connections of near caches are lost, and the server refuses to report changes for some seconds."""
        client = self.admin()
        client.execute_command("ACL", "SETUSER", "default", "-client|tracking")
        for one in client.client_list():
            if "t" in one["flags"]:
                client.execute_command("CLIENT", "KILL", "ID", one["id"])
        time.sleep(5)
        client.execute_command("ACL", "SETUSER", "default", "+client|tracking")

    def failover_fault(self):
        """The primary dies."""
        client = self.admin(self.replica)
        self.server.process.kill()
        self.server.process.wait()
        client.replicaof("NO", "ONE")
        client.config_set("port", self.server.port)
        self.swap()
        self.replica.start()
        self.follow()

    def handover_fault(self):
        """The primary becomes a replica, and keeps its clients' connections."""
        old, new = self.admin(), self.admin(self.replica)
        old.execute_command("FAILOVER")
        eventually("the handover", lambda: new.info("replication")["role"] == "master")
        old.config_set("port", 0)
        new.config_set("port", self.server.port)
        old.config_set("port", self.replica.port)
        self.swap()
        self.follow()


class Cluster(Servers):
    """Three nodes without replicas."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        cluster_of_three(self.start_server)
        self.slot = self.admin(self.all[0]).execute_command("CLUSTER", "KEYSLOT", FILTER)
        self.server = next(server for server, (_, last) in zip(self.all, SLOTS, strict=True) if self.slot <= last)
        self.address = f"127.0.0.1:{self.all[0].port}"

    def kill_fault(self):
        super().kill_fault()
        # A node that has restarted refuses commands for two seconds.
        clients = [self.admin(server) for server in self.all]
        eventually("the cluster", lambda: all(info(client, "state") == "ok" for client in clients))

    def move_fault(self):
        """The slot of all keys moves to another node."""
        target = random.choice([server for server in self.all if server is not self.server])
        old, new = self.admin(), self.admin(target)
        old_id, new_id = (client.execute_command("CLUSTER", "MYID").decode() for client in (old, new))
        new.execute_command("CLUSTER", "SETSLOT", self.slot, "IMPORTING", old_id)
        old.execute_command("CLUSTER", "SETSLOT", self.slot, "MIGRATING", new_id)

        def is_moved():
            keys = old.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, 20)
            return not keys or not old.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)

        eventually("the slot to be empty", is_moved)
        for client in (new, old, *(self.admin(server) for server in self.all)):
            client.execute_command("CLUSTER", "SETSLOT", self.slot, "NODE", new_id)
        self.server = target
