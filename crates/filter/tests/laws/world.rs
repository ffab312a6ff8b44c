//! A filter and everything that must stay equal to it or agree with it after any events: a twin that processes batches item by item, a
//! follower that gets the effects and has another clock, the items that must be found, and for a ring a model.

use std::collections::{BTreeMap, BTreeSet};

use bloomgate_filter::kinds::stats::Stats;
use bloomgate_filter::kinds::{Added, BucketStart, Origin, Outcome, Removed, Retention, WindowedFilter};
use bloomgate_filter::{BATCH, Error, Filter, Mask, Moment, Spec, Unlimited, Value};
use proptest::prelude::*;

use crate::forms::{self, Form, filter, filter_mut};
use crate::ring_model::Model;
use crate::rows::{EXACT, Room, Row};

/// The time at which worlds begin, in milliseconds since 1970.
pub const START: u64 = 1_700_000_000_000;
/// The largest value of a counter, which then never changes.
pub const COUNTER_MAX: u8 = 15;
/// The number of items that are looked up after every step, different ones each time.
const SAMPLE: u32 = 64;

/// An event in the life of a filter.
#[derive(Clone, Debug)]
pub enum Event {
    /// Items are added, together or one by one.
    Add(Vec<u32>, bool),
    /// Items are deleted, together or one by one.
    Delete(Vec<u32>, bool),
    /// Time passes, in sixteenths of the time that a bucket accepts items.
    Pass(u64),
    /// The clock jumps, in milliseconds.
    Jump(i64),
    /// The next bucket of a ring begins.
    Rotate,
    /// The filter is written in some form and read back.
    Travel(Form),
    /// The follower becomes the primary, with its own clock, and the primary its follower, perhaps with pending adds.
    Promote,
    /// A child of the server starts, or ends.
    Pend(bool),
    Flush(usize),
}

/// From a small set, so that many are repeated, even within a batch.
fn numbers(row: &Row) -> BoxedStrategy<Vec<u32>> {
    let universe = row.universe;
    if !row.pends {
        return prop::collection::vec(0..universe, 1..=40).boxed();
    }
    let numbers = |(first, step, count): (u32, u32, u32)| (0..count).map(|number| first + number * step).collect();
    (0..universe * 3 / 4, 1u32..4, prop_oneof![1u32..400, 1u32..2500])
        .prop_map(numbers)
        .prop_map(move |numbers: Vec<u32>| numbers.into_iter().map(|number| number % universe).collect())
        .boxed()
}

pub fn events(row: &Row) -> impl Strategy<Value = Vec<Event>> + use<> {
    let universe = row.universe;
    let and_how = |numbers: BoxedStrategy<Vec<u32>>| (numbers, any::<bool>());
    let few = if row.pends {
        (0..universe * 3 / 4, 1..300u32).prop_map(|(first, count)| (first..first + count).collect()).boxed()
    } else {
        numbers(row)
    };
    let passing = prop_oneof![4 => 0u64..20, 2 => 0u64..200, 1 => 0u64..5000];
    let pending = if row.pends { 4 } else { 0 };
    let event = prop_oneof![
        12 => and_how(numbers(row)).prop_map(|(numbers, how)| Event::Add(numbers, how)),
        5 => and_how(few).prop_map(|(numbers, how)| Event::Delete(numbers, how)),
        5 => passing.prop_map(Event::Pass),
        1 => (-100_000i64..100_000).prop_map(Event::Jump),
        1 => Just(Event::Rotate),
        3 => prop::sample::select(&Form::ALL[..]).prop_map(Event::Travel),
        1 => Just(Event::Promote),
        pending => any::<bool>().prop_map(Event::Pend),
        pending => prop_oneof![0usize..40, 0usize..400].prop_map(Event::Flush),
    ];
    prop::collection::vec(
        event,
        1..if cfg!(miri) {
            5
        } else if row.pends {
            30
        } else {
            50
        },
    )
}

/// An item: the empty one, and others of many lengths.
pub fn item(number: u32) -> Vec<u8> {
    let mut item = number.to_le_bytes().to_vec();
    item.resize(if number == 0 { 0 } else { 4 + number as usize % 61 }, 0x55);
    item
}

pub fn items(numbers: &[u32]) -> Vec<Vec<u8>> {
    numbers.iter().map(|number| item(*number)).collect()
}

