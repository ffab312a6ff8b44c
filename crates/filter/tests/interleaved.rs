//! Dumps of one filter that are sent to one destination concurrently, while the source is written to. A client that sends all
//! records of a dump without an error has a copy there that contains everything the source contained when that dump began.
//!
//! The law is stated once, for every kind with records of our own format. The cases use a fixed seed; `PROPTEST_CASES` and
//! `PROPTEST_RNG_SEED` in the environment select more, or others.

// All of this file is test code: a panic is how a test fails. Numbers that are cast are small.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{AofRecord, Arrival, ByteSink, ByteSource, Error, Progress, StoredAs};
use bloomgate_filter::hash::Hasher;
use bloomgate_filter::kinds::{CountingSpec, Forgets, NativeSpec, Origin, WindowedSpec};
use bloomgate_filter::ring::RingRules;
use bloomgate_filter::{Filter, Moment, Scaling, Spec, Unlimited, Value};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngSeed, TestRunner};

const START: u64 = 1_700_000_000_000;
/// The generation of the source.
const GENERATION: u16 = 7;
/// So low that there are no false positives.
const RATE: f64 = 1e-9;
/// A record of counters or of a table holds some thousand items; these are few.
const ITEMS: u32 = 40;

const KEYED: Hasher = Hasher::SipHash { key: [3; 16] };
const PLAIN: Hasher = Hasher::murmur3(9);

fn native(expansion: u32, hasher: Hasher) -> Spec {
    Spec::Native(NativeSpec::new(RATE, 6, Scaling::from_expansion(expansion), hasher))
}

fn ring(forgets: Forgets, hasher: Hasher) -> Spec {
    let scaling = if forgets == Forgets::Rolling { Scaling::Fixed } else { Scaling::from_expansion(2) };
    Spec::Windowed(WindowedSpec { rate: RATE, capacity: 12, scaling, hasher, forgets, buckets: 4 })
}

/// Filters of every kind; the last one has more than one record of counters.
fn specs() -> Vec<Spec> {
    let after = |is_sliding| Forgets::After { seconds: 3, is_sliding };
    let counting = |capacity| Spec::Counting(CountingSpec { rate: RATE, capacity, hasher: PLAIN });
    let mut specs = vec![native(2, PLAIN), native(2, KEYED), native(0, KEYED), counting(100)];
    for hasher in [PLAIN, KEYED] {
        specs.extend([after(false), after(true), Forgets::Rolling].map(|forgets| ring(forgets, hasher)));
    }
    if !cfg!(miri) {
        specs.push(counting(90_000));
    }
    specs
}

/// An event of a test.
#[derive(Clone, Debug)]
enum Event {
    /// Items are added to the source.
    Add(Vec<u32>),
    /// Members of the source are deleted.
    Delete(Vec<u32>),
    /// A ring begins its next bucket.
    Rotate,
    /// Milliseconds pass.
    Pass(u64),
    /// A client sends its next record; without a dump, it begins one.
    Send(usize),
    /// Another client sends any record that was created so far.
    SendAny(prop::sample::Index),
    /// The destination is saved and loaded, or restored from a rewritten AOF.
    Store(bool),
    /// Items are added to the destination, if it is complete.
    AddThere(Vec<u32>),
    /// The destination is deleted.
    Begin,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let items = || prop::collection::vec(0..ITEMS, 1..6);
    let event = prop_oneof![
        6 => items().prop_map(Event::Add),
        4 => items().prop_map(Event::Delete),
        1 => Just(Event::Rotate),
        2 => (0u64..1500).prop_map(Event::Pass),
        20 => (0usize..2).prop_map(Event::Send),
        4 => any::<prop::sample::Index>().prop_map(Event::SendAny),
        1 => any::<bool>().prop_map(Event::Store),
        1 => items().prop_map(Event::AddThere),
        1 => Just(Event::Begin),
    ];
    prop::collection::vec(event, 1..if cfg!(miri) { 10 } else { 120 })
}

/// The parts of the source that hold each item: the slots of its buckets, or 0 if it is no ring.
type Held = BTreeMap<u32, BTreeSet<u64>>;

/// The source and its members.
struct Source {
    filter: Filter,
    mark: DumpMark,
    held: Held,
    /// Adds to a counting filter that were not deleted.
    counts: BTreeMap<u32, u32>,
    now: u64,
}

