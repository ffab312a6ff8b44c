//! The law that everything else rests on: what was added is never called absent. Random batches against an exact set.

use std::collections::HashSet;

use testing::{Connection, Rng, Server, integer, ok, on_every_server};

/// Adds random batches by random commands, and checks each answer against a set.
struct Crawl {
    rng: Rng,
    added: HashSet<Vec<u8>>,
    new: usize,
    /// Items that were called known although they were not.
    wrongly_known: usize,
}

impl Crawl {
    fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), added: HashSet::new(), new: 0, wrongly_known: 0 }
    }

    /// One command that adds up to `longest` items, about a third of them known already.
    fn step(&mut self, client: &mut Connection, key: &[u8], longest: u64) {
        let count = 1 + self.rng.below(longest);
        let batch: Vec<Vec<u8>> = (0..count).map(|_| self.item()).collect();
        let (head, batch): (Vec<&[u8]>, &[Vec<u8>]) = match self.rng.below(4) {
            0 => (vec![b"BF.ADD", key], &batch[..1]),
            1 => (vec![b"BF.INSERT", key, b"ITEMS"], &batch),
            2 => (vec![b"BF.INSERT", key, b"NOCREATE", b"ITEMS"], &batch),
            _ => (vec![b"BF.MADD", key], &batch),
        };
        let words: Vec<&[u8]> = head.iter().copied().chain(batch.iter().map(Vec::as_slice)).collect();
        let reply = client.call(&words);
        let answers = if head[0] == b"BF.ADD" { std::slice::from_ref(&reply) } else { reply.elements() };
        assert_eq!(answers.len(), batch.len());
        for (item, answer) in batch.iter().zip(answers) {
            let first = self.added.insert(item.clone());
            assert!(first || !answer.truth(), "{} was added twice", item.escape_ascii());
            self.new += usize::from(answer.truth());
            self.wrongly_known += usize::from(first && !answer.truth());
        }
    }

    fn item(&mut self) -> Vec<u8> {
        match self.rng.below(3) {
            0 => self.rng.below(5000).to_string().into_bytes(),
            1 => self.rng.bytes(200),
            _ => format!("https://example.org/{:x}", self.rng.number()).into_bytes(),
        }
    }

    fn check(&self, client: &mut Connection, key: &[u8], rate: f64) {
        let items: Vec<&Vec<u8>> = self.added.iter().collect();
        let found = client.batched(&[b"BF.MEXISTS", key], &items);
        let lost: Vec<_> = items.iter().zip(found).filter(|(_, present)| !present).map(|(item, _)| item).collect();
        assert!(lost.is_empty(), "{} of {} items were lost, such as {:?}", lost.len(), items.len(), lost[0]);
        assert_eq!(client.call(&[b"BF.CARD", key]), integer(self.new as i64));
        // Far above what chance allows: this is no measurement of the rate.
        let bound = 10.0 + 2.0 * rate * items.len() as f64;
        assert!(self.wrongly_known as f64 <= bound, "{} of {} wrong", self.wrongly_known, items.len());
    }
}

#[test]
fn what_was_added_is_always_found() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (round, (words, rate, steps, longest)) in [
            ("0.01 100", 0.01, 300, 200),
            ("0.001 1 EXPANSION 1", 0.001, 60, 10),
            ("0.0001 3 EXPANSION 3", 0.0001, 200, 300),
            ("0.25 1000 EXPANSION 4", 0.25, 300, 100),
            ("1e-9 50", 1e-9, 200, 150),
            ("0.01 100000 NONSCALING", 0.01, 200, 400),
            ("0.02 3000000", 0.02, 100, 1000),
        ]
        .into_iter()
        .enumerate()
        {
            let key = format!("round {round}");
            let mut command = vec!["BF.RESERVE", &key];
            command.extend(words.split(' '));
            assert_eq!(client.call(&command), ok(), "{words}");
            let mut crawl = Crawl::new(round as u64);
            for _ in 0..steps {
                crawl.step(&mut client, key.as_bytes(), longest);
            }
            crawl.check(&mut client, key.as_bytes(), rate);
        }
    });
}

#[test]
fn an_item_is_found_from_the_moment_it_was_acknowledged() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let mut other = server.connect();
        let mut rng = Rng::new(42);
        for _ in 0..3000 {
            let item = rng.bytes(40);
            client.call(&[b"BF.ADD".as_slice(), b"k", &item]);
            assert_eq!(other.call(&[b"BF.EXISTS".as_slice(), b"k", &item]), integer(1), "{}", item.escape_ascii());
        }
    });
}

#[test]
fn a_client_library_sees_the_same() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.library_client(2);
        let mut rng = Rng::new(7);
        let mut added = HashSet::new();
        for _ in 0..50 {
            let links: Vec<String> = (0..200).map(|_| format!("https://example.org/{}", rng.below(20_000))).collect();
            let mut command = redis::cmd("BF.MADD");
            command.arg("seen").arg(&links);
            let answers: Vec<bool> = command.query(&mut client).unwrap();
            assert_eq!(answers.len(), links.len());
            added.extend(links);
        }
        for link in &added {
            let seen: bool = redis::cmd("BF.EXISTS").arg("seen").arg(link).query(&mut client).unwrap();
            assert!(seen, "{link}");
        }
        let card: usize = redis::cmd("BF.CARD").arg("seen").query(&mut client).unwrap();
        assert!(card <= added.len() && card as f64 > added.len() as f64 * 0.97, "{card} of {}", added.len());
    });
}

#[test]
fn many_clients_at_once_lose_nothing() {
    on_every_server(|program| {
        let server = Server::start(program);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let mut client = server.connect();
                scope.spawn(move || {
                    let items: Vec<String> = (0..5000).map(|number| format!("{worker}/{number}")).collect();
                    for batch in items.chunks(70) {
                        client.batched(&[b"BF.MADD", b"k"], batch);
                    }
                    assert!(client.batched(&[b"BF.MEXISTS", b"k"], &items).iter().all(|&present| present));
                });
            }
        });
        let card = server.connect().run("BF.CARD k").number();
        assert!((19_500..=20_000).contains(&card), "{card} items");
    });
}
