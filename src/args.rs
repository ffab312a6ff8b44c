//! The arguments of a command, read in place: no copy, no allocation, any bytes. [`bloomgate_filter::arguments`] parses them.

use std::ffi::c_int;
use std::ptr::NonNull;

use redis_module::raw;

pub use super::api::Arg;
use super::api::{self, Context};
use super::reply::Refusal;

/// The arguments of a command, with its name first. Reading an argument borrows all of them, because [`redact`](Self::redact) replaces one.
pub struct Args<'a> {
    words: NonNull<Arg<'a>>,
    length: usize,
}

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` must point to `argc` strings that live as long as `'a`, or be null. During that time, only [`redact`](Self::redact)
    /// may make the server replace one.
    pub(super) unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Self {
        // A module that is loaded without arguments gets a null pointer.
        match (NonNull::new(argv), usize::try_from(argc)) {
            (Some(words), Ok(length)) => Self { words: words.cast(), length },
            _ => Self { words: NonNull::dangling(), length: 0 },
        }
    }

    /// The number of arguments, including the command's name.
    pub const fn count(&self) -> usize {
        self.length
    }

    /// All arguments.
    #[inline]
    pub const fn words(&self) -> &[Arg<'_>] {
        // SAFETY: the caller of `new` promised this many strings. `Arg` is a transparent wrapper of the pointer. No string is replaced
        // during this borrow.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.length) }
    }

    /// Argument `index`; the command's name is argument 0.
    pub fn arg(&self, index: usize) -> Result<Arg<'_>, Refusal> {
        self.words().get(index).copied().ok_or(Refusal::Arity)
    }

    /// The arguments from `index` on, at least one.
    pub fn rest(&self, index: usize) -> Result<&[Arg<'_>], Refusal> {
        self.words().get(index..).filter(|words| !words.is_empty()).ok_or(Refusal::Arity)
    }

    /// The last `count` arguments.
    pub fn last(&self, count: usize) -> &[Arg<'_>] {
        self.words().get(self.length.saturating_sub(count)..).unwrap_or_default()
    }

    /// Keeps an argument out of SLOWLOG and MONITOR. Valkey 8.1 replaces it with another string and frees it.
    pub fn redact(&mut self, context: Context, index: usize) {
        if let Ok(index) = c_int::try_from(index) {
            api::redact(context, index);
        }
    }
}
