//! Chains of many layers, which make every lookup expensive. Clients' chains end at the same length as RedisBloom's. Longer chains from a
//! primary, the AOF or a snapshot are queried, but clients cannot make them grow.

use std::path::Path;

use crate::persistence::rewrite_append_only_file;
use crate::transfer::through_files_and_replicas;
use testing::start_on_commands;
use testing::{
    Connection, Reply, Server, Stop, array, digest, encode, error, integer, ok, on_every_server, rewritten_commands,
    with_client,
};

/// The longest chain of a client.
const LAYERS: i64 = 1100;

fn full() -> Reply {
    error("ERR filter cannot grow: it has as many layers as a filter can have")
}

fn items(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("item-{number}")).collect()
}

fn layers(client: &mut Connection, key: &str) -> i64 {
    client.run(&format!("BF.INFO {key}")).field("Number of filters").number()
}

/// Runs one command of a client with more items than its layers can hold. Returns the items that were added, and the error at the end.
fn fill(client: &mut Connection, line: &str) -> (Vec<String>, Reply) {
    let items = items(4000);
    let words: Vec<&str> = line.split(' ').chain(items.iter().map(String::as_str)).collect();
    let reply = client.call(&words);
    let (last, answers) = reply.elements().split_last().expect("an answer");
    assert!(last.is_error(), "{line}: all items went in");
    (items[..answers.len()].to_vec(), last.clone())
}

#[test]
fn a_clients_chain_ends_where_a_lookup_is_still_cheap() {
    on_every_server(|program| {
        let mut server = Server::start(program);
        let mut client = server.connect();
        for (key, words) in [("native", ""), ("theirs", " ERROR 1e-30 TIGHTENING 0.9999999")] {
            let (known, refusal) = fill(&mut client, &format!("BF.INSERT {key} CAPACITY 1 EXPANSION 1{words} ITEMS"));
            assert_eq!(refusal, full(), "{key}");
            assert_eq!(layers(&mut client, key), LAYERS, "{key}");
            assert_eq!(client.run(&format!("BF.CARD {key}")), integer(LAYERS));
            // The filter is unchanged, and answers lookups.
            let before = digest(&mut client, key);
            let last = format!("item-{}", known.len());
            assert_eq!(client.call(&["BF.ADD", key, &last]), full());
            assert_eq!(client.call(&["BF.INSERT", key, "ITEMS", &known[0], &last]), array([integer(0), full()]));
            assert_eq!(digest(&mut client, key), before);
            assert!(client.batched(&[b"BF.MEXISTS", key.as_bytes()], &known).iter().all(|&present| present), "{key}");
            assert_eq!(client.call(&["COPY", key, &format!("copy-{key}")]), integer(1));
            assert_eq!(digest(&mut client, format!("copy-{key}")), before);
            let payload = client.call(&["DUMP", key]).bytes().to_vec();
            let restored = format!("restored-{key}");
            assert_eq!(client.call(&[b"RESTORE".as_slice(), restored.as_bytes(), b"0", &payload]), ok());
        }
        // Chains in RedisBloom's layout end by their rates, as in RedisBloom, and so do chains with very low rates or ratios.
        for (key, words, ends_at) in [
            ("redisbloom", "CAPACITY 1 EXPANSION 1 LAYOUT redisbloom", 1067),
            ("tight", "ERROR 1e-300 CAPACITY 1 EXPANSION 1 LAYOUT redisbloom", 78),
            ("tighter", "CAPACITY 2 EXPANSION 1 TIGHTENING 1e-100", 4),
        ] {
            let (known, refusal) = fill(&mut client, &format!("BF.INSERT {key} {words} ITEMS"));
            assert_eq!(refusal, error("ERR the error rate of the filter or of its next layer is too low"), "{key}");
            assert_eq!(layers(&mut client, key), ends_at, "{key}");
            let before = digest(&mut client, key);
            assert_eq!(client.run(&format!("BF.ADD {key} item-{}", known.len())), refusal, "{key}");
            assert_eq!(digest(&mut client, key), before, "{key}");
            assert!(client.batched(&[b"BF.MEXISTS", key.as_bytes()], &known).iter().all(|&present| present), "{key}");
        }
        let before = client.run("DEBUG DIGEST");
        server.restart(Stop::Save);
        assert_eq!(server.connect().run("DEBUG DIGEST"), before);
    });
}

