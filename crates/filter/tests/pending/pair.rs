//! A primary with pending adds, and its follower, which gets its effects.

use std::collections::HashSet;

use bloomgate_filter::chain::Added;
use bloomgate_filter::format::records::DumpMark;
use bloomgate_filter::format::{Arrival, ByteSink, ByteSource, StoredAs};
use bloomgate_filter::kinds::stats::Stats;
use bloomgate_filter::kinds::{Origin, Outcome};
use bloomgate_filter::{BATCH, BloomFilter, Error, Filter, Mask, Moment, Unlimited, Value};

use super::{Pends, item, items};

pub const NOW: Moment = Moment(1);

/// Both, and the known members.
pub struct Pair {
    primary: Value,
    follower: Value,
    members: HashSet<u32>,
    /// Whether items expire.
    forgets: bool,
}

fn filter_of(value: &Value) -> &Filter {
    let Value::Filter(filter) = value else { panic!("not a filter") };
    filter
}

fn filter_of_mut(value: &mut Value) -> &mut Filter {
    let Value::Filter(filter) = value else { panic!("not a filter") };
    filter
}

impl Pair {
    pub fn of(filter: Filter) -> Self {
        let (follower, primary) = (filter.try_clone().unwrap().into(), filter.into());
        Self { follower, primary, members: HashSet::new(), forgets: false }
    }

    pub fn that_forgets(filter: Filter) -> Self {
        Self { forgets: true, ..Self::of(filter) }
    }

    pub fn primary(&self) -> &Filter {
        filter_of(&self.primary)
    }

    pub fn follower(&self) -> &Filter {
        filter_of(&self.follower)
    }

    pub fn primary_mut(&mut self) -> &mut Filter {
        filter_of_mut(&mut self.primary)
    }

    pub fn follower_mut(&mut self) -> &mut Filter {
        filter_of_mut(&mut self.follower)
    }

    /// Continues with a snapshot, a dump or a copy of the primary.
    pub fn store(&mut self, how: u8) {
        self.primary = match how {
            0 => saved(&self.primary),
            1 => dumped(self.primary()).into(),
            _ => self.primary.try_clone().unwrap(),
        };
        assert!(self.primary == self.follower);
    }

    /// Some members have been forgotten.
    pub fn forget(&mut self) {
        let primary = filter_of(&self.primary);
        self.members.retain(|number| primary.contains(&item(*number), &NOW));
    }

    /// Adds items for a client, in batches or one by one. Returns the number of new ones.
    pub fn add(&mut self, numbers: &[u32], in_batches: bool, pends: bool) -> usize {
        let mut new = 0;
        for numbers in numbers.chunks(if in_batches { BATCH } else { 1 }) {
            let items = items(numbers.iter().copied());
            let added = if in_batches {
                filter_of_mut(&mut self.primary).add_batch(
                    items.iter().map(<[u8; 4]>::as_slice),
                    Origin::Client,
                    &NOW,
                    &Pends(pends),
                )
            } else {
                one_by_one(self.primary_mut(), &items[0], pends)
            };
            let effects = (0..added.done).filter(|index| added.effect.contains(*index));
            let effects: Vec<_> = effects.map(|index| items[index].as_slice()).collect();
            let obeyed = self.follower_mut().add_batch(effects.iter().copied(), Origin::Effect, &NOW, &Unlimited);
            assert_eq!((obeyed.done, obeyed.error), (effects.len(), None));
            self.members.extend(&numbers[..added.done]);
            new += added.new.len() as usize;
            if let Some(error) = added.error {
                assert_eq!(error, Error::Full);
                break;
            }
        }
        new
    }

    pub fn delete(&mut self, numbers: &[u32]) {
        for numbers in numbers.chunks(BATCH) {
            let items = items(numbers.iter().copied());
            let removed = self.primary_mut().remove_batch(
                items.iter().map(<[u8; 4]>::as_slice),
                Origin::Client,
                &NOW,
                &Unlimited,
            );
            let found = (0..removed.done).filter(|index| removed.found.contains(*index));
            let effects: Vec<_> = found.map(|index| items[index].as_slice()).collect();
            let obeyed = self.follower_mut().remove_batch(effects.iter().copied(), Origin::Effect, &NOW, &Unlimited);
            assert_eq!((obeyed.found.len() as usize, obeyed.error), (effects.len(), None));
            for number in &numbers[..removed.done] {
                self.members.remove(number);
            }
        }
    }

