//! Effects are applied without a lookup: an item that a primary added is added and counted, even if this filter finds it.

use bloomgate_filter::kinds::{Origin, Outcome};
use bloomgate_filter::{Error, Filter, Moment, Unlimited};

use crate::forms::saved_and_read;
use crate::inputs::kinds::{KEYED, REDISBLOOM, Shape, WINDOW};
use crate::world::{begin_bucket_if_due, delete, item, items, slices};

const NOW: Moment = Moment(1000);

/// A chain and a ring, both with a key and without room for more layers.
fn filters() -> [Filter; 2] {
    let shape = Shape { seed: 1, seconds: 60, buckets: 3, ..Shape::new(0.25, 1000, 0) };
    [KEYED, WINDOW].map(|kind| {
        let mut filter = Filter::new(&(kind.spec)(&shape), &Unlimited).unwrap();
        begin_bucket_if_due(&mut filter, NOW);
        filter
    })
}

fn add(filter: &mut Filter, number: u32, origin: Origin) -> Result<Outcome, Error> {
    filter.add(&item(number), origin, &NOW, &Unlimited)
}

fn filled(mut filter: Filter, numbers: std::ops::Range<u32>) -> Filter {
    numbers.for_each(|number| _ = add(&mut filter, number, Origin::Client));
    filter
}

/// Returns an item that was never added, and that is or is not found.
fn stranger(filter: &Filter, is_found: bool) -> u32 {
    (1_000_000..).find(|number| filter.contains(&item(*number), &NOW) == is_found).unwrap()
}

#[test]
fn an_effect_is_counted_even_if_found() {
    for mut filter in filters().map(|filter| filled(filter, 0..300)) {
        let (number, counted) = (stranger(&filter, true), filter.items());
        assert_eq!(add(&mut filter, number, Origin::Client), Ok(Outcome::Known));
        assert_eq!(add(&mut filter, number, Origin::Effect), Ok(Outcome::New));
        let batch = items(&[number, 1, 9_999_999]);
        let added = filter.add_batch(slices(&batch), Origin::Effect, &NOW, &Unlimited);
        assert_eq!((added.new.len(), added.effect.len(), added.done, added.error), (3, 3, 3, None));
        assert_eq!(filter.items(), counted + 4);
        assert!(filter.contains(&item(9_999_999), &NOW));
        assert!(saved_and_read(&filter) == filter);
    }
}

#[test]
fn a_full_fixed_filter_takes_an_effect_and_can_be_saved() {
    for mut filter in filters().map(|filter| filled(filter, 0..100_000)) {
        let (absent, counted) = (stranger(&filter, false), filter.items());
        assert_eq!(add(&mut filter, absent, Origin::Client), Err(Error::Full));
        assert_eq!(add(&mut filter, absent, Origin::Effect), Ok(Outcome::New));
        assert!(filter.contains(&item(absent), &NOW));
        assert_eq!((filter.items(), filter.layer_count()), (counted, 1), "as many as it is made for");
        assert!(saved_and_read(&filter) == filter);
    }
}

#[test]
fn an_effect_of_a_deleted_item_removes_its_entry() {
    for mut filter in filters().map(|filter| filled(filter, 0..300)) {
        let (untouched, counted) = (filter.try_clone().unwrap(), filter.items());
        let numbers: Vec<u32> = (10..16).collect();
        let found = delete(&mut filter, &numbers, Origin::Client, NOW).found;
        assert!(found.len() >= 5 && filter.items() == counted - u64::from(found.len()));
        for number in numbers.into_iter().zip(found.each(6)).filter(|(_, found)| *found).map(|(number, _)| number) {
            assert_eq!(add(&mut filter, number, Origin::Effect), Ok(Outcome::New));
        }
        assert!(filter == untouched, "no bit and no count of a layer has changed");
    }
}

#[test]
fn effects_in_foreign_layouts_are_looked_up() {
    let mut filter = filled(Filter::new(&REDISBLOOM.spec(0.25, 1000, 2), &Unlimited).unwrap(), 0..900);
    let number = stranger(&filter, true);
    assert_eq!(add(&mut filter, number, Origin::Effect), Ok(Outcome::Known), "its primary asks, too");
}
