//! A primary and its replica, both with an append-only file, and the faults that they suffer.

use std::path::Path;

use crate::fleet::{catch_up, follow};
use crate::harness::{Connection, Server, Stop, eventually, ok};
use crate::pending::{children, kill, no_child};

/// Two servers.
pub struct Pair {
    servers: [Server; 2],
    primary: usize,
    /// To the primary.
    pub client: Connection,
    /// Whether the replica has had everything since one of the two was last restarted.
    pub is_linked: bool,
}

impl Pair {
    /// Two servers, of which the second makes other filters by default.
    pub fn start(program: &Path) -> Self {
        let server = |line: &str| {
            let builder = Server::with(program).line("appendonly yes").line("auto-aof-rewrite-percentage 0");
            builder.line(line).start()
        };
        let servers = [server("bf.layout native"), server("bf.layout redisbloom")];
        let client = servers[0].connect();
        let mut pair = Self { servers, primary: 0, client, is_linked: false };
        pair.link();
        pair
    }

    /// Which of the two is the primary.
    pub fn primary(&self) -> usize {
        self.primary
    }

    fn server(&mut self) -> &mut Server {
        &mut self.servers[self.primary]
    }

    /// Another connection to the primary.
    pub fn connect(&self) -> Connection {
        self.servers[self.primary].connect()
    }

    /// A connection to the replica.
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
            // A replica that lost its primary tries once a second; one that is told to follow it tries at once.
            replica.run("REPLICAOF NO ONE");
            follow(&mut replica, port);
        }
        catch_up(&mut self.client, &mut replica);
        // After a full synchronisation the append-only file is of no use until it is rewritten.
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

    /// Starts the primary that was killed from its append-only file.
    pub fn start_primary(&mut self) {
        self.server().start_again();
        self.client = self.server().connect();
    }

    /// Ends the primary in good order, and starts it again.
    pub fn restart_primary(&mut self) {
        self.server().restart(Stop::NoSave);
        self.client = self.server().connect();
        self.is_linked = false;
    }

    /// Kills the replica and starts it again.
    pub fn restart_replica(&mut self) {
        let replica = 1 - self.primary;
        let orphans = children(&self.servers[replica]);
        self.servers[replica].restart(Stop::Kill);
        kill(&orphans);
        self.is_linked = false;
        // The file says nothing of its primary.
        let port = self.server().port;
        follow(&mut self.replica(), port);
    }

    /// Lets the replica forget its primary for a moment, and write something of its own.
    pub fn resynchronise(&mut self) {
        let mut replica = self.replica();
        assert_eq!(replica.run("REPLICAOF NO ONE"), ok());
        replica.run("BF.ADD of-the-replica item");
        let port = self.server().port;
        follow(&mut replica, port);
        self.is_linked = false;
    }

    /// The replica, which has everything, becomes the primary, and the primary its replica.
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

    /// The replica becomes the primary after the primary was killed, which comes back as its replica.
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
