//! Commands that RedisBloom accepted and propagates verbatim, in any spelling: a replica and the reader of its append-only file accept all
//! of them, while clients' commands are parsed strictly. A server that cannot apply a command exits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::golden::{TODAY, file, filters, items, snapshot};
use crate::golden::as_commands;
use crate::persistence::rewrite_append_only_file;
use testing::{
    Connection, LAST_WORDS, Server, Stop, array, commands_of, digest, eventually, follow, integer, ok, on_every_server,
    rewritten_commands, simple, start_on_commands, start_on_snapshot, stopped_on_commands, tool, words,
};

/// A server whose settings differ from the defaults wherever RedisBloom has no such setting. Error rate, capacity and expansion must equal
/// RedisBloom's, because a creation by an add uses them.
fn contrary(program: &Path) -> Server {
    Server::with(program).line("bf.max-filter-bytes 100").line("bf.layout native").start()
}

/// Commands as RedisBloom propagates them, exactly as its clients sent them: including commands that added nothing or failed inside the
/// reply, and commands with ignored words or with options recognised by their first letters. `crates/filter/tests/corpus/words.rs` has more
/// spellings.
const STREAM: &str = "\
BF.RESERVE plain 0.01 100
BF.RESERVE plain 0.01 100
BF.RESERVE ignoring 0.001 50 EXPANSION 4 FOO BAR
BF.RESERVE ignoring-more 0.001 50 WITH WORDS
BF.RESERVE fixed 0.1 5 NONSCALING
BF.RESERVE zero 0.1 5 EXPANSION 0
BF.RESERVE loose 0.25 10
BF.RESERVE hexadecimal 0x1p-4 100 NONSCALING NONSCALING
BF.RESERVE ours-in-part 0.01 100 SEED EXPANSION 5
BF.RESERVE nonScaling 0.01 100
BF.RESERVE NONSCALING 0.01 100 EXPANSION 2
BF.ADD plain a
BF.ADD plain a
BF.ADD created a
BF.MADD created-by-madd a b c a
BF.MADD fixed a b c d e f g h
BF.ADD fixed i
BF.MADD zero a b c d e f g
BF.INSERT whole CAPACITY 20 ERROR 0.001 EXPANSION 3 ITEMS a b
BF.INSERT short CAP 20 ERR 0.001 EXP 3 I a b
BF.INSERT lower cap 20 err 0.001 exp 3 items a b
BF.INSERT ignored C 7 Ignored a b c
BF.INSERT last CAPACITY 0 ERROR 5 EXPANSION -1 C 7 ER 0.1 EX 3 ITEMS a
BF.INSERT short-fixed CAP 2 NON ITEMS a b
BF.INSERT short-fixed NOC ITEMS a c d
BF.INSERT defaults ITEMS a b
BF.INSERT had-the-key NOCREATE ITEMS a b";

/// The filters that these commands create: the key, the rate, the capacity and the options of a client's BF.RESERVE, and the items.
const MADE: [(&str, &str, &str); 21] = [
    ("plain", "0.01 100", "a"),
    ("ignoring", "0.001 50 EXPANSION 4", ""),
    ("ignoring-more", "0.001 50", ""),
    ("fixed", "0.1 5 NONSCALING", "a b c d e f g h i"),
    ("zero", "0.1 5 NONSCALING", "a b c d e f g"),
    ("loose", "0.25 10", ""),
    ("hexadecimal", "0.0625 100 NONSCALING", ""),
    ("ours-in-part", "0.01 100 EXPANSION 5", ""),
    // RedisBloom also finds its options at the position of the key.
    ("nonScaling", "0.01 100 NONSCALING", ""),
    // An effect of ours for such a key.
    ("NONSCALING", "0.01 100", ""),
    ("created", "0.01 100", "a"),
    ("created-by-madd", "0.01 100", "a b c"),
    ("whole", "0.001 20 EXPANSION 3", "a b"),
    ("short", "0.001 20 EXPANSION 3", "a b"),
    ("lower", "0.001 20 EXPANSION 3", "a b"),
    ("ignored", "0.01 7", "a b c"),
    ("last", "0.1 7 EXPANSION 3", "a"),
    ("short-fixed", "0.01 2 NONSCALING", "a b c d"),
    ("defaults", "0.01 100", "a b"),
    ("had-the-key", "0.01 100", "a b"),
    ("grown", "0.001 50 EXPANSION 4", ""),
];

