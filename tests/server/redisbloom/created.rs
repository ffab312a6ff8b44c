//! Filters that are created here in RedisBloom's layout are the ones that RedisBloom would have made, byte for byte.

use super::golden::{TODAY, filters, info_reply, items};
use super::model::Model;
use testing::{Connection, Server, dump, ok, on_every_server};

const FOOTER: usize = 10;

/// The data was made in calls of 100.
fn feed(client: &mut Connection, key: &str, count: usize) -> i64 {
    let mut added = 0;
    for batch in items(0, count).chunks(100) {
        let words: Vec<&str> = ["BF.MADD", key].into_iter().chain(batch.iter().map(String::as_str)).collect();
        let reply = client.call(&words);
        // A full filter ends the array with an error.
        added += reply.elements().iter().filter(|answer| !answer.is_error() && answer.truth()).count() as i64;
    }
    added
}

#[test]
fn the_same_words_make_the_same_bytes() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for golden in filters(TODAY) {
            match &golden.reserve {
                Some(words) => {
                    let line = format!("BF.RESERVE {} {} LAYOUT redisbloom", golden.key, words.join(" "));
                    assert_eq!(client.run(&line), ok());
                }
                None => assert_eq!(client.run("CONFIG SET bf.layout redisbloom"), ok()),
            }
            let added = feed(&mut client, &golden.key, golden.offered);
            let ours = dump(&mut client, &golden.key);
            if golden.key == "capped-rate" {
                // 2.6.28 took 0.9 as it is; today's releases, and this module, take it as 0.25.
                assert_eq!(Model::of_payload(&ours).1.layers[0].error, 0.125);
                continue;
            }
            assert_eq!(added, golden.answered, "{}", golden.key);
            let body = golden.payload.len() - FOOTER;
            assert!(ours.len() == golden.payload.len() && ours[..body] == golden.payload[..body], "{}", golden.key);
            golden.check(&server, &golden.key);
        }
    });
}

#[test]
fn any_rate_and_capacity_is_sized_by_redisblooms_rule() {
    on_every_server(|program| {
        let server = Server::with(program).line("rdbcompression no").start();
        let mut client = server.connect();
        let rates = ["0.9999999", "0.3", "0.25", "0.1", "0.05", "0.01", "0.001", "1e-6", "1e-12", "1e-20", "1e-300"];
        for (number, rate) in rates.iter().enumerate() {
            for (capacity, growth, count) in [(1, 2, 20), (2, 1, 9), (3, 0, 3), (63, 4, 400), (1000, 3, 1500)] {
                let key = format!("k/{number}/{capacity}");
                let scaling = if growth == 0 { "NONSCALING".to_owned() } else { format!("EXPANSION {growth}") };
                let line = format!("BF.RESERVE {key} {rate} {capacity} {scaling} LAYOUT redisbloom");
                assert_eq!(client.run(&line), ok(), "{line}");
                let mut model = Model::reserve(rate.parse().unwrap(), capacity, growth);
                for item in items(0, count) {
                    let new = client.run(&format!("BF.ADD {key} {item}"));
                    match model.add(item.as_bytes()) {
                        Some(expected) => assert_eq!(new.truth(), expected, "{line}: {item}"),
                        None => assert_eq!(new.error_text(), "ERR non scaling filter is full", "{line}: {item}"),
                    }
                }
                let (encoding, saved) = Model::of_payload(&dump(&mut client, &key));
                assert_eq!(encoding, 4);
                // RedisBloom stores a growth for fixed filters, too; which one is of no consequence.
                if growth == 0 {
                    model.growth = saved.growth;
                }
                assert_eq!(saved, model, "{line}");
                assert_eq!(client.run(&format!("BF.INFO {key}")), info_reply(model.info(), 2), "{line}");
            }
        }
    });
}
