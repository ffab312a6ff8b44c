//! Truncated and altered append-only files and snapshots. The server must treat filters as it treats its own types: the same
//! file is written once with filters and once with sets, and the same damage must have the same outcome. The server starts, or
//! refuses with a line in the log; it never hangs or crashes, and no filter reports an item absent whose command it loaded.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{LAYOUTS, hits, scaled};
use testing::{Connection, Rng, Server, Stop, Version, figures, free_port, module, on_every_server, patience};

/// The items of the command with this number, and their key.
fn items(command: usize) -> Vec<String> {
    (0..3).map(|item| format!("item {command:03}/{item}")).collect()
}

const COMMANDS: usize = 30;

/// The undamaged files, written by the server with filters or with sets.
struct Files {
    filters: bool,
    folder: TempDir,
    append_only: Vec<u8>,
    /// The position in the append-only file where each add ends.
    ends: Vec<usize>,
    snapshot: Vec<u8>,
}

impl Files {
    fn make(program: &Path, filters: bool) -> Self {
        let mut server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let mut client = server.connect();
        for (_, line) in LAYOUTS {
            // The same number of arguments in either file, so that damage can be compared.
            client.run(if filters { line } else { "SET something else" });
        }
        for command in 0..COMMANDS {
            let mut words = vec![
                if filters { "BF.MADD" } else { "SADD" }.to_owned(),
                LAYOUTS[command % LAYOUTS.len()].0.to_owned(),
            ];
            words.extend(items(command));
            assert!(!client.call(&words).is_error());
        }
        client.run("SAVE");
        server.stop(Stop::Kill);
        let folder = tempfile::Builder::new().prefix("bloomgate-torn-").tempdir().expect("a temporary directory");
        let from = server.folder().join("appendonlydir");
        fs::create_dir(folder.path().join("appendonlydir")).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, folder.path().join("appendonlydir").join(path.file_name().unwrap())).unwrap();
        }
        let append_only = fs::read(folder.path().join(INCREMENT)).unwrap();
        let ends: Vec<usize> = (0..COMMANDS)
            .map(|command| {
                let last = items(command).pop().unwrap();
                let at = append_only.windows(last.len()).position(|window| window == last.as_bytes());
                at.expect("the item is in the file") + last.len() + 2
            })
            .collect();
        let snapshot = fs::read(server.folder().join("dump.rdb")).unwrap();
        Self { filters, folder, append_only, ends, snapshot }
    }

    /// Starts a server on an append-only file that begins with the bytes of an undamaged one.
    fn start_on_append_only(&self, program: &Path, bytes: &[u8], load_truncated: &str) -> Outcome {
        fs::write(self.folder.path().join(INCREMENT), bytes).unwrap();
        let words = ["--appendonly", "yes", "--aof-load-truncated", load_truncated];
        Outcome::of(program, self.folder.path(), &words, self.filters)
    }

    fn start_on_snapshot(&self, program: &Path, bytes: &[u8]) -> Outcome {
        fs::write(self.folder.path().join("dump.rdb"), bytes).unwrap();
        Outcome::of(program, self.folder.path(), &["--appendonly", "no"], self.filters)
    }
}

/// The first file that a server writes.
const INCREMENT: &str = "appendonlydir/appendonly.aof.1.incr.aof";

/// The outcome of a start.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// The server started; for each command, whether all of its items are present. Unknown ones are omitted.
    Started(Vec<bool>),
    /// The server exited with an exit code and a line in the log.
    Refused,
}

