//! A thread that puts large layers into huge pages, of 2 MiB. A lookup in a large filter touches a random page. With pages of 4 KiB the
//! processor must look up nearly every address in the page table first, and a fork has to copy 512 times as many entries.
//!
//! A layer is not allocated in huge pages. The first write to one would zero 2 MiB at once, which takes 0.3 ms or more: on a busy virtual
//! machine, BF.MADD of 1000 items to an empty filter of 1 GiB took 3.4 s instead of 6 ms, and made most of the filter resident. So a layer
//! begins with pages of 4 KiB. Once at least half of the pages in a stretch of 2 MiB were written to, the thread asks Linux to collapse the
//! stretch into a huge page (`MADV_COLLAPSE`, Linux 6.1). That takes about 0.4 ms, or 6 ms in a virtual machine that gets the page from its
//! host first. During that time a command waits if it touches the stretch, or any page for the first time. The thread then sleeps ten times
//! as long.
//!
//! Pages that a child of the server shares are not counted: collapsing them would copy them. A write to a huge page that a child shares
//! copies 4 KiB and splits the page, so the thread checks all layers again after the child has exited.
//!
//! The thread never reads or writes a layer. It passes addresses to the system, which changes no content. So an address whose block was
//! just freed does no harm. If the system refuses, the layer stays as it is.

use std::ffi::c_void;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::ptr::null_mut;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::freeing::{self, prepare_thread, start_thread};
use crate::config;

/// Size of a huge page on x86-64, and on ARM if other pages are of 4 KiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Size of the other pages. With another size, a huge page has another size too.
const PAGE_BYTES: usize = 4096;
const PAGES: usize = HUGE_PAGE_BYTES / PAGE_BYTES;
/// Blocks of this size or more are put into huge pages. Hardly anything but the cells of layers is this large. A
/// block is not aligned for it: less than 4 MiB at its ends stay in pages of 4 KiB. At 12 MB, lookups gained little.
const FROM_BYTES: usize = 16 << 20;
/// How many pages of a stretch must have been written to. So a layer never takes more than twice the memory that its items touch.
const WRITTEN_FROM: usize = PAGES / 2;
/// The time between a new block and the first check of it.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The wait doubles from one check to the next, up to this: a layer with few items may never be collapsed.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// After collapsing a stretch, the thread sleeps this many times as long as that took, up to the longest sleep. So commands wait for it
/// during at most a tenth of the time.
const REST: u32 = 10;
const LONGEST_REST: Duration = Duration::from_millis(100);

/// An allocated block.
struct Block {
    /// Distinguishes blocks that had the same address at different times.
    number: u64,
    address: usize,
    size: usize,
    /// Whether nothing is left to do, until a child has shared the block.
    is_done: bool,
}

struct Blocks {
    list: Vec<Block>,
    last_number: u64,
    has_thread: bool,
    /// Whether a block is new or must be checked again.
    has_news: bool,
}

static BLOCKS: Mutex<Blocks> =
    Mutex::new(Blocks { list: Vec::new(), last_number: 0, has_thread: false, has_news: false });
/// Signals news.
static NEWS: Condvar = Condvar::new();

impl Blocks {
    /// Locks the list. Must not be called in a child of the server.
    fn lock() -> MutexGuard<'static, Self> {
        BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number and the range of the first block after this number that is not done.
    fn next_after(&self, number: u64) -> Option<(u64, usize, usize)> {
        let block = self.list.iter().find(|block| block.number > number && !block.is_done)?;
        Some((block.number, block.address, block.address.saturating_add(block.size)))
    }

    fn find(&mut self, number: u64) -> Option<&mut Block> {
        self.list.iter_mut().find(|block| block.number == number)
    }
}

/// Records a block that was just allocated, or that the server passes. If memory runs out or the thread cannot start, the block stays
/// in pages of 4 KiB.
pub fn allocated(block: *const u8, size: usize) {
    if size < FROM_BYTES || block.is_null() || !config::has_huge_pages() || !is_supported() || freeing::is_child() {
        return;
    }
    let mut blocks = Blocks::lock();
    // The list allocates with the lock held: a small block, which is not recorded.
    if blocks.list.try_reserve(1).is_err() || !(blocks.has_thread || start_thread(run)) {
        return;
    }
    blocks.has_thread = true;
    blocks.last_number += 1;
    let number = blocks.last_number;
    blocks.list.push(Block { number, address: block.addr(), size, is_done: false });
    blocks.has_news = true;
    drop(blocks);
    NEWS.notify_one();
}

/// Forgets a block that is about to be freed.
pub fn freed(block: *const u8, size: usize) {
    if size >= FROM_BYTES && !freeing::is_child() {
        Blocks::lock().list.retain(|listed| listed.address != block.addr());
    }
}

