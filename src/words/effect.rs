//! The creation of a filter in words, for whoever follows: everything that made it, so that their settings do not matter.

use std::ffi::CStr;
use std::fmt::Display;

use super::{Creation, Kind};
use crate::bloom::Scaling;

/// A word of an effect. It is not made up as text here: that would take memory, which may be refused.
#[derive(Clone, Copy)]
pub enum Word<'a> {
    /// What is shown as text. Rates are the shortest decimals that read back the same.
    Text(&'a dyn Display),
    /// Raw bytes.
    Bytes(&'a [u8]),
}

/// The most words behind the key that [`creation`] says.
pub const WORDS_MAX: usize = 10;

/// Answers with the command that makes this filter anew, and says its words behind the key; of RedisBloom's layout in words
/// that RedisBloom knows. Items may follow behind ITEMS, but not for BF.RESERVE.
pub fn creation(creation: &Creation, mut say: impl FnMut(Word<'_>)) -> &'static CStr {
    use Word::{Bytes, Text};
    let Creation { rate, capacity, scaling, kind, .. } = *creation;
    match kind {
        Kind::RedisBloom => {
            [Text(&rate), Text(&capacity)].into_iter().for_each(&mut say);
            say_scaling(scaling, &mut say);
            return c"BF.RESERVE";
        }
        Kind::Native { seed } => {
            [Text(&"CAPACITY"), Text(&capacity), Text(&"ERROR"), Text(&rate)].into_iter().for_each(&mut say);
            say_scaling(scaling, &mut say);
            if let Some(seed) = seed {
                [Text(&"SEED"), Text(&seed)].into_iter().for_each(&mut say);
            }
        }
        Kind::ValkeyBloom { tightening, seed } => {
            [Text(&"CAPACITY"), Text(&capacity), Text(&"ERROR"), Text(&rate)].into_iter().for_each(&mut say);
            [Text(&"TIGHTENING"), Text(&tightening)].into_iter().for_each(&mut say);
            if let Some(seed) = seed {
                [Text(&"SEED"), Bytes(&seed)].into_iter().for_each(&mut say);
            }
            say_scaling(scaling, &mut say);
        }
    }
    c"BF.INSERT"
}

fn say_scaling(scaling: Scaling, say: &mut impl FnMut(Word<'_>)) {
    match scaling {
        Scaling::Fixed => say(Word::Text(&"NONSCALING")),
        Scaling::Growing { expansion } => {
            say(Word::Text(&"EXPANSION"));
            say(Word::Text(&expansion));
        }
    }
}
