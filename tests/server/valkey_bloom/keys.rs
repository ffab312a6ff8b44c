//! BF.INFO of a filter of valkey-bloom's layout.

use super::golden::{Golden, server_with_goldens};
use super::model::Model;
use testing::{Reply, Server, integer, nil, ok, on_every_server};

/// The field words of BF.INFO, in the order of the whole.
const WORDS: [&str; 8] =
    ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "ERROR", "EXPANSION", "TIGHTENING", "MAXSCALEDCAPACITY"];

fn is_fixed(golden: &Golden) -> bool {
    golden.info.as_array().unwrap().len() == 12
}

/// A fraction, in whichever way the protocol has it.
fn fraction(reply: &Reply) -> f64 {
    match reply {
        Reply::Double(text) => text.parse().expect("a number"),
        other => other.text().parse().expect("a number"),
    }
}

#[test]
fn info_is_a_flat_array_in_both_protocols() {
    on_every_server(|program| {
        let (server, mut client, goldens) = server_with_goldens(Server::with(program));
        let mut third = server.connect_speaking(3);
        for golden in &goldens {
            let line = format!("BF.INFO {}", golden.key);
            let (two, three) = (client.run(&line), third.run(&line));
            assert!(matches!(three, Reply::Array(_)), "{three:?}");
            assert_eq!(two.elements().len(), three.elements().len());
            for (old, new) in two.elements().chunks(2).zip(three.elements().chunks(2)) {
                assert_eq!(old[0].text(), new[0].text());
                match &old[1] {
                    Reply::NullBulk => assert_eq!(new[1], Reply::Null),
                    Reply::Integer(_) => assert_eq!(old[1], new[1]),
                    text => assert_eq!(fraction(text), fraction(&new[1])),
                }
            }
        }
    });
}

#[test]
fn one_field_of_info_is_a_scalar() {
    on_every_server(|program| {
        let (server, _, goldens) = server_with_goldens(Server::with(program));
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            for golden in &goldens {
                let whole = client.run(&format!("BF.INFO {}", golden.key));
                let fixed = is_fixed(golden);
                for (place, word) in WORDS.iter().enumerate() {
                    for word in [word.to_string(), word.to_lowercase()] {
                        let reply = client.run(&format!("BF.INFO {} {word}", golden.key));
                        if fixed && place >= 6 {
                            assert_eq!(reply.error_text(), "ERR invalid information value", "{} {word}", golden.key);
                        } else {
                            assert_eq!(reply, whole.elements()[2 * place + 1], "{} {word}", golden.key);
                        }
                    }
                }
                if fixed {
                    assert_eq!(client.run(&format!("BF.INFO {} EXPANSION", golden.key)), nil(protocol));
                }
                assert!(client.run(&format!("BF.INFO {} FROBNICATE", golden.key)).is_error());
            }
        }
    });
}

#[test]
fn the_largest_capacity_follows_the_ceiling() {
    on_every_server(|program| {
        let (_server, mut client, goldens) = server_with_goldens(Server::with(program));
        for ceiling in [20_000_u64, 1 << 20, 10_000_000, 134_217_728, 1 << 30] {
            assert_eq!(client.run(&format!("CONFIG SET bf.bloom-memory-usage-limit {ceiling}")), ok());
            for golden in goldens.iter().filter(|golden| !is_fixed(golden)) {
                let expected = Model::from_payload(&golden.payload).max_scaled_capacity(ceiling);
                let reply = client.run(&format!("BF.INFO {} MAXSCALEDCAPACITY", golden.key));
                assert_eq!(reply, integer(expected), "{} below {ceiling}", golden.key);
            }
        }
    });
}
