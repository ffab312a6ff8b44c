//! The list of values with pending adds under loom, which runs each test with every interleaving of its threads that the memory
//! model allows. The values are stand-ins: loom sees every access to them, and fails the test if two accesses can collide or if
//! freed memory is used.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

mod sync {
    pub use loom::sync::atomic::{AtomicU32, Ordering};
    pub use loom::sync::{Mutex, MutexGuard};
    pub use std::sync::PoisonError;
}

#[expect(clippy::duplicate_mod, reason = "here `super::sync` is loom's")]
#[path = "pending_list.rs"]
mod pending_list;

use pending_list::{Entries, Handle, Listed, PendingList};

type List = PendingList<Value>;

/// The memory of a value. It stays allocated to the end of a test, so that code that is wrong fails instead of crashing.
struct Value {
    handle: Handle,
    /// Written when the memory is freed, read by every access to the value.
    is_live: UnsafeCell<bool>,
    /// The number of pending adds.
    pending: UnsafeCell<u32>,
}

// SAFETY: loom fails a test in which accesses by several threads collide.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    fn new(pending: u32) -> Arc<Self> {
        Arc::new(Self { handle: Handle::default(), is_live: UnsafeCell::new(true), pending: UnsafeCell::new(pending) })
    }

    fn assert_live(&self) {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.is_live.with(|is_live| assert!(unsafe { *is_live }, "freed memory is used"));
    }

    fn pending(&self) -> u32 {
        self.assert_live();
        // SAFETY: loom checks that nobody writes meanwhile.
        self.pending.with(|pending| unsafe { *pending })
    }

    fn set_pending(&self, new: u32) {
        self.assert_live();
        // SAFETY: loom checks that nobody reads or writes meanwhile.
        self.pending.with_mut(|pending| unsafe { *pending = new });
    }

    /// Frees the memory, as the allocator does.
    fn free_memory(&self) {
        // SAFETY: loom checks that nobody reads or writes meanwhile.
        self.is_live.with_mut(|is_live| assert!(unsafe { std::mem::replace(&mut *is_live, false) }, "freed twice"));
    }
}

// SAFETY: the handle is a field of the value.
unsafe impl Listed for Value {
    unsafe fn handle<'a>(value: NonNull<Self>) -> &'a Handle {
        // SAFETY: tests keep the value.
        let value = unsafe { value.as_ref() };
        value.assert_live();
        &value.handle
    }
}

fn at(value: &Arc<Value>) -> NonNull<Value> {
    NonNull::from(value.as_ref())
}

fn list(is_child: fn() -> bool) -> Arc<List> {
    Arc::new(List::new(sync::Mutex::new(Entries::none()), is_child))
}

/// A list with values in which one add each is pending.
fn list_of<const N: usize>() -> (Arc<List>, [Arc<Value>; N]) {
    let list = list(|| false);
    let values = std::array::from_fn(|_| Value::new(1));
    values.iter().for_each(|value| insert(&list, value));
    (list, values)
}

fn insert(list: &List, value: &Arc<Value>) {
    // SAFETY: tests keep the value.
    unsafe { list.insert(at(value)) };
}

fn remove(list: &List, value: &Arc<Value>) -> bool {
    // SAFETY: tests keep the value.
    unsafe { list.remove(at(value)) }
}

/// Flushes one add of the last value, as the timer does; returns false if the list is empty.
fn flush(list: &List) -> bool {
    list.flush_last(|value| {
        // SAFETY: tests keep the value.
        let value = unsafe { value.as_ref() };
        let pending = value.pending();
        value.set_pending(pending.saturating_sub(1));
        pending > 0
    })
}

/// Frees a value, as the server's callback does.
fn free(list: &List, value: &Arc<Value>) {
    remove(list, value);
    // The destructor reads and writes the value.
    value.set_pending(0);
    value.free_memory();
}

/// Moves a value to another block, as the defragmenter does.
fn relocate(list: &List, from: &Arc<Value>, to: &Arc<Value>) {
    let move_block = |_| {
        to.set_pending(from.pending());
        from.free_memory();
        at(to)
    };
    // SAFETY: tests keep both blocks.
    assert_eq!(unsafe { list.relocate(at(from), move_block) }, at(to));
}

fn in_thread(work: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(work)
}

