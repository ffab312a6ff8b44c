//! The creation of a filter in words, for whoever follows: everything that made it, so that their settings do not matter.

use std::fmt::Display;

use crate::hash::Hasher;
use crate::scaling::Scaling;

/// A word of an effect. It is not made up as text here: that would take memory, which may be refused.
#[derive(Clone, Copy)]
pub enum EffectWord<'a> {
    /// What is shown as text. Rates are the shortest decimals that read back the same.
    Text(&'a dyn Display),
    /// Raw bytes.
    Bytes(&'a [u8]),
}

/// The most words after the key that a creation has.
pub const WORDS_MAX: usize = 15;

pub(super) fn say_all(say: &mut impl FnMut(EffectWord<'_>), words: &[EffectWord<'_>]) {
    words.iter().for_each(|word| say(*word));
}

pub(super) fn say_scaling(scaling: Scaling, say: &mut impl FnMut(EffectWord<'_>)) {
    match scaling {
        Scaling::Fixed => say(EffectWord::Text(&"NONSCALING")),
        Scaling::Growing { expansion } => say_all(say, &[EffectWord::Text(&"EXPANSION"), EffectWord::Text(&expansion)]),
    }
}

pub(super) fn say_hasher(hasher: Hasher, say: &mut impl FnMut(EffectWord<'_>)) {
    use EffectWord::Text;
    match hasher {
        Hasher::Murmur3 { seed } => say_all(say, &[Text(&"SEED"), Text(&seed)]),
        Hasher::SipHash { key } => say_all(say, &[Text(&"HASH"), Text(&"siphash"), Text(&"SEED"), Text(&Hex(key))]),
    }
}

/// Bytes as hexadecimal digits, two each.
struct Hex([u8; 16]);

impl Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
