//! Tests that the guard removes what nobody needs any more, and nothing else: records, entries of the alarm, waiters.

use super::alarm::Due;
use super::ids::{CacheKeyId, FilterId, ItemId};
use super::state::{Asker, Guard, Standing};

const MAX: usize = 2;

fn key_id(key: u64) -> CacheKeyId {
    CacheKeyId { database: 0, name: [key, 0] }
}

fn filter_key(filter: u64) -> CacheKeyId {
    CacheKeyId { database: 0, name: [filter, 1] }
}

/// A guard with a lease of the first cache key until 1000, and one client that waits for it.
fn with_a_waiter() -> (Guard<&'static str>, ItemId) {
    let mut guard = Guard::default();
    let item = ItemId { filter: FilterId::existing(1), item: [0, 0] };
    guard.grant(key_id(0), item, 1, (0, 1000), MAX).unwrap();
    guard.join(key_id(0), filter_key(0), 1, "question", false, (0, 5000)).unwrap();
    (guard, item)
}

#[test]
fn the_alarm_does_not_fill_with_leases_that_were_taken_over() {
    let (mut guard, item) = with_a_waiter();
    for number in 0..10_000 {
        let other = ItemId { item: [number % 2, 0], ..item };
        guard.grant(key_id(0), other, number, (0, 1000 + number), MAX).unwrap();
    }
    assert!(guard.alarm_entries() < 100, "{}", guard.alarm_entries());
    assert_eq!(guard.forgotten(0), None);
    assert!(guard.take(1, 0).is_some());
}

#[test]
fn the_alarm_does_not_fill_with_waiters_that_left() {
    let (mut guard, _) = with_a_waiter();
    for waiter in 2..10_000 {
        guard.join(key_id(0), filter_key(0), waiter, "question", false, (0, 5000)).unwrap();
        guard.leave(waiter).unwrap();
    }
    assert!(guard.alarm_entries() < 100, "{}", guard.alarm_entries());
    assert_eq!(guard.forgotten(0), None);
    // What is needed is still there: the end of the lease, the waiter's own time, and the sweep.
    assert_eq!((guard.take_due(1000), guard.take_due(4999)), (Some(Due::Serve(key_id(0))), None));
    assert!(std::iter::from_fn(|| guard.take_due(5000)).any(|due| due == Due::Deadline(1, 0)));
    guard.leave(1).unwrap();
    while guard.take_due(10_000).is_some() {}
    assert!(guard.is_idle(), "the lease is swept");
}

#[test]
fn a_waiter_whose_queue_is_due_is_not_tidied_away() {
    let (mut guard, _) = with_a_waiter();
    guard.end(key_id(0));
    for waiter in 2..1000 {
        guard.join(key_id(0), filter_key(0), waiter, "question", false, (0, 5000)).unwrap();
        guard.leave(waiter).unwrap();
    }
    assert_eq!(guard.take_due(0), Some(Due::Serve(key_id(0))));
}

#[test]
fn a_lease_that_expires_is_not_tidied_away_before_its_waiters_are_served() {
    let (mut guard, _) = with_a_waiter();
    for waiter in 2..1000 {
        guard.join(key_id(1), filter_key(0), waiter, "question", false, (1000, 5000)).unwrap();
        guard.leave(waiter).unwrap();
    }
    assert!(std::iter::from_fn(|| guard.take_due(1000)).any(|due| due == Due::Serve(key_id(0))));
}

#[test]
fn a_caller_that_finds_waiters_and_no_lease_schedules_them() {
    let (mut guard, item) = with_a_waiter();
    guard.end(key_id(0));
    // As if memory for the entry was refused.
    assert_eq!(guard.take_due(0), Some(Due::Serve(key_id(0))));
    assert_eq!(guard.take_due(0), None);
    assert_eq!(guard.standing(key_id(0), item, Asker::Caller, true, 0), Standing::Leased(1));
    assert_eq!(guard.take_due(0), Some(Due::Serve(key_id(0))));
}

#[test]
fn a_client_that_joins_as_the_lease_expires_is_served() {
    let mut guard = Guard::default();
    let item = ItemId { filter: FilterId::existing(1), item: [0, 0] };
    guard.grant(key_id(0), item, 1, (0, 1000), MAX).unwrap();
    guard.join(key_id(0), filter_key(0), 1, "question", false, (1000, 5000)).unwrap();
    assert_eq!(guard.take_due(1000), Some(Due::Serve(key_id(0))));
}

#[test]
fn expired_records_are_removed_as_others_come() {
    let mut guard = Guard::<()>::default();
    for number in 0..50_000 {
        let item = ItemId { filter: FilterId::existing(1), item: [number, 0] };
        let key = CacheKeyId { database: 0, name: [number, 1] };
        guard.grant(key, item, number, (number, number + 10), 1_000_000).unwrap();
    }
    assert!(guard.records() < 20, "{}", guard.records());
}
