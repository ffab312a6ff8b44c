//! A disk that is full while a snapshot or the append-only file is written. The same is done to a server with filters and to
//! one with strings: both must answer alike, no filter may be lost, and once there is space again, everything works and a
//! restart restores every acknowledged add.
//!
//! The disk is a small file system in memory, which only root can mount.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{hits, scaled};
use testing::{Connection, Reply, Rng, Server, Stop, eventually, figures, on_every_server};

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

/// The data of the server: filters, or strings of the same size for comparison.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Holding {
    Filters,
    Strings,
}

/// The filters, and the initial number of items in each.
const FILTERS: [(&str, &str); 3] = [
    ("native", "BF.RESERVE native 0.01 600000"),
    ("redisbloom", "BF.RESERVE redisbloom 0.01 600000 LAYOUT redisbloom"),
    ("valkey-bloom", "BF.INSERT valkey-bloom ERROR 0.01 CAPACITY 600000 TIGHTENING 0.5"),
];
const ITEMS: usize = 100_000;

/// Starts a server on the small disk with about two megabytes of data that does not compress.
struct Subject {
    server: Server,
    holding: Holding,
    /// The number of acknowledged items, which is the same for each filter.
    items: Vec<String>,
}

impl Subject {
    fn start(program: &Path, disk: &SmallDisk, holding: Holding, lines: &[&str]) -> Self {
        let folder = format!("dir {}", disk.0.path().display());
        let builder = Server::with(program).line(&folder).line("auto-aof-rewrite-percentage 0");
        let server = lines.iter().fold(builder, |builder, line| builder.line(line)).start();
        let mut subject = Self { server, holding, items: Vec::new() };
        let mut client = subject.server.connect();
        match holding {
            Holding::Filters => {
                for (_, line) in FILTERS {
                    assert!(!client.run(line).is_error(), "{line}");
                }
                subject.items = (0..ITEMS).map(|number| format!("item {number}")).collect();
                for (key, _) in FILTERS {
                    client.batched(&[b"BF.MADD", key.as_bytes()], &subject.items);
                }
            }
            Holding::Strings => {
                let mut rng = Rng::new(1);
                for (key, _) in FILTERS {
                    let noise: Vec<u8> = (0..750_000).map(|_| rng.number() as u8).collect();
                    client.call(&[b"SET", key.as_bytes(), &noise]);
                }
            }
        }
        subject
    }

    /// Writes to each key. Returns the first reply that is an error. Acknowledged writes are recorded.
    fn write(&mut self, client: &mut Connection) -> std::io::Result<Option<String>> {
        let item = format!("later {}", self.items.len());
        let mut failed = None;
        for (key, _) in FILTERS {
            let reply = match self.holding {
                Holding::Filters => client.try_call(&["BF.ADD", key, &item])?,
                Holding::Strings => client.try_call(&["SETRANGE", key, "0", &item])?,
            };
            if let Reply::Error(text) = reply {
                failed.get_or_insert(text);
            }
        }
        if failed.is_none() {
            self.items.push(item);
        }
        Ok(failed)
    }

    /// Asserts that every acknowledged add and every string is present.
    fn verify(&self, client: &mut Connection, occasion: &str) {
        for (key, _) in FILTERS {
            match self.holding {
                Holding::Filters => {
                    let lost = self.items.len() - hits(client, key, &self.items);
                    assert_eq!(lost, 0, "{occasion}, {key}: {lost} of {} adds are lost", self.items.len());
                }
                Holding::Strings => assert_eq!(client.run(&format!("STRLEN {key}")).number(), 750_000, "{occasion}"),
            }
        }
    }
}

fn first_word(failed: Option<String>) -> String {
    failed.map_or("OK".to_owned(), |text| text.split(' ').next().unwrap_or_default().to_owned())
}

/// Does the same to filters and to strings, and asserts that the replies are the same.
fn compare(occasion: &str, program: &Path, run: impl Fn(&Path, &SmallDisk, Holding) -> (Vec<String>, usize)) {
    let mut outcomes = Vec::new();
    let mut verified = 0;
    for holding in [Holding::Strings, Holding::Filters] {
        let disk = SmallDisk::mount(24);
        let (answers, items) = run(program, &disk, holding);
        outcomes.push(answers);
        verified = items;
    }
    assert_eq!(outcomes[0], outcomes[1], "{occasion}: strings on the left, filters on the right");
    figures(&format!("{occasion}: {} answers alike, {verified} adds verified, three times", outcomes[0].len()));
    eprintln!("  {:?}", outcomes[1]);
}

