//! Compares the guard under random commands with a model of the cache, the filters and the clients. Times are numbers, so every
//! interleaving of leases, deadlines and commands can occur, and a seed reproduces it. Further tests check that the guard removes
//! exactly the records, timer events and waiters that are no longer needed.

use std::collections::HashMap;

use super::queues::WaiterId;
use super::records::{Instant, Record, RecordKind};
use super::row::{DependencyId, KeyId, Row, Stamp};
use super::state::{Asker, Guard, RowState, TOKENS_LIVE, TimerEvent, Trust};

const KEYS: usize = 3;
const FILTERS: usize = 2;
const ITEMS: u64 = 2;
/// The hash of UNLESS.
const HASH: DependencyId = 5;
/// The maximum number of records: fewer than cache keys, so that some are evicted.
const MAX: usize = 2;

/// A client's request: a cache key, a filter by its number, an item, and the conditions of the request.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Question {
    key: usize,
    filter: usize,
    item: u64,
    /// WHILE.
    has_while: bool,
    /// FRESH.
    has_fresh: bool,
    /// UNLESS.
    has_unless: bool,
}

/// A client that waits.
#[derive(Clone, Copy)]
struct Client {
    question: Question,
    deadline: Instant,
}

/// A token that was granted.
struct Token {
    stamp: Stamp,
    row: Row,
    /// Whether all dependencies of its row are unchanged.
    is_safe: bool,
    /// The end of the time for which a value filled under its lease is served without the key of WHILE.
    fresh_until: Option<Instant>,
}

/// The guard, and the state of the model.
struct World {
    guard: Guard<Question>,
    rng: fastrand::Rng,
    now: Instant,
    /// Which cache keys have a value.
    values: [bool; KEYS],
    /// Which cache keys have a write in flight, and whether all are assumed to have one.
    in_flight: [bool; KEYS],
    all_in_flight: bool,
    /// The end of each cache key's back-off.
    backs_off: [Instant; KEYS],
    /// The end of the time for which a cache key's filled value is served without the key of WHILE, and its row.
    fresh: [Option<(Instant, Row)>; KEYS],
    /// Whether the key of WHILE exists.
    beats: bool,
    /// The instance of each filter; 0 if it is missing.
    instances: [u64; FILTERS],
    last_instance: u64,
    tokens: Vec<Token>,
    clients: HashMap<WaiterId, Client>,
    last_client: WaiterId,
    /// Answers that the server has not sent yet: the client, its cache key, the stamp of its token.
    unsent: Vec<(WaiterId, KeyId, Option<Stamp>)>,
    answers: [u64; 5],
}

