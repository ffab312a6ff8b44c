//! `BF.ROTATE key [slot begin end capacity]`
//!
//! The numbers state the bucket that a primary began. Primaries, the AOF and clients that replay an AOF send them.

use super::{Refusal, numbers, word};
use crate::host::Moment;
use crate::kinds::BucketStart;

/// Returns the bucket that the command states, or `None` if it states none.
pub fn parse<W: AsRef<[u8]>>(words: &[W]) -> Result<Option<BucketStart>, Refusal> {
    match words.len() {
        2 => Ok(None),
        6 => {
            let number = |index| numbers::unsigned(word(words, index)?).ok_or(Refusal::BadData);
            let (slot, begin, end, capacity) = (number(2)?, Moment(number(3)?), Moment(number(4)?), number(5)?);
            if begin > end || capacity == 0 {
                Err(Refusal::BadData)
            } else {
                Ok(Some(BucketStart { slot, begin, end, capacity }))
            }
        }
        _ => Err(Refusal::Arity),
    }
}