#[test]
#[ignore = "needs root, which mounts a small file system"]
fn a_snapshot_on_a_full_disk_loses_nothing() {
    on_every_server(|program| {
        compare("SAVE and BGSAVE on a full disk", program, |program, disk, holding| {
            let mut subject = Subject::start(program, disk, holding, &["save 3600 100000000"]);
            let mut client = subject.server.connect();
            let mut answers = vec![format!("{:?}", client.run("SAVE"))];
            for round in 0..scaled(3) {
                answers.push(first_word(subject.write(&mut client).unwrap()));
                disk.fill_but([0, 4096, 300_000][round % 3]);
                answers.push(format!("{:?}", client.run("SAVE")));
                answers.push(format!("{:?}", client.run("BGSAVE")));
                eventually("the child to end", || client.info("rdb_bgsave_in_progress") == "0");
                answers.push(client.info("rdb_last_bgsave_status"));
                answers.push(first_word(subject.write(&mut client).unwrap()));
                subject.verify(&mut client, "with a full disk");
                disk.empty();
                answers.push(format!("{:?}", client.run("BGSAVE")));
                eventually("the child to end", || client.info("rdb_bgsave_in_progress") == "0");
                answers.push(client.info("rdb_last_bgsave_status"));
            }
            answers.push(first_word(subject.write(&mut client).unwrap()));
            assert!(answers.contains(&"err".to_owned()) && answers.contains(&"MISCONF".to_owned()), "{answers:?}");
            subject.verify(&mut client, "with room again");
            subject.server.restart(Stop::Save);
            subject.verify(&mut subject.server.connect(), "after a restart");
            (answers, subject.items.len())
        });
    });
}

#[test]
#[ignore = "needs root, which mounts a small file system"]
fn an_append_only_file_on_a_full_disk_loses_nothing() {
    on_every_server(|program| {
        compare("the append-only file on a full disk, everysec", program, |program, disk, holding| {
            let lines = ["appendonly yes", "appendfsync everysec"];
            let mut subject = Subject::start(program, disk, holding, &lines);
            let mut client = subject.server.connect();
            let mut answers = Vec::new();
            for _ in 0..scaled(2) {
                disk.fill_but(4096);
                let refused = loop {
                    if let Some(text) = subject.write(&mut client).unwrap() {
                        break text;
                    }
                };
                answers.push(refused.split(':').next().unwrap_or_default().to_owned());
                subject.verify(&mut client, "with a full disk");
                disk.empty();
                eventually("the file to be written again", || client.info("aof_last_write_status") == "ok");
                answers.push(first_word(subject.write(&mut client).unwrap()));
            }
            assert!(answers[0].starts_with("MISCONF"), "{answers:?}");
            subject.server.restart(Stop::NoSave);
            subject.verify(&mut subject.server.connect(), "after a restart");
            (answers, subject.items.len())
        });
    });
}

#[test]
#[ignore = "needs root, which mounts a small file system"]
fn with_appendfsync_always_a_server_on_a_full_disk_exits_and_restarts_with_every_add() {
    on_every_server(|program| {
        compare("the append-only file on a full disk, always", program, |program, disk, holding| {
            let lines = ["appendonly yes", "appendfsync always"];
            let mut subject = Subject::start(program, disk, holding, &lines);
            let mut answers = Vec::new();
            for round in 0..scaled(3) {
                let mut client = subject.server.connect();
                disk.fill_but([0, 4096, 20_000][round % 3]);
                // The server exits rather than acknowledge what is not on disk.
                while subject.write(&mut client).is_ok_and(|failed| failed.is_none()) {}
                let log = subject.server.log();
                answers.push(format!("says why: {}", log.contains("AOF fsync policy is 'always'. Exiting")));
                subject.server.stop(Stop::Kill);
                disk.empty();
                subject.server.start_again();
                subject.verify(&mut subject.server.connect(), "after a restart");
            }
            (answers, subject.items.len())
        });
    });
}

#[test]
#[ignore = "needs root, which mounts a small file system"]
fn a_rewrite_on_a_full_disk_loses_nothing() {
    on_every_server(|program| {
        for preamble in ["yes", "no"] {
            let occasion = format!("a rewrite on a full disk, preamble {preamble}");
            compare(&occasion, program, |program, disk, holding| {
                let preamble = format!("aof-use-rdb-preamble {preamble}");
                let lines = ["appendonly yes", "appendfsync always", &preamble];
                let mut subject = Subject::start(program, disk, holding, &lines);
                let mut client = subject.server.connect();
                let mut answers = Vec::new();
                for full in [true, false] {
                    if full {
                        disk.fill_but(400_000);
                    }
                    answers.push(format!("{:?}", client.run("BGREWRITEAOF")));
                    eventually("the rewrite to end", || !client.has_rewrite());
                    answers.push(client.info("aof_last_bgrewrite_status"));
                    answers.push(first_word(subject.write(&mut client).unwrap()));
                    subject.verify(&mut client, "during a rewrite");
                    if full {
                        disk.empty();
                    }
                    subject.server.restart(Stop::Kill);
                    client = subject.server.connect();
                    subject.verify(&mut client, "after a restart");
                }
                assert_eq!((answers[1].as_str(), answers[4].as_str()), ("err", "ok"), "{answers:?}");
                (answers, subject.items.len())
            });
        }
    });
}
