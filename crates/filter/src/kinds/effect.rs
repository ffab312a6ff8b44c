//! The creation of a filter as a command for replicas and the AOF. It states every parameter, so the configuration of the
//! replica does not matter.

use std::fmt::Display;
use std::io::{Result, Write};

use crate::geometry::sizing::Scaling;
use crate::hash::Hasher;

/// An argument of a replicated command. It is formatted later, because that takes memory, which may be refused.
#[derive(Clone, Copy)]
pub enum ArgToken<'a> {
    /// A number.
    Number(Number),
    /// Another value to format as text.
    Text(&'a dyn Display),
    /// Raw bytes.
    Bytes(&'a [u8]),
}

impl ArgToken<'_> {
    /// Writes the word.
    pub fn write_to(self, writer: &mut impl Write) -> Result<()> {
        match self {
            Self::Number(number) => write!(writer, "{number}"),
            Self::Text(text) => write!(writer, "{text}"),
            Self::Bytes(bytes) => writer.write_all(bytes),
        }
    }
}

/// A number in a replicated command. Most equal the number in the previous command, whose text is then reused: formatting takes longer than
/// comparing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(u64),
    /// A rate. It becomes the shortest decimal that reads back the same.
    Rate(f64),
}

impl Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Rate(rate) => rate.fmt(f),
        }
    }
}

/// Returns the word for a whole number.
pub fn whole(number: impl Into<u64>) -> ArgToken<'static> {
    ArgToken::Number(Number::Whole(number.into()))
}

/// Returns the word for a rate.
pub(super) const fn rate(rate: f64) -> ArgToken<'static> {
    ArgToken::Number(Number::Rate(rate))
}

/// The maximum number of arguments after the key.
pub const WORDS_MAX: usize = 15;

pub(super) fn push_args(push: &mut impl FnMut(ArgToken<'_>), words: &[ArgToken<'_>]) {
    words.iter().for_each(|word| push(*word));
}

pub(super) fn push_scaling(scaling: Scaling, push: &mut impl FnMut(ArgToken<'_>)) {
    match scaling {
        Scaling::Fixed => push(ArgToken::Bytes(b"NONSCALING")),
        Scaling::Growing { expansion } => push_args(push, &[ArgToken::Bytes(b"EXPANSION"), whole(expansion.get())]),
    }
}

pub(super) fn push_hasher(hasher: Hasher, push: &mut impl FnMut(ArgToken<'_>)) {
    use ArgToken::{Bytes, Text};
    match hasher {
        Hasher::Murmur3 { seed } => push_args(push, &[Bytes(b"SEED"), whole(u32::from_le_bytes(seed))]),
        Hasher::SipHash { key } => {
            push_args(push, &[Bytes(b"HASH"), Bytes(b"siphash"), Bytes(b"SEED"), Text(&Hex(key))])
        }
    }
}

/// Formats bytes as hexadecimal, two digits each.
struct Hex([u8; 16]);

impl Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
