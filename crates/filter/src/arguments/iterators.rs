//! The arguments of `BF.SCANDUMP key iterator` and `BF.LOADCHUNK key iterator data`.

use super::{Refusal, numbers, word};

/// Returns the iterator of BF.SCANDUMP. It may be negative: no record follows it.
pub fn scandump<W: AsRef<[u8]>>(words: &[W]) -> Result<i64, Refusal> {
    numbers::integer(word(words, 2)?).ok_or(Refusal::BadDumpIterator)
}

/// Returns the iterator and the data of BF.LOADCHUNK.
pub fn loadchunk<W: AsRef<[u8]>>(words: &[W]) -> Result<(u64, &[u8]), Refusal> {
    let iterator = numbers::integer(word(words, 2)?).ok_or(Refusal::BadLoadIterator)?;
    let iterator = u64::try_from(iterator).map_err(|_| Refusal::BadData)?;
    Ok((iterator, word(words, 3)?))
}
