//! Growth of filters of valkey-bloom's layout that are made here, up to where no room is left.

use super::golden::load;
use super::model::{FIXED_SEED, Layer, Model};
use crate::growth::{add_to_both, assert_as_the_model};
use crate::persistence::rewrite_append_only_file;
use testing::{
    Connection, Reply, Rng, Server, Stop, array, digest, encode, integer, ok, on_every_server, start_on_commands,
};

/// A server whose DUMP is not compressed, as the model's is not.
fn start(program: &std::path::Path) -> (Server, Connection) {
    let server = Server::with(program).line("rdbcompression no").start();
    let client = server.connect();
    (server, client)
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
                    add_to_both(&mut client, &key, &mut model, &items);
                }
                assert_as_the_model(&mut client, &key, &model);
            }
        }
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
        add_to_both(&mut client, "k", &mut model, &items);
        assert_as_the_model(&mut client, "k", &model);
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
        add_to_both(&mut client, "k", &mut model, &items);
        assert_as_the_model(&mut client, "k", &model);
        assert_eq!(model.layers.len(), 4);
        let reply = client.run("BF.ADD k one-too-many");
        assert!(matches!(&reply, Reply::Error(text) if text.starts_with("ERR ")), "{reply:?}");
        assert_eq!(client.run("BF.MADD k one-too-many"), array([reply]));
        assert_as_the_model(&mut client, "k", &model);
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
            assert_as_the_model(&mut client, key, &model);
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
