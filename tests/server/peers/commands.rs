//! Sends the same valid and invalid commands to both modules, in RESP2 and RESP3. Types and texts of the replies are equal, and the filters
//! are byte-identical, except for the entries in the table of differences.

use std::collections::BTreeMap;

use super::{Peer, Side, View, beside_redisbloom, rng};
use crate::reliability::scaled;
use testing::{Connection, Reply, Rng, Server, figures, records};

/// The number of sets of keys, enough for every difference to occur.
const ROUNDS: usize = 100;

fn random_commands(peer: &Peer) {
    let mut rng = rng("random commands");
    let [ours, theirs] = Side::BOTH.map(|side| peer.start(side, &[]));
    let mut twins = Twins::new(peer.major, &ours, &theirs);
    let rounds = scaled(ROUNDS);
    for round in 0..rounds {
        twins.speak(&ours, &theirs, if round % 2 == 0 { 2 } else { 3 });
        twins.round(&mut rng);
    }
    let unknown: Vec<&str> = twins.unknown.values().map(String::as_str).collect();
    assert!(unknown.is_empty(), "{} differences are not in the table:\n\n{}", unknown.len(), unknown.join("\n\n"));
    for (place, difference) in DIFFERENCES.iter().enumerate().filter(|(_, it)| (it.releases)(peer.major)) {
        let count = twins.occurred.get(&place).copied().unwrap_or(0);
        eprintln!("{count:6} {}", difference.what);
        // A shorter run may not meet all of them.
        assert!(count > 0 || rounds < ROUNDS, "this did not occur, is it still a difference? {}", difference.what);
    }
    figures(&format!("random commands beside RedisBloom {}: {} executions", peer.major, rounds * LINES));
}

#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn random_commands_get_the_same_replies_but_for_known_differences() {
    beside_redisbloom(random_commands);
}

// Command lines for both modules: options, sometimes shortened or in another case, unknown words, extreme numbers, keys of other types, and
// whole and partial dumps.

/// A command's words.
pub type Words = Vec<Vec<u8>>;

/// The last two are also options of BF.RESERVE.
const KEYS: [&str; 11] = ["a", "b", "c", "d", "e", "f", "", "text", "list", "nonscaling", "Expansion"];

const GOOD_RATES: [&str; 9] = ["0.25", "0.1", "0.01", "0.001", "1e-6", "1e-9", ".03", "+0.01", "1E-2"];

/// Not all of them are invalid: a rate above 0.25 is replaced by 0.25.
const ODD_RATES: [&str; 24] = [
    "0.3", "0.5", "0.999", "0", "-0", "0.0", "1", "1.0", "-1", "2", "1e400", "nan", "-nan", "inf", "-inf", "infinity",
    "x", "", " 0.01", "0.01 ", "0.01x", "0,01", "0x.1", "0x1p-7",
];

const GOOD_CAPACITIES: [&str; 7] = ["1", "2", "3", "10", "64", "100", "1000"];

const ODD_CAPACITIES: [&str; 14] = [
    "0",
    "-1",
    "x",
    "",
    "1.5",
    "1e3",
    "+10",
    "010",
    " 10",
    "10 ",
    "0x10",
    "-9223372036854775808",
    "9223372036854775808",
    "99999999999999999999",
];

const GOOD_EXPANSIONS: [&str; 5] = ["1", "2", "4", "300", "32768"];

const ODD_EXPANSIONS: [&str; 11] = [
    "-1",
    "32769",
    "x",
    "",
    "1.5",
    "+2",
    "02",
    "NONSCALING",
    "4294967298",
    "-9223372036854775808",
    "9223372036854775808",
];

const FIELDS: [&str; 14] = [
    "CAPACITY",
    "SIZE",
    "FILTERS",
    "ITEMS",
    "EXPANSION",
    "capacity",
    "Size",
    "ERROR",
    "TIGHTENING",
    "MAXSCALEDCAPACITY",
    "",
    "CAP",
    "FOO",
    "SIZES",
];

