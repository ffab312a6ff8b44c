//! What is deleted from filters that count: BF.DEL and BF.MDEL count down, and so do their effects.

use std::collections::HashMap;

use super::{FULL, create_some};
use testing::{
    Connection, Rng, Server, Stop, array, catch_up, digest, error, follow, integer, ok, on_every_server,
    with_append_only_file,
};

/// Adds and deletes at random, of a small set of items: only what is in is deleted, as a multiset here says. What is in is
/// found all the time.
struct Members {
    copies: HashMap<String, u64>,
    rng: Rng,
}

impl Members {
    fn come_and_go(&mut self, client: &mut Connection, key: &str, commands: usize) {
        for _ in 0..commands {
            let items: Vec<String> = (0..=self.rng.below(40)).map(|_| format!("item/{}", self.rng.below(60))).collect();
            if self.rng.below(2) == 0 {
                client.run(&format!("BF.MADD {key} {}", items.join(" ")));
                items.into_iter().for_each(|item| *self.copies.entry(item).or_default() += 1);
            } else {
                let mut members = Vec::new();
                for item in items {
                    if let Some(copies) = self.copies.get_mut(&item).filter(|copies| **copies > 0) {
                        *copies -= 1;
                        members.push(item);
                    }
                }
                if !members.is_empty() {
                    let found = client.batched(&[b"BF.MDEL", key.as_bytes()], &members);
                    assert!(found.iter().all(|&found| found), "{members:?}");
                }
            }
        }
        assert_eq!(client.run(&format!("BF.CARD {key}")).number() as u64, self.copies.values().sum::<u64>());
        let members: Vec<&String> =
            self.copies.iter().filter(|(_, copies)| **copies > 0).map(|(item, _)| item).collect();
        assert!(client.batched(&[b"BF.MEXISTS", key.as_bytes()], &members).iter().all(|&present| present));
    }
}

#[test]
fn a_delete_counts_down_what_it_finds() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            let (yes, no) = (client.answer(true), client.answer(false));
            client.run("FLUSHALL");
            client.run("BF.INSERT k CAPACITY 4 COUNTING ITEMS a a a b");
            assert_eq!(client.run("BF.DEL k a"), yes);
            assert_eq!(client.run("BF.EXISTS k a"), yes, "it was added more than once");
            assert_eq!((client.run("BF.COUNT k a"), client.run("BF.CARD k")), (integer(2), integer(3)));
            // It takes one more now, and no two.
            assert_eq!(client.run("BF.MADD k c c"), array([yes.clone(), error(FULL)]));
            let answers = [yes.clone(), yes.clone(), no.clone(), yes.clone(), no.clone()];
            assert_eq!(client.run("BF.MDEL k a a a b never"), array(answers), "in order");
            assert_eq!((client.run("BF.COUNT k a"), client.run("BF.CARD k")), (integer(0), integer(1)));
            assert_eq!(client.run("BF.DEL k a"), no);
            assert_eq!(client.run("BF.ADD k a"), yes);
            // A hash makes no table.
            client.run("BF.INSERT keyed HASH siphash CAPACITY 100 COUNTING ITEMS a a");
            let size = client.run("BF.INFO keyed SIZE");
            assert_eq!(client.run("BF.MDEL keyed a a a"), array([yes.clone(), yes.clone(), no.clone()]));
            assert_eq!(client.run("BF.INFO keyed SIZE"), size);
        }
    });
}

#[test]
fn members_come_and_go_and_a_replica_follows() {
    on_every_server(|program| {
        let mut server = with_append_only_file(program);
        let mut primary = server.connect();
        create_some(&mut primary);
        let members = |seed| Members { copies: HashMap::new(), rng: Rng::new(seed) };
        let (mut plain, mut keyed) = (members(1), members(2));
        plain.come_and_go(&mut primary, "plain", 100);
        let other = Server::start(program);
        let mut replica = other.connect();
        follow(&mut replica, &server);
        plain.come_and_go(&mut primary, "plain", 150);
        keyed.come_and_go(&mut primary, "keyed", 150);
        // Of what was never added, too: it may hide others, and the replica hides the same.
        let mut rng = Rng::new(3);
        for _ in 0..100 {
            primary.run(&format!("BF.ADD small {}", rng.below(30)));
            primary.run(&format!("BF.DEL small {}", rng.below(60)));
        }
        catch_up(&mut primary, &mut replica);
        for key in ["plain", "keyed", "small"] {
            assert_eq!(digest(&mut replica, key), digest(&mut primary, key), "{key}");
        }
        let whole = primary.run("DEBUG DIGEST");
        for way in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
            assert_eq!(primary.run(way), ok(), "{way}");
            assert_eq!(primary.run("DEBUG DIGEST"), whole, "{way}");
        }
        server.restart(Stop::Kill);
        let mut primary = server.connect();
        assert_eq!(primary.run("DEBUG DIGEST"), whole);
        plain.come_and_go(&mut primary, "plain", 20);
    });
}
