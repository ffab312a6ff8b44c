//! Append-only files that one module wrote and the other reads: commands as they came, the snapshot or the commands of a
//! rewrite, and commands after one. A rewrite gives the same records for each filter, to the byte.

use std::collections::BTreeMap;

use super::stream::Stream;
use super::view::View;
use super::{Peer, Side, beside_redisbloom, extremes};
use crate::persistence::rewrite_append_only_file;
use crate::reliability::scaled;
use testing::{Server, Stop, append_only_commands, rewritten_commands};

/// How many random commands there are between two changes of the module.
const COMMANDS: usize = 200;

/// What is written has to outlive the process, not the machine.
fn start(peer: &Peer, side: Side, preamble: &str) -> Server {
    let preamble = format!("aof-use-rdb-preamble {preamble}");
    peer.start(side, &["appendonly yes", "appendfsync no", "auto-aof-rewrite-percentage 0", &preamble])
}

/// The modules take turns on one file. Each reads what the other has written, goes on, and at times rewrites it.
fn take_turns(peer: &Peer, first: Side, preamble: &str) {
    let name = format!("{first:?} of {} first, preamble {preamble}", peer.major);
    let mut server = start(peer, first, preamble);
    let mut stream = Stream::new(&name);
    extremes::make(&mut server.connect());
    let mut side = first;
    for turn in [["commands"].as_slice(), &["commands", "rewrite"], &["commands", "rewrite", "commands"]] {
        let mut client = server.connect();
        for part in turn {
            match *part {
                "rewrite" => rewrite_append_only_file(&mut client),
                _ => stream.write(&mut [&mut client], scaled(COMMANDS)),
            }
        }
        let (before, answers) = (View::of(&mut client), extremes::answers(&mut client));
        side = side.other();
        peer.restart_with(side, &mut server, Stop::Kill);
        let occasion = format!("{name}, {}", turn.join(", "));
        let mut client = server.connect();
        View::of(&mut client).assert_same(&before, &occasion);
        stream.assert_found(&mut client, &occasion);
        assert!(extremes::answers(&mut client) == answers, "{occasion}: the answers differ");
    }
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn files_of_commands_change_sides() {
    beside_redisbloom(|peer| Side::BOTH.into_iter().for_each(|first| take_turns(peer, first, "no")));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn files_with_a_snapshot_change_sides() {
    beside_redisbloom(|peer| Side::BOTH.into_iter().for_each(|first| take_turns(peer, first, "yes")));
}

/// The commands of a rewrite, by key. Keys come in any order.
fn rewritten_by_key(server: &Server) -> BTreeMap<Vec<u8>, Vec<Vec<Vec<u8>>>> {
    let mut commands: BTreeMap<Vec<u8>, Vec<Vec<Vec<u8>>>> = BTreeMap::new();
    for command in rewritten_commands(server) {
        commands.entry(command[1].clone()).or_default().push(command);
    }
    commands
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn a_rewrite_gives_the_same_records() {
    beside_redisbloom(|peer| {
        let mut stream = Stream::new("rewrite");
        let servers = Side::BOTH.map(|side| start(peer, side, "no"));
        let [mut ours, mut theirs] = [&servers[0], &servers[1]].map(Server::connect);
        stream.write(&mut [&mut ours, &mut theirs], scaled(COMMANDS));
        extremes::make(&mut ours);
        extremes::make(&mut theirs);
        rewrite_append_only_file(&mut ours);
        rewrite_append_only_file(&mut theirs);
        let [ours, theirs] = [&servers[0], &servers[1]].map(rewritten_by_key);
        assert!(ours.keys().eq(theirs.keys()));
        for (key, commands) in &ours {
            assert!(commands == &theirs[key], "the records of {} differ", key.escape_ascii());
        }
    });
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn ours_writes_what_was_new_and_redisbloom_every_command() {
    beside_redisbloom(|peer| {
        let servers = Side::BOTH.map(|side| start(peer, side, "no"));
        for line in [
            "BF.RESERVE k 0.01 2 NONSCALING",
            "BF.MADD k a b a",
            "BF.ADD k a",
            "BF.MADD k a b c",
            "BF.ADD k c",
            "BF.RESERVE k 0.01 2",
            "BF.INSERT missing NOCREATE ITEMS a",
        ] {
            let [ours, theirs] = [&servers[0], &servers[1]].map(|server| server.connect().run(line));
            assert_eq!(ours, theirs, "{line}");
        }
        let [ours, theirs] = [&servers[0], &servers[1]].map(|server| {
            let commands = append_only_commands(server);
            let lines = commands.iter().map(|words| String::from_utf8_lossy(&words.join(&b" "[..])).into_owned());
            lines.collect::<Vec<_>>()
        });
        assert_eq!(ours, ["BF.RESERVE k 0.01 2 NONSCALING", "BF.MADD k a b"]);
        let carried = ["BF.RESERVE k 0.01 2 NONSCALING", "BF.MADD k a b a", "BF.ADD k a", "BF.MADD k a b c"];
        assert_eq!(theirs[..4], carried);
        assert!(theirs.contains(&"BF.ADD k c".to_owned()), "an error is carried there: {theirs:?}");
    });
}