pub fn slices(items: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    items.iter().map(Vec::as_slice)
}

/// Adds up to a batch of items for a client.
pub fn add(filter: &mut Filter, numbers: &[u32], now: Moment, room: &Room) -> Added {
    filter.add_batch(slices(&items(numbers)), Origin::Client, &now, room)
}

/// Adds any number of items for a client, in batches. All of them must be accepted.
pub fn add_all(filter: &mut Filter, numbers: impl IntoIterator<Item = u32>, now: Moment) {
    for batch in numbers.into_iter().collect::<Vec<_>>().chunks(BATCH) {
        let added = add(filter, batch, now, &Room::UNLIMITED);
        assert_eq!((added.done, added.error), (batch.len(), None));
    }
}

pub fn delete(filter: &mut Filter, numbers: &[u32], origin: Origin, now: Moment) -> Removed {
    filter.remove_batch(slices(&items(numbers)), origin, &now, &Unlimited)
}

/// Whether each item of a range is found.
pub fn has_all(filter: &Filter, numbers: impl IntoIterator<Item = u32>, now: Moment) -> bool {
    numbers.into_iter().all(|number| filter.contains(&item(number), &now))
}

/// Does the same as a server before a client's command writes.
pub fn begin_bucket_if_due(filter: &mut Filter, now: Moment) {
    if let Some(ring) = filter.windowed_mut()
        && let Some(start) = ring.bucket_due(now)
    {
        ring.begin_bucket(start, &Unlimited).unwrap();
        ring.take_retired();
    }
}

/// Adds an item by itself.
pub fn one_by_one(filter: &mut Filter, item: &[u8], now: Moment, room: &Room) -> Added {
    let outcome = filter.add(item, Origin::Client, &now, room);
    let mask = |is_it: bool| Mask::first(1).only_if(is_it);
    Added {
        new: mask(outcome == Ok(Outcome::New)),
        effect: mask(matches!(outcome, Ok(Outcome::New | Outcome::Renewed))),
        done: usize::from(outcome.is_ok()),
        error: outcome.err(),
    }
}

fn chosen(items: &[Vec<u8>], mask: Mask) -> Vec<&[u8]> {
    slices(items).enumerate().filter(|(index, _)| mask.contains(*index)).map(|(_, item)| item).collect()
}

fn statistics(filter: &Filter, now: Moment) -> Stats {
    let mut stats = filter.stats(&now).unwrap();
    assert_eq!(stats.pending_bytes, filter.live_contents(&now).pending_bytes);
    stats.pending_bytes = 0;
    stats.contents.pending_bytes = 0;
    stats
}

/// The bits of all layers, without pending adds.
pub fn bits(filter: &Filter) -> Vec<&[u8]> {
    match filter {
        Filter::Native(filter) => filter.layers().iter().map(|layer| layer.bytes()).collect(),
        Filter::Windowed(ring) => {
            ring.buckets().flat_map(|bucket| bucket.filter.layers()).map(|layer| layer.bytes()).collect()
        }
        Filter::Counting(filter) => filter.layers().iter().map(|layer| layer.bytes()).collect(),
        Filter::Cuckoo(filter) => filter.layers().iter().map(|layer| layer.bytes()).collect(),
        Filter::RedisBloom(filter) => filter.layers().iter().map(|layer| layer.bytes()).collect(),
        Filter::ValkeyBloom(filter) => filter.layers().iter().map(|layer| layer.bytes()).collect(),
    }
}

/// The initial state of a world: the filter, the bytes by which it may grow, how far the follower's clock is ahead, and whether only
/// members are deleted.
pub type Parts = (Spec, u64, i64, bool);

pub struct World {
    spec: Spec,
    /// A value, because a copy would have no pending adds.
    pub primary: Value,
    pub follower: Value,
    /// Processes everything item by item. `None` with pending adds, because the bits and so the answers would differ.
    twin: Option<Filter>,
    /// The limits of the primary and the twin.
    pub room: Room,
    pub universe: u32,
    pub now: u64,
    /// By how much the follower's clock is ahead.
    ahead: i64,
    /// The latest time so far: items that had expired by then may be dropped, even if the clock was set back.
    latest: u64,
    /// Whether only members are deleted, which a counting filter requires.
    is_careful: bool,
    /// The items that must be found, with the time of the add that counts; in a counting filter, with their counts.
    promised: BTreeMap<u32, u64>,
    /// Items of a chain that were deleted, and must be absent.
    deleted: BTreeSet<u32>,
    /// Adds that were counted, less deletes.
    counted: i64,
    pub model: Option<Model>,
    was_rotated: bool,
    steps: u32,
}

