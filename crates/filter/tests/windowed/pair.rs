//! A primary and a replica with different clocks, which change places. Only effects reach the replica, and both stay equal bit
//! for bit. The primary behaves like the model.

use bloomgate_filter::format::{ByteSink, ByteSource, StoredAs};
use bloomgate_filter::kinds::{Origin, Turn};
use bloomgate_filter::{BATCH, Error, Filter, Moment, Unlimited, Value};
use proptest::prelude::*;

use super::model::Model;
use super::{START, bytes, config, new, ring, specs, turn_if_due};

/// An event of a test.
#[derive(Clone, Debug)]
enum Event {
    Add(Vec<u32>),
    /// Time passes, in sixteenths of a span.
    Pass(u64),
    /// The primary's clock jumps, in milliseconds.
    Jump(i64),
    Rotate,
    /// Both are saved and loaded, copied, or sent as records.
    Store(u8),
    /// The replica becomes the primary, with its own clock.
    Promote,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => prop::collection::vec(0u32..300, 1..=40).prop_map(Event::Add),
        6 => prop_oneof![4 => 0u64..20, 2 => 0u64..200, 1 => 0u64..5000].prop_map(Event::Pass),
        1 => (-100_000i64..100_000).prop_map(Event::Jump),
        1 => Just(Event::Rotate),
        2 => (0u8..3).prop_map(Event::Store),
        1 => Just(Event::Promote),
    ];
    prop::collection::vec(event, 1..60)
}

/// An effect.
enum Effect {
    Turn(Turn),
    Items(Vec<u32>),
}

struct Pair {
    primary: Filter,
    replica: Filter,
    model: Model,
    now: u64,
    replica_is_ahead: i64,
}

impl Pair {
    fn carry(&mut self, effects: Vec<Effect>) {
        let now = Moment(self.now.saturating_add_signed(self.replica_is_ahead));
        for effect in effects {
            match effect {
                Effect::Turn(turn) => {
                    let windowed = self.replica.windowed_mut().unwrap();
                    windowed.turn(turn, &Unlimited).unwrap();
                    windowed.take_retired();
                }
                Effect::Items(items) => {
                    for batch in bytes(&items).chunks(BATCH) {
                        let batch = batch.iter().map(<[u8; 4]>::as_slice);
                        let added = self.replica.add_batch(batch, Origin::Effect, &now, &Unlimited);
                        assert_eq!(added.error, None);
                    }
                }
            }
        }
    }

    fn add(&mut self, items: &[u32]) {
        let now = Moment(self.now);
        let mut effects: Vec<Effect> = turn_if_due(&mut self.primary, now).map(Effect::Turn).into_iter().collect();
        let (mut answers, mut carried) = (Vec::new(), Vec::new());
        for batch in items.chunks(BATCH) {
            let added =
                self.primary.add_batch(bytes(batch).iter().map(<[u8; 4]>::as_slice), Origin::Client, &now, &Unlimited);
            answers.extend((0..added.done).map(|index| added.new.contains(index)));
            carried
                .extend(batch.iter().enumerate().filter(|(index, _)| added.effect.contains(*index)).map(|item| item.1));
            if let Some(error) = added.error {
                assert_eq!(error, Error::Full);
                break;
            }
        }
        effects.push(Effect::Items(carried));
        assert_eq!(answers, self.model.add(items, self.now));
        self.carry(effects);
    }

    fn rotate(&mut self) {
        let windowed = self.primary.windowed_mut().unwrap();
        let turn = windowed.turn_now(Moment(self.now));
        assert_eq!(windowed.turn(turn, &Unlimited), Ok(self.model.rotate(self.now)));
        windowed.take_retired();
        self.carry(vec![Effect::Turn(turn)]);
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::Add(items) => self.add(items),
            Event::Pass(sixteenths) => self.now += sixteenths * self.model.span().unwrap_or(16) / 16,
            Event::Jump(by) => self.now = self.now.saturating_add_signed(*by),
            Event::Rotate => self.rotate(),
            Event::Store(how) if ring(&self.primary).buckets().len() > 0 => {
                let how = [saved_and_loaded, copied, dumped][usize::from(*how)];
                (self.primary, self.replica) = (how(&self.primary), how(&self.replica));
            }
            Event::Store(_) => {}
            Event::Promote => {
                std::mem::swap(&mut self.primary, &mut self.replica);
                self.now = self.now.saturating_add_signed(self.replica_is_ahead);
                self.replica_is_ahead = -self.replica_is_ahead;
            }
        }
    }

    fn check(&self) {
        assert!(self.primary == self.replica);
        let (ring, now) = (ring(&self.primary), Moment(self.now));
        assert_eq!(ring.buckets().len(), self.model.buckets.len());
        for (bucket, model) in ring.buckets().zip(&self.model.buckets) {
            let described = (bucket.slot, bucket.begin.0, bucket.end.0, bucket.filter.spec().capacity);
            assert_eq!(described, (model.slot, model.begin, model.end, model.capacity));
            assert_eq!(bucket.filter.items(), model.items.len() as u64);
        }
        assert_eq!(ring.live(now).count(), self.model.live(self.now).count());
        assert_eq!(self.primary.live_contents(&now).items, self.model.live_items(self.now));
        let items: Vec<u32> = (0..300).collect();
        for batch in items.chunks(BATCH) {
            let found = self.primary.contains_batch(bytes(batch).iter().map(<[u8; 4]>::as_slice), &now);
            for (index, item) in batch.iter().enumerate() {
                assert_eq!(found.contains(index), self.model.contains(*item, self.now), "{item}");
                assert_eq!(self.primary.contains(&item.to_le_bytes(), &now), found.contains(index));
            }
        }
    }
}

pub fn saved_and_loaded(filter: &Filter) -> Filter {
    let mut sink = ByteSink::default();
    Value::from(copied(filter)).write(&mut sink);
    let mut source = ByteSource(&sink.0);
    let mut value = StoredAs::Own.read(1, &mut source, &Unlimited).unwrap();
    assert!(source.0.is_empty());
    value.take_filter()
}

fn copied(filter: &Filter) -> Filter {
    filter.try_clone().unwrap()
}

fn dumped(filter: &Filter) -> Filter {
    super::dumps::loaded(&super::dumps::records(filter))
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn replica_primary_and_model_agree(
        spec in specs(), events in events(), replica_is_ahead in -5000i64..5000
    ) {
        let model = Model::new(spec);
        let mut pair = Pair { primary: new(spec), replica: new(spec), model, now: START, replica_is_ahead };
        for event in &events {
            pair.step(event);
            pair.check();
        }
    }
}
