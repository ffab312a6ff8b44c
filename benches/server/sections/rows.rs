//! Cached rows and their filter, for the sections `guard` and `stampede`.

use testing::Reply;

/// The key of the filter. The cached row of an item is at `{rows}:item`.
pub const FILTER: &str = "rows";
/// The length of a cached value in bytes.
pub const VALUE_BYTES: usize = 100;

/// Returns the cache key of an item's row.
pub fn cached(item: u64) -> String {
    format!("{{{FILTER}}}:{item}")
}

/// Returns the cached value.
pub fn value() -> String {
    "v".repeat(VALUE_BYTES)
}

/// Returns a reply as text, or the first element of an array.
pub fn first_word(reply: &Reply) -> String {
    match reply {
        Reply::Array(elements) => elements.first().map(first_word).unwrap_or_default(),
        Reply::Integer(number) => number.to_string(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Simple(text) | Reply::Error(text) => text.clone(),
        _ => String::new(),
    }
}
