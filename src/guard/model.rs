//! The guard under random commands, against a model of the cache, of the filters and of the clients. Times are numbers, so
//! every interleaving of leases, deadlines and commands can come up, and a seed brings one back.

use std::collections::HashMap;

use super::alarm::Due;
use super::ids::{CacheKeyId, FilterId, ItemId};
use super::queues::WaiterId;
use super::state::{Asker, Guard, Standing};
use super::table::Instant;

const KEYS: usize = 3;
const FILTERS: usize = 2;
const ITEMS: u64 = 2;
/// The most leases, and the most NONEs: fewer than cache keys, so that some are evicted.
const MAX: usize = 2;

/// What a client asked: a cache key, a filter by its number, an item, and which conditions it named.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Question {
    key: usize,
    filter: usize,
    item: u64,
    /// WHILE.
    has_while: bool,
    /// UNLESS.
    has_unless: bool,
}

/// A client that waits.
#[derive(Clone, Copy)]
struct Client {
    question: Question,
    deadline: Instant,
}

/// The guard, and what the model knows besides.
struct World {
    guard: Guard<Question>,
    rng: fastrand::Rng,
    now: Instant,
    /// Which cache keys have a value.
    values: [bool; KEYS],
    /// Which cache keys have a write in flight.
    in_flight: [bool; KEYS],
    /// Until when each cache key is backed off, as far as that is certain: others may be evicted.
    backs_off: [Instant; KEYS],
    /// Whether the key of WHILE exists.
    beats: bool,
    /// The instance of each filter; nothing: it is missing.
    instances: [Option<u64>; FILTERS],
    last_instance: u64,
    /// The tokens that may still be taken, by cache key, with what they were granted for.
    tokens: Vec<(u64, Question, ItemId)>,
    last_token: u64,
    clients: HashMap<WaiterId, Client>,
    last_client: WaiterId,
    /// Answers that the server has not sent yet: the client, its cache key, its token.
    unsent: Vec<(WaiterId, CacheKeyId, Option<u64>)>,
    answers: [u64; 4],
}

fn key_id(key: usize) -> CacheKeyId {
    CacheKeyId { database: 0, name: [key as u64, 1] }
}