/// Adds that make a filter grow.
fn growth() -> impl Iterator<Item = String> {
    (0..900).map(|number| format!("more/{number}"))
}

/// The primary's commands.
fn stream() -> Vec<String> {
    let lines = STREAM.lines().map(str::to_owned).chain(["BF.RESERVE grown 0.001 50 EXPANSION 4 FOO".to_owned()]);
    lines.chain(growth().map(|item| format!("BF.ADD grown {item}"))).collect()
}

/// Creates the filters as clients on another server do, and compares all digests. `equal_options_create_equal_bytes` compares a client's
/// filters with RedisBloom's.
fn assert_as_made_by_clients(program: &Path, client: &mut Connection) {
    let other = Server::start(program);
    let mut other = other.connect();
    for (key, definition, items) in MADE {
        assert_eq!(other.run(&format!("BF.RESERVE {key} {definition} LAYOUT redisbloom")), ok());
        items.split_terminator(' ').for_each(|item| _ = other.run(&format!("BF.ADD {key} {item}")));
        if key == "grown" {
            growth().for_each(|item| _ = other.run(&format!("BF.ADD {key} {item}")));
        }
        assert_eq!(client.run(&format!("TYPE {key}")), simple("MBbloom--"), "{key}");
        assert_eq!(digest(client, key), digest(&mut other, key), "{key}");
    }
}

/// Options that create a filter of another layout, also from a primary.
fn assert_other_layouts(client: &mut Connection) {
    for (key, kind) in [("ours", "bloomgate"), ("ours-too", "bloomgate"), ("theirs", "bloomfltr")] {
        assert_eq!(client.run(&format!("TYPE {key}")), simple(kind), "{key}");
        assert_eq!(client.run(&format!("BF.EXISTS {key} a")), integer(1), "{key}");
    }
}

const OTHER_LAYOUTS: [&str; 3] = [
    "BF.INSERT ours CAPACITY 10 ERROR 0.01 EXPANSION 2 SEED 7 ITEMS a",
    "BF.INSERT ours-too N LAYOUT native ITEMS a",
    "BF.INSERT theirs CAPACITY 10 ERROR 0.01 TIGHTENING 0.5 EXPANSION 2 ITEMS a",
];

#[test]
fn a_replica_accepts_all_options_that_redisbloom_accepts() {
    on_every_server(|program| {
        let lines = stream();
        let primary = TheirPrimary::start(snapshot(TODAY));
        let replica = following(program, &primary);
        for golden in filters(TODAY) {
            golden.check(&replica, &golden.key);
        }
        primary.send(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        primary.send(&OTHER_LAYOUTS);
        primary.send(&["SET the-end x"]);
        let mut client = replica.connect();
        eventually("the end of the stream", || client.run("EXISTS the-end") == integer(1));
        assert_as_made_by_clients(program, &mut client);
        assert_other_layouts(&mut client);
        // The migration from RedisBloom: the replica is promoted and continues with its filters.
        assert_eq!(client.run("REPLICAOF NO ONE"), ok());
        assert_eq!(client.run("CONFIG SET bf.max-filter-bytes 0"), ok());
        growth().for_each(|item| _ = client.run(&format!("BF.ADD ignoring {item}")));
        assert_eq!(digest(&mut client, "ignoring"), digest(&mut client, "grown"));
    });
}

#[test]
fn redisblooms_append_only_file_loads_and_clients_are_parsed_strictly() {
    on_every_server(|program| {
        let lines = stream();
        let all: Vec<&str> = lines.iter().map(String::as_str).chain(OTHER_LAYOUTS).collect();
        let mut server = start_on_commands(program, &[], &encode(&all));
        let mut client = server.connect();
        assert_as_made_by_clients(program, &mut client);
        assert_other_layouts(&mut client);
        // The server continues: clients create native filters again, and the file stays readable.
        client.run("BF.ADD client-s a");
        server.restart(Stop::Kill);
        let mut client = server.connect();
        assert_as_made_by_clients(program, &mut client);
        assert_eq!(client.run("TYPE client-s"), simple("bloomgate"));
        client.run("FLUSHALL");
        assert_eq!(client.run("BF.INSERT k CAP 20 ITEMS a").error_text(), "Unknown argument received");
        assert_eq!(client.run("BF.RESERVE k 0x1p-4 100").error_text(), "ERR bad error rate");
        assert_eq!(client.run("BF.RESERVE k 0.01 100 FOO").error_text(), "ERR syntax error");
        assert_eq!(client.run("DBSIZE"), integer(0));
        client.run("BF.RESERVE NONSCALING 0.01 100");
        assert_eq!(client.run("BF.INFO NONSCALING EXPANSION").elements()[0], integer(2));
    });
}

/// Starts a replica of such a primary, with the link up.
pub fn following(program: &Path, primary: &TheirPrimary) -> Server {
    let server = contrary(program);
    let mut client = server.connect();
    assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port)), ok());
    eventually("the snapshot", || client.info("master_link_status") == "up");
    primary.send(&["SELECT 0"]);
    server
}