const ITERATORS: [&str; 22] = [
    "0",
    "1",
    "2",
    "3",
    "8",
    "9",
    "10",
    "16",
    "17",
    "41",
    "145",
    "1000",
    "-1",
    "-2",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "x",
    "",
    "1.5",
    "+1",
    "01",
];

/// The source of lines.
pub struct Lines<'a> {
    rng: &'a mut Rng,
    /// A connection to the server whose filters are dumped.
    client: &'a mut Connection,
}

impl<'a> Lines<'a> {
    pub fn new(rng: &'a mut Rng, client: &'a mut Connection) -> Self {
        Self { rng, client }
    }

    /// Returns one line, or several that belong together.
    pub fn next(&mut self) -> Vec<Words> {
        let mut words = match self.rng.below(30) {
            0..5 => self.reserve(),
            5..10 => self.insert(),
            10..13 => self.items_of("BF.MADD", 8),
            13 | 14 => self.items_of("BF.ADD", 1),
            15 | 16 => self.items_of("BF.MEXISTS", 8),
            17 => self.items_of("BF.EXISTS", 1),
            18 | 19 => self.info(),
            20 => self.key_of("BF.CARD"),
            21 => self.key_of("BF.DEBUG"),
            22 | 23 => self.iterator_of("BF.SCANDUMP"),
            24 | 25 => self.chunk(),
            26 | 27 => return self.load(),
            28 => self.key_of("DEL"),
            _ => self.key_of("TYPE"),
        };
        if self.one_in(25) {
            words.pop();
        } else if self.one_in(25) {
            words.push(self.one_of(&["x", "NONSCALING", "1"]).into());
        }
        if self.one_in(6) {
            self.change_case(&mut words[0]);
        }
        vec![words]
    }

    fn reserve(&mut self) -> Words {
        let mut words = self.key_of("BF.RESERVE");
        words.push(self.rate());
        words.push(self.capacity());
        for _ in 0..[0, 0, 1, 1, 1, 2, 3][self.rng.below(7) as usize] {
            let mut option = match self.rng.below(12) {
                0..6 => vec!["EXPANSION".into(), self.expansion()],
                6..10 => vec!["NONSCALING".into()],
                10 => vec![self.one_of(&["EXPANSION", "EXPANSION", "EXPANSION", "FOO", "", "2"]).into()],
                _ => self.own_option(&["SEED", "LAYOUT"]),
            };
            if self.one_in(4) {
                self.change_case(&mut option[0]);
            }
            words.extend(option);
        }
        words
    }

    fn insert(&mut self) -> Words {
        let mut words = self.key_of("BF.INSERT");
        for _ in 0..[0, 1, 1, 2, 3][self.rng.below(5) as usize] {
            let mut option = match self.rng.below(14) {
                0..3 => vec!["CAPACITY".into(), self.capacity()],
                3..6 => vec!["ERROR".into(), self.rate()],
                6..9 => vec!["EXPANSION".into(), self.expansion()],
                9 => vec!["NOCREATE".into()],
                10 | 11 => vec!["NONSCALING".into()],
                12 => vec![self.one_of(&["FOO", "", "1", "-", "LAY"]).into()],
                _ => self.own_option(&["SEED", "LAYOUT", "TIGHTENING", "VALIDATESCALETO"]),
            };
            if self.one_in(4) {
                self.change_case(&mut option[0]);
            }
            if self.one_in(20) {
                let length = 1 + self.rng.below(4) as usize;
                option[0].truncate(length);
            }
            words.extend(option);
        }
        if !self.one_in(20) {
            words.push(self.one_of(&["ITEMS", "ITEMS", "ITEMS", "items", "Items", "I"]).into());
        }
        if !self.one_in(20) {
            words.extend(self.items(8));
        }
        words
    }

    /// An option that RedisBloom lacks.
    fn own_option(&mut self, names: &[&str]) -> Words {
        let name = self.one_of(names);
        let value = match name {
            "SEED" => "7",
            "LAYOUT" => "native",
            "TIGHTENING" => "0.5",
            _ => "1000",
        };
        vec![name.into(), value.into()]
    }