fn filter_key(filter: usize) -> CacheKeyId {
    CacheKeyId { database: 0, name: [filter as u64, 2] }
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            guard: Guard::default(),
            rng: fastrand::Rng::with_seed(seed),
            now: 1,
            values: [false; KEYS],
            in_flight: [false; KEYS],
            backs_off: [0; KEYS],
            beats: true,
            instances: [Some(1), None],
            last_instance: 1,
            tokens: Vec::new(),
            last_token: 0,
            clients: HashMap::new(),
            last_client: 0,
            unsent: Vec::new(),
            answers: [0; 4],
        }
    }

    fn item_id(&self, question: Question) -> ItemId {
        let filter = match self.instances[question.filter] {
            Some(instance) => FilterId::existing(instance),
            None => FilterId::missing(filter_key(question.filter)),
        };
        ItemId { filter, item: [question.item, 0] }
    }

    fn question(&mut self) -> Question {
        // Mostly one item of one filter for a cache key, as it should be.
        let key = self.rng.usize(..KEYS);
        let odd = self.rng.u64(..8) == 0;
        let filter = if odd { self.rng.usize(..FILTERS) } else { key % FILTERS };
        let item = if odd { self.rng.u64(..ITEMS) } else { 0 };
        Question { key, filter, item, has_while: self.rng.u64(..2) == 0, has_unless: self.rng.u64(..2) == 0 }
    }

    fn grant(&mut self, question: Question) -> u64 {
        let (key, item) = (key_id(question.key), self.item_id(question));
        let end = self.now + 1 + self.rng.u64(..20);
        self.last_token += 1;
        let token = self.last_token;
        self.guard.grant(key, item, token, (self.now, end), MAX).unwrap();
        self.tokens.push((token, question, item));
        token
    }

    fn is_held(&self, question: Question) -> bool {
        question.has_unless && self.in_flight[question.key]
    }

    /// BF.FETCH, as `commands/fetch.rs` does it: nothing if the caller has to wait, else the token if it grants one.
    fn look(&mut self, question: Question, asker: Asker) -> Option<Option<u64>> {
        if self.is_held(question) {
            return None;
        }
        let (item, denies) = (self.item_id(question), self.beats || !question.has_while);
        let standing = self.guard.standing(key_id(question.key), item, asker, denies, self.now);
        match standing {
            Standing::NoRow => {
                assert!(denies, "a NONE is no answer without the key of WHILE");
                Some(None)
            }
            _ if self.values[question.key] => Some(None),
            Standing::Leased(left) => {
                assert!(left > 0);
                None
            }
            Standing::BackedOff(left) => {
                assert!(left > 0 && self.backs_off[question.key] == self.now + left, "{left} ms are left");
                self.answers[3] += 1;
                Some(None)
            }
            Standing::Free => {
                assert!(self.backs_off[question.key] <= self.now, "a lease during a back-off");
                Some(Some(self.grant(question)))
            }
        }
    }

    fn fetch(&mut self) {
        let question = self.question();
        let key = key_id(question.key);
        let has_lease = self.guard.has_lease(key, self.now);
        let answer = self.look(question, Asker::Caller);
        if !self.guard.all_held(key) && !has_lease {
            assert!(!matches!(answer, Some(Some(_))), "a caller overtakes the waiters");
        }
        if answer.is_none() && self.rng.u64(..4) > 0 {
            let wait = if self.rng.u64(..2) == 0 { 1000 } else { 1 + self.rng.u64(..30) };
            self.last_client += 1;
            let (client, deadline) = (self.last_client, self.now + wait);
            let filter = filter_key(question.filter);
            self.guard.join(key, filter, client, question, self.is_held(question), (self.now, deadline)).unwrap();
            self.clients.insert(client, Client { question, deadline });
        }
    }

    fn fill(&mut self) {
        if self.tokens.is_empty() {
            return;
        }
        // Mostly one of the last, which may still be good.
        let tokens = self.tokens.len();
        let back = if self.rng.u64(..8) == 0 { tokens } else { tokens.min(4) };
        let place = tokens - 1 - self.rng.usize(..back);
        let (token, question, granted_for) = self.tokens[place];
        let (key, item) = (key_id(question.key), self.item_id(question));
        if !self.guard.holds(key, item, token, self.now) {
            return;
        }
        assert_eq!(item, granted_for, "a token is taken for the item and the filter that it was granted for");
        self.tokens.swap_remove(place);
        match self.rng.u64(..4) {
            0 => self.guard.end(key),
            3 => self.back_off(question.key),
            1 => {
                self.values[question.key] = true;
                self.guard.end(key);
            }
            _ => {
                self.values[question.key] = false;
                let end = self.now + 1 + self.rng.u64(..20);
                self.guard.note_no_row(key, item, (self.now, end), MAX);
                let expected = if item.filter.is_missing() { Standing::Free } else { Standing::NoRow };
                assert_eq!(self.guard.standing(key, item, Asker::Waiter, true, self.now), expected);
                assert!(self.guard.knows(key) && !self.guard.is_idle() || item.filter.is_missing());
            }
        }
        assert!(!self.guard.holds(key, item, token, self.now), "a token is taken once");
    }

    /// A write of a row begins or ends, or the key of WHILE comes or goes. The end of a write is announced right after it, in
    /// the same transaction.
    fn feed(&mut self) {
        let key = self.rng.usize(..KEYS);
        match self.rng.u64(..3) {
            0 => self.beats = !self.beats,
            _ if self.in_flight[key] => {
                self.in_flight[key] = false;
                self.values[key] = false;
                self.backs_off[key] = 0;
                self.guard.end(key_id(key));
            }
            _ => self.in_flight[key] = true,
        }
    }

    fn back_off(&mut self, key: usize) {
        let end = self.now + 1 + self.rng.u64(..20);
        self.guard.back_off(key_id(key), (self.now, end), MAX);
        self.backs_off[key] = end;
        // Of more than the limit, the one that ends first is evicted; of two that end together, either.
        let live = self.backs_off.iter().filter(|end| **end > self.now).count();
        for key in 0..KEYS {
            if !self.guard.is_backed_off(key_id(key), self.now) {
                assert!(live > MAX || self.backs_off[key] <= self.now, "a back-off ended early");
                self.backs_off[key] = 0;
            }
        }
    }

    /// A client changes or deletes the value of a cache key, by a command of the server.
    fn void(&mut self) {
        let key = self.rng.usize(..KEYS);
        self.values[key] = self.rng.u64(..2) == 0;
        let held = self.guard.is_backed_off(key_id(key), self.now);
        self.guard.void(key_id(key));
        assert!(!self.guard.has_lease(key_id(key), self.now));
        assert_eq!(self.guard.is_backed_off(key_id(key), self.now), held, "a back-off is about the database");
    }

    fn changed(&mut self) {
        let question = self.question();
        self.values[question.key] = false;
        self.backs_off[question.key] = 0;
        self.guard.end(key_id(question.key));
        let item = self.item_id(question);
        self.guard.end_item(item);
        let others = self.tokens.iter().filter(|(.., granted_for)| *granted_for == item);
        for (token, other, _) in others {
            assert!(!self.guard.holds(key_id(other.key), item, *token, self.now), "it was granted before the change");
        }
    }

    fn replace_filter(&mut self) {
        let filter = self.rng.usize(..FILTERS);
        self.last_instance += 1;
        let instance = (self.rng.u64(..2) == 0).then_some(self.last_instance);
        self.instances[filter] = instance;
        self.guard.filter_replaced(filter_key(filter));
        let missing = FilterId::missing(filter_key(filter));
        for (token, question, granted_for) in self.tokens.iter().filter(|(.., item)| item.filter == missing) {
            let is_held = self.guard.holds(key_id(question.key), *granted_for, *token, self.now);
            assert!(!is_held, "it was granted without a filter, before there was one");
        }
        for client in self.clients.values().filter(|client| client.question.filter == filter) {
            assert!(!self.guard.has_lease(key_id(client.question.key), self.now), "its token would be refused");
        }
    }

    fn end_all(&mut self, ends: impl FnOnce(&mut Guard<Question>)) {
        ends(&mut self.guard);
        for key in (0..KEYS).filter(|key| !self.guard.is_backed_off(key_id(*key), self.now)).collect::<Vec<_>>() {
            self.backs_off[key] = 0;
        }
    }

    fn leave(&mut self) {
        if let Some(client) = self.clients.keys().copied().min() {
            self.clients.remove(&client);
            assert!(self.guard.leave(client).is_some());
        }
    }

    fn answered(&mut self, client: WaiterId, token: Option<u64>) {
        assert!(self.guard.answered(client, token));
        let asked = self.clients.remove(&client).unwrap().question;
        self.unsent.push((client, key_id(asked.key), token));
    }

    /// The server sends an answer, or finds that the client is gone. Then its lease ends, and no other.
    fn send(&mut self) {
        let Some((client, key, token)) = self.unsent.pop() else { return };
        let held = self.holder(key);
        let is_gone = self.rng.u64(..4) == 0;
        self.guard.finish(client, is_gone);
        let is_ended = is_gone && token.is_some() && token == held;
        assert_eq!(self.holder(key), held.filter(|_| !is_ended), "{key:?}: {token:?} of {client}, gone: {is_gone}");
    }

    /// The token of the live lease of a cache key, whatever its item.
    fn holder(&self, key: CacheKeyId) -> Option<u64> {
        let holds = |token: &u64| self.guard.has_token(key, *token);
        (1..=self.last_token).rev().take(50).find(holds).filter(|_| self.guard.has_lease(key, self.now))
    }

    /// The timer, as `blocking.rs` does it.
    fn go_off(&mut self) {
        while let Some(due) = self.guard.take_due(self.now) {
            match due {
                Due::Serve(key) => {
                    let mut from = 0;
                    while let Some((client, ticket, question)) = self.guard.next(key, from) {
                        assert_eq!(self.clients[&client].question, question);
                        let Some(token) = self.look(question, Asker::Waiter) else {
                            let is_held = self.is_held(question);
                            assert!(self.guard.put_back(client, question, is_held).is_none());
                            if !is_held {
                                break;
                            }
                            from = ticket + 1;
                            continue;
                        };
                        self.answers[usize::from(token.is_some())] += 1;
                        self.answered(client, token);
                    }
                }
                Due::Deadline(client, ticket) => {
                    let Some(question) = self.guard.take(client, ticket) else { continue };
                    let token = self.look(question, Asker::Waiter).unwrap_or_else(|| {
                        assert!(self.clients[&client].deadline <= self.now, "told to come again too early");
                        self.answers[2] += 1;
                        None
                    });
                    self.answered(client, token);
                }
                Due::Sweep => panic!("the guard sweeps by itself"),
            }
        }
        assert!(self.clients.values().all(|client| client.deadline > self.now), "a client waits too long");
        // Whoever is not held waits for a lease. Everybody else was named when the write ended.
        let waits_alone =
            |question: Question| !self.is_held(question) && !self.guard.has_lease(key_id(question.key), self.now);
        let alone = self.clients.values().find(|client| waits_alone(client.question));
        assert!(alone.is_none(), "{:?} waits for nothing", alone.map(|client| client.question));
        for key in self.guard.waited_for().into_iter().filter(|key| !self.guard.all_held(*key)).collect::<Vec<_>>() {
            let other = self.item_id(Question { key: 0, filter: 0, item: 9, has_while: false, has_unless: false });
            let standing = self.guard.standing(key, other, Asker::Waiter, true, self.now);
            let left = self.guard.lease_left(key, self.now);
            assert_eq!(standing, Standing::Leased(left), "{key:?}: clients wait for nothing");
        }
    }

    fn step(&mut self) {
        match self.rng.u64(..100) {
            0..45 => self.fetch(),
            45..65 => self.fill(),
            65..72 => self.changed(),
            72..75 => self.feed(),
            75..80 => self.replace_filter(),
            80..82 => self.end_all(|guard| guard.end_all()),
            82..84 => {
                let epoch = self.rng.u64(..2);
                self.end_all(|guard| guard.see_epochs([epoch, 0]));
            }
            84..86 => self.void(),
            86..88 => self.leave(),
            88..92 => self.send(),
            _ => self.now += self.rng.u64(..5),
        }
        if self.guard.next_due().is_none_or(|at| at > self.now) {
            assert_eq!(self.guard.forgotten(self.now), None, "the timer will not go off for it");
        }
        assert_eq!(self.guard.counts(self.now).2, self.clients.len() as u64);
        assert!(self.clients.is_empty() || !self.guard.is_idle());
        assert!(self.clients.values().all(|client| self.guard.knows(key_id(client.question.key))));
        // Commands may come in one transaction: the timer goes off after it.
        if self.rng.u64(..3) > 0 {
            self.go_off();
            assert_eq!(self.guard.forgotten(self.now), None);
        }
    }
}

#[test]
fn a_waiter_gets_an_answer_or_waits_to_its_end() {
    let mut answers = [0; 4];
    for seed in 0..200 {
        let mut world = World::new(seed);
        for _ in 0..2000 {
            world.step();
        }
        world.now += 1_000_000;
        world.go_off();
        while !world.unsent.is_empty() {
            world.send();
        }
        assert!(world.clients.is_empty() && world.guard.waited_for().is_empty());
        // Whatever is left expires and is swept.
        while let Some(at) = world.guard.next_due() {
            world.now = at;
            world.go_off();
        }
        assert!(world.guard.is_idle(), "seed {seed}");
        (0..4).for_each(|kind| answers[kind] += world.answers[kind]);
    }
    assert!(
        answers.iter().all(|count| *count > 500),
        "a value or absent, a lease, come again, a back-off: {answers:?}"
    );
}
