//! Cuckoo filters of our own layout: which commands create them, what both families of commands answer, effects for replicas and the AOF,
//! dumps, and copies that survive a kill.

use super::commands::propagated;
use crate::persistence::rewrite_append_only_file;
use testing::{
    Connection, Reply, Server, Stop, array, catch_up, digest, dump, error, follow, in_both_protocols, integer,
    next_record, nil, ok, on_every_server, restore, simple, with_append_only_client, with_client,
};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Returns the numbers of an array, with booleans as numbers.
fn numbers(reply: &Reply) -> Vec<i64> {
    let number = |reply: &Reply| if let Reply::Boolean(truth) = reply { (*truth).into() } else { reply.number() };
    reply.elements().iter().map(number).collect()
}

/// The layout that a command creates follows from its words, and otherwise from the settings.
#[test]
fn what_is_asked_for_selects_the_layout() {
    with_client(|_, client| {
        let mut layout_of = |line: &str| {
            client.run("FLUSHALL");
            let reply = client.run(line);
            assert!(!reply.is_error(), "{line}: {reply:?}");
            client.run("TYPE k").text().to_owned()
        };
        for (line, name) in [
            ("CF.RESERVE k 1000", "bloomgate"),
            ("CF.RESERVE k 1000 EXPANSION 0", "bloomgate"),
            ("CF.RESERVE k 1000 ERROR 0.001 HASH siphash", "bloomgate"),
            ("CF.RESERVE k 1000 FOO 5", "bloomgate"),
            ("CF.RESERVE k 1000 FOO ERROR", "bloomgate"),
            ("CF.RESERVE k 1000 LAYOUT native", "bloomgate"),
            ("CF.RESERVE k 1000 LAYOUT redisbloom", "MBbloomCF"),
            ("CF.RESERVE k 1000 BUCKETSIZE 2", "MBbloomCF"),
            ("CF.RESERVE k 1000 MAXITERATIONS 20 EXPANSION 1", "MBbloomCF"),
            ("CF.ADD k a", "bloomgate"),
            ("CF.ADDNX k a", "bloomgate"),
            ("CF.INSERT k CAPACITY 50 ITEMS a", "bloomgate"),
            ("CF.INSERTNX k ITEMS a", "bloomgate"),
            ("BF.RESERVE k 0.01 100 CUCKOO", "bloomgate"),
            ("BF.INSERT k CUCKOO ITEMS a", "bloomgate"),
        ] {
            assert_eq!(layout_of(line), name, "{line}");
        }
        for (setting, before) in
            [("bf.layout redisbloom", "native"), ("bf.cf-bucket-size 4", "2"), ("bf.cf-max-iterations 9", "20")]
        {
            client.run(&format!("CONFIG SET {setting}"));
            for (line, name) in [
                ("CF.RESERVE k 1000", "MBbloomCF"),
                ("CF.ADD k a", "MBbloomCF"),
                ("CF.INSERT k ITEMS a", "MBbloomCF"),
                ("CF.RESERVE k 1000 ERROR 0.001", "bloomgate"),
                ("CF.RESERVE k 1000 LAYOUT native", "bloomgate"),
            ] {
                client.run("FLUSHALL");
                client.run(line);
                assert_eq!(client.run("TYPE k").text(), name, "{setting}: {line}");
            }
            let name = setting.split(' ').next().unwrap();
            client.run(&format!("CONFIG SET {name} {before}"));
        }
        for key in ["error", "SEED", "layout"] {
            assert_eq!(client.run(&format!("CF.RESERVE {key} 1000")), ok(), "a key with the name of an option");
        }
        client.run("FLUSHALL");
        for (line, text) in [
            ("CF.RESERVE k 1000 BUCKETSIZE 4 ERROR 0.1", "ERR ERROR and BUCKETSIZE exclude each other"),
            ("CF.RESERVE k 1000 LAYOUT redisbloom SEED 5", "ERR SEED and LAYOUT redisbloom exclude each other"),
            (
                "CF.RESERVE k 1000 LAYOUT native MAXITERATIONS 5",
                "ERR MAXITERATIONS and LAYOUT native exclude each other",
            ),
            ("CF.RESERVE k 1000 ERROR 1.5", "ERR error rate must be in the range (0.000000, 1.000000)"),
            ("CF.RESERVE k 1000 ERROR x", "ERR bad error rate"),
            ("CF.RESERVE k 1000 ERROR 1e-10", "ERR the error rate of the filter or of its next layer is too low"),
            ("BF.RESERVE k 0.01 100 CUCKOO COUNTING", "ERR COUNTING and CUCKOO exclude each other"),
            ("BF.RESERVE k 0.01 100 CUCKOO WINDOW 60", "ERR CUCKOO and WINDOW exclude each other"),
            ("BF.RESERVE k 0.01 100 CUCKOO LAYOUT redisbloom", "ERR CUCKOO and LAYOUT redisbloom exclude each other"),
        ] {
            assert_eq!(client.run(line), error(text), "{line}");
        }
        client.assert_no_filters();
    });
}