fn key_id(key: usize) -> KeyId {
    KeyId([key as u64, 1])
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            guard: Guard::default(),
            rng: fastrand::Rng::with_seed(seed),
            now: 1,
            values: [false; KEYS],
            in_flight: [false; KEYS],
            all_in_flight: false,
            backs_off: [0; KEYS],
            fresh: [None; KEYS],
            beats: true,
            instances: [1, 0],
            last_instance: 1,
            tokens: Vec::new(),
            clients: HashMap::new(),
            last_client: 0,
            unsent: Vec::new(),
            answers: [0; 5],
        }
    }

    fn row(&self, question: Question) -> Row {
        let filter = 10 + question.filter as u64;
        let (key, item) = (key_id(question.key), 10 * filter + question.item);
        Row { key, filter, item: item % 60, instance: self.instances[question.filter] }
    }

    fn question(&mut self) -> Question {
        // Mostly uses the same item and filter for a cache key, as applications should.
        let key = self.rng.usize(..KEYS);
        let odd = self.rng.u64(..8) == 0;
        let filter = if odd { self.rng.usize(..FILTERS) } else { key % FILTERS };
        let item = if odd { self.rng.u64(..ITEMS) } else { 0 };
        let [has_while, has_fresh, has_unless] = [(); 3].map(|()| self.rng.u64(..2) == 0);
        Question { key, filter, item, has_while, has_fresh, has_unless }
    }

    fn some_time(&mut self) -> (Instant, Instant) {
        (self.now, self.now + 1 + self.rng.u64(..20))
    }

    fn is_held(&self, question: Question) -> bool {
        question.has_unless && (self.in_flight[question.key] || self.all_in_flight)
    }

    fn lease(&self, key: KeyId) -> Option<Stamp> {
        self.guard.record(key, self.now).filter(|record| record.kind() == RecordKind::Lease).map(|record| record.stamp)
    }

    fn is_backed_off(&self, key: usize) -> bool {
        self.guard.record(key_id(key), self.now).is_some_and(|record| record.kind() == RecordKind::BackOff)
    }

    /// BF.FETCH as in `commands/guard.rs`: returns `None` if the caller has to wait, else the stamp of the lease if one is granted.
    fn look(&mut self, question: Question, asker: Asker) -> Option<Option<Stamp>> {
        if self.is_held(question) {
            return None;
        }
        let row = self.row(question);
        let trust = match () {
            () if self.beats || !question.has_while => Trust::All,
            () if question.has_fresh => Trust::Fresh,
            () => Trust::Values,
        };
        if self.values[question.key] && trust != Trust::Fresh {
            return Some(None);
        }
        let is_fresh = self.fresh[question.key].is_some_and(|(until, of)| until > self.now && of == row);
        match self.guard.row_state(&row, asker, trust, self.now) {
            RowState::NoRow => {
                assert!(trust == Trust::All || is_fresh, "a NONE is no answer without the key of WHILE");
                self.answers[4] += u64::from(trust == Trust::Fresh);
                Some(None)
            }
            RowState::Loaded if self.values[question.key] => {
                assert!(trust == Trust::Fresh && is_fresh, "a value is not believed without the key of WHILE");
                self.answers[4] += 1;
                Some(None)
            }
            RowState::Leased(left) => {
                assert!(left > 0);
                None
            }
            RowState::BackedOff(left) => {
                assert!(left > 0 && self.backs_off[question.key] == self.now + left, "{left} ms are left");
                self.answers[3] += 1;
                Some(None)
            }
            RowState::Free | RowState::Loaded => {
                assert!(self.backs_off[question.key] <= self.now, "a lease during a back-off");
                assert_eq!(self.lease(row.key), None, "another lease");
                let times = self.some_time();
                let fresh_until = (trust == Trust::Fresh).then(|| times.1 + 16 * self.rng.u64(..20));
                let stamp = self.guard.grant(row, times, fresh_until, MAX);
                self.fresh[question.key] = None;
                self.void(|other| other.key == row.key && *other != row);
                self.tokens.push(Token { stamp, row, is_safe: true, fresh_until });
                self.evicted();
                Some(Some(stamp))
            }
        }
    }

    /// A new record may have evicted others, with their tokens and back-offs.
    fn evicted(&mut self) {
        for key in 0..KEYS {
            let id = key_id(key);
            if !self.guard.has_record(id) && self.tokens.iter().any(|token| token.is_safe && token.row.key == id) {
                assert!(self.guard.records() >= MAX, "a token was forgotten early");
                self.void(|row| row.key == id);
            }
            if self.backs_off[key] > self.now && !self.is_backed_off(key) {
                assert!(self.guard.records() >= MAX, "a back-off ended early");
                self.backs_off[key] = 0;
            }
        }
    }

    fn fetch(&mut self) {
        let question = self.question();
        let row = self.row(question);
        let has_lease = self.lease(row.key).is_some();
        let answer = self.look(question, Asker::Caller);
        if !self.guard.all_held(row.key) && !has_lease {
            assert!(!matches!(answer, Some(Some(_))), "a caller overtakes the waiters");
        }
        if answer.is_none() && self.rng.u64(..4) > 0 {
            let wait = if self.rng.u64(..2) == 0 { 1000 } else { 1 + self.rng.u64(..30) };
            self.last_client += 1;
            let (client, deadline) = (self.last_client, self.now + wait);
            let unless = question.has_unless.then_some(HASH);
            self.guard.join(&row, unless, client, question, self.is_held(question), (self.now, deadline)).unwrap();
            self.clients.insert(client, Client { question, deadline });
        }
    }

    fn fill(&mut self) {
        if self.tokens.is_empty() {
            return;
        }
        // Mostly one of the last tokens, which may still be valid.
        let tokens = self.tokens.len();
        let back = if self.rng.u64(..8) == 0 { tokens } else { tokens.min(4) };
        let Token { stamp, row, is_safe, fresh_until } = self.tokens[tokens - 1 - self.rng.usize(..back)];
        let (key, lease) = (usize::try_from(row.key.table_hash()).unwrap(), self.lease(row.key));
        assert_eq!(self.guard.accepts(&row, stamp), is_safe);
        if !is_safe {
            assert!(self.lease(row.key) == lease && lease != Some(stamp), "its lease did not count");
            return;
        }
        // Applies only to the last lease, while it has not ended.
        let fresh_until = fresh_until.filter(|_| lease == Some(stamp));
        assert_eq!(self.guard.fresh_until(row.key, stamp, self.now), fresh_until);
        match self.rng.u64(..4) {
            0 => {
                assert_eq!(self.guard.give_up(row.key, stamp, self.now), lease == Some(stamp));
                assert_eq!(self.lease(row.key), lease.filter(|lease| *lease != stamp), "of another token");
            }
            1 => {
                let times = self.some_time();
                self.guard.back_off(row.key, times.0, Some(times.1 - times.0), MAX);
                self.backs_off[key] = times.1;
                assert!(self.is_backed_off(key));
                self.evicted();
            }
            2 => {
                self.values[key] = true;
                self.guard.filled(row, self.now, fresh_until, MAX);
                self.changed_key(key);
                self.fresh[key] = fresh_until.map(|until| (until, row));
                self.evicted();
            }
            _ => {
                self.values[key] = false;
                let times = self.some_time();
                self.guard.note_no_row(row, times, fresh_until, MAX);
                self.changed_key(key);
                self.fresh[key] = fresh_until.map(|until| (until.min(times.1), row));
                self.evicted();
                let expected = if row.is_unguarded() { RowState::Free } else { RowState::NoRow };
                assert_eq!(self.guard.row_state(&row, Asker::Waiter, Trust::All, self.now), expected);
            }
        }
    }

    /// The cache key has changed, and the guard has removed its record.
    fn changed_key(&mut self, key: usize) {
        self.void(|row| row.key == key_id(key));
        self.backs_off[key] = 0;
        assert_eq!(self.lease(key_id(key)), None);
    }

    fn void(&mut self, depends: impl Fn(&Row) -> bool) {
        self.tokens.iter_mut().for_each(|token| token.is_safe &= !depends(&token.row));
        for fresh in &mut self.fresh {
            fresh.take_if(|(_, row)| depends(row));
        }
    }

    /// A write of a row begins or ends, or the key of WHILE is created or deleted. The end of a write is announced directly after it,
    /// in the same transaction; if instead its field expires or the hash is deleted, nothing is announced.
    fn feed(&mut self) {
        let key = self.rng.usize(..KEYS);
        match self.rng.u64(..6) {
            0 => self.beats = !self.beats,
            1 => (self.in_flight, self.all_in_flight) = ([false; KEYS], false),
            2 => self.all_in_flight = true,
            3 => self.in_flight[key] = false,
            _ if self.in_flight[key] => {
                (self.in_flight[key], self.values[key]) = (false, false);
                self.guard.row_changed(key_id(key));
                self.changed_key(key);
            }
            _ => self.in_flight[key] = true,
        }
        self.guard.hash_changed(HASH);
    }

    /// A client changes or deletes the value of a cache key, by a command of the server.
    fn overwrite(&mut self) {
        let key = self.rng.usize(..KEYS);
        self.values[key] = self.rng.u64(..2) == 0;
        let was_backed_off = self.is_backed_off(key);
        self.guard.value_changed(key_id(key));
        self.void(|row| row.key == key_id(key));
        assert_eq!(self.lease(key_id(key)), None);
        assert_eq!(self.is_backed_off(key), was_backed_off, "a back-off is about the database");
    }

    fn changed(&mut self) {
        let question = self.question();
        let row = self.row(question);
        self.values[question.key] = false;
        self.guard.row_changed(row.key);
        self.changed_key(question.key);
        self.add(row.item);
    }

    fn add(&mut self, item: u64) {
        self.guard.filter_changed(item);
        self.void(|row| row.item == item);
    }

    fn replace_filter(&mut self) {
        let filter = self.rng.usize(..FILTERS);
        self.last_instance += 1;
        self.instances[filter] = if self.rng.u64(..2) == 0 { self.last_instance } else { 0 };
        let of = 10 + filter as u64;
        self.guard.filter_changed(of);
        self.void(|row| row.filter == of);
        for client in self.clients.values().filter(|client| client.question.filter == filter) {
            let record = self.guard.record(key_id(client.question.key), self.now);
            let is_of = |record: Record| record.kind() != RecordKind::BackOff && record.row.filter == of;
            assert!(!record.is_some_and(is_of), "its token would be refused");
        }
    }

    fn end_all(&mut self, ends: impl FnOnce(&mut Guard<Question>) -> bool) {
        if ends(&mut self.guard) {
            self.void(|_| true);
            self.backs_off = [0; KEYS];
            assert_eq!(self.guard.records(), 0);
        }
    }

    fn leave(&mut self) {
        if let Some(client) = self.clients.keys().copied().min() {
            self.clients.remove(&client);
            assert!(self.guard.leave(client).is_some());
        }
    }

    fn answered(&mut self, client: WaiterId, stamp: Option<Stamp>) {
        assert!(self.guard.answered(client, stamp));
        let asked = self.clients.remove(&client).unwrap().question;
        self.unsent.push((client, key_id(asked.key), stamp));
    }

    /// The server sends an answer, or finds that the client has disconnected. Then only that client's lease ends.
    fn send(&mut self) {
        let Some((client, key, stamp)) = self.unsent.pop() else { return };
        let lease = self.lease(key);
        let is_gone = self.rng.u64(..4) == 0;
        self.guard.finish(client, is_gone);
        let is_ended = is_gone && stamp.is_some() && stamp == lease;
        assert_eq!(self.lease(key), lease.filter(|_| !is_ended), "{key:?}: {stamp:?} of {client}, gone: {is_gone}");
    }

    /// The timer handler, as in `mod.rs`.
    fn go_off(&mut self) {
        while let Some(due) = self.guard.take_event(self.now) {
            match due {
                TimerEvent::Serve(key) => {
                    let mut from = self.guard.serve_from(key);
                    while let Some((client, ticket, question)) = self.guard.next(key, from) {
                        assert_eq!(self.clients[&client].question, question);
                        from = ticket + 1;
                        let Some(stamp) = self.look(question, Asker::Waiter) else {
                            let is_held = self.is_held(question);
                            assert!(self.guard.put_back(client, question, is_held).is_none());
                            if !is_held {
                                break;
                            }
                            continue;
                        };
                        self.answers[usize::from(stamp.is_some())] += 1;
                        self.answered(client, stamp);
                        // The event loop iteration ends.
                        if self.rng.u64(..4) == 0 {
                            self.guard.serve_on(key, from, self.now);
                            break;
                        }
                    }
                }
                TimerEvent::Deadline(client, ticket) => {
                    let Some(question) = self.guard.take(client, ticket) else { continue };
                    let stamp = self.look(question, Asker::Waiter).unwrap_or_else(|| {
                        assert!(self.clients[&client].deadline <= self.now, "told to come again too early");
                        self.answers[2] += 1;
                        None
                    });
                    self.answered(client, stamp);
                }
                TimerEvent::Release => {
                    assert_eq!(self.guard.take_released(), [HASH]);
                    if !self.all_in_flight {
                        self.guard.release(HASH);
                    }
                }
                TimerEvent::Sweep => panic!("the guard sweeps by itself"),
            }
        }
        assert!(self.clients.values().all(|client| client.deadline > self.now), "a client waits too long");
        // A waiter that is not held waits for a lease that will end. All others were woken when the write ended.
        for client in self.clients.values().filter(|client| !self.is_held(client.question)) {
            assert!(self.guard.remaining_lease(key_id(client.question.key), self.now) > 0);
        }
        assert_eq!(self.guard.forgotten(self.now), None, "clients wait for nothing");
    }

    fn step(&mut self) {
        match self.rng.u64(..100) {
            0..45 => self.fetch(),
            45..65 => self.fill(),
            65..72 => self.changed(),
            72..75 => self.feed(),
            75..80 => self.replace_filter(),
            80..82 => self.end_all(|guard| {
                guard.all_changed();
                true
            }),
            82..84 => {
                let epoch = self.rng.u64(..2);
                self.end_all(|guard| guard.check_epochs([epoch, 0]));
            }
            84..86 => self.overwrite(),
            86..87 => {
                let item = self.question();
                self.add(self.row(item).item);
            }
            87..89 => self.leave(),
            89..92 => self.send(),
            _ => self.now += self.rng.u64(..5),
        }
        for token in &self.tokens {
            assert_eq!(self.guard.is_safe(&token.row, token.stamp), token.is_safe);
        }
        self.tokens.drain(..self.tokens.len().saturating_sub(20));
        if self.guard.next_due().is_none_or(|at| at > self.now) {
            assert_eq!(self.guard.forgotten(self.now), None, "the timer will not go off for it");
        }
        assert_eq!(self.guard.counts().2, self.clients.len());
        assert!(self.guard.records() <= MAX);
        assert!(self.clients.is_empty() || !self.guard.is_idle());
        // Several commands may be in one transaction; the timer fires after it.
        if self.rng.u64(..3) > 0 {
            self.go_off();
        }
    }
}

