//! Tests that the guard removes what nobody needs any more, and nothing else: records, entries of the alarm, waiters.

use super::alarm::Due;
use super::ids::{KeyId, Row};
use super::state::{Asker, Guard, Standing, TOKENS_LIVE};

const MAX: usize = 2;

fn row(key: u64) -> Row {
    Row { key: KeyId([key, 1]), filter: 10, item: 20, instance: 1 }
}

/// A guard with a lease of the first cache key until 1000, and one client that waits for it.
fn with_a_waiter() -> Guard<&'static str> {
    let mut guard = Guard::small();
    guard.grant(row(0), (0, 1000), MAX);
    guard.join(&row(0), 1, "question", false, (0, 5000)).unwrap();
    guard
}

#[test]
fn the_alarm_does_not_fill_with_leases_that_were_taken_over() {
    let mut guard = with_a_waiter();
    for number in 0..10_000 {
        guard.grant(row(0), (0, 1000 + number), MAX);
    }
    assert!(guard.alarm_entries() < 100, "{}", guard.alarm_entries());
    assert_eq!(guard.forgotten(0), None);
    assert!(guard.take(1, 0).is_some());
}

#[test]
fn the_alarm_does_not_fill_with_waiters_that_left() {
    let mut guard = with_a_waiter();
    for waiter in 2..10_000 {
        guard.join(&row(0), waiter, "question", false, (0, 5000)).unwrap();
        guard.leave(waiter).unwrap();
    }
    assert!(guard.alarm_entries() < 100, "{}", guard.alarm_entries());
    assert_eq!(guard.forgotten(0), None);
    // What is needed is still there: the end of the lease, the waiter's own time, and the sweep.
    assert_eq!((guard.take_due(1000), guard.take_due(4999)), (Some(Due::Serve(row(0).key)), None));
    assert!(std::iter::from_fn(|| guard.take_due(5000)).any(|due| due == Due::Deadline(1, 0)));
    guard.leave(1).unwrap();
    while guard.take_due(10_000).is_some() {}
    assert_eq!(guard.records(), 0, "the lease is swept");
    while guard.take_due(TOKENS_LIVE).is_some() {}
    assert!(!guard.is_idle(), "its token may be filled");
    while guard.take_due(2 * TOKENS_LIVE).is_some() {}
    assert!(guard.is_idle() && guard.next_due().is_none());
}

#[test]
fn a_waiter_whose_queue_is_due_is_not_tidied_away() {
    let mut guard = with_a_waiter();
    guard.row_changed(row(0).key);
    for waiter in 2..1000 {
        guard.join(&row(0), waiter, "question", false, (0, 5000)).unwrap();
        guard.leave(waiter).unwrap();
    }
    assert_eq!(guard.take_due(0), Some(Due::Serve(row(0).key)));
}

#[test]
fn a_lease_that_expires_is_not_tidied_away_before_its_waiters_are_served() {
    let mut guard = with_a_waiter();
    for waiter in 2..1000 {
        guard.join(&row(1), waiter, "question", false, (1000, 5000)).unwrap();
        guard.leave(waiter).unwrap();
    }
    assert!(std::iter::from_fn(|| guard.take_due(1000)).any(|due| due == Due::Serve(row(0).key)));
}

#[test]
fn a_caller_that_finds_waiters_and_no_lease_schedules_them() {
    let mut guard = with_a_waiter();
    guard.row_changed(row(0).key);
    // As if memory for the entry was refused.
    assert_eq!(guard.take_due(0), Some(Due::Serve(row(0).key)));
    assert_eq!(guard.take_due(0), None);
    assert_eq!(guard.standing(&row(0), Asker::Caller, true, 0), Standing::Leased(1));
    assert_eq!(guard.take_due(0), Some(Due::Serve(row(0).key)));
}

#[test]
fn a_client_that_joins_as_the_lease_expires_is_served() {
    let mut guard = Guard::small();
    guard.grant(row(0), (0, 1000), MAX);
    guard.join(&row(0), 1, "question", false, (1000, 5000)).unwrap();
    assert_eq!(guard.take_due(1000), Some(Due::Serve(row(0).key)));
}

#[test]
fn a_token_is_good_for_at_least_an_hour_and_at_most_two() {
    let mut guard = Guard::<()>::small();
    let mut granted = Vec::new();
    for minute in 0..500 {
        let now = 60_000 * minute;
        while guard.take_due(now).is_some() {}
        granted.push((now, guard.grant(row(minute), (now, now + 1), MAX)));
        for (number, (at, stamp)) in (0..).zip(&granted) {
            let is_good = guard.accepts(&row(number), *stamp);
            let age = now - at;
            assert!(if is_good { age < 2 * TOKENS_LIVE + 60_000 } else { age >= TOKENS_LIVE }, "{age} ms: {is_good}");
        }
    }
    assert!(!guard.is_idle());
}

#[test]
fn a_none_outlives_the_tokens() {
    let mut guard = Guard::<()>::small();
    guard.grant(row(0), (0, 1), MAX);
    guard.note_no_row(row(0), (0, 10 * TOKENS_LIVE), MAX);
    for hour in 1..10 {
        while guard.take_due(hour * TOKENS_LIVE).is_some() {}
        assert_eq!(guard.standing(&row(0), Asker::Caller, true, hour * TOKENS_LIVE), Standing::NoRow);
    }
    guard.filter_changed(row(0).item);
    assert_eq!(guard.standing(&row(0), Asker::Caller, true, 9 * TOKENS_LIVE), Standing::Free);
}

#[test]
fn expired_records_are_removed_as_others_come() {
    let mut guard = Guard::<()>::default();
    for number in 0..50_000 {
        guard.grant(row(number), (number, number + 10), 1_000_000);
    }
    assert!(guard.records() < 20, "{}", guard.records());
}