impl World {
    pub fn new(row: &Row, (spec, more_bytes, ahead, is_careful): Parts) -> Self {
        let new = || Filter::new(&spec, &Unlimited).unwrap();
        let model = match spec {
            Spec::Windowed(spec) if spec.rate <= EXACT => Some(Model::new(spec)),
            _ => None,
        };
        let room = Room { filter: new().size_bytes().saturating_add(more_bytes), pends: row.pends, ..Room::SMALL };
        Self {
            spec,
            primary: new().into(),
            follower: new().into(),
            twin: (!row.pends).then(new),
            room,
            universe: row.universe,
            now: START,
            ahead,
            latest: START,
            is_careful,
            promised: BTreeMap::new(),
            deleted: BTreeSet::new(),
            counted: 0,
            model,
            was_rotated: false,
            steps: 0,
        }
    }

    /// Random worlds of a row.
    pub fn any(row: &Row) -> impl Strategy<Value = Parts> + use<> {
        let more_bytes = prop_oneof![3 => Just(u64::MAX), 1 => 0u64..20_000];
        (row.specs(), more_bytes, -5000i64..5000, any::<bool>())
    }

    pub fn filter(&self) -> &Filter {
        filter(&self.primary)
    }

    pub fn now(&self) -> Moment {
        Moment(self.now)
    }

    fn later(&self) -> Moment {
        Moment(self.now.saturating_add_signed(self.ahead))
    }

    /// Whether every add counts, also of an item that is found.
    fn is_counting(&self) -> bool {
        matches!(self.spec, Spec::Counting(_) | Spec::Cuckoo(_))
    }

    fn forgets(&self) -> Option<Retention> {
        if let Spec::Windowed(spec) = self.spec { Some(spec.forgets) } else { None }
    }

    fn is_sliding(&self) -> bool {
        matches!(self.forgets(), Some(Retention::After { is_sliding: true, .. }))
    }

    fn can_delete(&self) -> bool {
        match self.spec {
            Spec::Native(spec) => spec.hasher.is_keyed(),
            Spec::Windowed(spec) => spec.hasher.is_keyed(),
            Spec::Counting(_) | Spec::Cuckoo(_) => true,
            Spec::RedisBloom(_) | Spec::ValkeyBloom(_) => false,
        }
    }

    /// The primary, the twin and the follower.
    fn all(&mut self) -> impl Iterator<Item = &mut Filter> {
        [&mut self.primary, &mut self.follower].into_iter().map(filter_mut).chain(&mut self.twin)
    }

    fn begin_bucket(&mut self, start: BucketStart, forgotten: Option<u64>) {
        for filter in self.all() {
            let ring = filter.windowed_mut().unwrap();
            let dropped = ring.begin_bucket(start, &Unlimited).unwrap();
            assert!(forgotten.is_none_or(|forgotten| forgotten == dropped), "{dropped} forgotten, not {forgotten:?}");
            ring.take_retired();
        }
        // A ring that was rotated on request drops buckets before their time.
        if self.was_rotated {
            let (primary, now) = (filter(&self.primary), self.now());
            self.promised.retain(|number, _| primary.contains(&item(*number), &now));
        }
    }

    fn begin_bucket_if_due(&mut self) {
        if let Some(start) = self.filter().windowed().and_then(|ring| ring.bucket_due(self.now())) {
            let forgotten = self.model.as_mut().map(|model| model.begin_what_is_due(self.now));
            self.begin_bucket(start, forgotten);
        }
    }

