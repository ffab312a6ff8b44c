//! Replies to clients: values and errors. The text of each error is in `crates/filter/src/arguments/refusal.rs`.

use std::ffi::{CStr, c_long};

use redis_module::raw;

use super::api;
use super::context::{Context, Text};
pub use bloomgate_filter::arguments::Refusal;

/// Replies with an error.
pub fn error(context: Context, refusal: Refusal) {
    if refusal == Refusal::Arity {
        api::wrong_arity(context);
    } else {
        api::reply_error(context, Text::of(refusal).as_c_str());
    }
}

/// Replies with `+OK`.
pub fn ok(context: Context) {
    simple_string(context, c"OK");
}

/// Replies with a simple string.
pub fn simple_string(context: Context, text: &CStr) {
    api::reply_simple_string(context, text);
}

/// Replies with 1 or 0 in RESP2, with a boolean in RESP3.
#[inline]
pub fn boolean(context: Context, value: bool) {
    api::reply_boolean(context, value);
}

/// Replies with an integer. The protocol's integers are signed 64-bit numbers; a larger number is replaced by the largest of them.
pub fn integer(context: Context, number: u64) {
    api::reply_integer(context, i64::try_from(number).unwrap_or(i64::MAX));
}

/// Replies with -1, for an item that a full cuckoo filter refused.
pub fn minus_one(context: Context) {
    api::reply_integer(context, -1);
}

/// Replies with a fraction. RESP2 has strings of 17 digits, as the server formats them.
pub fn fraction(context: Context, number: f64) {
    api::reply_double(context, number);
}

/// Replies with any bytes.
pub fn bytes(context: Context, bytes: &[u8]) {
    api::reply_bytes(context, bytes);
}

/// Replies with null.
pub fn null(context: Context) {
    api::reply_null(context);
}

/// Begins an array of this many elements. Each element is a reply.
pub fn array(context: Context, length: usize) {
    api::reply_array(context, c_length(length));
}

/// Begins a map of this many pairs; a flat array in RESP2.
pub fn map(context: Context, pairs: usize) {
    api::reply_map(context, c_length(pairs));
}

/// Begins an array whose length [`end_array`] sets.
pub fn open_array(context: Context) {
    api::reply_array(context, raw::REDISMODULE_POSTPONED_LEN.into());
}

/// Sets the length of the array that [`open_array`] began.
pub fn end_array(context: Context, length: usize) {
    api::set_array_length(context, c_length(length));
}

fn c_length(length: usize) -> c_long {
    c_long::try_from(length).unwrap_or(c_long::MAX)
}
