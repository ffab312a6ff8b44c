//! Holds the timers of the real module, overwrites blocks before they are freed, so that a later access fails instead of finding the
//! old content, and moves values.
//!
//! FAULTS.MOVE replaces the defragmenter, which not every server has. It moves every block that the module offers, and makes
//! the callback stop after each step.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_longlong, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{ALLOC, CLOSE_KEY, CloseKey, ERR, Function, OK, OPEN_KEY, OpenKey, Take, reply_number, text_of};

pub type MallocSize = unsafe extern "C" fn(block: *mut c_void) -> usize;
type Free = unsafe extern "C" fn(block: *mut c_void);
type Timer = unsafe extern "C" fn(context: *mut c_void, data: *mut c_void);
type CreateTimer =
    unsafe extern "C" fn(context: *mut c_void, period: c_longlong, callback: Timer, data: *mut c_void) -> u64;
type CreateDataType = unsafe extern "C" fn(
    context: *mut c_void,
    name: *const c_char,
    encoding: c_int,
    methods: *mut *mut c_void,
) -> *mut c_void;
type DefragValue = unsafe extern "C" fn(context: *mut c_void, name: *mut c_void, value: *mut *mut c_void) -> c_int;
type DefragAlloc = unsafe extern "C" fn(context: *mut c_void, block: *mut c_void) -> *mut c_void;
type DefragShouldStop = unsafe extern "C" fn(context: *mut c_void) -> c_int;
type DefragCursorGet = unsafe extern "C" fn(context: *mut c_void, cursor: *mut c_ulong) -> c_int;
type DefragCursorSet = unsafe extern "C" fn(context: *mut c_void, cursor: c_ulong) -> c_int;
type GetType = unsafe extern "C" fn(key: *mut c_void) -> *mut c_void;
type GetValue = unsafe extern "C" fn(key: *mut c_void) -> *mut c_void;
type ReplaceValue = unsafe extern "C" fn(
    key: *mut c_void,
    module_type: *mut c_void,
    value: *mut c_void,
    old: *mut *mut c_void,
) -> c_int;

pub static MALLOC_SIZE: Function = Function::new(c"RedisModule_MallocSize");
pub static GET_TYPE: Function = Function::new(c"RedisModule_ModuleTypeGetType");
pub static GET_VALUE: Function = Function::new(c"RedisModule_ModuleTypeGetValue");
pub static REPLACE_VALUE: Function = Function::new(c"RedisModule_ModuleTypeReplaceValue");
static FREE: Function = Function::new(c"RedisModule_Free");
static CREATE_TIMER: Function = Function::new(c"RedisModule_CreateTimer");
static CREATE_DATA_TYPE: Function = Function::new(c"RedisModule_CreateDataType");
static DEFRAG_ALLOC: Function = Function::new(c"RedisModule_DefragAlloc");
static DEFRAG_SHOULD_STOP: Function = Function::new(c"RedisModule_DefragShouldStop");
static DEFRAG_CURSOR_GET: Function = Function::new(c"RedisModule_DefragCursorGet");
static DEFRAG_CURSOR_SET: Function = Function::new(c"RedisModule_DefragCursorSet");

/// The functions that the real module gets in place of the server's.
pub fn replaced() -> [(&'static Function, *const ()); 7] {
    [
        (&FREE, free as *const ()),
        (&CREATE_TIMER, create_timer as *const ()),
        (&CREATE_DATA_TYPE, create_data_type as *const ()),
        (&DEFRAG_ALLOC, defrag_alloc as *const ()),
        (&DEFRAG_SHOULD_STOP, defrag_should_stop as *const ()),
        (&DEFRAG_CURSOR_GET, defrag_cursor_get as *const ()),
        (&DEFRAG_CURSOR_SET, defrag_cursor_set as *const ()),
    ]
}

/// The callback of the real module, the same for all of its types.
static DEFRAG_VALUE: Function = Function::new(c"");

/// The pattern with which the beginning of a freed block is overwritten, and its length.
const POISON: u8 = 0xA5;
const POISONED_BYTES: usize = 4096;

unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the block is the caller's, who frees it; the functions are the server's, of these types.
    unsafe {
        if let Some(size) = MALLOC_SIZE.get::<MallocSize>()
            && !block.is_null()
        {
            block.cast::<u8>().write_bytes(POISON, size(block).min(POISONED_BYTES));
        }
        if let Some(free) = FREE.get::<Free>() {
            free(block);
        }
    }
}