    /// Adds items for a client. Returns the number of new ones.
    pub fn add(&mut self, numbers: &[u32], together: bool) -> u32 {
        self.begin_bucket_if_due();
        // A batch checks the ceiling before it removes the entries of its deleted items, and so requests 16 bytes more for each.
        let together = together && (self.room.filter == u64::MAX || !self.has_entries());
        let mut new = 0;
        for numbers in numbers.chunks(if together { BATCH } else { 1 }) {
            let (items, now) = (items(numbers), self.now());
            let primary = filter_mut(&mut self.primary);
            let added = if together {
                primary.add_batch(slices(&items), Origin::Client, &now, &self.room)
            } else {
                one_by_one(primary, &items[0], now, &self.room)
            };
            self.check_added(&items, added);
            let effects = chosen(&items, added.effect);
            let (count, later) = (effects.len(), self.later());
            let obeyed = filter_mut(&mut self.follower).add_batch(effects, Origin::Effect, &later, &Unlimited);
            assert_eq!((obeyed.done, obeyed.error), (count, None), "an effect is refused");
            for (index, number) in numbers.iter().enumerate().take(added.done) {
                self.note_added(*number, added.new.contains(index));
            }
            if let Some(model) = &mut self.model {
                let answers: Vec<bool> = added.new.each(added.done).collect();
                assert_eq!(model.add(&numbers[..added.done], self.now), answers, "the model's answers");
                let next = numbers.get(added.done..=added.done).filter(|_| added.error == Some(Error::Full));
                assert!(next.is_none_or(|next| model.add(next, self.now).is_empty()), "the model is not full");
            }
            self.counted += i64::from(added.effect.len());
            new += added.new.len();
            if added.error.is_some() {
                break;
            }
        }
        new
    }

    /// Compares the outcome of a batch with the outcome of its items one by one.
    fn check_added(&mut self, items: &[Vec<u8>], added: Added) {
        let now = self.now();
        assert!((added.new - added.effect).is_empty() && (added.effect - Mask::first(added.done)).is_empty());
        assert_eq!(added.error.is_none(), added.done == items.len(), "{added:?}");
        match added.error {
            None | Some(Error::Full | Error::RateTooLow) => {}
            Some(Error::AboveCeiling { asked_bytes, available_bytes }) => {
                assert!(asked_bytes > available_bytes);
                let size_bytes = self.filter().size_bytes();
                let available = self.room.at_once.min(self.room.filter.saturating_sub(size_bytes));
                assert!(self.forgets().is_some() || available_bytes == available, "{available_bytes}, not {available}");
            }
            Some(error) => panic!("{error:?}"),
        }
        // An item that every add changes may be refused although it is found.
        let may_refuse = self.is_counting() || self.is_sliding();
        let Some(twin) = &mut self.twin else { return };
        let mut expected = Added { new: Mask::NONE, effect: Mask::NONE, done: 0, error: None };
        for (index, item) in items.iter().enumerate() {
            let was_in = twin.contains(item, &now);
            let one = one_by_one(twin, item, now, &self.room);
            if let Some(error) = one.error {
                assert!(!was_in || may_refuse, "a member is refused");
                expected.error = Some(error);
                break;
            }
            assert_ne!(one.new.contains(0), was_in, "an item is new exactly if it was absent");
            expected.new.insert_if(index, one.new.contains(0));
            expected.effect.insert_if(index, one.effect.contains(0));
            expected.done += 1;
        }
        assert_eq!(added, expected, "a batch is its items one by one");
    }

    fn note_added(&mut self, number: u32, is_new: bool) {
        assert!(!self.deleted.remove(&number) || is_new, "an item that was deleted is new");
        match self.forgets() {
            None if self.is_counting() => *self.promised.entry(number).or_default() += 1,
            None => _ = self.promised.insert(number, self.now),
            Some(Retention::After { is_sliding, .. }) if is_new || is_sliding => {
                self.promised.insert(number, self.now);
            }
            Some(_) => {}
        }
    }

