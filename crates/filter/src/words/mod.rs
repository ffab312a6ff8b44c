//! What may be said to the module: the words of a command as what they ask for, or why they are refused. Pure functions of
//! byte strings: the server hands in its strings where they lie, a test or a fuzzer any list of bytes.
//!
//! A command's words begin with its name and its key. Items are passed on and never looked at.

mod creation;
pub mod fetch;
pub mod fill;
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

pub use creation::{Creation, key_position};
pub use options::Command;
pub use refusal::Refusal;

/// Whether a word is this name, in any case.
#[must_use]
pub const fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Word `index`; the command's name is word 0.
///
/// # Errors
/// [`Refusal::Arity`] where there is none.
pub fn word<W: AsRef<[u8]>>(words: &[W], index: usize) -> Result<&[u8], Refusal> {
    words.get(index).map(AsRef::as_ref).ok_or(Refusal::Arity)
}