    /// Checks that both look the same, except for a few items that only the follower's bits have.
    pub fn check(&self) {
        let (primary, follower) = (self.primary(), filter_of(&self.follower));
        assert!(primary == follower);
        assert!(follower == primary);
        assert!(written(&self.primary) == written(&self.follower));
        assert!(records(primary) == records(follower));
        assert_eq!(stats(primary), stats(follower));
        assert_eq!(follower.contents().pending_bytes, 0);
        let copy = primary.try_clone().unwrap();
        assert!(copy == *follower && raw(&copy) == raw(follower) && copy.contents().pending_bytes == 0);
        // BF.INFO counts 8 bytes more for the fields of a filter with one layer than they take now.
        assert!(primary.allocated_bytes() + 8 >= primary.contents().pending_bytes + follower.size_bytes());
        if !self.forgets {
            for number in &self.members {
                assert!(primary.contains(&item(*number), &NOW), "{number} is a member");
            }
        }
        check_answers(primary, follower);
    }

    /// Flushes everything, `most` adds at a time. Then the bits themselves equal those of the follower.
    pub fn merge_all(&mut self, step: usize) {
        loop {
            let merged = self.primary_mut().flush_pending(step);
            assert!(merged <= step);
            if merged == 0 {
                break;
            }
        }
        assert_eq!(self.primary.contents(), self.follower.contents());
        assert!(raw(self.primary()) == raw(filter_of(&self.follower)));
    }
}

/// Single items and batches get the same answers, and the follower finds everything that the primary finds.
fn check_answers(primary: &Filter, follower: &Filter) {
    for first in (0..4000).step_by(BATCH) {
        let items = items(first..first + 32);
        let [here, there] =
            [primary, follower].map(|filter| filter.contains_batch(items.iter().map(<[u8; 4]>::as_slice), &NOW));
        assert!((here - there).is_empty(), "{first}");
        for (index, item) in items.iter().enumerate() {
            assert_eq!(primary.contains(item, &NOW), here.contains(index));
        }
    }
}

fn one_by_one(filter: &mut Filter, item: &[u8], pends: bool) -> Added {
    let added = filter.add(item, Origin::Client, &NOW, &Pends(pends));
    let has = |is_it: fn(Outcome) -> bool| Mask::first(1).only_if(added.is_ok_and(is_it));
    Added {
        new: has(|outcome| outcome == Outcome::New),
        effect: has(|outcome| outcome != Outcome::Known),
        done: usize::from(added.is_ok()),
        error: added.err(),
    }
}

/// Returns the bits of all layers, without pending adds.
pub fn raw(filter: &Filter) -> Vec<Vec<u8>> {
    let layers =
        |filter: &BloomFilter| -> Vec<_> { filter.layers().iter().map(|layer| layer.bytes().to_vec()).collect() };
    match filter {
        Filter::Native(filter) => layers(filter),
        Filter::Windowed(filter) => filter.buckets().flat_map(|bucket| layers(&bucket.filter)).collect(),
        _ => panic!("of another kind"),
    }
}

fn written(value: &Value) -> Vec<u8> {
    let mut sink = ByteSink::default();
    value.write(&mut sink);
    sink.0
}

/// Returns the filter in a snapshot.
fn saved(value: &Value) -> Value {
    let bytes = written(value);
    let mut source = ByteSource(&bytes);
    let read = StoredAs::Own.read(1, &mut source, &Unlimited).unwrap();
    assert!(source.0.is_empty());
    read
}

pub fn records(filter: &Filter) -> Vec<(u64, Vec<u8>)> {
    let (mut records, mut mark, mut iterator) = (Vec::new(), DumpMark::default(), 0);
    while let Some((next, data)) = filter.next_record(7, iterator, &mut mark).unwrap() {
        records.push((next, data.into_owned()));
        iterator = next;
    }
    records
}

/// Returns the filter that a dump makes on another server.
fn dumped(filter: &Filter) -> Filter {
    let records = records(filter);
    let mut arrival = Arrival::begin(records[0].0, &records[0].1, &Unlimited).unwrap();
    for (iterator, data) in &records[1..] {
        arrival.accept(*iterator, data).unwrap();
    }
    arrival.into_filter()
}

fn stats(filter: &Filter) -> Stats {
    let mut stats = filter.stats(&NOW).unwrap();
    assert_eq!(stats.pending_bytes, filter.contents().pending_bytes);
    stats.pending_bytes = 0;
    stats.contents.pending_bytes = 0;
    stats
}
