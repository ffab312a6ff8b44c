//! Parsers of all commands except the guard's: from the words of a command to a request, or to a refusal, which names the first error. They
//! are pure functions of byte strings: the server passes its strings in place, a test or fuzzer passes any list of bytes. No parser checks
//! whether there is memory for a filter.
//!
//! Word 0 is the command's name. Items are returned unread.

pub mod cuckoo;
pub mod info;
pub mod insert;
pub mod iterators;
pub mod load_time;
pub mod numbers;
pub mod options;
pub mod plan;
mod refusal;
pub mod reserve;
pub mod rotate;

pub use options::{Command, Creation, key_position};
pub use refusal::Refusal;

/// Returns whether a word is this name, in any case.
pub const fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Returns word `index`; the command's name is word 0.
pub fn word<W: AsRef<[u8]>>(words: &[W], index: usize) -> Result<&[u8], Refusal> {
    words.get(index).map(AsRef::as_ref).ok_or(Refusal::Arity)
}