    /// Deletes items for a client, in an order and number that are allowed.
    pub fn delete(&mut self, numbers: &[u32], together: bool) {
        if !self.can_delete() {
            let refused = Removed { found: Mask::NONE, done: 0, error: Some(Error::CannotDelete) };
            for numbers in [numbers, &[]] {
                let now = self.now();
                assert_eq!(
                    delete(filter_mut(&mut self.primary), &numbers[..numbers.len().min(BATCH)], Origin::Client, now),
                    refused
                );
            }
            return;
        }
        self.begin_bucket_if_due();
        let mut left = self.promised.clone();
        let mut may_delete = |number: &u32| {
            let copies = left.get_mut(number).filter(|copies| **copies > 0);
            copies.map(|copies| *copies -= 1).is_some()
        };
        let only_members = self.is_counting() && self.is_careful;
        let numbers: Vec<u32> = numbers.iter().copied().filter(|number| !only_members || may_delete(number)).collect();
        for numbers in numbers.chunks(if together { BATCH } else { 1 }) {
            let (items, now) = (items(numbers), self.now());
            let entries = self.entries();
            let primary = filter_mut(&mut self.primary);
            let removed = primary.remove_batch(slices(&items), Origin::Client, &now, &self.room);
            match removed.error {
                None => assert_eq!(removed.done, items.len()),
                Some(Error::NoRoomForDeleted { entries: told }) => {
                    let now_in = entries.map(|entries| entries + u64::from(removed.found.len()));
                    assert!(now_in.is_none_or(|entries| entries == told), "{told} entries, not {now_in:?}");
                    assert!(primary.contains(&items[removed.done], &now), "what is refused stays");
                }
                Some(error) => panic!("{error:?}"),
            }
            assert!(!only_members || removed.found == Mask::first(items.len()), "a member is not found");
            self.check_removed(&items, removed);
            let effects = chosen(&items, removed.found);
            let (count, later) = (effects.len(), self.later());
            let obeyed = filter_mut(&mut self.follower).remove_batch(effects, Origin::Effect, &later, &Unlimited);
            assert_eq!((obeyed.found, obeyed.done, obeyed.error), (Mask::first(count), count, None), "an effect");
            for (number, is_found) in numbers.iter().zip(removed.found.each(removed.done)) {
                self.note_deleted(*number, is_found);
            }
        }
    }

    /// The entries of the table of a chain.
    fn entries(&self) -> Option<u64> {
        if let Filter::Native(filter) = self.filter() { Some(filter.deleted_entries()) } else { None }
    }

    fn has_entries(&self) -> bool {
        let of_ring = |ring: &WindowedFilter| ring.buckets().any(|bucket| bucket.filter.deleted_entries() > 0);
        self.entries().is_some_and(|entries| entries > 0) || self.filter().windowed().is_some_and(of_ring)
    }

    fn check_removed(&mut self, items: &[Vec<u8>], removed: Removed) {
        let now = self.now();
        let Some(twin) = &mut self.twin else { return };
        for (index, item) in items.iter().enumerate().take(removed.done + 1) {
            let was_in = twin.contains(item, &now);
            let one = twin.remove_batch([item.as_slice()], Origin::Client, &now, &self.room);
            let error = removed.error.filter(|_| index == removed.done);
            assert_eq!(one.error, error, "a batch is its items one by one");
            assert_eq!(one.found.contains(0), was_in && error.is_none(), "what is found is deleted");
            assert_eq!(removed.found.contains(index), one.found.contains(0), "a batch is its items one by one");
        }
    }

    fn note_deleted(&mut self, number: u32, is_found: bool) {
        if let Some(model) = &mut self.model {
            assert_eq!(model.delete(number, self.now), is_found, "the model's answer");
        }
        if !is_found {
            return;
        }
        if self.is_counting() {
            self.counted = (self.counted - 1).max(0);
            let copies = self.promised.get_mut(&number).map(|copies| *copies = copies.saturating_sub(1));
            assert!(copies.is_some() || !self.is_careful);
            return;
        }
        self.counted -= 1;
        self.promised.remove(&number);
        // Another bucket's bits may have an item that was deleted before it began.
        if self.forgets().is_none() {
            assert!(self.deleted.insert(number), "it was found");
        }
    }

    pub fn step(&mut self, event: &Event) {
        match event {
            Event::Add(numbers, together) => _ = self.add(numbers, *together),
            Event::Delete(numbers, together) => self.delete(numbers, *together),
            Event::Pass(sixteenths) => {
                let span = self.forgets().map_or(16, |_| self.span());
                self.now += sixteenths * span / 16;
            }
            Event::Jump(by) => self.now = self.now.saturating_add_signed(*by),
            Event::Rotate => self.rotate(),
            Event::Travel(form) => self.travel(*form),
            Event::Promote => {
                // While a server is a replica, it flushes the adds that were pending when it became one.
                while filter_mut(&mut self.follower).flush_pending(usize::MAX) > 0 {}
                std::mem::swap(&mut self.primary, &mut self.follower);
                self.now = self.later().0;
                self.ahead = -self.ahead;
            }
            Event::Pend(pends) => self.room.pends = *pends && self.twin.is_none(),
            Event::Flush(most) => assert!(filter_mut(&mut self.primary).flush_pending(*most) <= *most),
        }
        self.latest = self.latest.max(self.now);
    }