/// Both families of commands answer about the same filter.
#[test]
fn both_families_use_a_filter() {
    in_both_protocols(|client, _| {
        client.run("CF.RESERVE k 1000");
        assert_eq!(numbers(&client.run("BF.MADD k a b a")), [1, 1, 0]);
        assert_eq!(numbers(&client.run("CF.INSERT k ITEMS a c")), [1, 1]);
        assert_eq!(numbers(&client.run("CF.INSERTNX k ITEMS a d d")), [0, 1, 0]);
        for (item, copies) in [("a", 3), ("b", 1), ("d", 1), ("x", 0)] {
            assert_eq!(client.run(&format!("CF.COUNT k {item}")), integer(copies), "{item}");
            assert_eq!(client.run(&format!("BF.COUNT k {item}")), integer(copies), "{item}");
        }
        assert_eq!(numbers(&client.run("CF.MEXISTS k a b x")), [1, 1, 0]);
        assert_eq!(numbers(&client.run("BF.MEXISTS k a b x")), [1, 1, 0]);
        for (line, found) in
            [("CF.DEL k a", 1), ("BF.DEL k a", 1), ("CF.DEL k a", 1), ("BF.DEL k a", 0), ("CF.DEL k x", 0)]
        {
            assert_eq!(client.run(line).truth(), found == 1, "{line}");
        }
        let info = client.run("CF.INFO k");
        let figures = ["Number of items inserted", "Number of filters", "Bucket size", "Expansion rate"];
        assert_eq!(figures.map(|name| info.field(name).number()), [3, 1, 4, 2]);
        assert_eq!(client.run("BF.CARD k"), integer(3));
        assert_eq!(client.run("CF.COMPACT k"), ok());
        // Four copies are stored. Further adds and deletes are answered, and change nothing.
        for _ in 0..6 {
            assert!(client.run("CF.ADD k hot").truth());
        }
        assert_eq!(client.run("CF.COUNT k hot"), integer(4));
        (0..9).for_each(|_| assert!(client.run("CF.DEL k hot").truth()));
        assert_eq!(client.run("CF.COUNT k hot"), integer(4));
        // A filter of another kind, and commands for other kinds.
        client.run("BF.RESERVE bloom 0.01 100");
        for line in ["CF.ADD bloom a", "CF.DEL bloom a", "CF.EXISTS bloom a", "CF.INFO bloom"] {
            assert_eq!(client.run(line), error(WRONG_TYPE), "{line}");
        }
        assert_eq!(client.run("BF.COUNT bloom a"), error("ERR this filter has no CUCKOO or COUNTING"));
        assert_eq!(client.run("BF.FETCH k a row:a"), error("ERR a CUCKOO or COUNTING filter cannot guard"));
        assert_eq!(client.run("CF.RESERVE k 5"), error("ERR item exists"));
        assert_eq!(client.run("CF.LOADCHUNK k 1 x"), error("ERR item exists"));
    });
}