/// Asserts that a replica whose primary sends the line exits, and that a server that reads the line from its append-only file exits.
pub fn assert_ends_the_server(program: &Path, line: &str) {
    let primary = TheirPrimary::start(snapshot(TODAY));
    let mut replica = following(program, &primary);
    primary.send(&[line]);
    eventually("the replica to end", || replica.log().contains(LAST_WORDS));
    replica.stop(Stop::Kill);
    let log = stopped_on_commands(program, &[], &encode(&[line])).refuses_to_start_again();
    assert!(log.contains(LAST_WORDS), "{line}:\n{log}");
}

#[test]
fn items_after_unknown_options_end_the_server() {
    on_every_server(|program| {
        for line in ["BF.INSERT k HASH md5 ITEMS a", "BF.INSERT k CAPACITY x ITEMS a"] {
            assert_ends_the_server(program, line);
        }
    });
}

// A mock primary that sends the same data as a RedisBloom primary: its snapshot, then its clients' commands, verbatim.

/// A primary that sends RedisBloom's snapshot and then the given commands, as RedisBloom would.
pub struct TheirPrimary {
    pub port: u16,
    stream: Sender<Vec<u8>>,
}

impl TheirPrimary {
    /// Waits for a replica.
    pub fn start(snapshot: Vec<u8>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let (stream, commands) = channel();
        // It ends when the test drops the sender or the replica disconnects.
        thread::spawn(move || {
            let (link, _) = listener.accept().expect("a replica");
            let _ = serve(link, &snapshot, &commands);
        });
        Self { port, stream }
    }

    /// Sends commands, split into words at single spaces.
    pub fn send(&self, lines: &[&str]) {
        self.send_bytes(encode(lines));
    }

    /// Sends commands that are already encoded.
    pub fn send_bytes(&self, commands: Vec<u8>) {
        self.stream.send(commands).expect("the primary runs");
    }
}

fn serve(mut link: TcpStream, snapshot: &[u8], commands: &Receiver<Vec<u8>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(link.try_clone()?);
    loop {
        let words = read_command(&mut reader)?;
        match words[0].to_ascii_uppercase().as_str() {
            "PING" => link.write_all(b"+PONG\r\n")?,
            "PSYNC" => break,
            _ => link.write_all(b"+OK\r\n")?,
        }
    }
    link.write_all(format!("+FULLRESYNC {} 0\r\n${}\r\n", "a".repeat(40), snapshot.len()).as_bytes())?;
    link.write_all(snapshot)?;
    while let Ok(bytes) = commands.recv() {
        link.write_all(&bytes)?;
    }
    Ok(())
}

fn read_command(reader: &mut BufReader<TcpStream>) -> std::io::Result<Vec<String>> {
    let number = |reader: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        line.trim_start_matches(['*', '$']).trim_end().parse::<usize>().map_err(std::io::Error::other)
    };
    let count = number(reader)?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; number(reader)? + 2];
            reader.read_exact(&mut word)?;
            word.truncate(word.len() - 2);
            Ok(String::from_utf8_lossy(&word).into_owned())
        })
        .collect()
}