    /// The time that a bucket accepts items; a second if only a command begins the next one.
    fn span(&self) -> u64 {
        match self.spec {
            Spec::Windowed(spec) => Model::new(spec).span().unwrap_or(1000),
            _ => 0,
        }
    }

    fn rotate(&mut self) {
        let Some(ring) = self.filter().windowed() else { return };
        let start = ring.bucket_now(self.now());
        let forgotten = self.model.as_mut().map(|model| model.rotate(self.now));
        self.was_rotated = true;
        self.begin_bucket(start, forgotten);
    }

    pub fn travel(&mut self, form: Form) {
        if forms::is_stored(self.filter()) {
            self.primary = form.of(&self.primary);
            assert!(self.primary == self.follower, "{form:?} comes back as it was");
        }
    }

    /// Checks the laws that are checked after every step.
    pub fn check(&mut self) {
        let (primary, follower) = (filter(&self.primary), filter(&self.follower));
        assert!(primary == follower, "a follower is equal");
        assert!(follower == primary, "and the other way round");
        assert!(self.twin.as_ref().is_none_or(|twin| twin == primary), "a batch is its items one by one");
        self.check_counts();
        self.steps += 1;
        let first = self.steps * SAMPLE % self.universe;
        self.check_lookups(first..first + SAMPLE);
    }

    fn check_counts(&self) {
        let (filter, now) = (self.filter(), self.now());
        if let Some(model) = &self.model {
            let ring = filter.windowed().unwrap();
            assert_eq!(ring.buckets().len(), model.buckets.len());
            for (bucket, model) in ring.buckets().zip(&model.buckets) {
                let described = (bucket.slot, bucket.begin.0, bucket.end.0, bucket.filter.spec().capacity);
                assert_eq!(described, (model.slot, model.begin, model.end, model.capacity));
                assert_eq!(bucket.filter.items(), model.items.len() as u64);
            }
            assert_eq!(ring.live(now).count(), model.live(self.now).count());
            assert_eq!(filter.live_contents(&now).items, model.live_items(self.now));
        }
        if filter.cuckoo().is_some() {
            // Adds and deletes of an item with four copies in a layer change nothing, and adds fill older layers first.
            let layers = || filter.layers();
            assert_eq!(filter.items(), layers().map(|layer| layer.items).sum());
            assert_eq!(filter.remaining_capacity(), layers().map(|layer| layer.capacity - layer.items).sum::<u64>());
        } else if filter.windowed().is_none() {
            assert_eq!(filter.items(), u64::try_from(self.counted).unwrap_or(0), "adds less deletes");
            assert!(filter.items() <= filter.total_capacity());
            let layers: Vec<_> = filter.layers().collect();
            for pair in layers.windows(2) {
                assert_eq!(pair[0].items, pair[0].capacity, "a filter grows when its newest layer is full");
                assert_eq!(pair[1].capacity, pair[0].capacity * u64::from(filter.scaling().expansion()));
            }
            let newest = layers.last().unwrap();
            assert_eq!(filter.remaining_capacity(), newest.capacity - newest.items);
        }
    }

    /// Whether an item must be found or must be absent; `None` for most items.
    pub fn expected(&self, number: u32) -> Option<bool> {
        if let Some(model) = &self.model {
            return Some(model.contains(number, self.now));
        }
        let is_promised = match (self.promised.get(&number), self.forgets()) {
            (None, _) => false,
            (Some(copies), None) if self.is_counting() => self.is_careful && *copies > 0,
            (Some(_), None) => true,
            (Some(added), Some(Retention::After { seconds, .. })) => self.latest < added + seconds * 1000,
            (Some(_), Some(Retention::Rolling)) => false,
        };
        if is_promised { Some(true) } else { self.deleted.contains(&number).then_some(false) }
    }