/// Timers that have not started because of FAULTS.HOLD.
struct Held {
    is_holding: bool,
    timers: Vec<(c_longlong, Timer, usize)>,
}

static HELD: Mutex<Held> = Mutex::new(Held { is_holding: false, timers: Vec::new() });

unsafe extern "C" fn create_timer(context: *mut c_void, period: c_longlong, callback: Timer, data: *mut c_void) -> u64 {
    let mut held = lock(&HELD);
    if held.is_holding {
        held.timers.push((period, callback, data.expose_provenance()));
        return 0;
    }
    // SAFETY: the server's function, of this type, with the caller's arguments.
    unsafe { CREATE_TIMER.get::<CreateTimer>().map_or(0, |create| create(context, period, callback, data)) }
}

/// FAULTS.HOLD n
pub unsafe extern "C" fn hold(context: *mut c_void, words: *mut *mut c_void, count: c_int) -> c_int {
    // SAFETY: the server passes its context and `count` words.
    unsafe {
        let mut held = lock(&HELD);
        held.is_holding = count > 1 && text_of(*words.add(1)) == Some(c"1");
        let started = if held.is_holding { Vec::new() } else { std::mem::take(&mut held.timers) };
        drop(held);
        let count = started.len();
        for (period, callback, data) in started {
            create_timer(context, period, callback, std::ptr::with_exposed_provenance_mut(data));
        }
        reply_number(context, c_longlong::try_from(count).unwrap_or(c_longlong::MAX))
    }
}