#[test]
fn a_full_filter_refuses_items_one_by_one() {
    in_both_protocols(|client, _| {
        client.run("CF.RESERVE k 4 EXPANSION 0");
        assert_eq!(numbers(&client.run("CF.INSERTNX k ITEMS a b c d a e b")), [1, 1, 1, 1, 0, -1, 0]);
        assert_eq!(client.run("CF.ADD k e"), error("Filter is full"));
        assert_eq!(client.run("BF.ADD k e"), error("ERR non scaling filter is full"));
        assert!(client.run("CF.DEL k a").truth());
        assert_eq!(numbers(&client.run("CF.INSERT k ITEMS e")), [1]);
    });
}

#[test]
fn effects_are_propagated() {
    with_append_only_client(|server, client| {
        let mut seen = 0;
        propagated(server, &mut seen);
        client.run("CONFIG SET bf.cf-initial-size 50");
        for (line, expected) in [
            ("CF.RESERVE k 100 SEED 7", &["BF.INSERT k CAPACITY 100 ERROR 0.01 EXPANSION 2 CUCKOO SEED 7"][..]),
            ("CF.ADD k a", &["CF.ADD k a"]),
            ("CF.ADDNX k a", &[]),
            ("CF.ADDNX k b", &["CF.ADD k b"]),
            ("CF.INSERT k ITEMS a a a", &["CF.INSERT k ITEMS a a a"]),
            // The item has four copies.
            ("CF.ADD k a", &[]),
            ("CF.INSERT k ITEMS a c", &["CF.ADD k c"]),
            ("CF.INSERTNX k ITEMS c d e", &["CF.INSERT k NOCREATE ITEMS d e"]),
            ("BF.ADD k b", &["BF.ADD k b"]),
            ("BF.MADD k a f", &["BF.MADD k f"]),
            ("CF.DEL k x", &[]),
            ("CF.DEL k b", &["CF.DEL k b"]),
            ("BF.DEL k b", &["BF.DEL k b"]),
            ("CF.COMPACT k", &[]),
            (
                "BF.RESERVE own 0.01 100 CUCKOO SEED 8 NONSCALING",
                &["BF.INSERT own CAPACITY 100 ERROR 0.01 NONSCALING CUCKOO SEED 8"],
            ),
        ] {
            assert!(!client.run(line).is_error(), "{line}");
            assert_eq!(propagated(server, &mut seen), expected, "{line}");
        }
        client.run("CF.INSERT new ITEMS a b");
        let created = propagated(server, &mut seen);
        assert!(
            created.len() == 1
                && created[0].starts_with("BF.INSERT new CAPACITY 50 ERROR 0.01 EXPANSION 2 CUCKOO SEED ")
                && created[0].ends_with(" ITEMS a b"),
            "{created:?}"
        );
        // A key of SipHash is not in the server's logs.
        client.run("CONFIG SET slowlog-log-slower-than 0");
        client.run("CF.RESERVE keyed 100 HASH siphash SEED 00112233445566778899aabbccddeeff");
        assert!(!format!("{:?}", client.run("SLOWLOG GET 5")).contains("00112233"));
    });
}

/// Adds, deletes and grows several filters.
fn some_commands(client: &mut Connection) {
    client.run("CF.RESERVE grown 100");
    client.run("CF.RESERVE strict 500 ERROR 0.0001 EXPANSION 4");
    client.run("CF.RESERVE small 4 ERROR 0.2 EXPANSION 1");
    client.run("BF.RESERVE fixed 0.01 5000 CUCKOO NONSCALING");
    for round in 0..30 {
        let items: Vec<String> = (0..100).map(|number| format!("{}", round * 70 + number)).collect();
        let items = items.join(" ");
        for key in ["grown", "strict", "small", "fixed", "default"] {
            client.run(&format!("CF.INSERT {key} ITEMS {items}"));
        }
        for number in 0..60 {
            for key in ["grown", "strict", "fixed"] {
                client.run(&format!("CF.DEL {key} {}", round * 70 + number));
            }
        }
    }
}

const KEYS: [&str; 5] = ["grown", "strict", "small", "fixed", "default"];

