//! A test module that loads the real module, counts the real module's allocations, and makes some of them fail on request:
//! `loadmodule libfault_module.so libbloomgate.so`. It is a cargo example, so that it is built with the tests but never into
//! the shipped library. With `PEND bytes` before the path, adds to layers of this size or more may be pending.
//!
//! A module finds the server's functions by name through one function; the pointer to that function is the first word of the context with
//! which the module is loaded. While the real module is being loaded, that pointer refers to our function, which returns our allocation
//! functions and otherwise the server's functions. Functions that the server lacks are missing here, too.
//!
//! - `FAULTS.FAIL n`: the nth allocation from now on fails, once. `FAULTS.FAIL n ON`: that one and all later ones. 0: none.
//! - `FAULTS.COUNT`: the allocations, their bytes, and the failed allocations since the last call.
//! - `FAULTS.NOTIFIED`: the key space events that the module sent since the last call, and how many of them while it had a key
//!   open. Listeners are called at once, and may delete the key.
//! - `FAULTS.DELETE n`: with 1, a listener of this module deletes the key of every event about a filter.
//! - `FAULTS.HOLD n`: with 1, timers that the module creates do not start; 0 starts them and returns their number.
//! - `FAULTS.CLOSED n`: with 1, opening a key for writing fails.
//! - `FAULTS.MOVE key`: moves all blocks of a value, as a server's defragmenter would. Returns how often the module's callback
//!   was called, or 0 if the value's own block has not moved.
//! - `FAULTS.MOVED`: the number of values that have moved, by the server's defragmenter or by `FAULTS.MOVE`.
//!
//! Only functions that may fail do so. The server's `Alloc` and `Calloc` end the process when memory runs out. If such a call has the
//! number that should fail, it succeeds, and `FAULTS.COUNT` reports it in a fourth number, which must be 0 on every path of a command. (On
//! servers without `TryCalloc`, the module calls `TryAlloc`, frees the block, and calls `Calloc` with the same size: this counts as one
//! allocation.)

mod moving;

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The type of the function by which a module looks up a function of the server.
type GetApi = unsafe extern "C" fn(name: *const c_char, place: *mut *mut c_void) -> c_int;
type Take = unsafe extern "C" fn(bytes: usize) -> *mut c_void;
type TakeZeroed = unsafe extern "C" fn(count: usize, bytes: usize) -> *mut c_void;
type Resize = unsafe extern "C" fn(block: *mut c_void, bytes: usize) -> *mut c_void;
type Load = unsafe extern "C" fn(context: *mut c_void, words: *mut *mut c_void, count: c_int) -> c_int;
type Handler = unsafe extern "C" fn(context: *mut c_void, words: *mut *mut c_void, count: c_int) -> c_int;
type CreateCommand = unsafe extern "C" fn(
    context: *mut c_void,
    name: *const c_char,
    handler: Handler,
    flags: *const c_char,
    first: c_int,
    last: c_int,
    step: c_int,
) -> c_int;
type TextOf = unsafe extern "C" fn(string: *const c_void, length: *mut usize) -> *const c_char;
type ReplyArray = unsafe extern "C" fn(context: *mut c_void, length: std::ffi::c_long) -> c_int;
type OpenKey = unsafe extern "C" fn(context: *mut c_void, name: *mut c_void, mode: c_int) -> *mut c_void;
type CloseKey = unsafe extern "C" fn(key: *mut c_void);
type DeleteKey = unsafe extern "C" fn(key: *mut c_void) -> c_int;
type Notify =
    unsafe extern "C" fn(context: *mut c_void, class: c_int, event: *const c_char, name: *mut c_void) -> c_int;
type Listener =
    unsafe extern "C" fn(context: *mut c_void, class: c_int, event: *const c_char, name: *mut c_void) -> c_int;
type Subscribe = unsafe extern "C" fn(context: *mut c_void, classes: c_int, listener: Listener) -> c_int;
type ReplyNumber = unsafe extern "C" fn(context: *mut c_void, number: c_longlong) -> c_int;

const OK: c_int = 0;
const ERR: c_int = 1;

