//! The CF.* commands: replies in both protocols, errors and their order, effects for replicas and the AOF, events, filters that arrive, and
//! payloads that no filter has.

use super::THEIR_LAYOUT;
use testing::{
    Connection, Reply, Server, Stop, append_only_commands, array, bulk, catch_up, digest, dump, error, follow,
    in_both_protocols, integer, nil, ok, on_every_server, restore, simple, value_of, with_append_only_client,
    with_client, with_fixed_checksum,
};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const CAPACITY_RANGE: &str = "Capacity must be in the range [2 * BUCKETSIZE, 1073741824]";
const INSERT_RANGE: &str = "Capacity must be in the range [cf-bucket-size * 2, 1073741824]";

#[test]
fn errors_have_redisblooms_texts_in_its_order() {
    in_both_protocols(|client, _| {
        client.run(THEIR_LAYOUT);
        client.run("CF.RESERVE k 100");
        client.run("CF.RESERVE fixed 2 BUCKETSIZE 1 EXPANSION 0");
        client.run("CF.INSERT fixed ITEMS a b c d");
        for (line, text) in [
            ("CF.RESERVE k 100", "ERR item exists"),
            ("CF.RESERVE k x BUCKETSIZE x", "Bad capacity"),
            ("CF.RESERVE k +5", "Bad capacity"),
            ("CF.RESERVE k 05", "Bad capacity"),
            ("CF.RESERVE k 1 BUCKETSIZE x MAXITERATIONS x", "Couldn't parse MAXITERATIONS"),
            ("CF.RESERVE k 1 BUCKETSIZE x MAXITERATIONS 0", "MAXITERATIONS: value must be in the range [1, 65535]"),
            ("CF.RESERVE k 1 EXPANSION x BUCKETSIZE x", "Couldn't parse BUCKETSIZE"),
            ("CF.RESERVE k 1 EXPANSION x BUCKETSIZE 256", "BUCKETSIZE: value must be in the range [1, 255]"),
            ("CF.RESERVE k 1 EXPANSION x", "Couldn't parse EXPANSION"),
            ("CF.RESERVE k 1 EXPANSION 32769", "EXPANSION: value must be in the range [0, 32768]"),
            ("CF.RESERVE k 1 expansion -1", "EXPANSION: value must be in the range [0, 32768]"),
            ("CF.RESERVE k 1", CAPACITY_RANGE),
            ("CF.RESERVE k -5", CAPACITY_RANGE),
            ("CF.RESERVE k 7 BUCKETSIZE 4", CAPACITY_RANGE),
            ("CF.RESERVE k 1073741825", CAPACITY_RANGE),
            ("CF.RESERVE BUCKETSIZE 50", CAPACITY_RANGE),
            ("CF.RESERVE k 10 FOO", "ERR wrong number of arguments for 'CF.RESERVE' command"),
            ("CF.RESERVE k 10 FOO BUCKETSIZE", "ERR wrong number of arguments for 'CF.RESERVE' command"),
            ("CF.INSERT k FOO ITEMS a", "Unknown argument received"),
            ("CF.INSERT k CAPACITY x FOO", "Bad capacity"),
            ("CF.INSERT k CAPACITY 3 ITEMS a", INSERT_RANGE),
            ("CF.INSERT k CAPACITY ITEMS a b", "Bad capacity"),
            ("CF.INSERT k CAPACITY 10 NOCREATE", "ERR wrong number of arguments for 'CF.INSERT' command"),
            ("CF.INSERT none NOCREATE ITEMS a", "ERR not found"),
            ("CF.INSERTNX none N I a", "ERR not found"),
            ("CF.ADD fixed z", "Filter is full"),
            ("CF.ADDNX fixed z", "Filter is full"),
            ("CF.DEL none a", "Not found"),
            ("CF.COMPACT none", "Cuckoo filter was not found"),
            ("CF.INFO none", "ERR not found"),
            ("CF.DEBUG none", "ERR not found"),
            ("CF.SCANDUMP none 0", "ERR not found"),
            ("CF.SCANDUMP none -1", "Invalid position"),
            ("CF.SCANDUMP none x", "Invalid position"),
            ("CF.LOADCHUNK none 0 x", "Invalid position"),
            ("CF.LOADCHUNK none x x", "Invalid position"),
            ("CF.LOADCHUNK none 1 x", "Invalid header"),
            ("CF.LOADCHUNK none 1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "Couldn't create filter!"),
            ("CF.LOADCHUNK none 2 x", "ERR not found"),
            ("CF.LOADCHUNK k 1 x", "ERR item exists"),
            ("CF.LOADCHUNK k 2 x", "Couldn't load chunk!"),
            ("CF.LOADCHUNK k -2 x", "Couldn't load chunk!"),
            ("CF.LOADCHUNK k 999999 x", "Couldn't load chunk!"),
        ] {
            assert_eq!(client.run(line).error_text().to_lowercase(), text.to_lowercase(), "{line}");
        }
        for name in
            ["ADD", "INSERT", "EXISTS", "MEXISTS", "COUNT", "DEL", "INFO", "COMPACT", "DEBUG", "SCANDUMP", "LOADCHUNK"]
        {
            assert!(client.run(&format!("CF.{name}")).error_text().starts_with("ERR wrong number"), "{name}");
        }
    });
}

#[test]
fn replies_have_redisblooms_types() {
    in_both_protocols(|client, protocol| {
        client.run(THEIR_LAYOUT);
        let (yes, no) = (client.answer(true), client.answer(false));
        let refused = if protocol == 3 { no.clone() } else { integer(-1) };
        for (line, expected) in [
            ("CF.RESERVE k 2 BUCKETSIZE 1 EXPANSION 0", ok()),
            ("CF.ADD k a", yes.clone()),
            ("CF.ADDNX k a", no.clone()),
            ("CF.INSERT k ITEMS b c d", array([refused.clone(), yes.clone(), refused])),
            ("CF.INSERTNX k ITEMS a zz", array([integer(0), integer(-1)])),
            ("CF.EXISTS k a", yes.clone()),
            ("CF.EXISTS none a", no.clone()),
            ("CF.MEXISTS none a b", array([no.clone(), no.clone()])),
            // Both buckets of this item are the same.
            ("CF.COUNT k a", integer(2)),
            ("CF.COUNT none a", integer(0)),
            ("CF.DEL k a", yes.clone()),
            ("CF.DEL k c", yes.clone()),
            ("CF.DEL k a", no.clone()),
            ("CF.DEBUG k", bulk("bktsize:1 buckets:2 items:0 deletes:2 filters:1 max_iterations:20 expansion:0")),
            ("CF.COMPACT k", ok()),
            ("CF.SCANDUMP k 0", array([integer(0), nil(protocol)])),
            ("CF.ADDNX new a", yes),
        ] {
            assert_eq!(client.run(line), expected, "{line}");
        }
        let names = ["Size", "Number of buckets", "Number of filters", "Number of items inserted"];
        let more = ["Number of items deleted", "Bucket size", "Expansion rate", "Max iterations"];
        let pairs: Vec<_> =
            names.into_iter().chain(more).map(simple).zip([1080, 512, 1, 1, 0, 2, 1, 20].map(integer)).collect();
        let expected = match protocol {
            2 => array(pairs.into_iter().flat_map(|(name, value)| [name, value]).collect::<Vec<_>>()),
            _ => Reply::Map(pairs),
        };
        assert_eq!(client.run("CF.INFO new"), expected);
    });
}

#[test]
fn neither_family_takes_a_filter_of_the_other() {
    in_both_protocols(|client, _| {
        client.run(THEIR_LAYOUT);
        client.run("CF.ADD cuckoo x");
        client.run("BF.ADD bloom x");
        client.run("SET text x");
        for line in [
            "CF.RESERVE k 100",
            "CF.ADD k x",
            "CF.ADDNX k x",
            "CF.INSERT k ITEMS x",
            "CF.INSERTNX k NOCREATE ITEMS x",
            "CF.EXISTS k x",
            "CF.MEXISTS k x y",
            "CF.COUNT k x",
            "CF.DEL k x",
            "CF.INFO k",
            "CF.COMPACT k",
            "CF.DEBUG k",
            "CF.SCANDUMP k 0",
            "CF.LOADCHUNK k 1 x",
        ] {
            for key in ["bloom", "text"] {
                let line = line.replacen(" k", &format!(" {key}"), 1);
                assert_eq!(client.run(&line), error(WRONG_TYPE), "{line}");
            }
        }
        for line in [
            "BF.RESERVE k 0.01 100",
            "BF.ADD k x",
            "BF.INSERT k ITEMS x",
            "BF.EXISTS k x",
            "BF.CARD k",
            "BF.INFO k",
            "BF.STATS k",
            "BF.DEL k x",
            "BF.CLEAR k",
            "BF.MERGE k bloom",
            "BF.MERGE bloom k",
            "BF.SCANDUMP k 0",
            "BF.LOADCHUNK k 1 x",
            "BF.LOAD k x",
        ] {
            let line = line.replacen(" k", " cuckoo", 1);
            assert_eq!(client.run(&line), error(WRONG_TYPE), "{line}");
        }
        assert_eq!(client.run("TYPE cuckoo"), simple("MBbloomCF"));
    });
}

/// The commands that were propagated since the last call, without the keys' contents.
pub fn propagated(server: &Server, seen: &mut usize) -> Vec<String> {
    let commands = append_only_commands(server);
    let new = commands[*seen..].iter().map(|words| String::from_utf8_lossy(&words.join(&b' ')).into_owned());
    let new = new.filter(|line| line != "MULTI" && line != "EXEC").collect();
    *seen = commands.len();
    new
}

#[test]
fn effects_are_propagated() {
    with_append_only_client(|server, client| {
        client.run(THEIR_LAYOUT);
        let mut seen = 0;
        propagated(server, &mut seen);
        for (line, effects) in [
            ("CF.RESERVE k 100 EXPANSION 3", &["CF.RESERVE k 100 BUCKETSIZE 2 MAXITERATIONS 20 EXPANSION 3"][..]),
            ("CF.ADD k a", &["CF.ADD k a"]),
            ("CF.ADDNX k a", &[]),
            ("CF.ADDNX k b", &["CF.ADD k b"]),
            ("CF.INSERTNX k ITEMS a c b d", &["CF.INSERT k NOCREATE ITEMS c d"]),
            ("CF.DEL k none", &[]),
            ("CF.DEL k a", &["CF.DEL k a"]),
            ("CF.COMPACT k", &["CF.COMPACT k"]),
            ("CF.COMPACT k", &[]),
            (
                "CF.INSERT new CAPACITY 50 ITEMS a a",
                &["CF.RESERVE new 50 BUCKETSIZE 2 MAXITERATIONS 20 EXPANSION 1", "CF.INSERT new NOCREATE ITEMS a a"],
            ),
            (
                "CF.RESERVE full 2 BUCKETSIZE 1 EXPANSION 0",
                &["CF.RESERVE full 2 BUCKETSIZE 1 MAXITERATIONS 20 EXPANSION 0"],
            ),
            ("CF.INSERT full ITEMS a b c d", &["CF.INSERT full NOCREATE ITEMS a c"]),
            ("CF.INSERT full ITEMS b d", &[]),
            ("CF.ADD full a", &[]),
        ] {
            client.run(line);
            assert_eq!(propagated(server, &mut seen), effects, "{line}");
        }
    });
}

/// Random commands with adds above the limit of expansions, which the replica's own setting does not allow.
fn some_commands(client: &mut Connection) {
    client.run("CONFIG SET bf.cf-max-expansions 100");
    client.run("CF.RESERVE grown 4 BUCKETSIZE 1 EXPANSION 1");
    for number in 0..300 {
        client.run(&format!("CF.ADD default {number}"));
        client.run(&format!("CF.ADDNX grown {}", number % 150));
        client.run(&format!("CF.INSERTNX many ITEMS {} {} {}", number, number + 1, number * 7));
        if number % 3 == 0 {
            client.run(&format!("CF.DEL grown {}", number / 2));
            client.run(&format!("CF.DEL default {}", number * 2));
        }
    }
    assert!(client.run("CF.INFO grown").field("Number of filters").number() > 32);
    client.run("CF.COMPACT many");
}

#[test]
fn replicas_and_files_have_equal_filters() {
    on_every_server(|program| {
        let mut primary = testing::with_append_only_file(program);
        let replica = Server::start(program);
        let (mut client, mut copy) = (primary.connect(), replica.connect());
        follow(&mut copy, &primary);
        client.run(THEIR_LAYOUT);
        some_commands(&mut client);
        catch_up(&mut client, &mut copy);
        let keys = ["default", "grown", "many"];
        let before = keys.map(|key| digest(&mut client, key));
        assert_eq!(keys.map(|key| digest(&mut copy, key)), before);
        assert_eq!(copy.info_number("unexpected_error_replies"), 0);
        let payloads = keys.map(|key| dump(&mut client, key));
        primary.restart(Stop::NoSave);
        let mut client = primary.connect();
        assert_eq!(keys.map(|key| digest(&mut client, key)), before);
        assert_eq!(keys.map(|key| dump(&mut client, key)), payloads);
    });
}

#[test]
fn adds_are_refused_after_the_last_expansion() {
    in_both_protocols(|client, _| {
        client.run(THEIR_LAYOUT);
        client.run("CONFIG SET bf.cf-max-expansions 2");
        client.run("CF.RESERVE k 2 BUCKETSIZE 1");
        let reached = error("Maximum expansions reached");
        // The limit is checked before the first item.
        assert_eq!(client.run("CF.INSERT k ITEMS x x x x x x x").elements().len(), 7);
        for line in ["CF.ADD k y", "CF.ADDNX k x", "CF.INSERT k ITEMS y z", "CF.INSERTNX k ITEMS x"] {
            assert_eq!(client.run(line), reached, "{line}");
        }
        client.run("CONFIG SET bf.cf-max-expansions 1");
        assert_eq!(client.run("CF.ADD new y"), reached);
        assert_eq!(client.run("EXISTS new"), integer(0));
    });
}

#[test]
fn events_name_adds_creations_and_deletes() {
    with_client(|server, client| {
        assert_eq!(client.run("CONFIG SET notify-keyspace-events KA"), ok());
        let mut listener = server.connect();
        listener.run("PSUBSCRIBE __keyspace@0__:k");
        for line in
            ["CF.RESERVE k 100", "CF.ADD k a", "CF.ADDNX k a", "CF.DEL k none", "CF.DEL k a", "DEL k", "CF.ADD k a"]
        {
            client.run(line);
        }
        let expected = ["cuckoo.reserve", "cuckoo.add", "cuckoo.del", "del", "cuckoo.reserve", "cuckoo.add"];
        let heard: Vec<String> = expected.iter().map(|_| listener.receive().unwrap().elements()[3].text()).collect();
        let heard: Vec<_> = heard.into_iter().filter(|event| event != "new").collect();
        assert_eq!(heard, expected);
    });
}

#[test]
fn filters_are_counted_in_info() {
    with_client(|_, client| {
        client.run("CF.RESERVE k 8 BUCKETSIZE 2 EXPANSION 2");
        let size = |client: &mut Connection| client.run("CF.INFO k").field("Size").number();
        for items in [0, 5, 40] {
            (0..items).for_each(|number| _ = client.run(&format!("CF.ADD k {items}:{number}")));
            assert_eq!(client.info_number("bf_bloom_num_objects"), 1);
            assert_eq!(client.info_number("bf_bloom_total_memory_bytes"), size(client), "{items}");
        }
        assert_eq!(client.info_number("bf_bloom_num_items_across_objects"), 45);
        assert!(client.run("MEMORY USAGE k").number() >= size(client));
        client.run("DEL k");
        client.assert_no_filters();
    });
}

#[test]
fn a_filter_is_not_used_before_its_last_chunk() {
    on_every_server(|program| {
        let mut server = Server::start(program);
        let mut client = server.connect();
        client.run(THEIR_LAYOUT);
        client.run("CF.INSERT k CAPACITY 8 ITEMS a b c d e f g h i j k l m n o p q r s t u v w x y z");
        let mut records = Vec::new();
        loop {
            let iterator = records.last().map_or(0, |(iterator, _): &(i64, Vec<u8>)| *iterator);
            let next = client.run(&format!("CF.SCANDUMP k {iterator}"));
            let [iterator, data] = next.elements() else { panic!("{next:?}") };
            if iterator.number() == 0 {
                break;
            }
            records.push((iterator.number(), data.bytes().to_vec()));
        }
        assert!(records.len() > 3);
        let load = |client: &mut Connection, (iterator, data): &(i64, Vec<u8>)| {
            client.call(&[b"CF.LOADCHUNK", &b"copy"[..], iterator.to_string().as_bytes(), data])
        };
        for record in &records[..2] {
            assert_eq!((load(&mut client, record), load(&mut client, record)), (ok(), ok()), "also repeated");
        }
        assert_eq!(load(&mut client, records.last().unwrap()), error("Couldn't load chunk!"), "a gap");
        for line in ["CF.EXISTS copy a", "CF.ADD copy a", "CF.DEL copy a", "CF.INFO copy", "BF.ADD copy a"] {
            assert!(client.run(line).error_text().contains("load"), "{line}");
        }
        assert_eq!(client.run("BF.LOADCHUNK copy 1 x"), error(WRONG_TYPE));
        server.restart(Stop::Save);
        let mut client = server.connect();
        assert!(client.run("CF.EXISTS copy a").is_error());
        records[2..].iter().for_each(|record| assert_eq!(load(&mut client, record), ok()));
        assert_eq!(load(&mut client, records.last().unwrap()), ok(), "a reply may have been lost");
        assert_eq!(digest(&mut client, "copy"), digest(&mut client, "k"));
        assert_eq!(client.run("TYPE copy"), simple("MBbloomCF"));
    });
}

#[test]
fn unsound_payloads_are_refused() {
    with_client(|_, client| {
        client.run(THEIR_LAYOUT);
        client.run("CF.RESERVE k 8");
        let payload = dump(client, "k");
        assert_eq!(restore(client, "same", &payload), ok());
        let (value, footer) = (value_of(&payload), &payload[payload.len() - 10..]);
        // Behind the type and the encoding: sub-filters, buckets, items, deletes, bucket size, iterations, expansion, each after a byte 2.
        for (at, byte) in [(1, 0), (1, 2), (1, 33), (3, 0), (3, 7), (3, 16), (9, 0), (9, 1), (9, 3), (11, 0)] {
            let mut damaged = value.to_vec();
            let place = 10 + at;
            damaged[place] = byte;
            let damaged = with_fixed_checksum([&damaged, footer].concat());
            assert!(restore(client, "damaged", &damaged).is_error(), "byte {at} is {byte}");
        }
        assert_eq!(client.run("EXISTS damaged"), integer(0));
        assert_eq!(client.run("PING"), simple("PONG"));
    });
}

#[test]
fn the_settings_are_the_defaults_of_new_filters() {
    on_every_server(|program| {
        let words = "CF_INITIAL_SIZE 64 cf-bucket-size 4 CF_MAX_EXPANSIONS 7";
        let server = Server::with(program).module_words(words).line("bf.cf-expansion-factor 3").start();
        let mut client = server.connect();
        client.run("CONFIG SET bf.cf-max-iterations 500");
        client.run("CF.ADD k x");
        let line = "bktsize:4 buckets:16 items:1 deletes:0 filters:1 max_iterations:500 expansion:4";
        assert_eq!(client.run("CF.DEBUG k").text(), line);
        assert_eq!(client.run("CONFIG GET bf.cf-max-expansions").elements()[1].text(), "7");
        for (name, value) in [
            ("initial-size", "1"),
            ("bucket-size", "256"),
            ("max-iterations", "0"),
            ("expansion-factor", "32769"),
            ("max-expansions", "0"),
        ] {
            assert!(client.run(&format!("CONFIG SET bf.cf-{name} {value}")).is_error(), "{name}");
        }
        // A capacity below two buckets is raised to it.
        client.run("CONFIG SET bf.cf-bucket-size 255");
        client.run("CF.ADD wide x");
        assert_eq!(client.run("CF.INFO wide").field("Number of buckets"), &integer(2));
    });
}