    fn info(&mut self) -> Words {
        let mut words = self.key_of("BF.INFO");
        if !self.one_in(3) {
            words.push(self.one_of(&FIELDS).into());
        }
        words
    }

    /// A record of random bytes, which may be valid for a filter.
    fn chunk(&mut self) -> Words {
        let mut words = self.iterator_of("BF.LOADCHUNK");
        words.push(match self.rng.below(5) {
            0 => Vec::new(),
            1 | 2 => vec![0; self.rng.below(12) as usize],
            _ => self.rng.bytes(80),
        });
        words
    }

    /// The dump of a filter for another key: unchanged, damaged, or with other commands in between.
    fn load(&mut self) -> Vec<Words> {
        let from = self.key();
        let is_filter = self.client.call(&[b"TYPE".as_slice(), &from]).text() == "MBbloom--";
        if !is_filter {
            return Vec::new();
        }
        let to = self.key();
        let mut records = records(self.client, &from);
        match self.rng.below(10) {
            0 => drop(records.remove(self.rng.below(records.len() as u64) as usize)),
            1 => records.reverse(),
            2 => records.truncate(1),
            3 => {
                let place = self.rng.below(records.len() as u64) as usize;
                let again = records[place].clone();
                records.insert(place, again);
            }
            4 => {
                let place = self.rng.below(records.len() as u64) as usize;
                records[place].1.pop();
            }
            5 => {
                let (_, header) = &mut records[0];
                header.push(0);
            }
            // Two headers; the second one may have another growth factor.
            6 | 7 => {
                let mut again = records[0].clone();
                again.1[16] ^= self.rng.below(2) as u8;
                records.insert(1, again);
            }
            _ => {}
        }
        let mut lines: Vec<Words> = records
            .into_iter()
            .map(|(iterator, data)| vec![b"BF.LOADCHUNK".to_vec(), to.clone(), iterator.to_string().into(), data])
            .collect();
        if self.one_in(4) {
            let place = self.rng.below(lines.len() as u64 + 1) as usize;
            let mut between = self.next();
            between.iter_mut().filter(|line| line.len() > 1).for_each(|line| line[1].clone_from(&to));
            lines.splice(place..place, between);
        }
        lines
    }

    fn items_of(&mut self, command: &str, most: u64) -> Words {
        let mut words = self.key_of(command);
        words.extend(self.items(most));
        words
    }

    fn iterator_of(&mut self, command: &str) -> Words {
        let mut words = self.key_of(command);
        words.push(self.one_of(&ITERATORS).into());
        words
    }

    fn key_of(&mut self, command: &str) -> Words {
        vec![command.into(), self.key()]
    }

    fn key(&mut self) -> Vec<u8> {
        self.one_of(&KEYS).into()
    }

    fn items(&mut self, most: u64) -> Words {
        let count = 1 + self.rng.below(most);
        (0..count)
            .map(|_| if self.one_in(20) { self.rng.bytes(40) } else { self.rng.below(60).to_string().into() })
            .collect()
    }

    fn rate(&mut self) -> Vec<u8> {
        if self.one_in(4) { self.one_of(&ODD_RATES).into() } else { self.one_of(&GOOD_RATES).into() }
    }

    fn capacity(&mut self) -> Vec<u8> {
        if self.one_in(5) { self.one_of(&ODD_CAPACITIES).into() } else { self.one_of(&GOOD_CAPACITIES).into() }
    }

    fn expansion(&mut self) -> Vec<u8> {
        if self.one_in(4) { self.one_of(&ODD_EXPANSIONS).into() } else { self.one_of(&GOOD_EXPANSIONS).into() }
    }

    fn change_case(&mut self, word: &mut [u8]) {
        for letter in word {
            if self.one_in(2) {
                *letter = letter.to_ascii_lowercase();
            }
        }
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.rng.below(many) == 0
    }

    fn one_of<'w>(&mut self, list: &[&'w str]) -> &'w str {
        list[self.rng.below(list.len() as u64) as usize]
    }
}