/// Encodes commands, split into words at single spaces, as they are sent and stored.
pub fn encode(lines: &[&str]) -> Vec<u8> {
    testing::encode(lines.iter().map(|line| words(line)))
}

/// Encodes a BF.LOADCHUNK, as it is sent and stored.
pub fn encode_chunk(key: &str, iterator: i64, data: &[u8]) -> Vec<u8> {
    testing::encode(as_commands(key, &[(iterator, data.to_vec())]))
}

// An AOF that RedisBloom 2.2.4 rewrote without a snapshot at its begin. Releases up to 2.2.6 wrote headers with iterator 0.

fn rewritten() -> Vec<u8> {
    file("redisbloom-2.2.4-rewritten.aof")
}

fn assert_whole(server: &Server, occasion: &str) {
    let mut client = server.connect();
    assert_eq!(client.run("DBSIZE"), integer(1), "{occasion}");
    assert_eq!(client.run("TYPE k"), simple("MBbloom--"), "{occasion}");
    let found = client.batched(&[b"BF.MEXISTS", b"k"], &items(0, 2000));
    assert!(found.iter().take(60).all(|found| *found), "{occasion}: {found:?}");
    // No other name has all its bits set.
    assert!(!found[60..].contains(&true), "{occasion}");
    assert_eq!(client.run("BF.CARD k"), integer(60), "{occasion}");
    assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(100)]), "{occasion}");
}

#[test]
fn an_aof_of_redisbloom_loads_and_survives_our_rewrite() {
    on_every_server(|program| {
        let mut server = start_on_commands(program, &[], &rewritten());
        assert_whole(&server, "loaded");
        rewrite_append_only_file(&mut server.connect());
        // Our header is as today's releases write it.
        assert_eq!(rewritten_commands(&server)[0][2], b"1");
        server.restart(Stop::Kill);
        assert_whole(&server, "rewritten");
    });
}

/// Clients get RedisBloom's refusal.
#[test]
fn a_client_must_send_1() {
    on_every_server(|program| {
        let server = Server::start(program);
        let commands = commands_of(&rewritten());
        let mut client = server.connect();
        assert_eq!(client.call(&commands[0]).error_text(), "ERR not found");
        assert_eq!(client.run("EXISTS k"), integer(0));
        let mut header = commands[0].clone();
        header[2] = b"1".to_vec();
        for command in [&header, &commands[1]] {
            assert_eq!(client.call(command).text(), "OK");
        }
        assert_whole(&server, "loaded by a client");
    });
}

#[test]
fn a_survey_lists_filters_and_keys_that_cannot_be_loaded_and_compares_two_servers() {
    let survey = |words: &[&str]| {
        let output = Command::new(tool()).arg("survey").args(words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    on_every_server(|program| {
        let old = start_on_snapshot(program, &[], &snapshot(TODAY));
        let new = Server::start(program);
        let urls = [&old, &new].map(|server| format!("redis://127.0.0.1:{}", server.port));
        old.connect().run("SET greeting hello");
        let (fine, text) = survey(&["--url", &urls[0]]);
        assert!(fine, "{text}");
        assert!(
            text.contains("MBbloom--           0            8") && text.contains("other               0            1"),
            "{text}"
        );

        let (fine, text) = survey(&["--url", &urls[0], "--beside", &urls[1]]);
        assert!(!fine && text.contains("compared 8 filters: 8 differ"), "{text}");
        follow(&mut new.connect(), &old);
        let (fine, text) = survey(&["--url", &urls[0], "--beside", &urls[1]]);
        assert!(fine && text.contains("compared 8 filters: 0 differ"), "{text}");
        old.connect().run("BF.ADD tiny another");
        new.connect().run("REPLICAOF NO ONE");
        new.connect().run("BF.ADD tiny third");
        new.connect().run("BF.ADD tiny fourth");
        let (fine, text) = survey(&["--url", &urls[0], "--beside", &urls[1]]);
        assert!(!fine && text.contains("\ntiny: ") && text.contains("compared 8 filters: 1 differ"), "{text}");
    });
}
