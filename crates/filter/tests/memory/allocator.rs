//! The allocator of the tests of memory. It counts the requests of a thread, refuses selected ones, and records the layouts of blocks for a
//! mover. A separate file because it contains the only `unsafe` of these tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr::NonNull;

use bloomgate_filter::Mover;

struct Watched;

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// The requests of this thread that are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// Only the request with this number, counted from 1.
    Only(usize),
    /// The request with this number and all later ones, as if memory had run out.
    From(usize),
}

/// The requests during a run, the refused ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub requests: usize,
    pub refused: usize,
    /// The bytes of all requests.
    pub bytes: u64,
    /// The peak of allocated bytes.
    pub bytes_max: u64,
    /// The freed bytes, refused requests included.
    freed: u64,
}

thread_local! {
    static FAULT: Cell<Fault> = const { Cell::new(Fault::None) };
    static ASKED: Cell<Asked> = const { Cell::new(Asked { requests: 0, refused: 0, bytes: 0, bytes_max: 0, freed: 0 }) };
    static RECORDS: Cell<bool> = const { Cell::new(false) };
    /// The requested layouts of the blocks, while they are recorded.
    static BLOCKS: RefCell<HashMap<usize, Layout>> = RefCell::default();
}

/// Runs a function with a fault.
pub fn under<T>(fault: Fault, run: impl FnOnce() -> T) -> (T, Asked) {
    FAULT.set(fault);
    ASKED.set(Asked::default());
    let result = run();
    FAULT.set(Fault::None);
    (result, ASKED.get())
}

/// Runs a function, and returns its requests.
pub fn measure(run: impl FnOnce()) -> Asked {
    under(Fault::None, run).1
}

/// Runs a function without faults and without counting, for the test itself.
pub fn in_peace<T>(run: impl FnOnce() -> T) -> T {
    let before = (FAULT.replace(Fault::None), ASKED.get());
    let result = run();
    FAULT.set(before.0);
    ASKED.set(before.1);
    result
}

/// Runs a function while the layouts of blocks are recorded. It must free everything that it allocates.
pub fn recorded(run: impl FnOnce()) {
    RECORDS.set(true);
    run();
    RECORDS.set(false);
    let left = BLOCKS.take();
    assert!(left.is_empty(), "{} blocks are left", left.len());
}

/// Changes the recorded layouts. The list itself allocates, which is not recorded.
fn record(change: impl FnOnce(&mut HashMap<usize, Layout>)) {
    if RECORDS.replace(false) {
        BLOCKS.with_borrow_mut(change);
        RECORDS.set(true);
    }
}

/// Counts a request. Returns whether it is refused.
fn is_refused(bytes: usize) -> bool {
    let mut asked = ASKED.get();
    asked.requests += 1;
    let refused = match FAULT.get() {
        Fault::None => false,
        Fault::Only(fault) => asked.requests == fault,
        Fault::From(first) => asked.requests >= first,
    };
    asked.refused += usize::from(refused);
    asked.bytes = asked.bytes.saturating_add(bytes as u64);
    asked.bytes_max = asked.bytes_max.max(asked.bytes.saturating_sub(asked.freed));
    ASKED.set(asked);
    if refused {
        free(bytes);
    }
    refused
}

fn free(bytes: usize) {
    let asked = ASKED.get();
    ASKED.set(Asked { freed: asked.freed.saturating_add(bytes as u64), ..asked });
}

// SAFETY: everything is passed to the system's allocator, or a null pointer is returned, which means a refusal.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as promised by the caller.
        let block = unsafe { System.alloc(layout) };
        record(|blocks| _ = blocks.insert(block as usize, layout));
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as promised by the caller.
        let block = unsafe { System.alloc_zeroed(layout) };
        record(|blocks| _ = blocks.insert(block as usize, layout));
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_refused(size) {
            return std::ptr::null_mut();
        }
        free(layout.size());
        // SAFETY: as promised by the caller.
        let (new, grown) =
            unsafe { (System.realloc(block, layout, size), Layout::from_size_align_unchecked(size, layout.align())) };
        record(|blocks| {
            assert_eq!(blocks.remove(&(block as usize)), Some(layout), "grown with its layout");
            blocks.insert(new as usize, grown);
        });
        new
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        free(layout.size());
        record(|blocks| assert_eq!(blocks.remove(&(block as usize)), Some(layout), "freed with its layout"));
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Moves all recorded blocks like a server's defragmenter, and stops after every `pace` of them.
pub struct Defragmenter {
    pub pace: usize,
    pub moved: usize,
}

// SAFETY: the new block is from the same allocator with the same layout, its bytes are copied, and the old one is freed.
unsafe impl Mover for Defragmenter {
    fn moved(&mut self, block: NonNull<u8>) -> Option<NonNull<u8>> {
        let mut layout = None;
        record(|blocks| layout = blocks.get(&(block.as_ptr() as usize)).copied());
        let layout = layout.expect("a block that was asked for as a whole");
        self.moved += 1;
        // SAFETY: the old block has this layout, and the new one is different.
        unsafe {
            let new = NonNull::new(std::alloc::alloc(layout)).unwrap();
            new.copy_from_nonoverlapping(block, layout.size());
            // Code that still reads the old block must not find its bytes there.
            block.write_bytes(0xAA, layout.size());
            std::alloc::dealloc(block.as_ptr(), layout);
            Some(new)
        }
    }

    fn has_done_enough(&mut self) -> bool {
        self.moved.is_multiple_of(self.pace)
    }
}
