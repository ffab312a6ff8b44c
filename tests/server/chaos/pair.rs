//! A primary and its replica, both with an append-only file, and the faults that they suffer.

use std::path::Path;

use crate::fleet::{catch_up, follow};
use crate::pending::{children, kill, no_child};
use testing::{Connection, Server, Stop, eventually, fault_module, module, ok};

/// Two servers.
pub struct Pair {
    servers: [Server; 2],
    primary: usize,
    /// A connection to the primary.
    pub client: Connection,
    /// Whether the replica was fully synchronised since the last restart of either server.
    pub is_linked: bool,
}

impl Pair {
    /// Starts two servers, of which the second has other defaults for new filters. With `pend_from`, adds to layers of this size in bytes
    /// may be pending.
    pub fn start(program: &Path, pend_from: Option<u64>) -> Self {
        let server = |line: &str| {
            let mut builder = Server::with(program).line("appendonly yes").line("auto-aof-rewrite-percentage 0");
            if let Some(bytes) = pend_from {
                let (faults, module) = (fault_module(), module());
                let modules = format!("loadmodule {} PEND {bytes} {}", faults.display(), module.display());
                builder = builder.without_module().line(&modules);
            }
            builder.line(line).start()
        };
        let servers = [server("bf.layout native"), server("bf.layout redisbloom")];
        let client = servers[0].connect();
        let mut pair = Self { servers, primary: 0, client, is_linked: false };
        pair.link();
        pair
    }

    /// The index of the primary.
    pub fn primary(&self) -> usize {
        self.primary
    }

    fn server(&mut self) -> &mut Server {
        &mut self.servers[self.primary]
    }

    /// Opens another connection to the primary.
    pub fn connect(&self) -> Connection {
        self.servers[self.primary].connect()
    }

    /// Opens a connection to the replica.
    pub fn replica(&self) -> Connection {
        self.servers[1 - self.primary].connect()
    }

    /// Waits until the replica has everything that was written.
    pub fn link(&mut self) {
        let port = self.server().port;
        let mut replica = self.replica();
        for client in [&mut self.client, &mut replica] {
            client.run("CONFIG SET rdb-key-save-delay 0");
        }
        if replica.info("role") != "slave" || replica.info("master_link_status") != "up" {
            // A replica that lost its primary retries once a second; with REPLICAOF it retries at once.
            replica.run("REPLICAOF NO ONE");
            follow(&mut replica, port);
        }
        catch_up(&mut self.client, &mut replica);
        // After a full synchronisation, the append-only file is unusable until it is rewritten.
        no_child(&mut replica);
        self.is_linked = true;
    }

    /// Kills the children of the primary.
    pub fn kill_children(&mut self) {
        kill(&children(self.server()));
    }

    /// Kills the primary and its children.
    pub fn kill_primary(&mut self) {
        let orphans = children(self.server());
        self.server().stop(Stop::Kill);
        kill(&orphans);
        self.is_linked = false;
    }

    /// Restarts the killed primary from its append-only file.
    pub fn start_primary(&mut self) {
        self.server().start_again();
        self.client = self.server().connect();
    }

    /// Stops the primary cleanly and restarts it.
    pub fn restart_primary(&mut self) {
        self.server().restart(Stop::NoSave);
        self.client = self.server().connect();
        self.is_linked = false;
    }

    /// Kills the replica and restarts it.
    pub fn restart_replica(&mut self) {
        let replica = 1 - self.primary;
        let orphans = children(&self.servers[replica]);
        self.servers[replica].restart(Stop::Kill);
        kill(&orphans);
        self.is_linked = false;
        // The file does not contain the address of the primary.
        let port = self.server().port;
        follow(&mut self.replica(), port);
    }

    /// Detaches the replica briefly and lets it write something.
    pub fn resynchronise(&mut self) {
        let mut replica = self.replica();
        // A replica that is still loading data does not accept the command yet.
        eventually("the replica to leave its primary", || replica.run("REPLICAOF NO ONE") == ok());
        replica.run("BF.ADD of-the-replica item");
        let port = self.server().port;
        follow(&mut replica, port);
        self.is_linked = false;
    }

    /// Promotes the replica, which has everything, and makes the primary its replica.
    pub fn hand_over(&mut self, by_failover: bool) {
        let mut replica = self.replica();
        if by_failover {
            assert_eq!(self.client.run("FAILOVER"), ok());
            let (old, new) = (&mut self.client, &mut replica);
            eventually("the roles to change", || new.info("role") == "master" && old.info("role") == "slave");
        } else {
            assert_eq!(replica.run("REPLICAOF NO ONE"), ok());
        }
        self.primary = 1 - self.primary;
        self.client = self.server().connect();
        self.link();
    }

    /// Promotes the replica after the primary was killed, and restarts the latter as a replica.
    pub fn promote(&mut self) {
        assert_eq!(self.replica().run("REPLICAOF NO ONE"), ok());
        self.server().start_again();
        self.primary = 1 - self.primary;
        self.client = self.server().connect();
        let port = self.server().port;
        follow(&mut self.replica(), port);
        self.is_linked = false;
    }
}
