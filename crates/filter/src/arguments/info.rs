//! `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION | ERROR | TIGHTENING | MAXSCALEDCAPACITY]`

use super::{Refusal, is, word};
use crate::kinds::info::Field;

/// Returns the requested field; `None` for all fields.
pub fn parse<W: AsRef<[u8]>>(words: &[W]) -> Result<Option<Field>, Refusal> {
    match words.len() {
        2 => Ok(None),
        3 => {
            let word = word(words, 2)?;
            let field = Field::VALKEY_BLOOM.into_iter().find(|field| is(word, field.words().0));
            field.map(Some).ok_or(Refusal::InfoField)
        }
        _ => Err(Refusal::Arity),
    }
}
