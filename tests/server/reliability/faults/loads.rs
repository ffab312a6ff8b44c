//! Loads, copies and dumps.

use std::path::Path;

use super::{Words, case, is_refusal, makers, raw, run_under, try_all, with_faults, with_items, words};
use testing::{Connection, Server, eventually, figures, on_every_server, rewritten_commands};

/// Returns the payload and the records of the filter that the commands create.
pub fn dumped(client: &mut Connection, before: &[Words]) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
    client.run("FLUSHALL");
    before.iter().for_each(|command| assert!(!client.call(command).is_error()));
    let mut records = Vec::new();
    let mut iterator = "0".to_owned();
    loop {
        let reply = client.run(&format!("BF.SCANDUMP k {iterator}"));
        if reply.is_error() {
            break;
        }
        iterator = reply.elements()[0].number().to_string();
        if iterator == "0" {
            break;
        }
        records.push((iterator.clone(), reply.elements()[1].bytes().to_vec()));
    }
    (client.run("DUMP k").bytes().to_vec(), records)
}

/// Returns the commands in an append-only file for a filter of valkey-bloom's layout at `k`.
pub fn load_command(program: &Path) -> Words {
    let server = Server::with(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
    let mut client = server.connect();
    client.run(&makers(4)[2].1);
    client.call(&with_items("BF.MADD k", 0, 100));
    client.run("BGREWRITEAOF");
    eventually("the rewrite to end", || !client.has_rewrite());
    rewritten_commands(&server).pop().expect("a command")
}

#[test]
fn a_refused_load_or_copy_leaves_no_filter() {
    try_all("loads and copies", 100, |program, client| {
        let mut cases = Vec::new();
        for (capacity, items) in [(4, 100), (1_000_000, 10)] {
            for (name, maker) in makers(capacity) {
                let name = format!("{name} for {capacity}");
                let before = [words(&maker), with_items("BF.MADD k", 0, items)];
                let (payload, records) = dumped(client, &before);
                cases.push(case(format!("RESTORE, {name}"), &[], raw("RESTORE k 0", &payload)));
                cases.push(case(format!("COPY, {name}"), &before, words("COPY k copy")));
                let load = |(iterator, data): &(String, Vec<u8>)| raw(&format!("BF.LOADCHUNK k {iterator}"), data);
                let mut came = Vec::new();
                for record in &records {
                    let name = format!("record {} of {name}", record.0);
                    cases.push(case(&name, &came, load(record)));
                    came.push(load(record));
                    cases.push(case(format!("{name} again"), &came, load(record)));
                }
                for count in (1..came.len()).filter(|count| count % 2 == 1) {
                    let (half, _) = dumped(client, &came[..count]);
                    let name = format!("{count} records of {name}");
                    cases.push(case(format!("RESTORE, {name}"), &[], raw("RESTORE k 0", &half)));
                    cases.push(case(format!("COPY, {name}"), &came[..count], words("COPY k copy")));
                    cases.push(case(format!("DUMP, {name}"), &came[..count], words("DUMP k")));
                }
            }
        }
        cases.push(case("BF.LOAD", &[], load_command(program)));
        cases
    });
}

#[test]
fn a_dump_continues_once_memory_is_available() {
    on_every_server(|program| {
        let server = with_faults(program).start();
        let mut client = server.connect();
        let mut faults = 0;
        for (_, maker) in &makers(1_200_000)[..2] {
            client.run("FLUSHALL");
            client.run(maker);
            client.call(&with_items("BF.MADD k", 0, 1000));
            let mut iterator = "0".to_owned();
            loop {
                let command = words(&format!("BF.SCANDUMP k {iterator}"));
                let whole = client.call(&command);
                for mode in ["", " ON"] {
                    for number in 1.. {
                        let (reply, [_, refused, unrefusable]) =
                            run_under(&mut client, &format!("{number}{mode}"), &command);
                        assert_eq!(unrefusable, 0);
                        if refused == 0 {
                            assert!(reply == whole, "the record is another one");
                            break;
                        }
                        assert!(is_refusal(&reply), "{reply:?}");
                        faults += refused;
                    }
                }
                iterator = whole.elements()[0].number().to_string();
                if iterator == "0" {
                    break;
                }
            }
        }
        figures(&format!("memory refused, dumps: {faults} faults injected"));
        assert!(faults >= 6);
    });
}