#[test]
fn a_waiter_gets_an_answer_or_waits_to_its_end() {
    let mut answers = [0; 5];
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
        // All remaining records expire and are swept; finally the tokens are removed.
        while let Some(at) = world.guard.next_due() {
            world.now = at + TOKENS_LIVE / 10;
            world.go_off();
        }
        assert!(world.guard.is_idle() && world.guard.records() == 0, "seed {seed}");
        (0..5).for_each(|kind| answers[kind] += world.answers[kind]);
    }
    assert!(
        answers.iter().all(|count| *count > 250),
        "a value or absent, a lease, come again, a back-off, an answer without the key of WHILE: {answers:?}"
    );
}

fn row(key: u64) -> Row {
    Row { key: KeyId([key, 1]), filter: 10, item: 20, instance: 1 }
}

/// A guard with a lease of the first cache key until 1000, and one client that waits for it.
fn with_a_waiter() -> Guard<&'static str> {
    let mut guard = Guard::default();
    guard.grant(row(0), (0, 1000), None, MAX);
    guard.join(&row(0), None, 1, "question", false, (0, 5000)).unwrap();
    guard
}

#[test]
fn the_timer_queue_does_not_fill_with_reassigned_leases() {
    let mut guard = with_a_waiter();
    for number in 0..10_000 {
        guard.grant(row(0), (0, 1000 + number), None, MAX);
    }
    assert!(guard.timer_entries() < 100, "{}", guard.timer_entries());
    assert_eq!(guard.forgotten(0), None);
    assert!(guard.take(1, 0).is_some());
}