/// A function of the server, 0 if the server does not have it.
struct Function {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Function {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// # Safety
    /// `F` must be the type of the function.
    unsafe fn get<F: Copy>(&self) -> Option<F> {
        let address = self.address.load(Relaxed);
        // SAFETY: the caller's promise; a function's address has the size of a number.
        (address != 0).then(|| unsafe { std::mem::transmute_copy(&address) })
    }
}

static GET_API: Function = Function::new(c"");
static ALLOC: Function = Function::new(c"RedisModule_Alloc");
static TRY_ALLOC: Function = Function::new(c"RedisModule_TryAlloc");
static CALLOC: Function = Function::new(c"RedisModule_Calloc");
static TRY_CALLOC: Function = Function::new(c"RedisModule_TryCalloc");
static REALLOC: Function = Function::new(c"RedisModule_Realloc");
static TRY_REALLOC: Function = Function::new(c"RedisModule_TryRealloc");
static CREATE_COMMAND: Function = Function::new(c"RedisModule_CreateCommand");
static TEXT_OF: Function = Function::new(c"RedisModule_StringPtrLen");
static REPLY_ARRAY: Function = Function::new(c"RedisModule_ReplyWithArray");
static OPEN_KEY: Function = Function::new(c"RedisModule_OpenKey");
static CLOSE_KEY: Function = Function::new(c"RedisModule_CloseKey");
static DELETE_KEY: Function = Function::new(c"RedisModule_DeleteKey");
static NOTIFY: Function = Function::new(c"RedisModule_NotifyKeyspaceEvent");
static SUBSCRIBE: Function = Function::new(c"RedisModule_SubscribeToKeyspaceEvents");
static REPLY_NUMBER: Function = Function::new(c"RedisModule_ReplyWithLongLong");

/// The number of the next allocation that fails, from 1 on; 0 means none.
static FIRST: AtomicU64 = AtomicU64::new(0);
/// The number of the last allocation that fails.
static LAST: AtomicU64 = AtomicU64::new(0);
/// Allocations since FAULTS.FAIL.
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// The reply to FAULTS.COUNT.
static REQUESTS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static UNREFUSABLE: AtomicU64 = AtomicU64::new(0);
/// The size of the last `TryAlloc` that succeeded.
static PROBED: AtomicUsize = AtomicUsize::new(0);

/// The number of keys that the real module has open.
static OPEN_KEYS: AtomicU64 = AtomicU64::new(0);
/// The reply to FAULTS.NOTIFIED.
static NOTIFIED: AtomicU64 = AtomicU64::new(0);
static NOTIFIED_WITH_OPEN_KEYS: AtomicU64 = AtomicU64::new(0);
/// Whether the listener deletes keys.
static DELETES: AtomicU64 = AtomicU64::new(0);
/// Whether there is a listener: only from the first FAULTS.DELETE 1 on, because Valkey 8.1 replicates MOVE under the wrong database if a
/// module listens.
static LISTENS: AtomicBool = AtomicBool::new(false);
/// Whether opening a key for writing fails.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Counts an allocation. Returns whether it must fail.
fn is_refused(bytes: usize) -> bool {
    REQUESTS.fetch_add(1, Relaxed);
    BYTES.fetch_add(bytes as u64, Relaxed);
    let number = NUMBER.fetch_add(1, Relaxed) + 1;
    (FIRST.load(Relaxed)..=LAST.load(Relaxed)).contains(&number)
}

unsafe extern "C" fn try_alloc(bytes: usize) -> *mut c_void {
    if is_refused(bytes) {
        REFUSED.fetch_add(1, Relaxed);
        return std::ptr::null_mut();
    }
    PROBED.store(bytes, Relaxed);
    // SAFETY: the server's function, of this type.
    unsafe { TRY_ALLOC.get::<Take>().map_or(std::ptr::null_mut(), |take| take(bytes)) }
}

unsafe extern "C" fn alloc(bytes: usize) -> *mut c_void {
    if is_refused(bytes) {
        UNREFUSABLE.fetch_add(1, Relaxed);
    }
    // SAFETY: the server's function, of this type.
    unsafe { ALLOC.get::<Take>().map_or(std::ptr::null_mut(), |take| take(bytes)) }
}

unsafe extern "C" fn try_calloc(count: usize, bytes: usize) -> *mut c_void {
    if is_refused(count.saturating_mul(bytes)) {
        REFUSED.fetch_add(1, Relaxed);
        return std::ptr::null_mut();
    }
    // SAFETY: the server's function, of this type.
    unsafe { TRY_CALLOC.get::<TakeZeroed>().map_or(std::ptr::null_mut(), |take| take(count, bytes)) }
}

unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    let size = count.saturating_mul(bytes);
    if PROBED.swap(0, Relaxed) != size && is_refused(size) {
        UNREFUSABLE.fetch_add(1, Relaxed);
    }
    // SAFETY: the server's function, of this type.
    unsafe { CALLOC.get::<TakeZeroed>().map_or(std::ptr::null_mut(), |take| take(count, bytes)) }
}