/// A process that is killed at the end of the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Outcome {
    /// Starts a server in a folder and observes it; starts again if another process took the port.
    fn of(program: &Path, folder: &Path, words: &[&str], filters: bool) -> Self {
        (0..50).find_map(|_| Self::of_a_start(program, folder, words, filters)).expect("a free port")
    }

    fn of_a_start(program: &Path, folder: &Path, words: &[&str], filters: bool) -> Option<Self> {
        let port = free_port();
        let log = folder.join("server.log");
        let _ = fs::remove_file(&log);
        let mut process = Process(
            Command::new(program)
                .current_dir(folder)
                .args(["--port", &port.to_string(), "--save", "", "--logfile", "server.log", "--bind", "127.0.0.1"])
                .args(["--loadmodule", &module().display().to_string()])
                .args(words)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the server starts"),
        );
        let begun = Instant::now();
        loop {
            let text = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
            if let Some(status) = process.0.try_wait().expect("its state") {
                let text = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
                if text.contains("Address already in use") {
                    return None;
                }
                assert!(!text.contains("panicked") && !text.contains("BUG REPORT"), "a crash:\n{text}");
                assert!(status.signal().is_none() && status.code() == Some(1), "{status}:\n{text}");
                // Marked as a warning, and longer than the banner: a reason.
                assert!(text.contains(" # "), "no reason in the log:\n{text}");
                return Some(Self::Refused);
            }
            // After refusing a snapshot, the server checks it with redis-check-rdb before it exits. That does not terminate
            // on a file that is truncated inside any module's value (7.0.15), so it is given only a moment.
            if text.contains("Internal error in RDB reading") {
                thread::sleep(Duration::from_millis(40));
                let status = process.0.try_wait().expect("its state");
                assert!(status.is_none_or(|status| status.code() == Some(1)), "{status:?}:\n{text}");
                assert!(!text.contains("panicked") && !text.contains("eady to accept"), "{text}");
                return Some(Self::Refused);
            }
            if text.contains("eady to accept connections")
                && let Ok(mut client) = Connection::open(port)
            {
                let there = if filters { filters_there(&mut client) } else { sets_there(&mut client) };
                return Some(Self::Started(there));
            }
            assert!(begun.elapsed() < patience(), "the server hangs:\n{text}");
            thread::sleep(Duration::from_millis(4));
        }
    }
}

fn filters_there(client: &mut Connection) -> Vec<bool> {
    (0..COMMANDS)
        .map(|command| {
            let items = items(command);
            hits(client, LAYOUTS[command % LAYOUTS.len()].0, &items) == items.len()
        })
        .collect()
}

fn sets_there(client: &mut Connection) -> Vec<bool> {
    (0..COMMANDS)
        .map(|command| {
            let mut words = vec!["SMISMEMBER".to_owned(), LAYOUTS[command % LAYOUTS.len()].0.to_owned()];
            words.extend(items(command));
            client.call(&words).elements().iter().all(|answer| answer.number() == 1)
        })
        .collect()
}

fn both(program: &Path) -> [Files; 2] {
    [true, false].map(|filters| Files::make(program, filters))
}

#[test]
fn a_truncated_append_only_file_is_handled_as_for_sets() {
    on_every_server(|program| {
        let [filters, sets] = both(program);
        let (mut starts, mut refused, mut kept) = (0, 0, 0);
        // The same place in either file: this many bytes before the end of a command.
        let step = (37 / scaled(1)).max(1);
        for (number, place) in (0..COMMANDS * 60).step_by(step).enumerate() {
            let (command, before_end) = (place / 60, place % 60);
            let cut = |files: &Files| files.append_only[..files.ends[command] - before_end].to_vec();
            for load_truncated in ["yes", "no"] {
                if load_truncated == "no" && number % 3 > 0 {
                    continue;
                }
                let ours = filters.start_on_append_only(program, &cut(&filters), load_truncated);
                let theirs = sets.start_on_append_only(program, &cut(&sets), load_truncated);
                assert_eq!(ours, theirs, "cut {before_end} bytes before the end of add {command}, {load_truncated}");
                match ours {
                    Outcome::Refused => refused += 1,
                    Outcome::Started(there) => {
                        let whole = if before_end == 0 { command + 1 } else { command };
                        let expected: Vec<bool> = (0..COMMANDS).map(|number| number < whole).collect();
                        assert_eq!(there, expected, "cut {before_end} bytes before the end of add {command}");
                        kept += whole * 3;
                    }
                }
                starts += 2;
            }
        }
        assert!(refused > 0 && kept > 0);
        figures(&format!(
            "append-only files cut: {starts} faults injected, {refused} refused alike, {kept} adds verified"
        ));
    });
}

