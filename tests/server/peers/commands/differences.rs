//! What our module answers otherwise than RedisBloom, by intention, each with its reason. An exchange that differs has to be
//! one of these; each of these has to occur in a long run, or it is none any more.

use super::twins::Exchange;
use testing::Reply;

/// The reply of a filter of which not all records have come.
pub const LOADING: &str = "ERR filter is still being loaded";

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A difference.
pub struct Difference {
    /// What differs, and why.
    pub what: &'static str,
    /// From which releases, by their first numbers.
    pub releases: fn(u32) -> bool,
    /// Whether an exchange that differs is this difference.
    pub is: fn(&Exchange) -> bool,
}

const ALL: fn(u32) -> bool = |_| true;
const BEFORE_8: fn(u32) -> bool = |major| major < 8;

/// The first that fits counts.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        what: "BF.RESERVE: an unknown word is an error, not passed over: a typing error should not pass",
        releases: ALL,
        is: |it| it.is_command("BF.RESERVE") && it.ours_is("ERR syntax error") && it.has_unknown_option(),
    },
    Difference {
        what: "BF.RESERVE: every EXPANSION needs its value: RedisBloom looks at the first one",
        releases: ALL,
        is: |it| {
            let expansions = (4..it.words.len()).filter(|&place| it.option(place) == Some("EXPANSION")).count();
            it.is_command("BF.RESERVE") && it.ours_is("ERR no expansion") && expansions > 1
        },
    },
    Difference {
        what: "BF.RESERVE: RedisBloom takes the key for an option: a key may have any name",
        releases: ALL,
        is: |it| it.is_command("BF.RESERVE") && it.option(1).is_some(),
    },
    Difference {
        what: "BF.RESERVE: more than 7 words are an error there: ours has more options",
        releases: ALL,
        is: |it| it.is_command("BF.RESERVE") && it.words.len() > 7 && it.theirs_is_arity("bf.reserve"),
    },
    Difference {
        what: "BF.RESERVE: SEED and LAYOUT are ours",
        releases: ALL,
        is: |it| it.is_command("BF.RESERVE") && it.words.iter().skip(4).any(|word| is_own_option(word)),
    },
    Difference {
        what: "BF.INSERT: SEED, LAYOUT, TIGHTENING and VALIDATESCALETO are ours",
        releases: ALL,
        is: |it| it.is_command("BF.INSERT") && it.words.iter().skip(2).any(|word| is_own_option(word)),
    },
    Difference {
        what: "BF.INSERT: options are whole words, not first letters: E could be two of them",
        releases: ALL,
        is: |it| it.is_command("BF.INSERT") && it.ours_is("Unknown argument received") && it.has_short_option(),
    },
    Difference {
        what: "a hexadecimal fraction is no rate",
        releases: ALL,
        is: |it| it.has_word_with("0x") && (it.ours_is("ERR bad error rate") || it.ours_is("Bad error rate")),
    },
    Difference {
        what: "BF.EXISTS, BF.MEXISTS: another type is an error, not absence: it would hide a mistake",
        releases: ALL,
        is: |it| {
            (it.is_command("BF.EXISTS") || it.is_command("BF.MEXISTS"))
                && it.ours_is(WRONG_TYPE)
                && !it.theirs.is_error()
        },
    },
    Difference {
        what: "BF.INFO: ERROR, TIGHTENING and MAXSCALEDCAPACITY are valkey-bloom's",
        releases: ALL,
        is: |it| {
            let fields = ["ERROR", "TIGHTENING", "MAXSCALEDCAPACITY"];
            it.is_command("BF.INFO")
                && it.theirs_is("Invalid information value")
                && it.words.get(2).is_some_and(|word| fields.iter().any(|field| is(word, field)))
        },
    },
    Difference {
        what: "a filter is not live before its last record came: it would deny its items",
        releases: ALL,
        is: |it| it.was_arriving && (it.ours_is(LOADING) || it.is_command("TYPE")),
    },
    Difference {
        what: "BF.LOADCHUNK: the header may come again while the rest is to come",
        releases: ALL,
        is: |it| {
            it.is_command("BF.LOADCHUNK") && it.was_arriving && it.ours_is_ok() && it.theirs_is("ERR received bad data")
        },
    },
    Difference {
        what: "BF.LOADCHUNK: records come in order, and are the same when they come again",
        releases: ALL,
        is: |it| {
            it.is_command("BF.LOADCHUNK")
                && it.ours_begins("ERR received bad data")
                && it.theirs_is_ok()
                && !it.words[3].is_empty()
        },
    },
    Difference {
        what: "BF.LOADCHUNK: that a header is another one than came before is said",
        releases: ALL,
        is: |it| {
            it.is_command("BF.LOADCHUNK")
                && it.was_arriving
                && it.theirs_is("ERR received bad data")
                && it.ours_begins("ERR received bad data: the chunk differs")
        },
    },
    Difference {
        what: "BF.LOADCHUNK: a record that comes again changes nothing: in RedisBloom it takes away what was added",
        releases: ALL,
        is: |it| it.is_command("BF.LOADCHUNK") && it.ours == it.theirs && it.theirs_is_ok() && !it.was_arriving,
    },
    Difference {
        what: "BF.LOADCHUNK: a record has bytes",
        releases: ALL,
        is: |it| {
            it.is_command("BF.LOADCHUNK")
                && it.ours_begins("ERR received bad data")
                && it.words[3].is_empty()
                && (it.theirs_is_ok() || it.theirs_is("ERR invalid offset - no link found"))
        },
    },
    Difference {
        what: "BF.INSERT: EX is a time to live, not the first letters of EXPANSION",
        releases: ALL,
        is: |it| it.is_command("BF.INSERT") && it.words.iter().skip(2).any(|word| is(word, "EX")),
    },
    Difference {
        what: "a fixed filter is stored with an expansion of 2: it has no effect",
        releases: ALL,
        is: |it| {
            it.ours == it.theirs
                && it.words.iter().any(|word| is(word, "NONSCALING"))
                && it.words.iter().any(|word| is(word, "EXPANSION"))
        },
    },
    Difference {
        what: "BF.LOADCHUNK: other words for a chunk that does not fit",
        releases: ALL,
        is: |it| it.is_command("BF.LOADCHUNK") && it.ours_begins("ERR received bad data") && it.theirs.is_error(),
    },
    Difference {
        what: "a rate above the largest double is out of range, not malformed",
        releases: ALL,
        is: |it| it.has_word_with("1e400") && it.ours_is("ERR error rate must be in the range (0.000000, 1.000000)"),
    },
    Difference {
        what: "2.x says otherwise what range a rate has",
        releases: BEFORE_8,
        is: |it| {
            it.theirs_is("ERR (0 < error rate range < 1) ")
                && it.ours_is("ERR error rate must be in the range (0.000000, 1.000000)")
        },
    },
    Difference {
        what: "2.x says otherwise what range a capacity has",
        releases: BEFORE_8,
        is: |it| {
            it.theirs_is("ERR (capacity should be larger than 0)")
                && it.ours_is("ERR capacity must be in the range [1, 1073741824]")
        },
    },
    Difference {
        what: "2.x has no upper limit for expansions and says otherwise what the lower is",
        releases: BEFORE_8,
        is: |it| it.ours_is("ERR expansion must be in the range [0, 32768]") || it.ours_is("Bad expansion"),
    },
    Difference {
        what: "2.x looks at the ranges of BF.INSERT's numbers last, at the last ones only, and says it otherwise",
        releases: BEFORE_8,
        is: |it| it.is_command("BF.INSERT") && (it.ours_is("Bad error rate") || it.ours_is("Bad capacity")),
    },
    Difference {
        what: "2.x looks for NONSCALING before it reads the value of EXPANSION",
        releases: BEFORE_8,
        is: |it| it.theirs_is("Nonscaling filters cannot expand") && it.ours_is("ERR bad expansion"),
    },
    Difference {
        what: "an expansion that is out of range is reported before NONSCALING",
        releases: |major| major >= 8,
        is: |it| {
            it.theirs_is("Nonscaling filters cannot expand")
                && it.ours_is("ERR expansion must be in the range [0, 32768]")
        },
    },
    Difference {
        what: "2.x makes a filter for a rate above 0.25, 8 and ours take it as 0.25",
        releases: BEFORE_8,
        is: |it| {
            let rates = ["0.3", "0.5", "0.999"];
            (it.is_command("BF.RESERVE") || it.is_command("BF.INSERT"))
                && !it.ours.is_error()
                && !it.theirs.is_error()
                && it.words.iter().any(|word| rates.iter().any(|rate| is(word, rate)))
        },
    },
];

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn is_own_option(word: &[u8]) -> bool {
    ["SEED", "LAYOUT", "TIGHTENING", "VALIDATESCALETO"].iter().any(|name| is(word, name))
}

