//! kill -9 in the middle of adds. With `appendfsync always` an answer means that the add is on disk, so after a restart
//! every item that was acknowledged is found.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::persistence::rewrite_append_only_file;
use testing::{Connection, Reply, Rng, Server, Stop, eventually, figures, ok, on_every_server};

/// A filter of each kind.
const KINDS: [(&str, &str); 6] = [
    ("native", "BF.RESERVE native 0.01 100"),
    ("keyed", "BF.RESERVE keyed 0.01 100 HASH siphash"),
    ("counting", "BF.RESERVE counting 0.01 10000000 COUNTING"),
    ("window", "BF.RESERVE window 0.01 100 WINDOW 100000000 BUCKETS 64"),
    ("redisbloom", "BF.RESERVE redisbloom 0.01 100 LAYOUT redisbloom"),
    ("valkey-bloom", "BF.INSERT valkey-bloom TIGHTENING 0.5"),
];

/// Adds to all filters until the connection breaks; every item that was answered goes to `acknowledged` with its key.
fn add_until_the_end(mut client: Connection, name: &str, acknowledged: &Mutex<Vec<(&'static str, Vec<String>)>>) {
    for number in 0.. {
        let items: Vec<String> = (0..number % 40 + 1).map(|item| format!("{name}/{number}/{item}")).collect();
        let (key, _) = KINDS[number % KINDS.len()];
        let mut words = vec![if items.len() == 1 { "BF.ADD" } else { "BF.MADD" }, key];
        words.extend(items.iter().map(String::as_str));
        // At most 60 turns in all: none drops an item.
        if key == "window" && number < 30 && client.try_call(&["BF.ROTATE", key]).is_err() {
            return;
        }
        match client.try_call(&words) {
            Ok(Reply::Error(text)) => panic!("an add failed: {text}"),
            Ok(_) => acknowledged.lock().unwrap().push((key, items)),
            Err(_) => return,
        }
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    on_every_server(|program| {
        for preamble in ["no", "yes"] {
            let mut server = Server::with(program)
                .line("appendonly yes")
                .line("appendfsync always")
                .line(&format!("aof-use-rdb-preamble {preamble}"))
                .start();
            let mut rng = Rng::new(3);
            let acknowledged = Mutex::new(Vec::new());
            for (_, creation) in KINDS {
                assert!(!server.connect().run(creation).is_error(), "{creation}");
            }
            for round in 0..6 {
                thread::scope(|scope| {
                    for worker in 0..2 {
                        let (client, list) = (server.connect(), &acknowledged);
                        scope.spawn(move || add_until_the_end(client, &format!("{round}/{worker}"), list));
                    }
                    // The file is also rewritten, and the kill may come in the middle of that.
                    let mut control = server.connect();
                    match round % 3 {
                        1 => rewrite_append_only_file(&mut control),
                        2 => drop(control.run("BGREWRITEAOF")),
                        _ => {}
                    }
                    if round == 0 {
                        eventually("an add to be acknowledged", || !acknowledged.lock().unwrap().is_empty());
                    }
                    thread::sleep(Duration::from_millis(rng.below(200)));
                    server.stop(Stop::Kill);
                });
                server.start_again();
                let mut client = server.connect();
                let list = acknowledged.lock().unwrap();
                for (key, items) in list.iter() {
                    let found = client.batched(&[b"BF.MEXISTS", key.as_bytes()], items);
                    let lost = found.iter().filter(|&&present| !present).count();
                    assert_eq!(lost, 0, "round {round}: {lost} of {} items of {key} were lost", items.len());
                }
                let digest = client.run("DEBUG DIGEST");
                assert_eq!(client.run("DEBUG LOADAOF"), ok());
                assert_eq!(client.run("DEBUG DIGEST"), digest);
            }
            let count: usize = acknowledged.lock().unwrap().iter().map(|(_, items)| items.len()).sum();
            figures(&format!("crash: 6 kills survived, {count} adds verified"));
        }
    });
}

#[test]
fn a_file_that_was_cut_in_the_middle_of_an_add_loads_up_to_there() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").line("aof-load-truncated yes").start();
        let mut client = server.connect();
        client.run("BF.MADD k a b c");
        client.run("BF.MADD k d e f");
        server.stop(Stop::Kill);
        let folder = server.folder().join("appendonlydir");
        let file = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
            .unwrap();
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() - 5]).unwrap();
        server.start_again();
        let answers: Vec<bool> =
            server.connect().run("BF.MEXISTS k a b c d e f").elements().iter().map(Reply::truth).collect();
        assert_eq!(answers, [true, true, true, false, false, false]);
    });
}
