//! Cached rows and their filter, which the sections `guard` and `stampede` fetch.

use crate::harness::Reply;

/// The key of the filter. The cached row of an item is at `{rows}:item`.
pub const FILTER: &str = "rows";
/// Bytes of a cached value.
pub const VALUE_BYTES: usize = 100;

/// The key of an item's row in the cache.
pub fn cached(item: u64) -> String {
    format!("{{{FILTER}}}:{item}")
}

/// What is in the cache.
pub fn value() -> String {
    "v".repeat(VALUE_BYTES)
}

/// A reply as a word, or the first element of one.
pub fn first_word(reply: &Reply) -> String {
    match reply {
        Reply::Array(elements) => elements.first().map(first_word).unwrap_or_default(),
        Reply::Integer(number) => number.to_string(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Simple(text) | Reply::Error(text) => text.clone(),
        _ => String::new(),
    }
}