#[test]
fn the_timer_queue_does_not_fill_with_removed_waiters() {
    let mut guard = with_a_waiter();
    for waiter in 2..10_000 {
        guard.join(&row(0), None, waiter, "question", false, (0, 5000)).unwrap();
        guard.leave(waiter).unwrap();
    }
    assert!(guard.timer_entries() < 100, "{}", guard.timer_entries());
    assert_eq!(guard.forgotten(0), None);
    // The events that are still needed remain: the end of the lease, the waiter's timeout, and the sweep.
    assert_eq!((guard.take_event(1000), guard.take_event(4999)), (Some(TimerEvent::Serve(row(0).key)), None));
    assert!(std::iter::from_fn(|| guard.take_event(5000)).any(|due| due == TimerEvent::Deadline(1, 0)));
    guard.leave(1).unwrap();
    while guard.take_event(10_000).is_some() {}
    assert!(guard.record(row(0).key, 10_000).is_none(), "the lease has expired");
    while guard.take_event(TOKENS_LIVE).is_some() {}
    assert_eq!(guard.records(), 1, "its token may be filled");
    while guard.take_event(2 * TOKENS_LIVE).is_some() {}
    assert!(guard.is_idle() && guard.next_due().is_none());
}

#[test]
fn a_waiter_whose_queue_is_due_is_kept() {
    let mut guard = with_a_waiter();
    guard.row_changed(row(0).key);
    for waiter in 2..1000 {
        guard.join(&row(0), None, waiter, "question", false, (0, 5000)).unwrap();
        guard.leave(waiter).unwrap();
    }
    assert_eq!(guard.take_event(0), Some(TimerEvent::Serve(row(0).key)));
}

