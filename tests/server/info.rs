//! BF.INFO: all fields in their order, or one of them, in the shape that clients parse.

use crate::harness::{Reply, Server, array, error, integer, nil, on_every_server, simple};

const NAMES: [&str; 5] = ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"];
const WORDS: [&str; 5] = ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "EXPANSION"];

#[test]
fn the_whole_is_five_named_fields() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.RESERVE k 0.01 100 EXPANSION 3");
        client.run("BF.MADD k a b");
        let reply = client.run("BF.INFO k");
        let size = reply.elements()[3].clone();
        assert!(size.number() > 0);
        let values = [integer(100), size, integer(1), integer(2), integer(3)];
        let flat: Vec<Reply> =
            NAMES.iter().zip(&values).flat_map(|(name, value)| [simple(name), value.clone()]).collect();
        assert_eq!(reply, array(flat));

        let mut client = server.connect_speaking(3);
        let pairs = NAMES.iter().zip(values).map(|(name, value)| (simple(name), value)).collect();
        assert_eq!(client.run("bf.info k"), Reply::Map(pairs));
    });
}

#[test]
fn one_field_comes_alone() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            client.run("BF.RESERVE growing 0.01 100");
            client.run("BF.RESERVE fixed 0.01 100 NONSCALING");
            for key in ["growing", "fixed"] {
                let whole = client.run(&format!("BF.INFO {key}"));
                for (name, word) in NAMES.iter().zip(WORDS) {
                    let value = whole.field(name).clone();
                    let expected = match protocol {
                        2 => array([value]),
                        _ => Reply::Map(vec![(simple(name), value)]),
                    };
                    assert_eq!(client.run(&format!("BF.INFO {key} {word}")), expected);
                    assert_eq!(client.run(&format!("BF.INFO {key} {}", word.to_lowercase())), expected);
                }
            }
            assert_eq!(client.run("BF.INFO fixed").field("Expansion rate"), &nil(protocol));
        }
    });
}

#[test]
fn bad_questions_are_errors() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            client.run("BF.ADD k a");
            client.run("SET string x");
            let unknown = error("Invalid information value");
            for field in ["FROBNICATE", "", "CAP", "CAPACITYX", "Number"] {
                assert_eq!(client.call(&["BF.INFO", "k", field]), unknown, "{field:?}");
            }
            // The words are read before the key is looked at.
            assert_eq!(client.run("BF.INFO missing FROBNICATE"), unknown);
            assert_eq!(client.run("BF.INFO string FROBNICATE"), unknown);
            assert_eq!(client.run("BF.INFO missing"), error("ERR not found"));
            assert_eq!(client.run("BF.INFO missing SIZE"), error("ERR not found"));
        }
    });
}

#[test]
fn size_grows_with_the_filter_and_is_part_of_memory_usage() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let mut last = 0;
        for capacity in [100, 10_000, 1_000_000, 100_000_000] {
            let key = format!("k{capacity}");
            client.run(&format!("BF.RESERVE {key} 0.01 {capacity}"));
            let size = client.run(&format!("BF.INFO {key} SIZE")).elements()[0].number();
            let usage = client.run(&format!("MEMORY USAGE {key}")).number();
            assert!(size > last && size > capacity, "{size} bytes for {capacity} items");
            // Beside the value, MEMORY USAGE counts the key's entry in the server's table.
            let most = size + 200 + client.alignment_bytes(size);
            assert!((size..most).contains(&usage), "MEMORY USAGE {usage}, Size {size}");
            last = size;
        }
    });
}
