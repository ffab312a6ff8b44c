//! Command lines for both: the words that the commands know, at times shortened or in another case, words that nobody
//! knows, numbers at their edges, keys of other types, and dumps whole and in parts.

use testing::records;
use testing::{Connection, Rng};

/// A command's words.
pub type Words = Vec<Vec<u8>>;

/// The last two are also words of BF.RESERVE.
const KEYS: [&str; 11] = ["a", "b", "c", "d", "e", "f", "", "text", "list", "nonscaling", "Expansion"];

const GOOD_RATES: [&str; 9] = ["0.25", "0.1", "0.01", "0.001", "1e-6", "1e-9", ".03", "+0.01", "1E-2"];

/// Not all of them are wrong: above 0.25 a rate is taken as 0.25.
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
    /// Where dumps are taken from.
    client: &'a mut Connection,
}

impl<'a> Lines<'a> {
    pub fn new(rng: &'a mut Rng, client: &'a mut Connection) -> Self {
        Self { rng, client }
    }

    /// One line, or several that belong together.
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

    /// An option that RedisBloom has not.
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

    /// A record of any bytes, which may well fit somewhere.
    fn chunk(&mut self) -> Words {
        let mut words = self.iterator_of("BF.LOADCHUNK");
        words.push(match self.rng.below(5) {
            0 => Vec::new(),
            1 | 2 => vec![0; self.rng.below(12) as usize],
            _ => self.rng.bytes(80),
        });
        words
    }

    /// The dump of a filter for another key: whole, or with something wrong in it, or with other commands in between.
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
            // Twice a header; the second one may have another growth.
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