#[test]
fn replicas_and_files_have_equal_filters() {
    on_every_server(|program| {
        let mut primary = testing::with_append_only_file(program);
        let replica = Server::start(program);
        let (mut client, mut copy) = (primary.connect(), replica.connect());
        follow(&mut copy, &primary);
        some_commands(&mut client);
        assert!(client.run("CF.INFO small").field("Number of filters").number() > 5);
        catch_up(&mut client, &mut copy);
        let before = KEYS.map(|key| digest(&mut client, key));
        assert_eq!(KEYS.map(|key| digest(&mut copy, key)), before);
        assert_eq!(copy.info_number("unexpected_error_replies"), 0);
        let payloads = KEYS.map(|key| dump(&mut client, key));
        for stop in [Stop::Kill, Stop::NoSave] {
            primary.restart(stop);
            let mut client = primary.connect();
            assert_eq!(KEYS.map(|key| digest(&mut client, key)), before);
            assert_eq!(KEYS.map(|key| dump(&mut client, key)), payloads);
            client.run("CONFIG SET aof-use-rdb-preamble no");
            rewrite_append_only_file(&mut client);
        }
        primary.restart(Stop::Kill);
        let mut client = primary.connect();
        assert_eq!(KEYS.map(|key| digest(&mut client, key)), before, "from records");
        for (key, payload) in KEYS.iter().zip(&payloads) {
            assert_eq!(restore(&mut client, "copy", payload), ok());
            assert_eq!(digest(&mut client, "copy"), digest(&mut client, key));
            client.run("DEL copy");
        }
    });
}

/// Both families of commands dump and load a filter, record by record.
#[test]
fn a_filter_is_dumped_and_loaded() {
    with_client(|_, client| {
        some_commands(client);
        for key in KEYS {
            let mut iterator = 0;
            while let Some((next, data)) = next_record(client, key, iterator) {
                let same = client.run(&format!("CF.SCANDUMP {key} {iterator}"));
                assert_eq!(same.elements()[1].bytes(), data);
                let family = if iterator == 0 { "BF.LOADCHUNK" } else { "CF.LOADCHUNK" };
                assert_eq!(client.call(&[family.as_bytes(), b"copy", next.to_string().as_bytes(), &data]), ok());
                iterator = next;
            }
            assert_eq!(digest(client, "copy"), digest(client, key));
            assert_eq!(client.run("TYPE copy"), simple("bloomgate"));
            client.run("DEL copy");
        }
        // As in RedisBloom, CF.SCANDUMP replies null at the end, and an empty filter has no records.
        let end = array([integer(0), nil(2)]);
        client.run("CF.RESERVE none 100");
        assert_eq!(client.run("CF.SCANDUMP none 0"), end);
        let last = std::iter::successors(Some(0), |iterator| Some(next_record(client, "grown", *iterator)?.0)).last();
        assert_eq!(client.run(&format!("CF.SCANDUMP grown {}", last.unwrap())), end);
        // Before its last record, a filter answers neither family.
        let (iterator, header) = next_record(client, "grown", 0).unwrap();
        assert_eq!(client.call(&[&b"CF.LOADCHUNK"[..], b"part", iterator.to_string().as_bytes(), &header]), ok());
        for line in ["CF.EXISTS part a", "CF.ADD part a", "BF.EXISTS part a", "CF.INFO part"] {
            assert!(client.run(line).error_text().contains("load"), "{line}");
        }
    });
}

/// A filter that shrinks returns its memory.
#[test]
fn an_emptied_filter_has_one_layer() {
    with_client(|_, client| {
        client.run("CF.RESERVE k 100");
        let items: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
        client.run(&format!("CF.INSERT k ITEMS {}", items.join(" ")));
        let memory = |client: &mut Connection| client.run("MEMORY USAGE k").number();
        let grown = memory(client);
        assert!(client.run("CF.INFO k").field("Number of filters").number() > 4);
        for batch in items.chunks(500) {
            let reply = client.run(&format!("BF.MDEL k {}", batch.join(" ")));
            assert!(numbers(&reply).iter().all(|found| *found == 1));
        }
        assert_eq!(client.run("CF.INFO k").field("Number of filters"), &Reply::Integer(1));
        assert!(memory(client) < grown / 20);
        assert_eq!(client.run("BF.CARD k"), integer(0));
    });
}