unsafe extern "C" fn try_realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if is_refused(bytes) {
        REFUSED.fetch_add(1, Relaxed);
        return std::ptr::null_mut();
    }
    // SAFETY: the server's function, of this type; the block is the caller's.
    unsafe { TRY_REALLOC.get::<Resize>().map_or(std::ptr::null_mut(), |resize| resize(block, bytes)) }
}

unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if is_refused(bytes) {
        UNREFUSABLE.fetch_add(1, Relaxed);
    }
    // SAFETY: the server's function, of this type; the block is the caller's.
    unsafe { REALLOC.get::<Resize>().map_or(std::ptr::null_mut(), |resize| resize(block, bytes)) }
}

unsafe extern "C" fn open_key(context: *mut c_void, name: *mut c_void, mode: c_int) -> *mut c_void {
    const WRITE: c_int = 2;
    if mode & WRITE != 0 && IS_CLOSED.load(Relaxed) {
        return std::ptr::null_mut();
    }
    // SAFETY: the server's function, of this type.
    let key =
        unsafe { OPEN_KEY.get::<OpenKey>().map_or(std::ptr::null_mut(), |open_key| open_key(context, name, mode)) };
    OPEN_KEYS.fetch_add(u64::from(!key.is_null()), Relaxed);
    key
}

unsafe extern "C" fn close_key(key: *mut c_void) {
    OPEN_KEYS.fetch_sub(u64::from(!key.is_null()), Relaxed);
    // SAFETY: the server's function, of this type; the key is the caller's.
    unsafe {
        if let Some(close_key) = CLOSE_KEY.get::<CloseKey>() {
            close_key(key);
        }
    }
}

unsafe extern "C" fn notify(context: *mut c_void, class: c_int, event: *const c_char, name: *mut c_void) -> c_int {
    NOTIFIED.fetch_add(1, Relaxed);
    NOTIFIED_WITH_OPEN_KEYS.fetch_add(u64::from(OPEN_KEYS.load(Relaxed) > 0), Relaxed);
    // SAFETY: the server's function, of this type.
    unsafe { NOTIFY.get::<Notify>().map_or(ERR, |notify| notify(context, class, event, name)) }
}

/// Deletes the key of an event if FAULTS.DELETE is on, as another module might.
unsafe extern "C" fn listen(context: *mut c_void, _class: c_int, event: *const c_char, name: *mut c_void) -> c_int {
    const READ_AND_WRITE: c_int = 3;
    // SAFETY: the server passes its context, a C string and the name of a key; the functions are its own, of these types.
    unsafe {
        if DELETES.load(Relaxed) == 0 || !CStr::from_ptr(event).to_bytes().starts_with(b"bloom.") {
            return OK;
        }
        if let (Some(open), Some(delete), Some(close)) =
            (OPEN_KEY.get::<OpenKey>(), DELETE_KEY.get::<DeleteKey>(), CLOSE_KEY.get::<CloseKey>())
        {
            let key = open(context, name, READ_AND_WRITE);
            delete(key);
            close(key);
        }
    }
    OK
}