// The intended differences between our replies and RedisBloom's, each with its reason. An exchange that differs must be listed here, and
// every entry must occur in a long run, otherwise it is obsolete.

/// The reply for a filter whose records have not all arrived.
pub const LOADING: &str = "ERR filter is still being loaded";

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A difference.
pub struct Difference {
    /// The difference and its reason.
    pub what: &'static str,
    /// The releases concerned, by major version.
    pub releases: fn(u32) -> bool,
    /// Whether an exchange shows this difference.
    pub is: fn(&Exchange) -> bool,
}

const ALL: fn(u32) -> bool = |_| true;
const BEFORE_8: fn(u32) -> bool = |major| major < 8;

/// The first matching entry is used.
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

    /// The option of BF.RESERVE that a word names.
    fn option(&self, place: usize) -> Option<&'static str> {
        ["EXPANSION", "NONSCALING"].into_iter().find(|name| is(&self.words[place], name))
    }

    /// Whether BF.RESERVE has a word that is neither an option nor an option's value.
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

    /// Whether BF.INSERT has a word before the items that RedisBloom recognises as an option by its first letters.
    fn has_short_option(&self) -> bool {
        let whole = ["CAPACITY", "ERROR", "EXPANSION", "NOCREATE", "NONSCALING", "ITEMS"];
        let first_letters =
            |word: &&Vec<u8>| matches!(word.first().map(u8::to_ascii_uppercase), Some(b'C' | b'E' | b'N' | b'I'));
        let options = self.words.iter().skip(2).take_while(|word| !is(word, "ITEMS"));
        options.filter(first_letters).any(|word| !whole.iter().any(|name| is(word, name)))
    }
}

// Two servers, one with each module, that get the same commands. Replies and filters are compared after every command. Differences must be
// in the table; others are collected, so that one run shows all of them.

/// The number of lines sent to one set of keys.
pub const LINES: usize = 150;

/// Settings with a name in CONFIG on Redis 8, and values that both modules accept, or refuse with the same error.
const SETTINGS: [(&str, &[&str]); 2] = [
    ("bf-error-rate", &["0.01", "0.02", "1e-7", "0.7", "0.25", "1e-12", "0", "1", "-1", "inf", "2"]),
    ("bf-initial-size", &["100", "1", "3", "1000"]),
];

/// One command and its results on both sides.
pub struct Exchange<'a> {
    pub words: &'a [Vec<u8>],
    pub ours: &'a Reply,
    pub theirs: &'a Reply,
    /// Whether the key held a partly loaded filter on our server before the command.
    pub was_arriving: bool,
}

/// The two servers and the differences found.
pub struct Twins {
    /// The major version of RedisBloom.
    major: u32,
    ours: Connection,
    theirs: Connection,
    history: Vec<Words>,
    /// How often a difference occurred, by its index in the table.
    pub occurred: BTreeMap<usize, usize>,
    /// An example of each kind of difference that is not in the table.
    pub unknown: BTreeMap<String, String>,
}

impl Twins {
    pub fn new(major: u32, ours: &Server, theirs: &Server) -> Self {
        let (ours, theirs) = (ours.connect(), theirs.connect());
        Self { major, ours, theirs, history: Vec::new(), occurred: BTreeMap::new(), unknown: BTreeMap::new() }
    }

    /// Switches to RESP2 or RESP3.
    pub fn speak(&mut self, ours: &Server, theirs: &Server, protocol: u8) {
        (self.ours, self.theirs) = (ours.connect_speaking(protocol), theirs.connect_speaking(protocol));
    }