#[test]
fn an_expired_lease_is_kept_until_its_waiters_are_served() {
    let mut guard = with_a_waiter();
    for waiter in 2..1000 {
        guard.join(&row(1), None, waiter, "question", false, (1000, 5000)).unwrap();
        guard.leave(waiter).unwrap();
    }
    assert!(std::iter::from_fn(|| guard.take_event(1000)).any(|due| due == TimerEvent::Serve(row(0).key)));
}

#[test]
fn a_caller_that_finds_waiters_and_no_lease_schedules_them() {
    let mut guard = with_a_waiter();
    guard.row_changed(row(0).key);
    // As if allocating the entry had failed.
    assert_eq!(guard.take_event(0), Some(TimerEvent::Serve(row(0).key)));
    assert_eq!(guard.take_event(0), None);
    assert_eq!(guard.row_state(&row(0), Asker::Caller, Trust::All, 0), RowState::Leased(1));
    assert_eq!(guard.take_event(0), Some(TimerEvent::Serve(row(0).key)));
}

#[test]
fn a_client_that_joins_as_the_lease_expires_is_served() {
    let mut guard = Guard::default();
    guard.grant(row(0), (0, 1000), None, MAX);
    guard.join(&row(0), None, 1, "question", false, (1000, 5000)).unwrap();
    assert_eq!(guard.take_event(1000), Some(TimerEvent::Serve(row(0).key)));
}

