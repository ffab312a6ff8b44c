//! The words of a command, read in place: no copy, no allocation, any bytes. What they mean is in [`bloomgate_filter::words`].

use std::marker::PhantomData;

use redis_module::{RedisString, raw};

use super::reply::Refusal;

/// One word of a command.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Arg<'a> {
    pub(super) raw: *mut raw::RedisModuleString,
    command: PhantomData<&'a ()>,
}

impl<'a> Arg<'a> {
    /// # Safety
    /// The string must live as long as `'a`.
    pub(super) unsafe fn of(raw: &'a *mut raw::RedisModuleString) -> Self {
        Self { raw: *raw, command: PhantomData }
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        RedisString::string_as_slice(self.raw)
    }
}

impl AsRef<[u8]> for Arg<'_> {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// The words of a command, its name first.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a [Arg<'a>]);

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` must point to `argc` strings that live as long as `'a`, or be null.
    pub(super) unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: std::ffi::c_int) -> Self {
        let length = usize::try_from(argc).unwrap_or(0);
        // A module that is loaded without words gets no array.
        if argv.is_null() || length == 0 {
            return Self(&[]);
        }
        // SAFETY: the caller's promise; `Arg` is a transparent wrapper of the pointer.
        Self(unsafe { std::slice::from_raw_parts(argv.cast::<Arg<'a>>(), length) })
    }

    /// The number of words, the command's name included.
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// All of them.
    pub const fn words(self) -> &'a [Arg<'a>] {
        self.0
    }

    /// Word `index`; the command's name is word 0.
    pub fn arg(self, index: usize) -> Result<Arg<'a>, Refusal> {
        self.0.get(index).copied().ok_or(Refusal::Arity)
    }

    /// The words from `index` on, at least one.
    pub fn rest(self, index: usize) -> Result<&'a [Arg<'a>], Refusal> {
        self.0.get(index..).filter(|words| !words.is_empty()).ok_or(Refusal::Arity)
    }
}