/// Returns the function that the real module calls in place of the server's.
unsafe extern "C" fn get_api(name: *const c_char, place: *mut *mut c_void) -> c_int {
    // SAFETY: the caller, a module, passes a C string and a place for a pointer, as the server requires.
    unsafe {
        let Some(ask) = GET_API.get::<GetApi>() else { return ERR };
        let answer = ask(name, place);
        if answer != OK {
            return answer;
        }
        let own: [(&Function, *const ()); 9] = [
            (&ALLOC, alloc as *const ()),
            (&TRY_ALLOC, try_alloc as *const ()),
            (&CALLOC, calloc as *const ()),
            (&TRY_CALLOC, try_calloc as *const ()),
            (&REALLOC, realloc as *const ()),
            (&TRY_REALLOC, try_realloc as *const ()),
            (&OPEN_KEY, open_key as *const ()),
            (&CLOSE_KEY, close_key as *const ()),
            (&NOTIFY, notify as *const ()),
        ];
        let mut own = own.into_iter().chain(moving::replaced());
        if let Some((function, ours)) = own.find(|(function, _)| function.name == CStr::from_ptr(name)) {
            function.address.store((*place).addr(), Relaxed);
            *place = ours.cast_mut().cast();
        }
        OK
    }
}

/// Loads the module whose path is the first argument, or follows `PEND bytes`, with the remaining arguments.
///
/// # Safety
/// Only the server may call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(context: *mut c_void, words: *mut *mut c_void, count: c_int) -> c_int {
    // SAFETY: the server's context begins with a pointer to the function that returns all others, and `words` has `count`
    // arguments.
    unsafe {
        let first_word = context.cast::<*mut c_void>();
        let server = *first_word;
        GET_API.address.store(server.addr(), Relaxed);
        let Some(ask) = GET_API.get::<GetApi>() else { return ERR };
        for function in [
            &CREATE_COMMAND,
            &TEXT_OF,
            &REPLY_ARRAY,
            &REPLY_NUMBER,
            &DELETE_KEY,
            &SUBSCRIBE,
            &moving::MALLOC_SIZE,
            &moving::GET_TYPE,
            &moving::GET_VALUE,
            &moving::REPLACE_VALUE,
        ] {
            let mut address = std::ptr::null_mut();
            if ask(function.name.as_ptr(), &raw mut address) != OK {
                return ERR;
            }
            function.address.store(address.addr(), Relaxed);
        }
        let pend_from = if count > 2 && text_of(*words) == Some(c"PEND") { text_of(*words.add(1)) } else { None };
        let path = if pend_from.is_some() { 2 } else { 0 };
        if count <= path {
            return ERR;
        }
        let words = words.add(usize::try_from(path).unwrap_or(0));
        let Some(load) = real_module(*words, pend_from) else { return ERR };
        *first_word = get_api as *const () as *mut c_void;
        let loaded = load(context, words.add(1), count - path - 1);
        *first_word = server;
        if loaded != OK {
            return loaded;
        }
        let Some(create) = CREATE_COMMAND.get::<CreateCommand>() else { return ERR };
        let flags = c"fast".as_ptr();
        let commands: [(&CStr, Handler); 8] = [
            (c"faults.fail", fail),
            (c"faults.count", count_out),
            (c"faults.notified", notified),
            (c"faults.delete", delete),
            (c"faults.hold", moving::hold),
            (c"faults.move", moving::move_value),
            (c"faults.moved", moving::moved),
            (c"faults.closed", closed),
        ];
        commands.iter().map(|(name, handler)| create(context, name.as_ptr(), *handler, flags, 0, 0, 0)).sum()
    }
}

/// Loads the library of the real module. With `pend_from`, adds to layers of this size or more may be pending in it.
///
/// # Safety
///
/// `path` must be a string of the server.
unsafe fn real_module(path: *const c_void, pend_from: Option<&CStr>) -> Option<Load> {
    unsafe extern "C" {
        fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        fn dlerror() -> *const c_char;
    }
    const NOW: c_int = 2;
    // SAFETY: the path is a C string; the function has the type that the server calls modules by, and the number is an `AtomicU64`.
    unsafe {
        let library = dlopen(TEXT_OF.get::<TextOf>()?(path, std::ptr::null_mut()), NOW);
        if library.is_null() {
            eprintln!("the module cannot be loaded: {}", CStr::from_ptr(dlerror()).to_string_lossy());
            return None;
        }
        if let Some(bytes) = pend_from {
            let place = dlsym(library, c"bloomgate_pending_from_bytes".as_ptr()).cast::<AtomicU64>();
            place.as_ref()?.store(bytes.to_str().ok()?.parse().ok()?, Relaxed);
        }
        let load = dlsym(library, c"RedisModule_OnLoad".as_ptr());
        (!load.is_null()).then(|| std::mem::transmute::<*mut c_void, Load>(load))
    }
}

