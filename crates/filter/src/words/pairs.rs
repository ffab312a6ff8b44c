//! `ITEMS item cachekey [item cachekey ...]`, the last words of BF.MCHANGED and BF.MFETCH.

use super::{Refusal, is, word};

/// The index of ITEMS in BF.MCHANGED, which has no options.
const CHANGED_ITEMS: usize = 2;

/// Parses the words of BF.MCHANGED. Returns the index of the first item.
///
/// # Errors
/// [`Refusal::Arity`] without a pair or with half of one, [`Refusal::Syntax`] for another word.
pub fn parse<W: AsRef<[u8]>>(words: &[W]) -> Result<usize, Refusal> {
    first_item(words, CHANGED_ITEMS)
}

/// Checks that ITEMS is at `index`, and that only pairs follow. Returns the index of the first item.
pub(super) fn first_item<W: AsRef<[u8]>>(words: &[W], index: usize) -> Result<usize, Refusal> {
    if !is(word(words, index)?, "ITEMS") {
        return Err(Refusal::Syntax);
    }
    match words.len() - index - 1 {
        0 => Err(Refusal::Arity),
        odd if odd % 2 == 1 => Err(Refusal::Arity),
        _ => Ok(index + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_and_cache_keys_come_in_pairs() {
        let changed = |rest: &str| {
            let words: Vec<&str> = ["BF.MCHANGED", "f"].into_iter().chain(rest.split_whitespace()).collect();
            parse(&words)
        };
        assert_eq!(changed("items 1 a"), Ok(3));
        assert_eq!(changed("ITEMS ITEMS ITEMS 2 b"), Ok(3));
        for words in ["", "ITEMS", "ITEMS 1", "ITEMS 1 a 2"] {
            assert_eq!(changed(words), Err(Refusal::Arity), "{words}");
        }
        assert_eq!(changed("1 a 2 b"), Err(Refusal::Syntax));
    }
}