    pub fn check_lookups(&self, range: std::ops::Range<u32>) {
        let (filter, now) = (self.filter(), self.now());
        for batch in range.collect::<Vec<_>>().chunks(BATCH) {
            let items = items(batch);
            let found = filter.contains_batch(slices(&items), &now);
            if self.twin.is_none() && forms::filter(&self.follower).contents().pending_bytes == 0 {
                let there = forms::filter(&self.follower).contains_batch(slices(&items), &now);
                assert!((found - there).is_empty(), "a follower finds all that the primary finds");
            }
            for (index, number) in batch.iter().enumerate() {
                let is_found = found.contains(index);
                assert_eq!(filter.contains(&items[index], &now), is_found, "{number}, looked up by itself");
                let expected = self.expected(*number).unwrap_or(is_found);
                assert_eq!(is_found, expected, "item {number} at {now:?}");
                if let Some(count) = filter.count(&items[index]) {
                    assert_eq!(is_found, count > 0, "what is found has a count");
                    let copies = self.promised.get(number).filter(|_| self.is_careful).copied().unwrap_or(0);
                    let most = if filter.cuckoo().is_some() { 4 } else { COUNTER_MAX.into() };
                    assert!(count >= copies.min(most), "{count} of {copies}");
                }
            }
        }
    }

    /// Checks the laws that are checked at the end: every item, every form, and the further behaviour of the filter.
    pub fn check_all(&mut self) {
        self.check();
        self.check_lookups(0..self.universe);
        let filter = self.filter();
        assert!(filter.spec() == self.spec, "its definition");
        assert!(filter.emptied().unwrap() == Filter::new(&self.spec, &Unlimited).unwrap(), "emptied, it is a new one");
        self.check_adding_again();
        self.check_forms();
    }

    /// Checks that the primary and the follower are equal in every form, and flushes what is pending.
    pub fn check_forms(&mut self) {
        let (filter, now) = (self.filter(), self.now());
        let follower = forms::filter(&self.follower);
        assert_eq!(statistics(filter, now), statistics(follower, now));
        assert_eq!(filter.size_bytes(), follower.size_bytes(), "what BF.INFO tells");
        // BF.INFO counts 8 bytes more than the fields of a filter with one layer take, and 8 more for each layer of a cuckoo filter. For a
        // filter of valkey-bloom's layout it counts valkey-bloom's size.
        let least = filter.contents().pending_bytes + follower.size_bytes();
        let fewer = if filter.cuckoo().is_some() { 8 * filter.layer_count() as u64 } else { 8 };
        assert!(filter.allocated_bytes() + fewer >= least || matches!(self.spec, Spec::ValkeyBloom(_)));
        let copy = Form::Copy.of(&self.primary);
        assert!(
            copy == self.follower && forms::filter(&copy).contents().pending_bytes == 0,
            "a copy has nothing pending"
        );
        if forms::is_stored(self.filter()) {
            assert!(forms::written(&self.primary) == forms::written(&self.follower), "equal filters are equal bytes");
            assert!(forms::records(filter) == forms::records(follower), "and equal records");
            for form in Form::ALL {
                assert!(form.of(&self.primary) == self.follower, "{form:?} comes back as it was");
            }
        }
        let step = 1 + self.steps as usize % 300;
        for value in [&mut self.primary, &mut self.follower] {
            while filter_mut(value).flush_pending(step) > 0 {}
        }
        assert!(self.primary == self.follower && self.primary.contents() == self.follower.contents());
        assert!(bits(self.filter()) == bits(forms::filter(&self.follower)), "flushed, the bits are a follower's");
    }

    /// Members are found, and adding them again changes nothing and needs no room, except in a filter that every add changes.
    fn check_adding_again(&self) {
        if self.is_counting() || self.is_sliding() {
            return;
        }
        let members: Vec<u32> = (0..self.universe).filter(|number| self.expected(*number) == Some(true)).collect();
        let mut again = self.filter().try_clone().unwrap();
        for batch in members.chunks(BATCH) {
            let nothing = Added { new: Mask::NONE, effect: Mask::NONE, done: batch.len(), error: None };
            assert_eq!(add(&mut again, batch, self.now(), &Room::of(0)), nothing, "members are known");
        }
        assert!(again == *self.filter(), "adding members again changes nothing");
    }
}