impl Source {
    fn new(spec: &Spec) -> Self {
        let filter = Filter::new(spec, &Unlimited).unwrap();
        let mut source =
            Self { filter, mark: DumpMark::default(), held: Held::new(), counts: BTreeMap::new(), now: START };
        source.turn_if_due();
        source
    }

    fn now(&self) -> Moment {
        Moment(self.now)
    }

    fn turn_if_due(&mut self) {
        let now = self.now();
        turn_if_due(&mut self.filter, now);
    }

    fn newest(&self) -> u64 {
        self.filter.windowed().map_or(0, |ring| ring.buckets().next_back().unwrap().slot)
    }

    fn add(&mut self, items: &[u32]) {
        self.turn_if_due();
        for item in items {
            let now = self.now();
            let added = self.filter.add_batch([&item.to_le_bytes()[..]], Origin::Client, &now, &Unlimited);
            if added.effect.contains(0) {
                let newest = self.newest();
                self.held.entry(*item).or_default().insert(newest);
                *self.counts.entry(*item).or_default() += 1;
            }
        }
    }

    /// Deletes items. From a counting filter, deletes only added items whose counters are not saturated.
    fn delete(&mut self, items: &[u32]) {
        let is_counting = self.filter.counting().is_some();
        for item in items {
            let count = self.counts.get(item).copied().unwrap_or(0);
            if is_counting && !(1..15).contains(&count) {
                continue;
            }
            let now = self.now();
            let removed = self.filter.remove_batch([&item.to_le_bytes()[..]], Origin::Client, &now, &Unlimited);
            if removed.found.contains(0) {
                self.counts.insert(*item, count.saturating_sub(1));
                if !is_counting || count == 1 {
                    self.held.remove(item);
                }
            }
        }
    }

    fn rotate(&mut self) {
        if let Some(ring) = self.filter.windowed_mut() {
            let turn = ring.turn_now(Moment(self.now));
            ring.turn(turn, &Unlimited).unwrap();
        }
    }

    /// Returns the items of a dump that are still members, with the parts of the dump that have them.
    fn still_held(&self, dumped: &Held) -> Held {
        let has_part =
            |slot: &u64| self.filter.windowed().is_none_or(|ring| ring.buckets().any(|bucket| bucket.slot == *slot));
        let still = dumped.iter().filter(|(item, _)| self.held.contains_key(item));
        still.map(|(item, slots)| (*item, slots.iter().copied().filter(has_part).collect())).collect()
    }
}

/// Does what a server does before a client's command writes.
fn turn_if_due(filter: &mut Filter, now: Moment) {
    if let Some(ring) = filter.windowed_mut()
        && let Some(turn) = ring.turn_due(now)
    {
        ring.turn(turn, &Unlimited).unwrap();
    }
}

/// A client that dumps the source and sends the records.
#[derive(Default)]
struct Client {
    /// The iterator of its last record, 0 before the first.
    last: u64,
    /// The members of the source when its dump began, without those that were deleted since.
    dumped: Held,
}

/// The key to which records are sent.
#[derive(Default)]
struct Destination {
    value: Option<Value>,
}

impl Destination {
    fn load(&mut self, iterator: u64, data: &[u8]) -> Result<Progress, Error> {
        let Some(value) = &mut self.value else {
            self.value = Some(Value::arriving(Arrival::begin(iterator, data, &Unlimited)?).unwrap());
            return Ok(Progress::Stored);
        };
        let progress = value.accept(GENERATION, iterator, data)?;
        if progress == Progress::Complete {
            *value = value.take_filter().into();
        }
        Ok(progress)
    }

    fn store(&mut self, as_snapshot: bool) {
        let Some(value) = &self.value else { return };
        let mut read = Self::default();
        if as_snapshot {
            let mut sink = ByteSink::default();
            value.write(&mut sink);
            read.value = Some(StoredAs::Own.read(1, &mut ByteSource(&sink.0), &Unlimited).unwrap());
        } else {
            let load = |record: AofRecord<'_>| {
                let AofRecord::Chunk { iterator, data } = record else { panic!("a record of ours") };
                read.load(iterator, data).map(drop)
            };
            value.for_each_record(GENERATION, load).unwrap();
        }
        assert_eq!(read.value.as_ref(), Some(value));
        *self = read;
    }
}