/// The reply to FAULTS.MOVED.
static MOVED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The cursor, while FAULTS.MOVE calls the callback. Its context is null, which the server's functions do not accept.
    static OWN_CURSOR: Cell<Option<c_ulong>> = const { Cell::new(None) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn create_data_type(
    context: *mut c_void,
    name: *const c_char,
    encoding: c_int,
    methods: *mut *mut c_void,
) -> *mut c_void {
    // An offset in RedisModuleTypeMethods, in words.
    const DEFRAG_PLACE: usize = 13;
    // SAFETY: the caller passes its methods, which the server copies; the function is the server's, of this type.
    unsafe {
        let method = methods.add(DEFRAG_PLACE);
        DEFRAG_VALUE.address.store((*method).addr(), Relaxed);
        *method = (defrag_value as *const ()).cast_mut().cast();
        CREATE_DATA_TYPE.get::<CreateDataType>().map_or(null_mut(), |create| create(context, name, encoding, methods))
    }
}

unsafe extern "C" fn defrag_value(context: *mut c_void, name: *mut c_void, value: *mut *mut c_void) -> c_int {
    // SAFETY: the caller, the server or FAULTS.MOVE, passes the place of a value. The callback is the real module's, of this type.
    unsafe {
        let block = *value;
        let done = DEFRAG_VALUE.get::<DefragValue>().map_or(OK, |defrag| defrag(context, name, value));
        MOVED.fetch_add(u64::from(*value != block), Relaxed);
        done
    }
}

unsafe extern "C" fn defrag_alloc(context: *mut c_void, block: *mut c_void) -> *mut c_void {
    // SAFETY: the block is one of the server's allocator that the caller gives up if it moves; the functions are the server's,
    // of these types.
    unsafe {
        if OWN_CURSOR.get().is_none() {
            return DEFRAG_ALLOC.get::<DefragAlloc>().map_or(null_mut(), |alloc| alloc(context, block));
        }
        let (Some(alloc), Some(size)) = (ALLOC.get::<Take>(), MALLOC_SIZE.get::<MallocSize>()) else {
            return null_mut();
        };
        let bytes = size(block);
        let moved = alloc(bytes);
        moved.cast::<u8>().copy_from_nonoverlapping(block.cast(), bytes);
        free(block);
        moved
    }
}

unsafe extern "C" fn defrag_should_stop(context: *mut c_void) -> c_int {
    let stop = DEFRAG_SHOULD_STOP.of_server::<DefragShouldStop>();
    // SAFETY: the server's function, of this type, and the server's context.
    unsafe { stop.map_or(1, |stop| stop(context)) }
}

unsafe extern "C" fn defrag_cursor_get(context: *mut c_void, cursor: *mut c_ulong) -> c_int {
    let get = DEFRAG_CURSOR_GET.of_server::<DefragCursorGet>();
    // SAFETY: the server's function, of this type, and the server's context; the caller passes a place for a cursor.
    unsafe {
        if let Some(own) = OWN_CURSOR.get() {
            *cursor = own;
            return OK;
        }
        get.map_or(ERR, |get| get(context, cursor))
    }
}

unsafe extern "C" fn defrag_cursor_set(context: *mut c_void, cursor: c_ulong) -> c_int {
    let set = DEFRAG_CURSOR_SET.of_server::<DefragCursorSet>();
    if OWN_CURSOR.get().is_some() {
        OWN_CURSOR.set(Some(cursor));
        return OK;
    }
    // SAFETY: the server's function, of this type, and the server's context.
    unsafe { set.map_or(ERR, |set| set(context, cursor)) }
}

impl Function {
    /// The server's function; `None` while FAULTS.MOVE calls the callback.
    fn of_server<F: Copy>(&self) -> Option<F> {
        // SAFETY: each caller names the type of the function.
        if OWN_CURSOR.get().is_some() { None } else { unsafe { self.get() } }
    }
}

/// FAULTS.MOVED
pub unsafe extern "C" fn moved(context: *mut c_void, _words: *mut *mut c_void, _count: c_int) -> c_int {
    // SAFETY: the server passes its context.
    unsafe { reply_number(context, MOVED.load(Relaxed).try_into().unwrap_or(c_longlong::MAX)) }
}

/// FAULTS.MOVE gives up after this many calls of the callback.
const MOVE_CALLS_MAX: c_longlong = 10_000;

/// FAULTS.MOVE key
pub unsafe extern "C" fn move_value(context: *mut c_void, words: *mut *mut c_void, count: c_int) -> c_int {
    const READ_AND_WRITE: c_int = 3;
    // SAFETY: the server passes its context and `count` words; the functions are its own, of these types. The key is open for
    // writing while its value is replaced by itself in another place.
    unsafe {
        let (Some(open), Some(close), Some(get_type), Some(get_value), Some(replace)) = (
            OPEN_KEY.get::<OpenKey>(),
            CLOSE_KEY.get::<CloseKey>(),
            GET_TYPE.get::<GetType>(),
            GET_VALUE.get::<GetValue>(),
            REPLACE_VALUE.get::<ReplaceValue>(),
        ) else {
            return ERR;
        };
        if count < 2 {
            return ERR;
        }
        let name = *words.add(1);
        let key = open(context, name, READ_AND_WRITE);
        let (module_type, mut value, mut old) = (get_type(key), get_value(key), null_mut());
        OWN_CURSOR.set(Some(0));
        let mut calls = 1;
        while calls < MOVE_CALLS_MAX && defrag_value(null_mut(), name, &raw mut value) != OK {
            calls += 1;
        }
        OWN_CURSOR.set(None);
        replace(key, module_type, value, &raw mut old);
        close(key);
        reply_number(context, if old == value { 0 } else { calls })
    }
}
