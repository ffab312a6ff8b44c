//! RedisBloom's words in a stream: its append-only file, and a replica that follows RedisBloom's own primary.

use super::dump::dump;
use super::golden::{TODAY, filter, filters, snapshot, start_on_commands};
use super::model::Model;
use super::replication::contrary;
use super::their_primary::{TheirPrimary, encode, encode_chunk};
use crate::harness::{Server, Stop, eventually, integer, ok, on_every_server, simple};

/// Commands as RedisBloom propagates them, word for word as its clients sent them: also those that added nothing, that
/// failed inside the reply, that hold words it ignores or options that it knows by their first letters.
const STREAM: &str = "\
BF.RESERVE plain 0.01 100
BF.RESERVE plain 0.01 100
BF.RESERVE ignoring 0.001 50 EXPANSION 4 FOO BAR
BF.RESERVE ignoring-more 0.001 50 WITH WORDS
BF.RESERVE fixed 0.1 5 NONSCALING
BF.RESERVE zero 0.1 5 EXPANSION 0
BF.RESERVE loose 0.25 10
BF.ADD plain a
BF.ADD plain a
BF.ADD created a
BF.MADD created-by-madd a b c a
BF.MADD fixed a b c d e f g h
BF.ADD fixed i
BF.MADD zero a b c d e f g
BF.INSERT whole CAPACITY 20 ERROR 0.001 EXPANSION 3 ITEMS a b
BF.INSERT short CAP 20 ERR 0.001 EXP 3 I a b
BF.INSERT lower cap 20 err 0.001 exp 3 items a b
BF.INSERT short-fixed CAP 2 NON ITEMS a b
BF.INSERT short-fixed NOC ITEMS a c d
BF.INSERT defaults ITEMS a b";

/// The same, worked out.
fn stream_models() -> Vec<(&'static str, Model)> {
    let make = |rate, capacity, growth, items: &str| {
        let mut model = Model::reserve(rate, capacity, growth);
        for item in items.split_terminator(' ') {
            model.add(item.as_bytes());
        }
        model
    };
    vec![
        ("plain", make(0.01, 100, 2, "a")),
        ("ignoring", make(0.001, 50, 4, "")),
        ("ignoring-more", make(0.001, 50, 2, "")),
        ("fixed", make(0.1, 5, 0, "a b c d e f g h i")),
        ("zero", make(0.1, 5, 0, "a b c d e f g")),
        ("loose", make(0.25, 10, 2, "")),
        ("created", make(0.01, 100, 2, "a")),
        ("created-by-madd", make(0.01, 100, 2, "a b c")),
        ("whole", make(0.001, 20, 3, "a b")),
        ("short", make(0.001, 20, 3, "a b")),
        ("lower", make(0.001, 20, 3, "a b")),
        ("short-fixed", make(0.01, 2, 0, "a b c d")),
        ("defaults", make(0.01, 100, 2, "a b")),
    ]
}

fn assert_as_the_models(server: &Server, models: &[(&str, Model)]) {
    let mut client = server.connect();
    for (key, model) in models {
        assert_eq!(client.run(&format!("TYPE {key}")), simple("MBbloom--"), "{key}");
        let mut saved = Model::of_payload(&dump(&mut client, key)).1;
        if model.options == 13 {
            // What growth a fixed filter stores is of no consequence.
            saved.growth = model.growth;
        }
        assert_eq!(&saved, model, "{key}");
    }
}

/// Adds that make several filters of the stream grow.
fn growth(models: &mut Vec<(&'static str, Model)>) -> Vec<String> {
    let mut lines = Vec::new();
    for number in 0..900 {
        for (key, model) in models.iter_mut().filter(|(key, _)| ["ignoring", "short", "created"].contains(key)) {
            let item = format!("more/{number}");
            lines.push(format!("BF.ADD {key} {item}"));
            model.add(item.as_bytes());
        }
    }
    lines
}

#[test]
fn redisblooms_commands_in_the_append_only_file_make_its_filters() {
    on_every_server(|program| {
        let mut models = stream_models();
        let more = growth(&mut models);
        let lines: Vec<&str> = STREAM.lines().chain(more.iter().map(String::as_str)).collect();
        let mut server = start_on_commands(program, &[], &encode(&lines));
        assert_as_the_models(&server, &models);
        // It goes on: what clients ask for is native again, and the file stays readable.
        let mut client = server.connect();
        client.run("BF.ADD ours a");
        assert_eq!(client.run("TYPE ours"), simple("bloomgate"));
        assert_eq!(client.run("BF.INSERT another CAP 20 ITEMS a").error_text(), "Unknown argument received");
        assert!(client.run("BF.RESERVE another 0.01 100 FOO").is_error());
        server.restart(Stop::Kill);
        assert_as_the_models(&server, &models);
        assert_eq!(server.connect().run("TYPE ours"), simple("bloomgate"));
    });
}

#[test]
fn a_replica_follows_redisblooms_primary() {
    on_every_server(|program| {
        let primary = TheirPrimary::start(snapshot(TODAY));
        let server = contrary(program);
        let mut client = server.connect();
        assert_eq!(client.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port)), ok());
        eventually("the snapshot", || client.info("master_link_status") == "up");
        for golden in filters(TODAY) {
            golden.check(&server, &golden.key);
        }
        let mut models = stream_models();
        let more = growth(&mut models);
        primary.send(&["SELECT 0"]);
        primary.send(&STREAM.lines().collect::<Vec<_>>());
        primary.send(&more.iter().map(String::as_str).collect::<Vec<_>>());
        primary.send(&["SET the-end x"]);
        eventually("the end of the stream", || client.run("EXISTS the-end") == integer(1));
        assert_as_the_models(&server, &models);
        // The way off RedisBloom: the replica takes over and goes on with its filters.
        assert_eq!(client.run("REPLICAOF NO ONE"), ok());
        assert_eq!(client.run("CONFIG SET bf.max-filter-bytes 0"), ok());
        let (_, model) = models.iter_mut().find(|(key, _)| *key == "plain").unwrap();
        for number in 0..500 {
            let answer = client.run(&format!("BF.ADD plain after/{number}"));
            assert_eq!(Some(answer.truth()), model.add(format!("after/{number}").as_bytes()));
        }
        assert_as_the_models(&server, &models);
    });
}

#[test]
fn a_time_to_live_in_the_middle_of_a_load_is_kept() {
    on_every_server(|program| {
        let golden = filter(TODAY, "grown-default");
        let mut bytes = Vec::new();
        for (number, (iterator, data)) in golden.chunks.iter().enumerate() {
            if number == 3 {
                bytes.extend(encode(&["PEXPIREAT k 4102444800123"]));
            }
            bytes.extend(encode_chunk("k", *iterator, data));
        }
        let server = start_on_commands(program, &[], &bytes);
        assert_eq!(server.connect().run("PEXPIRETIME k"), integer(4_102_444_800_123));
        golden.check(&server, "k");
    });
}