struct World {
    source: Source,
    destination: Destination,
    clients: [Client; 2],
    made: Vec<(u64, Vec<u8>)>,
    /// The number of completed dumps.
    copies: u32,
}

impl World {
    fn new(spec: &Spec) -> Self {
        let source = Source::new(spec);
        let (destination, clients) = (Destination::default(), [Client::default(), Client::default()]);
        Self { source, destination, clients, made: Vec::new(), copies: 0 }
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::Add(items) => self.source.add(items),
            Event::Delete(items) => {
                self.source.delete(items);
                for client in &mut self.clients {
                    client.dumped.retain(|item, _| self.source.held.contains_key(item));
                }
            }
            Event::Rotate => self.source.rotate(),
            Event::Pass(milliseconds) => self.source.now += milliseconds,
            Event::Send(client) => self.send(*client),
            Event::SendAny(index) if !self.made.is_empty() => {
                let (iterator, data) = &self.made[index.index(self.made.len())];
                let _ = self.destination.load(*iterator, data);
            }
            Event::SendAny(_) => {}
            Event::Store(as_snapshot) => self.destination.store(*as_snapshot),
            Event::AddThere(items) => {
                // A ring would drop buckets that the source still has.
                if let Some(Value::Filter(copy)) = &mut self.destination.value
                    && copy.windowed().is_none()
                {
                    for item in items {
                        let item = (item + ITEMS).to_le_bytes();
                        let _ = copy.add_batch([&item[..]], Origin::Client, &self.source.now(), &Unlimited);
                    }
                }
            }
            Event::Begin => {
                self.destination = Destination::default();
                self.clients = [Client::default(), Client::default()];
            }
        }
    }

    /// Creates a client's next record and sends it. After an error, the client begins again.
    fn send(&mut self, number: usize) {
        let (client, source) = (&mut self.clients[number], &mut self.source);
        if client.last == 0 {
            client.dumped = source.held.clone();
        }
        let record = match source.filter.next_record(GENERATION, client.last, &mut source.mark) {
            Ok(record) => record,
            Err(error) => {
                assert_eq!(error, Error::WrongGeneration, "the filter was replaced since the dump began");
                *client = Client::default();
                return;
            }
        };
        let Some((iterator, data)) = record else {
            self.check(number);
            self.clients[number] = Client::default();
            return;
        };
        client.last = iterator;
        let loaded = self.destination.load(iterator, &data);
        self.made.push((iterator, data.into_owned()));
        if loaded.is_err() {
            *client = Client::default();
        }
    }

    /// A dump is complete: everything in it is found as long as its buckets live.
    fn check(&mut self, number: usize) {
        let Some(Value::Filter(copy)) = &self.destination.value else { panic!("all records have arrived") };
        for (item, slots) in self.source.still_held(&self.clients[number].dumped) {
            for slot in slots {
                // The last moment of the bucket's life.
                let last = self.source.filter.windowed().map(|ring| {
                    let bucket = ring.buckets().find(|bucket| bucket.slot == slot).unwrap();
                    Moment((bucket.begin.0 + RingRules::span(&ring.spec()) * 4).saturating_sub(1))
                });
                let last = last.unwrap_or(self.source.now());
                assert!(copy.contains(&item.to_le_bytes(), &last), "{item} of part {slot} at {last:?}");
            }
        }
        self.copies += 1;
    }
}

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = if default.rng_seed == RngSeed::Random { RngSeed::Fixed(11) } else { default.rng_seed };
    let cases = if cfg!(miri) { 2 } else { default.cases };
    ProptestConfig { rng_seed, failure_persistence: None, cases, max_shrink_iters: 20_000, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_completed_dump_loses_an_item(events in events()) {
        for spec in specs() {
            let mut world = World::new(&spec);
            events.iter().for_each(|event| world.step(event));
        }
    }
}

/// The law above says nothing about dumps that end in an error. Most do not.
#[test]
fn most_dumps_complete() {
    let mut runner = TestRunner::deterministic();
    let cases = if cfg!(miri) { 1 } else { 100 };
    for spec in specs() {
        let copies = (0..cases).map(|_| {
            let mut world = World::new(&spec);
            let events = events().new_tree(&mut runner).unwrap().current();
            events.iter().for_each(|event| world.step(event));
            world.copies
        });
        let copies = copies.sum::<u32>();
        assert!(cfg!(miri) || copies >= cases, "{spec:?}: {copies}");
    }
}
