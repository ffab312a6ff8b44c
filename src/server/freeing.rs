//! A thread that frees: to give a gigabyte back to the system takes the time of a hundred thousand commands. What is large is
//! handed over to one thread of the module, which drops it, whatever the server's lazyfree settings say.
//!
//! What is not handed over is dropped at once, by whoever has it:
//! - What is small.
//! - What a thread of the server's frees in the background (UNLINK, lazyfree settings): it holds nobody up.
//! - What a child of the server frees, in a script of the debugger for one: the thread is not there, and its lock may be held
//!   for ever. So nothing here is touched in a child, which has another process id.
//! - What goes while the server is above `maxmemory`: it evicts until it sees the memory come back.
//!
//! The thread starts with the first value that is handed over, and is never joined. A server does not unload a module that
//! has types, and where it ends, what waits here goes with the process, as all other keys do.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use redis_module::raw;

/// What is handed over, in bytes: from 4 MiB on, which the server calls an effort of more than 64 and frees in the background
/// where it is told to.
pub const FROM_BYTES: u64 = 4 << 20;

/// The process that loaded the module, 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this thread is the one that runs the server's commands.
    static RUNS_COMMANDS: Cell<bool> = const { Cell::new(false) };
}

/// What waits for the thread.
struct Queue {
    garbage: VecDeque<Box<dyn Send>>,
    has_thread: bool,
    /// Whether the thread is dropping something.
    is_dropping: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { garbage: VecDeque::new(), has_thread: false, is_dropping: false });
/// There is something to drop.
static MORE: Condvar = Condvar::new();
/// Everything is dropped.
static DONE: Condvar = Condvar::new();

impl Queue {
    /// The queue, which no child of the server may touch.
    fn lock() -> MutexGuard<'static, Self> {
        QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.garbage.is_empty() && !self.is_dropping
    }
}

/// Takes note of the thread that loads the module: it runs the commands.
pub fn register() {
    PROCESS.store(std::process::id(), Relaxed);
    RUNS_COMMANDS.set(true);
}

/// Drops something of so many bytes, here or in the thread.
pub fn free<T: Send + 'static>(garbage: Box<T>, bytes: u64) {
    if bytes < FROM_BYTES || !RUNS_COMMANDS.get() || is_child() || is_above_maxmemory() {
        return drop(garbage);
    }
    if let Err(refused) = hand_over(garbage) {
        drop(refused);
    }
}

/// Whether something waits for the thread or is being dropped by it.
pub fn is_busy() -> bool {
    !is_child() && !Queue::lock().is_idle()
}

/// Waits until the thread is through with everything that it was given: as long as dropping it here would have taken.
pub fn wait() {
    if is_child() {
        return;
    }
    let mut queue = Queue::lock();
    while !queue.is_idle() {
        queue = DONE.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Gives it back where there is no memory to take note of it, or no thread.
fn hand_over(garbage: Box<dyn Send>) -> Result<(), Box<dyn Send>> {
    let mut queue = Queue::lock();
    if queue.garbage.try_reserve(1).is_err() || !(queue.has_thread || start()) {
        return Err(garbage);
    }
    queue.has_thread = true;
    queue.garbage.push_back(garbage);
    drop(queue);
    MORE.notify_one();
    Ok(())
}

/// Whether this is not the process that loaded the module.
pub fn is_child() -> bool {
    PROCESS.load(Relaxed) != std::process::id()
}

/// Whether the server is at its limit or above. The server's own answer has 24 bits: what is a little above may be told as
/// 1. It is asked only of what is large.
pub fn is_above_maxmemory() -> bool {
    // SAFETY: the function takes nothing. The caller is the thread that runs commands at the moment.
    unsafe { raw::RedisModule_GetUsedMemoryRatio.is_none_or(|ratio| ratio() >= 1.0) }
}

/// Starts the thread; whether there is one then. The standard library's way ends the process where there is no memory.
fn start() -> bool {
    let mut thread = std::mem::MaybeUninit::uninit();
    // SAFETY: the thread's handle is written before it is read, and given up once. The function lives as long as the process:
    // the server does not unload a module that has types.
    unsafe {
        let has_started = libc::pthread_create(thread.as_mut_ptr(), std::ptr::null(), run, null_mut()) == 0;
        if has_started {
            libc::pthread_detach(thread.assume_init());
        }
        has_started
    }
}

/// What the thread does.
extern "C" fn run(_: *mut c_void) -> *mut c_void {
    take_a_name();
    leave_signals_to_the_server();
    loop {
        let mut queue = Queue::lock();
        queue.is_dropping = false;
        let garbage = loop {
            match queue.garbage.pop_front() {
                Some(garbage) => break garbage,
                None => {
                    DONE.notify_all();
                    queue = MORE.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        queue.is_dropping = true;
        drop(queue);
        drop(garbage);
    }
}

/// What the system's tools show, where they can.
fn take_a_name() {
    #[cfg(target_os = "linux")]
    // SAFETY: the name is a C string, of at most 16 bytes with its end.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"bloom_free".as_ptr());
    }
}

/// Signals to the process are for the server's own threads.
fn leave_signals_to_the_server() {
    let mut all = std::mem::MaybeUninit::uninit();
    // SAFETY: the set is filled before it is read; the mask is that of this thread alone.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT] {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), null_mut());
    }
}