/// Returns the text of a string of the server.
///
/// # Safety
/// `string` must be a string of the server that lives as long as the text is used.
unsafe fn text_of<'a>(string: *mut c_void) -> Option<&'a CStr> {
    // SAFETY: the caller's promise; the server ends its strings with NUL.
    unsafe { TEXT_OF.get::<TextOf>().map(|text| CStr::from_ptr(text(string, std::ptr::null_mut()))) }
}

/// Replies with a number.
///
/// # Safety
/// The context must belong to a command.
unsafe fn reply_number(context: *mut c_void, number: c_longlong) -> c_int {
    // SAFETY: the caller's promise; the server's function, of this type.
    unsafe { REPLY_NUMBER.get::<ReplyNumber>().map_or(ERR, |reply| reply(context, number)) }
}

/// FAULTS.FAIL n [ON]
unsafe extern "C" fn fail(context: *mut c_void, words: *mut *mut c_void, count: c_int) -> c_int {
    // SAFETY: the server passes its context and this many arguments.
    unsafe {
        let text = |index: usize| text_of(*words.add(index))?.to_str().ok();
        let first = if count > 1 { text(1).and_then(|text| text.parse().ok()).unwrap_or(0) } else { 0 };
        let goes_on = first > 0 && count > 2;
        LAST.store(if goes_on { u64::MAX } else { first }, Relaxed);
        FIRST.store(if first > 0 { first } else { u64::MAX }, Relaxed);
        NUMBER.store(0, Relaxed);
        reply_number(context, OK.into())
    }
}

/// FAULTS.DELETE n
unsafe extern "C" fn delete(context: *mut c_void, words: *mut *mut c_void, count: c_int) -> c_int {
    const GENERIC_EVENTS: c_int = 1 << 2;
    // SAFETY: the server passes its context and this many arguments; the function is its own, of this type.
    unsafe {
        let deletes = count > 1 && text_of(*words.add(1)) == Some(c"1");
        if deletes
            && !LISTENS.swap(true, Relaxed)
            && SUBSCRIBE.get::<Subscribe>().is_none_or(|subscribe| subscribe(context, GENERIC_EVENTS, listen) != OK)
        {
            return ERR;
        }
        DELETES.store(deletes.into(), Relaxed);
        reply_number(context, OK.into())
    }
}

/// FAULTS.CLOSED n
unsafe extern "C" fn closed(context: *mut c_void, words: *mut *mut c_void, count: c_int) -> c_int {
    // SAFETY: the server passes its context and this many arguments.
    unsafe {
        IS_CLOSED.store(count > 1 && text_of(*words.add(1)) == Some(c"1"), Relaxed);
        reply_number(context, OK.into())
    }
}

/// FAULTS.COUNT
unsafe extern "C" fn count_out(context: *mut c_void, _words: *mut *mut c_void, _count: c_int) -> c_int {
    // SAFETY: the server passes its context.
    unsafe { counters_out(context, &[&REQUESTS, &BYTES, &REFUSED, &UNREFUSABLE]) }
}

/// FAULTS.NOTIFIED
unsafe extern "C" fn notified(context: *mut c_void, _words: *mut *mut c_void, _count: c_int) -> c_int {
    // SAFETY: the server passes its context.
    unsafe { counters_out(context, &[&NOTIFIED, &NOTIFIED_WITH_OPEN_KEYS]) }
}

/// Replies with counters and resets them.
///
/// # Safety
/// The context must belong to a command.
unsafe fn counters_out(context: *mut c_void, counters: &[&AtomicU64]) -> c_int {
    // SAFETY: the caller's promise; the functions are of these types.
    unsafe {
        let (Some(array), Some(number)) = (REPLY_ARRAY.get::<ReplyArray>(), REPLY_NUMBER.get::<ReplyNumber>()) else {
            return ERR;
        };
        array(context, std::ffi::c_long::try_from(counters.len()).unwrap_or(0));
        for counter in counters {
            number(context, c_longlong::try_from(counter.swap(0, Relaxed)).unwrap_or(c_longlong::MAX));
        }
    }
    OK
}