fn join(thread: thread::JoinHandle<()>) {
    thread.join().expect("the thread ends");
}

#[test]
fn a_value_is_not_freed_while_the_timer_flushes_it() {
    loom::model(|| {
        let (list, [first, last]) = list_of();
        let freeing = in_thread({
            let (list, last) = (list.clone(), last.clone());
            move || free(&list, &last)
        });
        while flush(&list) {}
        join(freeing);
        assert!(list.is_empty());
        assert_eq!(first.pending(), 0);
    });
}

#[test]
fn values_are_freed_by_two_threads_while_the_timer_flushes() {
    loom::model(|| {
        let (list, [first, last]) = list_of();
        let threads = [first, last].map(|value| {
            let list = list.clone();
            in_thread(move || free(&list, &value))
        });
        flush(&list);
        threads.into_iter().for_each(join);
        assert!(list.is_empty());
    });
}

/// The id of a value that was removed may be another value's by the time a thread that frees the first has the lock.
#[test]
fn a_value_is_freed_whose_id_another_value_gets() {
    loom::model(|| {
        let (list, [freed]) = list_of();
        freed.set_pending(0);
        let other = Value::new(1);
        let freeing = in_thread({
            let list = list.clone();
            move || free(&list, &freed)
        });
        flush(&list);
        insert(&list, &other);
        join(freeing);
        assert!(remove(&list, &other) && list.is_empty());
    });
}

#[test]
fn a_value_moves_while_another_is_freed_and_the_timer_flushes() {
    loom::model(|| {
        let (list, [freed, moved]) = list_of();
        let place = Value::new(0);
        let freeing = in_thread({
            let list = list.clone();
            move || free(&list, &freed)
        });
        let moving = in_thread({
            let (list, place) = (list.clone(), place.clone());
            move || relocate(&list, &moved, &place)
        });
        flush(&list);
        join(freeing);
        join(moving);
        while flush(&list) {}
        assert_eq!(place.pending(), 0, "the value is flushed at its new place");
    });
}

#[test]
fn a_value_is_listed_once_and_flushed_until_nothing_is_pending() {
    loom::model(|| {
        let (list, [first, last]) = list_of();
        insert(&list, &first);
        insert(&list, &last);
        assert!(flush(&list) && flush(&list));
        assert_eq!((first.pending(), last.pending()), (1, 0));
        assert!(!remove(&list, &last), "nothing was left to flush");
        insert(&list, &last);
        assert!(remove(&list, &first) && !list.is_empty());
        assert!(flush(&list), "the value that was listed again");
        assert!(list.is_empty() && !flush(&list));
        let place = Value::new(0);
        relocate(&list, &last, &place);
        assert!(list.is_empty(), "a value that was not listed is not listed after a move");
    });
}

#[test]
fn values_are_removed_in_any_order() {
    loom::model(|| {
        let (list, [first, second, third, fourth]) = list_of();
        assert!(remove(&list, &first) && !remove(&list, &first));
        insert(&list, &first);
        assert!(remove(&list, &fourth) && remove(&list, &second) && remove(&list, &first) && remove(&list, &third));
        assert!(list.is_empty());
    });
}

/// A thread that already holds the lock would deadlock, which loom reports.
#[test]
fn values_that_are_listed_or_not_yet_take_no_lock() {
    loom::model(|| {
        let (list, [listed]) = list_of();
        let other = Value::new(0);
        assert!(list.flush_last(|_| {
            insert(&list, &listed);
            !remove(&list, &other)
        }));
        assert!(remove(&list, &listed));
    });
}

thread_local! {
    static IS_CHILD: Cell<bool> = const { Cell::new(false) };
}

/// A child may be forked while another thread of its parent holds the lock.
#[test]
fn a_child_takes_no_lock() {
    loom::model(|| {
        let list = list(|| IS_CHILD.get());
        let (listed, other) = (Value::new(1), Value::new(1));
        insert(&list, &listed);
        assert!(list.flush_last(|_| {
            IS_CHILD.set(true);
            insert(&list, &other);
            assert!(!remove(&list, &listed) && !flush(&list) && list.is_empty());
            IS_CHILD.set(false);
            true
        }));
        assert!(!remove(&list, &other) && remove(&list, &listed));
    });
}