#[test]
fn an_altered_append_only_file_is_handled_as_for_sets() {
    on_every_server(|program| {
        let [filters, sets] = both(program);
        let mut rng = Rng::new(99);
        let (mut refused, tries) = (0, scaled(40));
        for _ in 0..tries {
            let command = rng.below(COMMANDS as u64) as usize;
            // The items, their lengths and the key, which are the same in either file.
            let back = 1 + rng.below(55) as usize;
            let bit = 1 << rng.below(8);
            let changed = |files: &Files| {
                let mut bytes = files.append_only.clone();
                bytes[files.ends[command] - back] ^= bit;
                bytes
            };
            let ours = filters.start_on_append_only(program, &changed(&filters), "yes");
            let theirs = sets.start_on_append_only(program, &changed(&sets), "yes");
            assert_eq!(ours, theirs, "bit {bit} of the byte {back} before the end of add {command}");
            refused += usize::from(ours == Outcome::Refused);
        }
        figures(&format!("append-only files changed: {tries} faults injected, {refused} refused, all alike"));
    });
}

#[test]
fn commands_without_arguments_in_the_file_are_reads_or_end_the_server() {
    on_every_server(|program| {
        let files = Files::make(program, true);
        // Redis does not check the number of arguments of commands in the file.
        let is_counted = Version::of(program).counts_words_of_files();
        let server = Server::start(program);
        let mut client = server.connect();
        let mut starts = 0;
        for name in ["BF.ADD", "BF.MADD", "BF.INSERT", "BF.RESERVE", "BF.LOADCHUNK", "BF.LOAD", "BF.EXISTS", "BF.INFO"]
        {
            let arity = client.run(&format!("COMMAND INFO {name}")).elements()[0].elements()[1].number();
            for words in [vec![name], vec![name, "native"], vec![name, "native", "x", "y", "z", "SEED"]] {
                let mut bytes = files.append_only.clone();
                bytes.extend(format!("*{}\r\n", words.len()).bytes());
                bytes.extend(words.iter().flat_map(|word| format!("${}\r\n{word}\r\n", word.len()).into_bytes()));
                let outcome = files.start_on_append_only(program, &bytes, "yes");
                let has_enough = if arity < 0 { words.len() as i64 >= -arity } else { words.len() as i64 == arity };
                // A write that cannot be applied ends the server. Reads have no effect.
                let has_items = ["BF.ADD", "BF.MADD"].contains(&name) && words.len() > 2;
                // No items for a filter that exists.
                let has_none = words == ["BF.INSERT", "native"];
                let is_harmless = has_items || has_none || ["BF.EXISTS", "BF.INFO"].contains(&name);
                let expected = if is_harmless && (has_enough || !is_counted) {
                    Outcome::Started(vec![true; COMMANDS])
                } else {
                    Outcome::Refused
                };
                assert_eq!(outcome, expected, "{words:?}");
                starts += 1;
            }
        }
        figures(&format!("commands without their words: {starts} faults injected"));
    });
}

#[test]
fn a_truncated_or_altered_snapshot_is_handled_as_for_sets() {
    on_every_server(|program| {
        let [filters, sets] = both(program);
        let whole = Outcome::Started(vec![true; COMMANDS]);
        let mut rng = Rng::new(5);
        let tries = scaled(20);
        let mut starts = 0;
        for files in [&filters, &sets] {
            assert_eq!(files.start_on_snapshot(program, &files.snapshot), whole);
            for number in 0..tries {
                let length = files.snapshot.len();
                let cut = 1 + number * (length - 1) / tries;
                let outcome = files.start_on_snapshot(program, &files.snapshot[..cut]);
                assert_eq!(outcome, Outcome::Refused, "cut at {cut} of {length}, filters: {}", files.filters);
                let mut changed = files.snapshot.clone();
                let place = rng.below(length as u64) as usize;
                changed[place] ^= 1 << rng.below(8);
                let outcome = files.start_on_snapshot(program, &changed);
                assert_eq!(outcome, Outcome::Refused, "byte {place} of {length} changed, filters: {}", files.filters);
                starts += 2;
            }
        }
        figures(&format!("snapshots cut or changed: {starts} faults injected, all refused, filters and sets alike"));
    });
}
