//! Two servers, one with each module, that are sent the same: replies and filters are compared after every command. What
//! differs has to be in the table; the rest is collected, so that one run shows all of it.

use std::collections::BTreeMap;

use super::differences::{DIFFERENCES, Difference, LOADING};
use super::lines::{Lines, Words};
use crate::peers::view::View;
use testing::records;
use testing::{Connection, Reply, Rng, Server};

/// So many lines are sent to one set of keys.
pub const LINES: usize = 150;

/// One command and what came of it on both sides.
pub struct Exchange<'a> {
    pub words: &'a [Vec<u8>],
    pub ours: &'a Reply,
    pub theirs: &'a Reply,
    /// Whether the key held a part of a dump, in our server, before the command.
    pub was_arriving: bool,
}

/// The two servers and what was found.
pub struct Twins {
    /// The first number of RedisBloom's release.
    major: u32,
    ours: Connection,
    theirs: Connection,
    history: Vec<Words>,
    /// How often a difference occurred, by its place in the table.
    pub occurred: BTreeMap<usize, usize>,
    /// An example of each kind of difference that is not in the table.
    pub unknown: BTreeMap<String, String>,
}

impl Twins {
    pub fn new(major: u32, ours: &Server, theirs: &Server) -> Self {
        let (ours, theirs) = (ours.connect(), theirs.connect());
        Self { major, ours, theirs, history: Vec::new(), occurred: BTreeMap::new(), unknown: BTreeMap::new() }
    }

    /// Goes on in RESP2 or RESP3.
    pub fn speak(&mut self, ours: &Server, theirs: &Server, protocol: u8) {
        (self.ours, self.theirs) = (ours.connect_speaking(protocol), theirs.connect_speaking(protocol));
    }

    /// Lines on a set of keys of their own. What is left is the same.
    pub fn round(&mut self, rng: &mut Rng) {
        self.history.clear();
        for line in ["FLUSHALL", "SET text x", "RPUSH list x"] {
            self.call(&line.split(' ').map(Into::into).collect::<Words>());
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

    /// Sends one command and compares the replies, and what is at the key afterwards.
    fn compare(&mut self, words: &Words) {
        let no_key = Vec::new();
        let key = words.get(1).unwrap_or(&no_key);
        let was_arriving = is_loading(&self.header(key)[0]);
        let [ours, theirs] = self.call(words);
        self.history.push(words.clone());
        let header = self.header(key);
        // A part of a dump differs until the rest is there: the replies are looked at, the part is not.
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
        // From here on they would differ in everything.
        self.call(&[b"DEL".to_vec(), key.clone()]);
    }

    /// Whether a record, which may be any bytes, went into both filters alike. What other commands did wrong is found out by
    /// replies, and at the end of the round.
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

/// What sort of reply it is: an error's text, or a type.
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
