//! Counts allocations where there should be none: in lookups, and in adds that find room.

use super::{Words, makers, run_under, with_faults, with_items, words};
use testing::{Connection, on_every_server};

/// Returns the allocations of a command on an existing filter, after a similar command has run.
fn requests_of(client: &mut Connection, command: &Words) -> i64 {
    let (reply, [requests, _, _]) = run_under(client, "0", command);
    assert!(!reply.is_error(), "{reply:?}");
    requests
}

#[test]
fn lookups_do_not_allocate_and_adds_only_what_the_filter_keeps() {
    on_every_server(|program| {
        let server = with_faults(program).line("appendonly yes").start();
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            for (name, maker) in makers(100_000) {
                client.run("FLUSHALL");
                assert!(requests_of(&mut client, &words(&maker)) > 0, "the counter counts");
                client.call(&with_items("BF.MADD k", 0, 200));
                let commands = [
                    words("BF.EXISTS k x"),
                    with_items("BF.EXISTS k", 7, 1),
                    with_items("BF.MEXISTS k", 7, 1),
                    with_items("BF.MEXISTS k", 150, 100),
                    with_items("BF.MEXISTS k", 0, 5000),
                    words("BF.MEXISTS none x y"),
                    words("BF.ADD k x"),
                    words("BF.ADD k x"),
                    with_items("BF.MADD k", 1000, 100),
                    with_items("BF.MADD k", 1000, 100),
                    with_items("BF.MADD k", 1050, 100),
                    with_items("BF.INSERT k ITEMS", 2000, 100),
                    with_items("BF.INSERT k NOCREATE ITEMS", 2000, 100),
                    with_items("BF.MADD k", 0, 3000),
                    with_items("BF.MADD k", 0, 3000),
                    words("BF.CARD k"),
                    words("BF.INFO k"),
                ];
                // Once to reserve memory for the longest list.
                client.call(&with_items("BF.MADD k", 50_000, 4000));
                for command in &commands {
                    let requests = requests_of(&mut client, command);
                    let line = String::from_utf8_lossy(&command[0]).into_owned();
                    assert_eq!(requests, 0, "{line} with {} words, {name}, RESP{protocol}", command.len());
                }
            }
        }
    });
}
