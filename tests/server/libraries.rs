//! The exact commands of well-known client libraries, and the replies that they parse: each library has its own format of numbers and its
//! own order of options. The commands were recorded with MONITOR; the commands of phpredis and StackExchange.Redis come from their sources.
//! `tests/clients` runs the libraries themselves.

use testing::{Connection, Reply, array, error, in_both_protocols, integer, nil, ok, simple};

use Says::{Capacity, Count, Info, Many, No, Refused, Reserved, Yes};

/// The content of a reply, independent of the protocol.
#[derive(Clone, Copy, Debug)]
enum Says {
    Reserved,
    Yes,
    No,
    Many(&'static [u8]),
    Count(i64),
    /// All five fields. A filter that does not grow has no expansion.
    Info {
        capacity: i64,
        items: i64,
        expansion: Option<i64>,
    },
    Capacity(i64),
    Refused(&'static str),
}

/// The libraries' formats of the rates 0.0001, 0.05 and 1e-7.
const RATES: [(&str, [&str; 3]); 6] = [
    ("redis-py", ["0.0001", "0.05", "1e-07"]),
    ("node-redis, ioredis", ["0.0001", "0.05", "1e-7"]),
    ("Jedis, Lettuce, Redisson", ["1.0E-4", "0.05", "1.0E-7"]),
    ("go-redis, rueidis", ["0.0001", "0.05", "0.0000001"]),
    ("phpredis", ["0.0001", "0.050000000000000003", "9.9999999999999995e-8"]),
    ("StackExchange.Redis", ["0.0001", "0.050000000000000003", "9.9999999999999995E-08"]),
];

/// The commands, in order. Most libraries send the same.
const COMMANDS: [(&str, &str, Says); 27] = [
    ("all", "BF.RESERVE k 0.01 1000", Reserved),
    ("all", "BF.RESERVE k 0.01 1000", Refused("ERR item exists")),
    ("all, as words", "BF.RESERVE k 0.01 1000 EXIST_OK", Reserved),
    ("all", "BF.RESERVE expanding 0.01 1000 EXPANSION 4", Reserved),
    ("all", "BF.RESERVE fixed 0.01 1000 NONSCALING", Reserved),
    ("all", "BF.ADD k a", Yes),
    ("all", "BF.ADD k a", No),
    ("all", "BF.MADD k a b", Many(&[0, 1])),
    ("all", "BF.EXISTS k a", Yes),
    ("all", "BF.EXISTS k x", No),
    ("all", "BF.MEXISTS k a x", Many(&[1, 0])),
    ("all", "BF.CARD k", Count(2)),
    ("all", "BF.INFO k", Info { capacity: 1000, items: 2, expansion: Some(2) }),
    ("all", "BF.INFO expanding", Info { capacity: 1000, items: 0, expansion: Some(4) }),
    ("all", "BF.INFO fixed", Info { capacity: 1000, items: 0, expansion: None }),
    ("go-redis, rueidis, Redisson", "BF.INFO k CAPACITY", Capacity(1000)),
    ("all", "BF.INFO missing", Refused("ERR not found")),
    ("all", "BF.INSERT plain ITEMS a b", Many(&[1, 1])),
    (
        "redis-py, node-redis, rueidis",
        "BF.INSERT r CAPACITY 10 ERROR 0.0001 EXPANSION 3 NONSCALING ITEMS a",
        Many(&[1]),
    ),
    (
        "go-redis, Jedis, Lettuce",
        "BF.INSERT k CAPACITY 10 ERROR 1.0E-4 EXPANSION 3 NOCREATE NONSCALING ITEMS a",
        Many(&[0]),
    ),
    ("Jedis, Lettuce", "BF.INSERT missing CAPACITY 10 ERROR 1.0E-4 NOCREATE ITEMS a", Refused("ERR not found")),
    ("Redisson", "BF.INSERT redisson CAPACITY 10 ERROR 1.0E-4 EXPANSION 3 ITEMS a b", Many(&[1, 1])),
    ("redis-py, Redisson", "BF.INSERT k NOCREATE ITEMS a c", Many(&[0, 1])),
    ("all", "BF.INFO r", Info { capacity: 10, items: 1, expansion: None }),
    ("all", "BF.INFO redisson", Info { capacity: 10, items: 2, expansion: Some(3) }),
    ("all", "BF.MEXISTS missing a b", Many(&[0, 0])),
    ("all", "BF.CARD missing", Count(0)),
];

/// Whether a reply says this, in the form of the connection's protocol.
fn assert_says(client: &Connection, protocol: u8, reply: &Reply, says: Says, line: &str) {
    let one = |name: &str, value: Reply| match protocol {
        3 => Reply::Map(vec![(simple(name), value)]),
        _ => array([value]),
    };
    let expected = match says {
        Reserved => ok(),
        Yes => client.answer(true),
        No => client.answer(false),
        Many(answers) => array(answers.iter().map(|answer| client.answer(*answer == 1)).collect::<Vec<_>>()),
        Count(count) => integer(count),
        Capacity(capacity) => one("Capacity", integer(capacity)),
        Refused(text) => error(text),
        Info { capacity, items, expansion } => {
            let fields = [
                ("Capacity", integer(capacity)),
                ("Size", reply.field("Size").clone()),
                ("Number of filters", integer(1)),
                ("Number of items inserted", integer(items)),
                ("Expansion rate", expansion.map_or(nil(protocol), integer)),
            ];
            match protocol {
                3 => Reply::Map(fields.map(|(name, value)| (simple(name), value)).into()),
                _ => array(fields.into_iter().flat_map(|(name, value)| [simple(name), value]).collect::<Vec<_>>()),
            }
        }
    };
    assert_eq!(reply, &expected, "{line} in RESP{protocol}");
}

#[test]
fn each_library_gets_the_replies_that_it_parses() {
    in_both_protocols(|client, protocol| {
        for (libraries, line, says) in COMMANDS {
            let reply = client.run(line);
            assert_says(client, protocol, &reply, says, &format!("{libraries}: {line}"));
        }
    });
}

/// The filter does not depend on the format of the rate.
#[test]
fn each_format_of_a_rate_gives_the_same_filter() {
    in_both_protocols(|client, _| {
        for (libraries, rates) in RATES {
            for (rate, number) in rates.into_iter().zip([0.0001, 0.05, 1e-7]) {
                for line in [
                    format!("BF.RESERVE k {rate} 1000"),
                    format!("BF.RESERVE k {number} 1000 EXIST_OK"),
                    format!("BF.RESERVE k {rate} 1000 EXIST_OK"),
                ] {
                    assert_eq!(client.run(&line), ok(), "{libraries}: {line}");
                }
                client.run("DEL k");
                client.run(&format!("BF.INSERT k CAPACITY 1000 ERROR {rate} ITEMS a"));
                assert_eq!(client.run(&format!("BF.RESERVE k {number} 1000 EXIST_OK")), ok(), "{libraries}: {rate}");
                client.run("DEL k");
            }
        }
    });
}
