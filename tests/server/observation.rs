//! What an operator sees: the section of INFO, and names of settings that come from other modules.

use testing::{Connection, Server, Stop, eventually, integer, ok, on_every_server};

fn metric(client: &mut Connection, name: &str) -> u64 {
    client.wait_for_frees();
    let info = client.run("INFO bf").text();
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("bf_{name}:")).map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {name} in {info}")).trim().parse().unwrap()
}

#[test]
fn info_counts_filters_and_what_is_asked_of_them() {
    on_every_server(|program| {
        let mut server = Server::start(program);
        let mut client = server.connect();
        assert!(client.run("INFO bf").text().contains(&format!("bf_version:{}", env!("CARGO_PKG_VERSION"))));
        client.run("BF.RESERVE a 0.000001 1000");
        client.run("BF.RESERVE b 0.000001 2 EXPANSION 2 SEED 1");
        client.run("BF.MADD b 1 2 3 4 5 6 7 1");
        client.run("BF.MEXISTS b 1 2 absent");
        client.run("BF.EXISTS b 3");
        let expected = [
            ("bloom_num_objects", 2),
            ("bloom_num_filters_across_objects", 4),
            ("bloom_num_items_across_objects", 7),
            ("bloom_capacity_across_objects", 1000 + 2 + 4 + 8),
            ("bloom_adds", 8),
            ("bloom_new_items", 7),
            ("bloom_lookups", 4),
            ("bloom_positives", 3),
        ];
        for (name, number) in expected {
            assert_eq!(metric(&mut client, name), number, "{name}");
        }
        let sizes = ["a", "b"].map(|key| client.run(&format!("BF.INFO {key} SIZE")).elements()[0].number() as u64);
        let bytes = metric(&mut client, "bloom_total_memory_bytes");
        assert_eq!(bytes, sizes[0] + sizes[1], "{sizes:?}");

        client.run("COPY b c");
        assert_eq!(metric(&mut client, "bloom_num_items_across_objects"), 14);
        client.run("DEL b c");
        assert_eq!(metric(&mut client, "bloom_num_items_across_objects"), 0);
        client.run("BF.ADD a x");
        server.restart(Stop::Save);
        let mut client = server.connect();
        assert_eq!(metric(&mut client, "bloom_num_objects"), 1);
        assert_eq!(metric(&mut client, "bloom_num_items_across_objects"), 1);
        client.run("FLUSHALL");
        for name in ["bloom_num_objects", "bloom_total_memory_bytes", "bloom_capacity_across_objects"] {
            // Some servers free in the background.
            eventually(name, || metric(&mut client, name) == 0);
        }
    });
}

#[test]
fn names_of_valkey_bloom_set_the_same_values() {
    on_every_server(|program| {
        let mut server = Server::with(program)
            .line("bf.bloom-fp-rate 0.003")
            .line("bf.bloom-capacity 55")
            .line("bf.bloom-expansion 3")
            .line("bf.bloom-memory-usage-limit 1mb")
            .line("bf.bloom-tightening-ratio 0.7")
            .line("bf.bloom-use-random-seed no")
            .line("bf.bloom-defrag-enabled no")
            .start();
        let expected = [
            // A value is shown under each of its names.
            ("bf.bloom-fp-rate", "0.003"),
            ("bf.error-rate", "0.003"),
            ("bf.bloom-capacity", "55"),
            ("bf.initial-size", "55"),
            ("bf.bloom-expansion", "3"),
            ("bf.bloom-memory-usage-limit", "1048576"),
            ("bf.bloom-tightening-ratio", "0.7"),
            ("bf.bloom-use-random-seed", "no"),
            ("bf.bloom-defrag-enabled", "no"),
        ];
        let mut client = server.connect();
        for (name, value) in expected {
            assert_eq!(client.run(&format!("CONFIG GET {name}")).elements()[1].text(), value, "{name}");
        }
        assert_eq!(client.run("CONFIG SET bf.bloom-capacity 66"), ok());
        client.run("BF.ADD k x");
        assert_eq!(client.run("BF.INFO k CAPACITY").elements()[0], integer(66));
        assert_eq!(client.run("BF.INFO k EXPANSION").elements()[0], integer(3));
        assert_eq!(client.run("BF.INFO k ERROR").text().parse(), Ok(0.003));
        assert!(client.run("BF.RESERVE large 0.01 10000000").error_text().starts_with("ERR Insufficient memory"));
        assert!(client.run("CONFIG SET bf.bloom-tightening-ratio 1").is_error());

        assert_eq!(client.run("CONFIG REWRITE"), ok());
        server.restart(Stop::NoSave);
        let mut client = server.connect();
        assert_eq!(client.run("CONFIG GET bf.bloom-capacity").elements()[1].text(), "66");
        assert_eq!(client.run("CONFIG GET bf.bloom-fp-rate").elements()[1].text(), "0.003");
    });
}