/// Makes the thread check all blocks again: a child has exited, and writes may have split huge pages while it was running.
pub fn child_has_exited() {
    let mut blocks = Blocks::lock();
    blocks.list.iter_mut().for_each(|block| block.is_done = false);
    blocks.has_news = !blocks.list.is_empty();
    drop(blocks);
    NEWS.notify_one();
}

/// The thread: waits for news and checks the blocks, and later those that are not done again.
extern "C" fn run(_: *mut c_void) -> *mut c_void {
    prepare_thread(c"bloom_huge");
    // Without this file, layers stay as they are.
    let Ok(pagemap) = File::open("/proc/self/pagemap") else { return null_mut() };
    let mut wait = FIRST_WAIT;
    loop {
        let mut due = Instant::now() + wait;
        let mut blocks = Blocks::lock();
        loop {
            if std::mem::take(&mut blocks.has_news) {
                wait = FIRST_WAIT;
                due = due.min(Instant::now() + wait);
            }
            let left = due.saturating_duration_since(Instant::now());
            if blocks.next_after(0).is_none() {
                blocks = NEWS.wait(blocks).unwrap_or_else(PoisonError::into_inner);
            } else if left.is_zero() {
                break;
            } else {
                blocks = NEWS.wait_timeout(blocks, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        drop(blocks);
        look_at_all(&pagemap);
        wait = LONGEST_WAIT.min(wait * 2);
    }
}

/// Collapses all stretches that are ready.
fn look_at_all(pagemap: &File) {
    let mut last = 0;
    loop {
        let next = Blocks::lock().next_after(last);
        let Some((number, start, end)) = next else { return };
        let mut is_done = true;
        let mut stretch = start.next_multiple_of(HUGE_PAGE_BYTES);
        while stretch + HUGE_PAGE_BYTES <= end {
            if Blocks::lock().find(number).is_none() {
                is_done = false;
                break;
            }
            is_done &= is_settled(pagemap, stretch);
            stretch += HUGE_PAGE_BYTES;
        }
        let mut blocks = Blocks::lock();
        // A child may have exited since the first stretch.
        is_done &= !blocks.has_news;
        if let Some(block) = blocks.find(number) {
            block.is_done = is_done;
        }
        drop(blocks);
        last = number;
    }
}

/// Collapses a stretch if enough of it was written to. Returns whether it needs no further check.
fn is_settled(pagemap: &File, stretch: usize) -> bool {
    if written_pages(pagemap, stretch) < WRITTEN_FROM {
        return false;
    }
    let begun = Instant::now();
    let is_settled = collapse(stretch);
    std::thread::sleep(LONGEST_REST.min(begun.elapsed() * REST));
    is_settled
}

/// Returns the number of pages of a stretch that were written to. A page that was only read is resident, too, but maps the page of zeros
/// that all processes share: lookups in an empty filter take no memory, and collapsing the pages that they read would.
fn written_pages(pagemap: &File, stretch: usize) -> usize {
    const ENTRY_BYTES: usize = 8;
    /// The page is resident, and no other mapping has it.
    const PRESENT_AND_EXCLUSIVE: u64 = 1 << 63 | 1 << 56;
    let mut entries = [0; PAGES * ENTRY_BYTES];
    let offset = (stretch / PAGE_BYTES * ENTRY_BYTES) as u64;
    if pagemap.read_exact_at(&mut entries, offset).is_err() {
        return 0;
    }
    let is_written =
        |entry: &&[u8; ENTRY_BYTES]| u64::from_ne_bytes(**entry) & PRESENT_AND_EXCLUSIVE == PRESENT_AND_EXCLUSIVE;
    entries.as_chunks().0.iter().filter(is_written).count()
}

#[cfg(target_os = "linux")]
fn is_supported() -> bool {
    // SAFETY: the function takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) == Ok(PAGE_BYTES)
}

/// Collapses a stretch into a huge page, unless it is one already. Returns whether trying again is pointless.
#[cfg(target_os = "linux")]
fn collapse(stretch: usize) -> bool {
    /// `MADV_COLLAPSE`, which the crate libc defines for glibc only.
    const COLLAPSE: libc::c_int = 25;
    let address = std::ptr::without_provenance_mut(stretch);
    // SAFETY: the system replaces the pages of the stretch and keeps their contents, whatever the stretch is used for.
    let is_huge = unsafe { libc::madvise(address, HUGE_PAGE_BYTES, COLLAPSE) == 0 };
    let is_temporary = |error: i32| [libc::EAGAIN, libc::EBUSY, libc::ENOMEM].contains(&error);
    is_huge || !std::io::Error::last_os_error().raw_os_error().is_some_and(is_temporary)
}

#[cfg(not(target_os = "linux"))]
fn is_supported() -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn collapse(_stretch: usize) -> bool {
    true
}
