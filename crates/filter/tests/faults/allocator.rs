//! An allocator that counts the requests of a thread and refuses selected ones. A separate file because it contains the only
//! `unsafe` of these tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Faulty;

#[global_allocator]
static ALLOCATOR: Faulty = Faulty;

/// The requests of this thread that are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// The one with this number, counted from 1.
    Only(usize),
    /// This one and all after it, as if memory had run out.
    From(usize),
}

thread_local! {
    static FAULT: Cell<Fault> = const { Cell::new(Fault::None) };
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// The requests during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub requests: usize,
    pub refused: usize,
}

/// Runs a function with a fault.
pub fn under<T>(fault: Fault, run: impl FnOnce() -> T) -> (T, Asked) {
    FAULT.set(fault);
    REQUESTS.set(0);
    REFUSED.set(0);
    let result = run();
    FAULT.set(Fault::None);
    (result, Asked { requests: REQUESTS.get(), refused: REFUSED.get() })
}

/// Runs a function without faults and without counting, for the test itself.
pub fn in_peace<T>(run: impl FnOnce() -> T) -> T {
    let before = (FAULT.replace(Fault::None), REQUESTS.get());
    let result = run();
    FAULT.set(before.0);
    REQUESTS.set(before.1);
    result
}

/// Counts a request. Returns whether it is refused.
fn is_refused() -> bool {
    let number = REQUESTS.get() + 1;
    REQUESTS.set(number);
    let refused = match FAULT.get() {
        Fault::None => false,
        Fault::Only(fault) => number == fault,
        Fault::From(first) => number >= first,
    };
    REFUSED.set(REFUSED.get() + usize::from(refused));
    refused
}

// SAFETY: everything is passed to the system's allocator, or a null pointer is returned, which means a refusal.
unsafe impl GlobalAlloc for Faulty {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by the caller.
        if is_refused() { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by the caller.
        if is_refused() { std::ptr::null_mut() } else { unsafe { System.alloc_zeroed(layout) } }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as promised by the caller.
        if is_refused() { std::ptr::null_mut() } else { unsafe { System.realloc(block, layout, size) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(block, layout) }
    }
}