impl Exchange<'_> {
    fn is_command(&self, name: &str) -> bool {
        is(&self.words[0], name)
    }

    fn ours_is(&self, error: &str) -> bool {
        matches!(self.ours, Reply::Error(text) if text == error)
    }

    fn ours_begins(&self, error: &str) -> bool {
        matches!(self.ours, Reply::Error(text) if text.starts_with(error))
    }

    fn theirs_is(&self, error: &str) -> bool {
        matches!(self.theirs, Reply::Error(text) if text == error)
    }

    fn theirs_is_arity(&self, name: &str) -> bool {
        self.theirs_is(&format!("ERR wrong number of arguments for '{name}' command"))
    }

    fn ours_is_ok(&self) -> bool {
        matches!(self.ours, Reply::Simple(text) if text == "OK")
    }

    fn theirs_is_ok(&self) -> bool {
        matches!(self.theirs, Reply::Simple(text) if text == "OK")
    }

    fn has_word_with(&self, part: &str) -> bool {
        self.words.iter().any(|word| word.windows(part.len()).any(|window| is(window, part)))
    }

    /// The option of BF.RESERVE that a word is.
    fn option(&self, place: usize) -> Option<&'static str> {
        ["EXPANSION", "NONSCALING"].into_iter().find(|name| is(&self.words[place], name))
    }

    /// Whether BF.RESERVE has a word that is neither an option nor the value of one.
    fn has_unknown_option(&self) -> bool {
        let mut place = 4;
        while place < self.words.len() {
            place += match self.option(place) {
                Some("EXPANSION") => 2,
                Some(_) => 1,
                None if is_own_option(&self.words[place]) => 2,
                None => return true,
            };
        }
        false
    }

    /// Whether BF.INSERT has a word before the items that RedisBloom takes for an option by its first letters.
    fn has_short_option(&self) -> bool {
        let whole = ["CAPACITY", "ERROR", "EXPANSION", "NOCREATE", "NONSCALING", "ITEMS"];
        let first_letters =
            |word: &&Vec<u8>| matches!(word.first().map(u8::to_ascii_uppercase), Some(b'C' | b'E' | b'N' | b'I'));
        let options = self.words.iter().skip(2).take_while(|word| !is(word, "ITEMS"));
        options.filter(first_letters).any(|word| !whole.iter().any(|name| is(word, name)))
    }
}