#[test]
fn the_layer_limit_bounds_the_growth() {
    with_client(|_, client| {
        let refused = error("ERR provided VALIDATESCALETO causes bloom object to exceed memory limit");
        for words in ["", " TIGHTENING 0.9999"] {
            let line = format!("BF.INSERT k CAPACITY 10 EXPANSION 1{words} VALIDATESCALETO");
            assert_eq!(client.run(&format!("{line} 11001 ITEMS a")), refused);
            assert_eq!(client.run(&format!("{line} 11000 ITEMS a")), array([integer(1)]));
            assert_eq!(client.run("BF.INFO k MAXSCALEDCAPACITY"), integer(10 * LAYERS));
            client.run("DEL k");
        }
    });
}

/// A server whose append-only file holds a native filter and one of valkey-bloom's layout, each of thousands of layers.
fn start_on_long_chains(program: &Path) -> (Server, Vec<String>) {
    let items = items(3000);
    let line = |words: &str, items: Vec<String>| {
        let words = words.split(' ').map(str::to_owned);
        ["BF.INSERT".to_owned()].into_iter().chain(words).chain(["ITEMS".to_owned()]).chain(items).collect()
    };
    // As their primaries propagate them. Each filter adds slightly fewer items than it gets, because some are false positives.
    let native: Vec<String> = line("native CAPACITY 1 ERROR 0.01 EXPANSION 1 SEED 1", items.clone());
    // More layers than a native filter may have, 4096.
    let words = "theirs CAPACITY 1 ERROR 1e-30 EXPANSION 1 TIGHTENING 0.9999999 SEED 00000000000000000000000000000007";
    let theirs: Vec<String> = line(words, (0..4500).map(|number| format!("item-{number}")).collect());
    let server = start_on_commands(program, &[], &encode([native, theirs]));
    (server, items)
}

const KEYS: [&str; 2] = ["native", "theirs"];

#[test]
fn a_longer_chain_from_the_file_answers_and_does_not_grow_for_clients() {
    on_every_server(|program| {
        let (mut server, items) = start_on_long_chains(program);
        let mut client = server.connect();
        for key in KEYS {
            let count = layers(&mut client, key);
            assert!(count > LAYERS + 100, "{key}: {count} layers");
            assert_eq!(client.run(&format!("BF.CARD {key}")), integer(count));
            assert!(client.batched(&[b"BF.MEXISTS", key.as_bytes()], &items).iter().all(|&present| present));
            let before = digest(&mut client, key);
            let stranger = (0..1000).map(|number| format!("stranger-{number}"));
            let mut absent = stranger.filter(|item| client.call(&["BF.EXISTS", key, item]) == integer(0));
            let absent = absent.next().expect("an item that is absent");
            assert_eq!(client.call(&["BF.ADD", key, &absent]), full());
            assert_eq!(client.call(&["BF.MADD", key, "item-1", &absent]), array([integer(0), full()]));
            assert_eq!(digest(&mut client, key), before);
            let reported = client.run(&format!("BF.INFO {key} MAXSCALEDCAPACITY"));
            assert_eq!(reported, integer(count), "{key}: what it holds already");
        }
        assert_eq!(client.run("COPY native copied"), integer(1));
        assert_eq!(digest(&mut client, "copied"), digest(&mut client, "native"));
        // The filter survives everything that the server does with it.
        let whole = client.run("DEBUG DIGEST");
        through_files_and_replicas(program, &mut server, &|occasion, client| {
            assert_eq!(client.run("DEBUG DIGEST"), whole, "{occasion}");
        });
    });
}

#[test]
fn a_client_cannot_load_a_longer_chain() {
    on_every_server(|program| {
        let (server, _) = start_on_long_chains(program);
        let mut client = server.connect();
        let refused = error("ERR the filter has more layers than a client may bring");
        for key in KEYS {
            let payload = client.call(&["DUMP", key]).bytes().to_vec();
            assert!(client.call(&[b"RESTORE".as_slice(), b"restored", b"0", &payload]).is_error(), "{key}");
        }
        assert!(server.log().contains("the maximum number of layers"), "the log says why");
        let header = client.run("BF.SCANDUMP native 0");
        let iterator = header.elements()[0].number().to_string();
        let words = [b"BF.LOADCHUNK".as_slice(), b"loaded", iterator.as_bytes(), header.elements()[1].bytes()];
        assert_eq!(client.call(&words), refused);
        rewrite_append_only_file(&mut client);
        let commands = rewritten_commands(&server);
        let load = commands.iter().find(|words| words[0] == b"BF.LOAD").expect("a filter of valkey-bloom's layout");
        assert_eq!(client.call(&[b"BF.LOAD".as_slice(), b"loaded", &load[2]]), refused);
        assert_eq!(client.run("EXISTS restored loaded"), integer(0));
    });
}
