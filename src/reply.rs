//! Replies to clients: values and errors.

use std::ffi::{CStr, c_long};
use std::fmt::Display;

use redis_module::raw;

use super::context::{Context, Text};
pub use bloomgate_filter::words::Refusal;

/// Replies with an error.
pub fn error(context: Context, refusal: Refusal) {
    // SAFETY: the context is valid; the text is a C string, which the server copies.
    unsafe {
        if refusal == Refusal::Arity {
            if let Some(wrong_arity) = raw::RedisModule_WrongArity {
                wrong_arity(context.raw);
            }
        } else if let Some(reply) = raw::RedisModule_ReplyWithError {
            reply(context.raw, Text::of(refusal).as_ptr());
        }
    }
}

/// Replies with `+OK`.
pub fn ok(context: Context) {
    simple_string(context, c"OK");
}

/// Replies with a simple string.
pub fn simple_string(context: Context, text: &CStr) {
    raw::reply_with_simple_string(context.raw, text.as_ptr());
}

/// Replies with 1 or 0 in RESP2, with a boolean in RESP3.
#[inline]
pub fn boolean(context: Context, value: bool) {
    // SAFETY: the context is valid.
    unsafe {
        if let Some(reply) = raw::RedisModule_ReplyWithBool {
            reply(context.raw, value.into());
        }
    }
}

/// Replies with an integer. The protocol's integers are signed 64-bit numbers; a larger number is replaced by the largest of them.
pub fn integer(context: Context, number: u64) {
    raw::reply_with_long_long(context.raw, i64::try_from(number).unwrap_or(i64::MAX));
}

/// Replies with a fraction. RESP2 has strings of 17 digits, as the server formats them.
pub fn fraction(context: Context, number: f64) {
    raw::reply_with_double(context.raw, number);
}

/// Replies with any bytes.
pub fn bytes(context: Context, bytes: &[u8]) {
    raw::reply_with_string_buffer(context.raw, bytes.as_ptr().cast(), bytes.len());
}

/// Replies with a text.
pub fn text(context: Context, text: impl Display) {
    bytes(context, Text::of(text).bytes());
}

/// Replies with null.
pub fn null(context: Context) {
    raw::reply_with_null(context.raw);
}

/// Begins an array of this many elements. Each element is a reply.
pub fn array(context: Context, length: usize) {
    raw::reply_with_array(context.raw, c_length(length));
}

/// Begins a map of this many pairs; a flat array in RESP2.
pub fn map(context: Context, pairs: usize) {
    raw::reply_with_map(context.raw, c_length(pairs));
}

/// Begins an array whose length [`end_array`] sets.
pub fn open_array(context: Context) {
    raw::reply_with_array(context.raw, raw::REDISMODULE_POSTPONED_LEN.into());
}

/// Sets the length of the array that [`open_array`] began.
pub fn end_array(context: Context, length: usize) {
    // SAFETY: the context is valid and an array is open.
    unsafe {
        if let Some(set_length) = raw::RedisModule_ReplySetArrayLength {
            set_length(context.raw, c_length(length));
        }
    }
}

fn c_length(length: usize) -> c_long {
    c_long::try_from(length).unwrap_or(c_long::MAX)
}
