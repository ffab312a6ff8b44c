//! A filter that came from RedisBloom goes on growing by RedisBloom's rule. The model predicts every answer, every
//! number and every bit over several layers.

use super::dump::{dump, scandump};
use super::golden::{RELEASES, filters, info_reply, restore};
use super::model::Model;
use crate::harness::{Connection, Reply, Server, on_every_server};

/// Compares everything that a client can see of a filter with the model.
pub fn assert_as_the_model(client: &mut Connection, key: &str, model: &Model) {
    let lines: Vec<String> = client.run(&format!("BF.DEBUG {key}")).elements().iter().map(Reply::text).collect();
    assert_eq!(lines, model.debug(), "BF.DEBUG {key}");
    assert_eq!(client.run(&format!("BF.INFO {key}")), info_reply(model.info(), 2), "BF.INFO {key}");
    assert_eq!(client.run(&format!("BF.CARD {key}")).number() as u64, model.items, "BF.CARD {key}");
    let questions: Vec<String> = (0..3000).map(|number| format!("question/{number}")).collect();
    let answers = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &questions);
    let expected: Vec<bool> = questions.iter().map(|question| model.contains(question.as_bytes())).collect();
    assert!(answers == expected, "{key}: answers differ");
    let (encoding, saved) = Model::of_payload(&dump(client, key));
    assert_eq!(encoding, 4, "{key}");
    assert!(saved.content() == model.content(), "{key}: the bits differ");
    let modern = model.modernised();
    assert!(saved == modern, "{key}: saved fields differ");
    assert!(scandump(client, key) == modern.chunks(modern.header()), "{key}: BF.SCANDUMP differs");
}

/// Adds items one by one, in MADD and in INSERT, to the filter and to the model, and compares each answer.
pub fn add_to_both(client: &mut Connection, key: &str, model: &mut Model, items: &[String]) {
    for (round, batch) in items.chunks(97).enumerate() {
        let mut expected = Vec::new();
        for item in batch {
            let answer = model.add(item.as_bytes());
            expected.push(answer);
            if answer.is_none() {
                break;
            }
        }
        let answers = match round % 3 {
            0 => batch[..expected.len()].iter().map(|item| client.run(&format!("BF.ADD {key} {item}"))).collect(),
            way => {
                let head: &[&str] = if way == 1 { &["BF.MADD", key] } else { &["BF.INSERT", key, "NOCREATE", "ITEMS"] };
                let words: Vec<&str> = head.iter().copied().chain(batch.iter().map(String::as_str)).collect();
                client.call(&words).elements().to_vec()
            }
        };
        assert_eq!(answers.len(), expected.len(), "{key}: number of answers in round {round}");
        for (answer, expected) in answers.iter().zip(expected) {
            match expected {
                Some(new) => assert_eq!(answer.truth(), new, "{key}, round {round}"),
                None => assert_eq!(answer.error_text(), "ERR non scaling filter is full", "{key}, round {round}"),
            }
        }
    }
}

#[test]
fn a_loaded_filter_grows_by_redisblooms_rule() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for release in RELEASES {
            for golden in filters(release).iter().filter(|golden| golden.key != "large") {
                let key = format!("{release}/{}", golden.key);
                restore(&server, &key, &golden.payload);
                let mut model = golden.model();
                assert_as_the_model(&mut client, &key, &model);
                let (before, capacity) = (model.layers.len(), model.info()[0].unwrap() as usize);
                // Three boundaries where the capacity doubles.
                let items: Vec<String> = (0..(capacity * 4).clamp(300, 30_000)).map(|n| format!("more/{n}")).collect();
                add_to_both(&mut client, &key, &mut model, &items);
                assert_as_the_model(&mut client, &key, &model);
                let grown = model.layers.len() - before;
                eprintln!("{key}: {before} layers, {grown} more");
                assert!(grown >= 1 || golden.key == "nonscaling-full", "{key} did not grow");
            }
        }
    });
}

#[test]
fn growth_goes_on_after_a_reload() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for release in RELEASES {
            for golden in filters(release).iter().filter(|golden| golden.key == "grown" || golden.key == "expansion-1")
            {
                let key = format!("{release}/{}", golden.key);
                restore(&server, &key, &golden.payload);
                let mut model = golden.model();
                for round in 0..4 {
                    let items: Vec<String> = (0..700).map(|number| format!("round {round} item {number}")).collect();
                    let items: Vec<String> = items.iter().map(|item| item.replace(' ', "/")).collect();
                    add_to_both(&mut client, &key, &mut model, &items);
                    assert_eq!(client.run("DEBUG RELOAD").text(), "OK");
                    assert_as_the_model(&mut client, &key, &model);
                }
                assert!(model.layers.len() > golden.model().layers.len(), "{key}");
            }
        }
    });
}

/// Layers so small, and a rate so high, that one command fills several of them and its items take each other's bits.
#[test]
fn one_large_command_does_what_many_small_ones_do() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (rate, capacity, expansion) in [(0.25, 1, 1), (0.25, 3, 1), (0.25, 5, 2), (0.01, 1, 1), (0.1, 31, 1)] {
            let key = format!("k/{rate}/{capacity}/{expansion}");
            client.run(&format!("BF.RESERVE {key} {rate} {capacity} EXPANSION {expansion} LAYOUT redisbloom"));
            let mut model = Model::reserve(rate, capacity, expansion);
            for round in 0..3 {
                // Every third item comes twice in a row, every fifth came before.
                let items: Vec<String> = (0..250)
                    .flat_map(|number| {
                        let item = format!("item/{}", if number % 5 == 0 { number } else { round * 200 + number });
                        vec![item; if number % 3 == 0 { 2 } else { 1 }]
                    })
                    .collect();
                let expected: Vec<bool> = items.iter().map(|item| model.add(item.as_bytes()).unwrap()).collect();
                let words: Vec<&str> = ["BF.MADD", &key].into_iter().chain(items.iter().map(String::as_str)).collect();
                let answers: Vec<bool> = client.call(&words).elements().iter().map(Reply::truth).collect();
                assert_eq!(answers, expected, "{key}, round {round}");
            }
            assert!(model.layers.len() > 5, "{key}: {} layers", model.layers.len());
            assert_as_the_model(&mut client, &key, &model);
        }
    });
}
