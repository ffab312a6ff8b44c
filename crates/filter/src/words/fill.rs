//! `BF.FILL filter item cachekey token VALUE value [EX seconds | PX milliseconds]`, `... token NONE (EX seconds | PX
//! milliseconds)`, `... token GIVEUP [BACKOFF milliseconds]`

use super::options::{EXPIRES_MAX, time_to_live};
use super::{Refusal, is, numbers, word};

/// The number of digits of a token.
const TOKEN_DIGITS: usize = 32;

/// The result of the holder of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The index of the value among the words, and its time to live in milliseconds, if it expires.
    Value(usize, Option<u64>),
    /// The item has no row. This is remembered for this number of milliseconds.
    None(u64),
    /// The holder could not load the value. Another client may, after this number of milliseconds.
    GiveUp(u64),
}

/// Parses the words. The token is none if the word is not a token.
///
/// # Errors
/// [`Refusal::Arity`], [`Refusal::Syntax`], [`Refusal::No`] and [`Refusal::ExpireTime`] for a time to live.
pub fn parse<W: AsRef<[u8]>>(words: &[W]) -> Result<(Option<u128>, Fill), Refusal> {
    let token = token(word(words, 4)?);
    let what = word(words, 5)?;
    let fill = if is(what, "VALUE") {
        word(words, 6)?;
        Fill::Value(6, expires(words, 7)?)
    } else if is(what, "NONE") {
        Fill::None(expires(words, 6)?.ok_or(Refusal::No("expire time"))?)
    } else if is(what, "GIVEUP") {
        Fill::GiveUp(back_off(words, 6)?)
    } else {
        return Err(Refusal::Syntax);
    };
    Ok((token, fill))
}

/// Parses a token of 32 hexadecimal digits.
fn token(word: &[u8]) -> Option<u128> {
    let digits = std::str::from_utf8(word).ok()?;
    let is_token = digits.len() == TOKEN_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if is_token { u128::from_str_radix(digits, 16).ok() } else { None }
}

/// Parses the time of a back-off, the words from `index` to the last, and returns it in milliseconds; 0 if there are none.
fn back_off<W: AsRef<[u8]>>(words: &[W], index: usize) -> Result<u64, Refusal> {
    let Ok(option) = word(words, index) else { return Ok(0) };
    if !is(option, "BACKOFF") || words.len() > index + 2 {
        return Err(Refusal::Syntax);
    }
    let time = word(words, index + 1).map_err(|_| Refusal::No("backoff"))?;
    numbers::unsigned(time).filter(|time| *time <= EXPIRES_MAX).ok_or(Refusal::Bad("backoff"))
}

/// Parses the time to live, the words from `index` to the last, and returns it in milliseconds.
fn expires<W: AsRef<[u8]>>(words: &[W], index: usize) -> Result<Option<u64>, Refusal> {
    let Ok(option) = word(words, index) else { return Ok(None) };
    let unit = match () {
        () if is(option, "EX") => 1000,
        () if is(option, "PX") => 1,
        () => return Err(Refusal::Syntax),
    };
    let time = word(words, index + 1).map_err(|_| Refusal::No("expire time"))?;
    if words.len() > index + 2 {
        return Err(Refusal::Syntax);
    }
    time_to_live(time, unit).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(rest: &str) -> Result<(Option<u128>, Fill), Refusal> {
        let words: Vec<&str> = ["BF.FILL", "f", "item", "c"].into_iter().chain(rest.split_whitespace()).collect();
        parse(&words)
    }

    #[test]
    fn the_three_forms_are_parsed() {
        let token = Some(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(fill("0123456789ABCDEF0123456789abcdef value V"), Ok((token, Fill::Value(6, None))));
        assert_eq!(fill("0123456789abcdef0123456789abcdef VALUE V ex 2"), Ok((token, Fill::Value(6, Some(2000)))));
        assert_eq!(fill("0123456789abcdef0123456789abcdef NONE PX 7"), Ok((token, Fill::None(7))));
        assert_eq!(fill("0123456789abcdef0123456789abcdef GiveUp"), Ok((token, Fill::GiveUp(0))));
        assert_eq!(fill("0123456789abcdef0123456789abcdef GIVEUP backoff 7"), Ok((token, Fill::GiveUp(7))));
    }

    #[test]
    fn a_word_that_is_not_a_token_gives_none() {
        let digits = "0123456789abcdef0123456789abcdef";
        for word in [
            &digits[1..],
            "0123456789abcdef",
            &format!("{digits}0"),
            &format!("+{}", &digits[1..]),
            &format!("{}g", &digits[1..]),
        ] {
            assert_eq!(fill(&format!("{word} GIVEUP")), Ok((None, Fill::GiveUp(0))), "{word}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        assert_eq!(fill("0 VALUE"), Err(Refusal::Arity));
        assert_eq!(fill("0 NONE"), Err(Refusal::No("expire time")));
        assert_eq!(fill("0 NONE EX"), Err(Refusal::No("expire time")));
        assert_eq!(fill("0 NONE EX 0"), Err(Refusal::ExpireTime));
        assert_eq!(fill("0 GIVEUP BACKOFF"), Err(Refusal::No("backoff")));
        assert_eq!(fill("0 GIVEUP BACKOFF -1"), Err(Refusal::Bad("backoff")));
        for words in
            ["0 GIVEUP BACKOFF 1 BACKOFF 1", "0 GIVEUP EX 1", "0 VALUE v KEEPTTL", "0 VALUE v EX 1 PX 1", "0 NOTHING"]
        {
            assert_eq!(fill(words), Err(Refusal::Syntax), "{words}");
        }
    }
}
