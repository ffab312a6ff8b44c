//! A filter of another program's layout goes on growing by that program's rule. A model of the layout, which shares no code with
//! the module, predicts every answer, every number and every bit over several layers.

use crate::golden::sources;
use crate::redisbloom::golden::info_reply;
use crate::{redisbloom, valkey_bloom};
use testing::{Connection, Reply, Server, digest, dump, ok, on_every_server, records, restore, value_of};

/// A filter worked out a second time.
pub trait Model {
    /// Adds an item: whether it was new, or nothing where there is no room.
    fn add(&mut self, item: &[u8]) -> Option<bool>;

    fn contains(&self, item: &[u8]) -> bool;

    fn layers(&self) -> usize;

    /// Compares everything that a client can see of a filter, except for its answers. The server does not compress payloads.
    fn assert_numbers_and_bits(&self, client: &mut Connection, key: &str);
}

impl Model for redisbloom::model::Model {
    fn add(&mut self, item: &[u8]) -> Option<bool> {
        Self::add(self, item)
    }

    fn contains(&self, item: &[u8]) -> bool {
        Self::contains(self, item)
    }

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn assert_numbers_and_bits(&self, client: &mut Connection, key: &str) {
        let lines: Vec<String> = client.run(&format!("BF.DEBUG {key}")).elements().iter().map(Reply::text).collect();
        assert_eq!(lines, self.debug(), "BF.DEBUG {key}");
        assert_eq!(client.run(&format!("BF.INFO {key}")), info_reply(self.info(), 2), "BF.INFO {key}");
        assert_eq!(client.run(&format!("BF.CARD {key}")).number() as u64, self.items, "BF.CARD {key}");
        let (encoding, saved) = Self::of_payload(&dump(client, key));
        assert_eq!(encoding, 4, "{key}");
        assert!(saved.content() == self.content(), "{key}: the bits differ");
        let modern = self.modernised();
        assert!(saved == modern, "{key}: saved fields differ");
        assert!(records(client, key) == modern.chunks(modern.header()), "{key}: BF.SCANDUMP differs");
    }
}

impl Model for valkey_bloom::model::Model {
    fn add(&mut self, item: &[u8]) -> Option<bool> {
        Self::add(self, item)
    }

    fn contains(&self, item: &[u8]) -> bool {
        Self::contains(self, item)
    }

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn assert_numbers_and_bits(&self, client: &mut Connection, key: &str) {
        let info = client.run(&format!("BF.INFO {key}"));
        assert_eq!(info.field("Number of filters").number() as usize, self.layers.len(), "{key}");
        let items: i64 = self.layers.iter().map(|layer| layer.items).sum();
        assert_eq!(info.field("Number of items inserted").number(), items, "{key}");
        assert!(value_of(&dump(client, key)) == value_of(&self.dump()), "the bits of {key}");
    }
}

/// Compares everything that a client can see of a filter with the model.
pub fn assert_as_the_model(client: &mut Connection, key: &str, model: &dyn Model) {
    model.assert_numbers_and_bits(client, key);
    let questions: Vec<String> = (0..3000).map(|number| format!("question/{number}")).collect();
    let answers = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &questions);
    let expected: Vec<bool> = questions.iter().map(|question| model.contains(question.as_bytes())).collect();
    assert!(answers == expected, "{key}: answers differ");
}

/// Adds items one by one, in MADD and in INSERT, to the filter and to the model, and compares each answer.
pub fn add_to_both<W: AsRef<[u8]>>(client: &mut Connection, key: &str, model: &mut dyn Model, items: &[W]) {
    for (round, batch) in items.chunks(97).enumerate() {
        let mut expected = Vec::new();
        for item in batch {
            let answer = model.add(item.as_ref());
            expected.push(answer);
            if answer.is_none() {
                break;
            }
        }
        let key = key.as_bytes();
        let answers = match round % 3 {
            0 => {
                let one = |item: &W| client.call(&[b"BF.ADD", key, item.as_ref()]);
                batch[..expected.len()].iter().map(one).collect()
            }
            way => {
                let head: &[&[u8]] =
                    if way == 1 { &[b"BF.MADD", key] } else { &[b"BF.INSERT", key, b"NOCREATE", b"ITEMS"] };
                let words: Vec<&[u8]> = head.iter().copied().chain(batch.iter().map(AsRef::as_ref)).collect();
                client.call(&words).elements().to_vec()
            }
        };
        let key = key.escape_ascii();
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
fn a_loaded_filter_grows_by_the_rule_of_its_layout_and_a_full_one_stays_as_it_is() {
    on_every_server(|program| {
        let server = Server::with(program).line("rdbcompression no").start();
        let mut client = server.connect();
        for source in sources() {
            for golden in source.filters.iter().filter(|golden| golden.key() != "large") {
                let (Some(mut model), Some([.., capacity])) = (golden.model(), golden.sizes()) else { continue };
                let key = format!("{}/{}", source.name, golden.key());
                assert_eq!(restore(&mut client, &key, &golden.payloads()[0]), ok());
                assert_as_the_model(&mut client, &key, &*model);
                let (before, value) = (model.layers(), digest(&mut client, &key));
                // Three boundaries where the capacity doubles. Items that are members come between the new ones.
                let known = golden.items();
                let items: Vec<String> = (0..(capacity * 4).clamp(300, 30_000))
                    .map(|number| match known.get(number) {
                        Some(item) if number % 15 == 0 => item.clone(),
                        _ => format!("more/{number}"),
                    })
                    .collect();
                add_to_both(&mut client, &key, &mut *model, &items);
                assert_as_the_model(&mut client, &key, &*model);
                if ["nonscaling-full", "r-0.001-1000-ns"].contains(&golden.key()) {
                    assert_eq!(digest(&mut client, &key), value, "{key}");
                } else {
                    assert!(model.layers() > before, "{key} did not grow");
                }
            }
        }
    });
}

#[test]
fn growth_goes_on_after_a_reload() {
    on_every_server(|program| {
        let server = Server::with(program).line("rdbcompression no").start();
        let mut client = server.connect();
        for source in sources() {
            let chosen = ["grown", "expansion-1", "r-0.05-64-x1", "tight-0.7"];
            for golden in source.filters.iter().filter(|golden| chosen.contains(&golden.key())) {
                let Some(mut model) = golden.model() else { continue };
                let key = format!("{}/{}", source.name, golden.key());
                assert_eq!(restore(&mut client, &key, &golden.payloads()[0]), ok());
                let before = model.layers();
                for round in 0..4 {
                    let items: Vec<String> = (0..700).map(|number| format!("round/{round}/item/{number}")).collect();
                    add_to_both(&mut client, &key, &mut *model, &items);
                    assert_eq!(client.run("DEBUG RELOAD"), ok());
                    assert_as_the_model(&mut client, &key, &*model);
                }
                assert!(model.layers() > before, "{key}");
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
            let mut model = redisbloom::model::Model::reserve(rate, capacity, expansion);
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
