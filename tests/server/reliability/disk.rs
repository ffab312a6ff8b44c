//! A disk that is full while a snapshot or the append-only file is written. The server refuses writes as with its own types, and no filter
//! is lost. Once there is space again, everything works, and a restart restores every acknowledged add.
//!
//! The disk is a small file system in memory, which only root can mount.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{hits, scaled};
use testing::{Connection, Reply, Server, Stop, eventually, figures, ok, on_every_server};

/// A disk of a few megabytes, which is unmounted when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(megabytes: usize) -> Self {
        let folder = tempfile::Builder::new().prefix("bloomgate-disk-").tempdir().expect("a temporary directory");
        let size = format!("size={megabytes}m");
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(folder.path()).output();
        let output = output.expect("there is a mount command");
        assert!(output.status.success(), "no disk can be mounted: {}", String::from_utf8_lossy(&output.stderr));
        Self(folder)
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }

    /// Fills the disk except for this many bytes, rounded to a page.
    fn fill_but(&self, free: usize) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.ballast()).expect("a file");
        while file.write_all(&[0xaa; 4096]).is_ok() {}
        let length = file.metadata().expect("its length").len();
        file.set_len(length.saturating_sub(free as u64)).expect("a shorter file");
    }

    fn empty(&self) {
        fs::remove_file(self.ballast()).expect("the ballast is removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// The filters, and the initial number of items in each.
const FILTERS: [(&str, &str); 3] = [
    ("native", "BF.RESERVE native 0.01 600000"),
    ("redisbloom", "BF.RESERVE redisbloom 0.01 600000 LAYOUT redisbloom"),
    ("valkey-bloom", "BF.INSERT valkey-bloom ERROR 0.01 CAPACITY 600000 TIGHTENING 0.5"),
];
const ITEMS: usize = 100_000;

/// A server on the small disk with about two megabytes of filters that do not compress.
struct Subject {
    server: Server,
    /// The acknowledged items, which each filter contains.
    items: Vec<String>,
}

impl Subject {
    fn start(program: &Path, disk: &SmallDisk, lines: &[&str]) -> Self {
        let folder = format!("dir {}", disk.0.path().display());
        let builder = Server::with(program).line(&folder).line("auto-aof-rewrite-percentage 0");
        let server = lines.iter().fold(builder, |builder, line| builder.line(line)).start();
        let items: Vec<String> = (0..ITEMS).map(|number| format!("item {number}")).collect();
        let mut client = server.connect();
        for (key, line) in FILTERS {
            assert!(!client.run(line).is_error(), "{line}");
            client.batched(&[b"BF.MADD", key.as_bytes()], &items);
        }
        Self { server, items }
    }

    /// Adds an item to each filter. Returns OK, or the first word of an error. An acknowledged item is recorded.
    fn write(&mut self, client: &mut Connection) -> std::io::Result<String> {
        let item = format!("later {}", self.items.len());
        for (key, _) in FILTERS {
            if let Reply::Error(text) = client.try_call(&["BF.ADD", key, &item])? {
                return Ok(text.split(' ').next().unwrap_or_default().to_owned());
            }
        }
        self.items.push(item);
        Ok("OK".to_owned())
    }

    /// Asserts that every acknowledged add is present.
    fn verify(&self, client: &mut Connection, occasion: &str) {
        for (key, _) in FILTERS {
            let lost = self.items.len() - hits(client, key, &self.items);
            assert_eq!(lost, 0, "{occasion}, {key}: {lost} of {} adds are lost", self.items.len());
        }
        figures(&format!("a full disk, {occasion}: {} adds verified, three times", self.items.len()));
    }
}

#[test]
#[ignore = "needs root, which mounts a small file system"]
fn a_snapshot_on_a_full_disk_loses_nothing() {
    on_every_server(|program| {
        let disk = SmallDisk::mount(24);
        let mut subject = Subject::start(program, &disk, &["save 3600 100000000"]);
        let mut client = subject.server.connect();
        let save = |client: &mut Connection| {
            client.run("BGSAVE");
            eventually("the child to end", || client.info("rdb_bgsave_in_progress") == "0");
            client.info("rdb_last_bgsave_status")
        };
        assert_eq!(client.run("SAVE"), ok());
        for round in 0..scaled(3) {
            assert_eq!(subject.write(&mut client).unwrap(), "OK");
            disk.fill_but([0, 4096, 300_000][round % 3]);
            assert!(client.run("SAVE").is_error());
            assert_eq!(save(&mut client), "err");
            assert_eq!(subject.write(&mut client).unwrap(), "MISCONF");
            subject.verify(&mut client, "a snapshot that failed");
            disk.empty();
            assert_eq!(save(&mut client), "ok");
        }
        assert_eq!(subject.write(&mut client).unwrap(), "OK");
        subject.verify(&mut client, "room again");
        subject.server.restart(Stop::Save);
        subject.verify(&mut subject.server.connect(), "a restart from a snapshot");
    });
}

#[test]
#[ignore = "needs root, which mounts a small file system"]
fn an_append_only_file_on_a_full_disk_loses_nothing() {
    on_every_server(|program| {
        let disk = SmallDisk::mount(24);
        let mut subject = Subject::start(program, &disk, &["appendonly yes", "appendfsync everysec"]);
        let mut client = subject.server.connect();
        for _ in 0..scaled(2) {
            disk.fill_but(4096);
            let refused = loop {
                let answer = subject.write(&mut client).unwrap();
                if answer != "OK" {
                    break answer;
                }
            };
            assert_eq!(refused, "MISCONF");
            subject.verify(&mut client, "a file that cannot be written");
            disk.empty();
            eventually("the file to be written again", || client.info("aof_last_write_status") == "ok");
            assert_eq!(subject.write(&mut client).unwrap(), "OK");
        }
        subject.server.restart(Stop::NoSave);
        subject.verify(&mut subject.server.connect(), "a restart from a file that was full");
    });
}

#[test]
#[ignore = "needs root, which mounts a small file system"]
fn with_appendfsync_always_a_server_on_a_full_disk_exits_and_restarts_with_every_add() {
    on_every_server(|program| {
        let disk = SmallDisk::mount(24);
        let mut subject = Subject::start(program, &disk, &["appendonly yes", "appendfsync always"]);
        for round in 0..scaled(3) {
            let mut client = subject.server.connect();
            disk.fill_but([0, 4096, 20_000][round % 3]);
            // The server exits rather than acknowledge a write that is not on disk.
            while subject.write(&mut client).is_ok_and(|answer| answer == "OK") {}
            let log = subject.server.log();
            assert!(log.contains("AOF fsync policy is 'always'. Exiting"), "{log}");
            subject.server.stop(Stop::Kill);
            disk.empty();
            subject.server.start_again();
            subject.verify(&mut subject.server.connect(), "a restart after an exit");
        }
    });
}

#[test]
#[ignore = "needs root, which mounts a small file system"]
fn a_rewrite_on_a_full_disk_loses_nothing() {
    on_every_server(|program| {
        for preamble in ["yes", "no"] {
            let disk = SmallDisk::mount(24);
            let preamble = format!("aof-use-rdb-preamble {preamble}");
            let mut subject = Subject::start(program, &disk, &["appendonly yes", "appendfsync always", &preamble]);
            for (is_full, outcome) in [(true, "err"), (false, "ok")] {
                let mut client = subject.server.connect();
                if is_full {
                    disk.fill_but(400_000);
                }
                client.run("BGREWRITEAOF");
                eventually("the rewrite to end", || !client.has_rewrite());
                assert_eq!(client.info("aof_last_bgrewrite_status"), outcome, "{preamble}");
                assert_eq!(subject.write(&mut client).unwrap(), "OK");
                subject.verify(&mut client, "a rewrite");
                if is_full {
                    disk.empty();
                }
                subject.server.restart(Stop::Kill);
                subject.verify(&mut subject.server.connect(), "a restart after a rewrite");
            }
        }
    });
}
