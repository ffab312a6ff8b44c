//! Memory leaks: filters that are created and deleted, refused payloads and abandoned loads leave nothing behind in the
//! server's memory or in the figures of INFO.

use std::path::Path;

use super::{LAYOUTS, scaled};
use testing::{Connection, Reply, Rng, Server, eventually, figures, on_every_server, with_fixed_checksum};

/// How much used memory may differ between before and after.
const SLACK_BYTES: i64 = 64 << 10;

/// Starts a server without a slow log, whose entries are memory too: on a busy machine any command can be slow.
fn start(program: &Path) -> Server {
    Server::with(program).line("slowlog-log-slower-than -1").line("sanitize-dump-payload yes").start()
}

/// Sends commands in pipelines over another connection, and passes each reply to `check`. Returns the number of that client.
fn in_pipelines(
    server: &Server,
    rounds: usize,
    commands: &[Vec<Vec<u8>>],
    mut check: impl FnMut(usize, &Reply),
) -> i64 {
    let mut client = server.connect();
    let id = client.run("CLIENT ID").number();
    let mut left = rounds;
    while left > 0 {
        let batch = left.min(100);
        for _ in 0..batch {
            for words in commands {
                client.send(words).expect("the server takes it");
            }
        }
        for _ in 0..batch {
            for index in 0..commands.len() {
                check(index, &client.receive().expect("a reply"));
            }
        }
        left -= batch;
    }
    id
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Runs the commands a few times to warm up, then many times, and compares the memory.
fn assert_flat(server: &Server, name: &str, rounds: usize, commands: &[Vec<Vec<u8>>], check: impl Fn(usize, &Reply)) {
    let mut control = server.connect();
    let client = in_pipelines(server, 1000, commands, &check);
    settle(&mut control, client);
    let before = control.info_number("used_memory");
    let client = in_pipelines(server, rounds, commands, &check);
    settle(&mut control, client);
    let mut after = 0;
    let what = format!("memory to be {before} bytes again, {SLACK_BYTES} more or less, after {name}");
    eventually(&what, || {
        after = control.info_number("used_memory");
        (after - before).abs() <= SLACK_BYTES
    });
    figures(&format!("leaks: {rounds} executions of {name}: used memory {before} before and {after} after"));
}

/// Waits until a client is disconnected and nothing is left to free, and checks that no filter is counted any more.
fn settle(control: &mut Connection, client: i64) {
    let list = format!("CLIENT LIST ID {client}");
    eventually("the other client to be gone", || control.run(&list).text().trim().is_empty());
    eventually("the background to be idle", || control.info_number("lazyfree_pending_objects") == 0);
    assert_eq!(control.run("DBSIZE").number(), 0);
    for gauge in ["total_memory_bytes", "num_objects", "num_filters_across_objects", "num_items_across_objects"] {
        assert_eq!(control.gauge(gauge), 0, "{gauge}");
    }
    assert_eq!(control.gauge("capacity_across_objects"), 0);
}

#[test]
fn deleted_filters_leave_nothing() {
    on_every_server(|program| {
        let server = start(program);
        for (name, line) in LAYOUTS {
            for end in ["DEL", "UNLINK"] {
                let commands = [words(line), words(&format!("BF.ADD {name} x")), words(&format!("{end} {name}"))];
                let rounds = scaled(if name == "native" && end == "DEL" { 100_000 } else { 10_000 });
                assert_flat(&server, &format!("{name}, {end}"), rounds, &commands, |index, reply| {
                    assert!(!reply.is_error() && (index != 2 || reply.number() == 1), "{reply:?}");
                });
            }
        }
        // Filters that grew, whose layers are freed separately: 20 items in layers of 1.
        let grown = [
            words("BF.RESERVE k 0.01 1 EXPANSION 1"),
            words(&format!("BF.MADD k{}", (0..20).map(|item| format!(" {item}")).collect::<String>())),
            words("COPY k twin"),
            words("DEL k twin"),
        ];
        assert_flat(&server, "grown and copied", scaled(5000), &grown, |_, reply| assert!(!reply.is_error()));
    });
}

#[test]
fn refused_payloads_leave_nothing() {
    on_every_server(|program| {
        // The log is excluded: a server logs every payload that it refuses.
        let server = start(program);
        let mut control = server.connect();
        let mut rng = Rng::new(8);
        let mut refusals = Vec::new();
        for (name, line) in LAYOUTS {
            control.run(line);
            // Several layers, so that a payload that is refused at its end is partly loaded.
            let items: Vec<String> = (0..300).map(|item| item.to_string()).collect();
            control.batched(&[b"BF.MADD", name.as_bytes()], &items);
            let payload = control.run(&format!("DUMP {name}")).bytes().to_vec();
            control.run(&format!("DEL {name}"));
            let mut found = 0;
            while found < 6 {
                let mut body = payload[..payload.len() - 10].to_vec();
                // The server lets a value be read into the ten bytes after it, so more than ten bytes are cut off.
                body.truncate(body.len() - 12 - rng.below(body.len() as u64 - 24) as usize);
                body.extend_from_slice(&payload[payload.len() - 10..]);
                let damaged = with_fixed_checksum(body);
                let restore = vec![b"RESTORE".to_vec(), b"k".to_vec(), b"0".to_vec(), damaged];
                assert!(control.call(&restore).is_error(), "a payload that was cut is refused");
                refusals.push(restore);
                found += 1;
            }
        }
        let rounds = scaled(100_000) / refusals.len();
        let name = format!("{} RESTOREs refused", rounds * refusals.len());
        assert_flat(&server, &name, rounds, &refusals, |_, reply| assert!(reply.is_error(), "{reply:?}"));
    });
}

#[test]
fn abandoned_loads_leave_nothing() {
    on_every_server(|program| {
        let server = start(program);
        let mut control = server.connect();
        for (name, line) in LAYOUTS.iter().filter(|(name, _)| *name != "valkey-bloom") {
            control.run(line);
            let items: Vec<String> = (0..300).map(|item| item.to_string()).collect();
            control.batched(&[b"BF.MADD", name.as_bytes()], &items);
            let mut chunks = Vec::new();
            let mut iterator = "0".to_owned();
            loop {
                let reply = control.run(&format!("BF.SCANDUMP {name} {iterator}"));
                iterator = reply.elements()[0].number().to_string();
                if iterator == "0" {
                    break;
                }
                chunks.push((iterator.clone(), reply.elements()[1].bytes().to_vec()));
            }
            control.run(&format!("DEL {name}"));
            let load = |key: &str, count: usize| -> Vec<Vec<Vec<u8>>> {
                let command = |(iterator, data): &(String, Vec<u8>)| {
                    vec![b"BF.LOADCHUNK".to_vec(), key.into(), iterator.clone().into_bytes(), data.clone()]
                };
                chunks[..count].iter().map(command).collect()
            };
            for (what, count) in [("headers", 1), ("headers and a chunk", chunks.len() - 1), ("dumps", chunks.len())] {
                let mut commands = load("k", count);
                commands.push(words("DEL k"));
                let rounds = scaled(if count == 1 { 100_000 } else { 10_000 });
                assert_flat(&server, &format!("{name}: {what} begun"), rounds, &commands, |_, reply| {
                    assert!(!reply.is_error(), "{reply:?}");
                });
            }
        }
    });
}
