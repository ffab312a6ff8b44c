//! A filter of valkey-bloom's layout goes on as it would there: an independent model predicts every answer and every
//! bit, across the borders of sub-filters and up to where no room is left.

use super::golden::{body, digest, dump, goldens, load};
use super::model::{FIXED_SEED, Layer, Model};
use crate::harness::{Connection, Reply, Rng, Server, Stop, array, encode, error, integer, ok, on_every_server};
use crate::persistence::rewrite_append_only_file;
use crate::redisbloom::golden::start_on_commands;
use crate::reserve::sizes_of_a_refusal;

const FULL: &str = "ERR non scaling filter is full";

/// A server whose DUMP is not compressed, as the model's is not.
fn start(program: &std::path::Path) -> (Server, Connection) {
    let server = Server::with(program).line("rdbcompression no").start();
    let client = server.connect();
    (server, client)
}

/// Adds items in one command to both, and compares the answers.
fn add_to_both<W: AsRef<[u8]>>(client: &mut Connection, model: &mut Model, key: &str, items: &[W]) {
    let mut expected = Vec::new();
    for item in items {
        match model.add(item.as_ref()) {
            Some(new) => expected.push(integer(i64::from(new))),
            None => {
                expected.push(error(FULL));
                break;
            }
        }
    }
    let words: Vec<&[u8]> =
        [b"BF.MADD".as_slice(), key.as_bytes()].into_iter().chain(items.iter().map(AsRef::as_ref)).collect();
    assert_eq!(client.call(&words), array(expected), "{key}");
}

fn assert_same_bits(client: &mut Connection, model: &Model, key: &str) {
    let info = client.run(&format!("BF.INFO {key}"));
    assert_eq!(info.field("Number of filters"), &integer(model.layers.len() as i64), "{key}");
    let items: i64 = model.layers.iter().map(|layer| layer.items).sum();
    assert_eq!(info.field("Number of items inserted"), &integer(items), "{key}");
    assert!(body(&dump(client, key)) == body(&model.dump()), "the bits of {key}");
}

#[test]
fn a_loaded_filter_grows_as_it_would_have_there() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for golden in goldens() {
            let mut model = Model::from_payload(&golden.payload);
            if model.expansion == 0 {
                continue;
            }
            load(&mut client, &golden.key, &golden.payload);
            assert_same_bits(&mut client, &model, &golden.key);
            let layers = model.layers.len();
            // Items that are in already come between those that are not.
            let mut offered = 0;
            while model.layers.len() < layers + 2 || offered < 1000 {
                let mut items: Vec<String> = (offered..offered + 300).map(|number| format!("more:{number}")).collect();
                items.extend(golden.items.iter().take(20).cloned());
                add_to_both(&mut client, &mut model, &golden.key, &items);
                offered += 300;
            }
            assert_same_bits(&mut client, &model, &golden.key);
            let strangers: Vec<String> = (0..3000).map(|number| format!("absent:{number}")).collect();
            let found = client.batched(&[b"BF.MEXISTS", golden.key.as_bytes()], &strangers);
            let expected: Vec<bool> = strangers.iter().map(|item| model.contains(item.as_bytes())).collect();
            assert_eq!(found, expected, "{}", golden.key);
            eprintln!("{}: from {layers} to {} sub-filters", golden.key, model.layers.len());
        }
    });
}

#[test]
fn a_loaded_filter_that_is_fixed_and_full_stays_so() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let golden = goldens().into_iter().find(|golden| golden.key.ends_with("-ns")).unwrap();
        let mut model = Model::from_payload(&golden.payload);
        assert_eq!(model.layers[0].items, model.layers[0].capacity);
        load(&mut client, "k", &golden.payload);
        let before = digest(&mut client, "k");
        assert_eq!(client.run("BF.ADD k something-new"), error(FULL));
        assert_eq!(client.run("BF.ADD k item:7"), integer(0));
        let reply = client.run("BF.INSERT k ITEMS item:1 item:2 something-new item:3");
        assert_eq!(reply, array([integer(0), integer(0), error(FULL)]));
        add_to_both(&mut client, &mut model, "k", &["item:5", "item:6", "another", "item:7"]);
        assert_eq!(digest(&mut client, "k"), before);
        assert_same_bits(&mut client, &model, "k");
    });
}

#[test]
fn any_filter_of_theirs_grows_by_their_rule() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut rng = Rng::new(1);
        for (number, (capacity, rate, tightening, expansion)) in [
            (100, 0.01, 0.5, 2),
            (64, 0.02, 0.7, 2),
            (50, 0.001, 0.7, 4),
            (10, 0.05, 0.5, 1),
            (1, 0.01, 0.9, 1),
            (1, 0.5, 0.5, 2),
            (7, 0.99, 0.99, 3),
            (3, 0.3, 0.1, 2),
            (30, 1e-7, 0.5, 2),
            (5, 1e-30, 0.25, 3),
            (20, 0.01, 0.999, 1),
            (200, 0.01, 0.5, 0),
            (1, 0.9, 0.5, 0),
            (250, 1e-300, 0.5, 0),
        ]
        .into_iter()
        .enumerate()
        {
            for is_new in [true, false] {
                let seed = if number == 0 { FIXED_SEED } else { std::array::from_fn(|_| rng.number() as u8) };
                let mut model = Model::new(capacity, rate, tightening, expansion, seed);
                let key = format!("k{number}-{is_new}");
                if is_new {
                    let line = format!("BF.INSERT {key} CAPACITY {capacity} ERROR {rate} TIGHTENING {tightening}");
                    let mut words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                    let expansion = expansion.to_string();
                    words.extend([b"EXPANSION", expansion.as_bytes(), b"SEED", &seed]);
                    assert_eq!(client.call(&words), array([]), "{line}");
                } else {
                    load(&mut client, &key, &model.payload());
                }
                for _ in 0..12 {
                    // Short items come more than once, the empty one among them.
                    let items: Vec<Vec<u8>> = (0..25).map(|_| rng.bytes(3)).collect();
                    add_to_both(&mut client, &mut model, &key, &items);
                }
                assert_same_bits(&mut client, &model, &key);
            }
        }
    });
}

