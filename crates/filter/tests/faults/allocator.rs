//! An allocator that counts the requests of a thread and refuses the ones that it is told to. The only `unsafe` of these
//! tests: a file of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Faulty;

#[global_allocator]
static ALLOCATOR: Faulty = Faulty;

/// Which requests of this thread are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// The one with this number, from 1 on.
    Only(usize),
    /// This one and all after it: there is no memory left.
    From(usize),
}

thread_local! {
    static FAULT: Cell<Fault> = const { Cell::new(Fault::None) };
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// What was asked while something ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub requests: usize,
    pub refused: usize,
}

/// Runs something with a fault.
pub fn under<T>(fault: Fault, run: impl FnOnce() -> T) -> (T, Asked) {
    FAULT.set(fault);
    REQUESTS.set(0);
    REFUSED.set(0);
    let result = run();
    FAULT.set(Fault::None);
    (result, Asked { requests: REQUESTS.get(), refused: REFUSED.get() })
}

/// Runs something in between with no fault, uncounted: what a test does for itself.
pub fn in_peace<T>(run: impl FnOnce() -> T) -> T {
    let before = (FAULT.replace(Fault::None), REQUESTS.get());
    let result = run();
    FAULT.set(before.0);
    REQUESTS.set(before.1);
    result
}

/// Counts a request; answers whether it is refused.
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

// SAFETY: all is the system's, or a null pointer, which stands for a refusal.
unsafe impl GlobalAlloc for Faulty {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        if is_refused() { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        if is_refused() { std::ptr::null_mut() } else { unsafe { System.alloc_zeroed(layout) } }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        if is_refused() { std::ptr::null_mut() } else { unsafe { System.realloc(block, layout, size) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}