    /// Sends lines to a new set of keys. The resulting filters are equal.
    pub fn round(&mut self, rng: &mut Rng) {
        self.history.clear();
        for line in ["FLUSHALL", "SET text x", "RPUSH list x"] {
            self.call(&line.split(' ').map(Into::into).collect::<Words>());
        }
        for (name, values) in if self.major >= 8 { &SETTINGS[..] } else { &[] } {
            let value = values[rng.below(values.len() as u64) as usize];
            let words = ["CONFIG", "SET", name, value].map(Into::into);
            let [ours, theirs] = self.call(&words);
            assert_eq!(ours, theirs, "{}", shown(&words));
        }
        for _ in 0..LINES {
            for words in Lines::new(rng, &mut self.theirs).next() {
                self.compare(&words);
            }
        }
        for key in self.ours.run("KEYS *").elements() {
            if is_loading(&self.header(key.bytes())[0]) {
                self.call(&[b"DEL".to_vec(), key.bytes().to_vec()]);
            }
        }
        let history = self.history.iter().map(|words| shown(words)).collect::<Vec<_>>().join("\n");
        View::of(&mut self.ours).assert_same(&View::of(&mut self.theirs), &history);
    }

    /// Sends one command and compares the replies, and the filters at the key afterwards.
    fn compare(&mut self, words: &Words) {
        let no_key = Vec::new();
        let key = words.get(1).unwrap_or(&no_key);
        let was_arriving = is_loading(&self.header(key)[0]);
        let [ours, theirs] = self.call(words);
        self.history.push(words.clone());
        let header = self.header(key);
        // A partly loaded filter differs until it is complete: its replies are compared, its contents are not.
        let same_filter = is_loading(&header[0]) || (header[0] == header[1] && self.same_bits(words));
        if ours == theirs && same_filter {
            return;
        }
        let exchange = Exchange { words, ours: &ours, theirs: &theirs, was_arriving };
        let is_it = |difference: &Difference| (difference.releases)(self.major) && (difference.is)(&exchange);
        match DIFFERENCES.iter().position(is_it) {
            Some(place) => *self.occurred.entry(place).or_default() += 1,
            None => self.note_unknown(&exchange, header),
        }
        // From here on, all replies would differ.
        self.call(&[b"DEL".to_vec(), key.clone()]);
    }

    /// Whether a record, which may have any bytes, had the same effect on both filters. For other commands, replies and the check at the
    /// end of the round suffice.
    fn same_bits(&mut self, words: &Words) -> bool {
        let [name, key, ..] = words.as_slice() else { return true };
        if !name.eq_ignore_ascii_case(b"BF.LOADCHUNK") || self.header(key).iter().any(Reply::is_error) {
            return true;
        }
        records(&mut self.ours, key) == records(&mut self.theirs, key)
    }

    fn note_unknown(&mut self, exchange: &Exchange, after: [Reply; 2]) {
        let Exchange { words, ours, theirs, was_arriving } = exchange;
        let what = format!("{} {} {}", shown(&words[..1]).to_uppercase(), kind(ours), kind(theirs));
        let of_key = self.history.iter().filter(|line| line.get(1) == words.get(1));
        let lines: Vec<String> = of_key.map(|line| shown(line)).collect();
        let lines = lines[lines.len().saturating_sub(4)..].join("\n  ");
        let arriving = if *was_arriving { " (the key held a part of a dump)" } else { "" };
        self.unknown.entry(what).or_insert_with(|| {
            let [ours_after, theirs_after] = after;
            format!(
                "  {lines}{arriving}\nours   {ours:?}, then {ours_after:?}\ntheirs {theirs:?}, then {theirs_after:?}"
            )
        });
    }

    fn call(&mut self, words: &[Vec<u8>]) -> [Reply; 2] {
        [self.ours.call(words), self.theirs.call(words)]
    }

    /// The header of the filter at a key, or an error.
    fn header(&mut self, key: &[u8]) -> [Reply; 2] {
        self.call(&[b"BF.SCANDUMP".to_vec(), key.to_vec(), b"0".to_vec()])
    }
}

fn is_loading(reply: &Reply) -> bool {
    *reply == Reply::Error(LOADING.to_owned())
}

/// The kind of a reply: an error's text, or a type.
fn kind(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => text.split(':').next().unwrap_or(text).to_owned(),
        other => format!("{other:.1?}").chars().take(1).collect(),
    }
}

fn shown(words: &[Vec<u8>]) -> String {
    let word = |word: &Vec<u8>| if word.is_empty() { "\"\"".into() } else { word.escape_ascii().to_string() };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}