#[test]
fn an_item_alone_is_as_one_of_many() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut model = Model::new(3, 0.05, 0.5, 2, [9; 32]);
        load(&mut client, "k", &model.payload());
        for number in 0..200 {
            let item = format!("item {}", number % 150);
            let known = model.contains(item.as_bytes());
            assert_eq!(client.call(&["BF.EXISTS", "k", &item]), integer(i64::from(known)), "{item}");
            let new = model.add(item.as_bytes()).unwrap();
            assert_eq!(client.call(&["BF.ADD", "k", &item]), integer(i64::from(new)), "{item}");
        }
        assert_same_bits(&mut client, &model, "k");
    });
}

#[test]
fn long_items_are_hashed_whole() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut model = Model::new(1000, 0.001, 0.5, 2, FIXED_SEED);
        load(&mut client, "k", &model.payload());
        let items: Vec<Vec<u8>> = (0..200)
            .chain([255, 256, 1000, 65_535, 65_536, 1_000_000])
            .map(|length| (0..length).map(|byte| byte as u8 ^ 0xa5).collect())
            .collect();
        add_to_both(&mut client, &mut model, "k", &items);
        assert_same_bits(&mut client, &model, "k");
    });
}

#[test]
fn the_ceiling_binds_growth_and_leaves_the_filter_as_it_was() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut model = Model::new(100, 0.01, 0.5, 2, [3; 32]);
        load(&mut client, "k", &model.payload());
        client.run("CONFIG SET bf.max-filter-bytes 2000");
        let mut number = 0;
        let refusal = loop {
            let item = format!("item {number}");
            let reply = client.call(&["BF.ADD", "k", &item]);
            if reply.is_error() {
                break reply;
            }
            assert_eq!(reply, integer(i64::from(model.add(item.as_bytes()).unwrap())), "{item}");
            number += 1;
        };
        let (asked, available) = sizes_of_a_refusal(&refusal);
        assert!(asked > available, "{asked} asked, {available} available");
        assert!(model.layers.len() > 1 && model.layers.last().unwrap().items == model.layers.last().unwrap().capacity);
        assert_same_bits(&mut client, &model, "k");
        assert_eq!(client.run("BF.INSERT k ITEMS new").elements(), [refusal]);
        assert_same_bits(&mut client, &model, "k");
        client.run("CONFIG SET bf.max-filter-bytes 0");
        add_to_both(&mut client, &mut model, "k", &[format!("item {number}")]);
        assert_same_bits(&mut client, &model, "k");
    });
}

#[test]
fn a_rate_that_would_sink_to_zero_ends_the_growth() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut model = Model::new(2, 0.01, 1e-100, 1, [3; 32]);
        load(&mut client, "k", &model.payload());
        // 0.01, 1e-102, 1e-202, 1e-302: two items in each.
        let items: Vec<String> = (0..8).map(|number| format!("item {number}")).collect();
        add_to_both(&mut client, &mut model, "k", &items);
        assert_same_bits(&mut client, &model, "k");
        assert_eq!(model.layers.len(), 4);
        let reply = client.run("BF.ADD k one-too-many");
        assert!(matches!(&reply, Reply::Error(text) if text.starts_with("ERR ")), "{reply:?}");
        assert_eq!(client.run("BF.MADD k one-too-many"), array([reply]));
        assert_same_bits(&mut client, &model, "k");
        assert_eq!(client.call(&["BF.EXISTS", "k", "item 7"]), integer(1));
    });
}

/// A native filter ends at 4096; theirs can have more where the ratio is near 1. Clients cannot make that many, nor bring
/// them: they come in a file.
#[test]
fn thousands_of_sub_filters_load_grow_and_save() {
    on_every_server(|program| {
        let mut model = Model::new(1, 1e-12, 0.9999, 1, [3; 32]);
        let first = model.layers[0].clone();
        model.layers = (0..5000).map(|_| Layer { items: 1, ..first.clone() }).collect();
        let (payload, dump) = (model.payload(), model.dump());
        let commands: [&[&[u8]]; 4] = [
            &[b"BF.LOAD", b"loaded", &payload],
            &[b"RESTORE", b"restored", b"0", &dump],
            &[b"BF.MADD", b"loaded", b"a", b"b", b"c"],
            &[b"BF.MADD", b"restored", b"a", b"b", b"c"],
        ];
        let mut server = start_on_commands(program, &["rdbcompression no"], &encode(commands));
        let mut client = server.connect();
        for item in ["a", "b", "c"] {
            model.add(item.as_bytes()).unwrap();
        }
        for key in ["loaded", "restored"] {
            assert_same_bits(&mut client, &model, key);
        }
        let expected = digest(&mut client, "loaded");
        let after = |server: &Server| ["loaded", "restored"].map(|key| digest(&mut server.connect(), key));
        server.restart(Stop::Kill);
        assert_eq!(after(&server), [expected.clone(), expected.clone()], "commands");
        rewrite_append_only_file(&mut server.connect());
        server.restart(Stop::Kill);
        assert_eq!(after(&server), [expected.clone(), expected.clone()], "records");
        assert_eq!(server.connect().run("DEBUG RELOAD"), ok());
        assert_eq!(after(&server), [expected.clone(), expected], "a snapshot");
    });
}