#[test]
fn a_token_is_valid_for_one_to_two_hours() {
    let mut guard = Guard::<()>::default();
    let mut granted = Vec::new();
    for minute in 0..500 {
        let now = 60_000 * minute;
        while guard.take_event(now).is_some() {}
        granted.push((now, guard.grant(row(minute), (now, now + 1), None, granted.len() + 1)));
        for (number, (at, stamp)) in (0..).zip(&granted) {
            let is_good = guard.accepts(&row(number), *stamp);
            let age = now - at;
            assert!(if is_good { age < 2 * TOKENS_LIVE + 60_000 } else { age >= TOKENS_LIVE }, "{age} ms: {is_good}");
        }
    }
    assert!(!guard.is_idle());
}

/// A caller takes the lease of the first cache key and gives it up with a back-off that doubles; after the back-off and a pause,
/// another caller does the same. Returns the lengths of the back-offs.
fn fail(guard: &mut Guard<()>, now: &mut Instant, failures: usize, pause: Instant) -> Vec<Instant> {
    let lengths = (0..failures).map(|_| {
        assert_eq!(guard.row_state(&row(0), Asker::Caller, Trust::All, *now), RowState::Free);
        let stamp = guard.grant(row(0), (*now, *now + 3000), None, MAX);
        assert!(guard.accepts(&row(0), stamp));
        guard.back_off(row(0).key, *now, None, MAX);
        let RowState::BackedOff(left) = guard.row_state(&row(0), Asker::Caller, Trust::All, *now) else { panic!() };
        *now += left + pause;
        while guard.take_event(*now).is_some() {}
        left
    });
    lengths.collect()
}

#[test]
fn back_offs_double_until_a_load_succeeds_or_a_minute_passes() {
    let (mut guard, mut now) = (Guard::<()>::default(), 1000);
    let doubled = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000];
    assert_eq!(fail(&mut guard, &mut now, 9, 59_999), doubled, "sweeps keep the failures");
    guard.filter_changed(row(0).item);
    assert_eq!(fail(&mut guard, &mut now, 1, 60_000), [10_000], "an add says nothing of the database");
    assert_eq!(fail(&mut guard, &mut now, 3, 0), [100, 200, 400], "a minute has passed");
    // A caller that passes a time counts the failures itself, and giving up is not a failure.
    guard.back_off(row(0).key, now, Some(1), MAX);
    let stamp = guard.grant(row(0), (now, now + 1), None, MAX);
    assert!(guard.give_up(row(0).key, stamp, now));
    assert_eq!(fail(&mut guard, &mut now, 1, 0), [800]);
    let ends: [fn(&mut Guard<()>); 3] = [
        |guard| guard.row_changed(row(0).key),
        |guard| (1..3).for_each(|key| guard.note_no_row(row(key), (0, Instant::MAX), None, MAX)),
        Guard::all_changed,
    ];
    for end in ends {
        end(&mut guard);
        assert_eq!(fail(&mut guard, &mut now, 2, 0), [100, 200]);
    }
}

