//! kill -9 in the middle of adds. With `appendfsync always` an answer means that the add is on disk, so after a restart
//! every item that was acknowledged is found.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::harness::{Connection, Reply, Rng, Server, Stop, eventually, figures, on_every_server};
use crate::persistence::rewrite_append_only_file;

/// Adds until the connection breaks; every item that was answered goes to `acknowledged`.
fn add_until_the_end(mut client: Connection, name: &str, acknowledged: &Mutex<Vec<String>>) {
    for number in 0.. {
        let items: Vec<String> = (0..number % 40 + 1).map(|item| format!("{name}/{number}/{item}")).collect();
        let mut words = vec![if items.len() == 1 { "BF.ADD" } else { "BF.MADD" }, "k"];
        words.extend(items.iter().map(String::as_str));
        match client.try_call(&words) {
            Ok(Reply::Error(text)) => panic!("an add failed: {text}"),
            Ok(_) => acknowledged.lock().unwrap().extend(items),
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
                let found = client.batched(&[b"BF.MEXISTS", b"k"], &list);
                let lost = found.iter().filter(|&&present| !present).count();
                assert_eq!(lost, 0, "round {round}: {lost} of {} acknowledged items were lost", list.len());
            }
            let count = acknowledged.lock().unwrap().len();
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