#[test]
fn a_none_outlives_the_tokens() {
    let mut guard = Guard::<()>::default();
    guard.grant(row(0), (0, 1), None, MAX);
    guard.note_no_row(row(0), (0, 10 * TOKENS_LIVE), None, MAX);
    for hour in 1..10 {
        while guard.take_event(hour * TOKENS_LIVE).is_some() {}
        assert_eq!(guard.row_state(&row(0), Asker::Caller, Trust::All, hour * TOKENS_LIVE), RowState::NoRow);
    }
    guard.filter_changed(row(0).item);
    assert_eq!(guard.row_state(&row(0), Asker::Caller, Trust::All, 9 * TOKENS_LIVE), RowState::Free);
}

#[test]
fn a_lower_limit_is_reached_step_by_step() {
    let mut guard = Guard::<()>::default();
    let mut granted = 0;
    let mut grant = |max| {
        guard.grant(row(granted), (0, 1000), None, max);
        granted += 1;
        guard.records()
    };
    (0..1000).for_each(|_| _ = grant(1000));
    let left: Vec<usize> = (0..20).map(|_| grant(10)).collect();
    assert!((900..1000).contains(&left[0]) && left[19] == 10, "{left:?}");
    assert!(left.is_sorted_by(|before, after| before > after || *after == 10), "{left:?}");
}

#[test]
fn expired_records_are_removed_as_others_come() {
    let mut guard = Guard::<()>::default();
    for number in 0..50_000 {
        guard.note_no_row(row(number), (number, number + 10), None, 1_000_000);
    }
    assert!(guard.records() < 20, "{}", guard.records());
}

#[test]
fn tokens_survive_unrelated_changes() {
    let mut guard = Guard::<()>::default();
    let rows: Vec<Row> = (0..200).map(|number| Row { item: 1000 + number, ..row(number) }).collect();
    let granted: Vec<Stamp> = rows.iter().map(|row| guard.grant(*row, (0, 600_000), None, 1000)).collect();
    for number in 0..500_000 {
        guard.value_changed(KeyId([10_000 + number, 1]));
        guard.filter_changed(10_000 + number);
    }
    for (row, stamp) in rows.iter().zip(granted) {
        assert!(matches!(guard.row_state(row, Asker::Caller, Trust::All, 1), RowState::Leased(_)));
        assert!(guard.accepts(row, stamp));
    }
}

#[test]
fn a_token_is_safe_until_its_row_changes() {
    let (row, other) = (row(1), Row { filter: 11, item: 21, ..row(2) });
    let changes: [fn(&mut Guard<()>, &Row); 4] = [
        |guard, row| guard.row_changed(row.key),
        |guard, row| guard.value_changed(row.key),
        |guard, row| guard.filter_changed(row.item),
        |guard, row| guard.filter_changed(row.filter),
    ];
    for change in changes {
        let mut guard = Guard::default();
        let (first, second) = (guard.grant(row, (0, 1), None, 10), guard.grant(row, (1, 2), None, 10));
        let of_other = guard.grant(other, (0, 1), None, 10);
        assert!(guard.accepts(&row, first) && guard.accepts(&row, second) && guard.accepts(&other, of_other));
        assert!(!guard.accepts(&row, second + 1) && !guard.accepts(&other, first), "no such token was granted");
        change(&mut guard, &row);
        assert!(!guard.accepts(&row, first) && !guard.accepts(&row, second) && guard.accepts(&other, of_other));
        let third = guard.grant(row, (2, 3), None, 10);
        assert!(guard.accepts(&row, third) && !guard.accepts(&row, second));
    }
}

#[test]
fn a_lease_is_evicted_after_nones_however_soon_it_expires() {
    let mut guard = Guard::<()>::default();
    for number in 1..8 {
        guard.note_no_row(row(number), (0, 1_000_000), None, 8);
    }
    let leased = Row { item: 21, ..row(0) };
    let stamp = guard.grant(leased, (0, 10), None, 8);
    for number in 8..100 {
        guard.note_no_row(row(number), (0, 1_000_000), None, 8);
        assert!(guard.accepts(&leased, stamp));
    }
}
