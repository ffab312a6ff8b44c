//! Random commands that both modules take alike: filters are made, filled, grown, loaded, renamed, deleted. The
//! stream knows what is in each filter, so that every member can be asked for afterwards.

use std::collections::{BTreeMap, BTreeSet};

use super::rng;
use testing::records;
use testing::{Connection, Reply, Rng, eventually, integer, ok, simple};

/// A command's words.
type Words = Vec<Vec<u8>>;

const KEYS: [&[u8]; 12] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"f",
    b"g",
    b"h",
    b"i",
    b"",
    b"\0\xff\r\n",
    "\u{43a}\u{43b}\u{44e}\u{447}".as_bytes(),
];

/// Holds no filter.
const TEXT: &[u8] = b"text";

const RATES: [&str; 9] = ["0.25", "0.1", "0.01", "0.001", "1e-5", "1e-9", "1e-20", ".03", "0.012345678901234567"];

const CAPACITIES: [&str; 9] = ["1", "2", "3", "10", "63", "64", "100", "1000", "20000"];

const SCALINGS: [&[&str]; 6] =
    [&[], &["EXPANSION", "1"], &["EXPANSION", "2"], &["expansion", "4"], &["NONSCALING"], &["Expansion", "300"]];

/// A source of commands.
pub struct Stream {
    rng: Rng,
    members: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

impl Stream {
    /// The stream of a test: the same in every run with the same `BLOOMGATE_SEED`.
    pub fn new(test: &str) -> Self {
        Self { rng: rng(test), members: BTreeMap::new() }
    }

    /// So many commands to one server, or to several, whose replies have to be the same.
    pub fn write(&mut self, clients: &mut [&mut Connection], commands: usize) {
        self.run(clients, words(&["SET", "text", "no filter"]));
        for _ in 0..commands {
            match self.rng.below(40) {
                0..5 => self.reserve(clients),
                5..12 => self.add(clients),
                12..20 => self.madd(clients),
                20..27 => self.insert(clients),
                27 => self.load(clients),
                28 => self.delete(clients),
                29 | 30 => self.rename(clients),
                31..34 => self.expire(clients),
                34 => self.script(clients),
                35 => self.transaction(clients),
                36 => self.keep(clients),
                _ => self.mistake(clients),
            }
        }
    }

    /// Asks for every member of every filter.
    pub fn assert_found(&self, client: &mut Connection, occasion: &str) {
        for (key, members) in &self.members {
            let members: Vec<&Vec<u8>> = members.iter().collect();
            let found = client.batched(&[b"BF.MEXISTS", key], &members);
            let denied = found.iter().filter(|&&found| !found).count();
            assert_eq!(denied, 0, "{occasion}: {} denies some of {} members", key.escape_ascii(), members.len());
        }
    }

    fn run(&self, clients: &mut [&mut Connection], words: Words) -> Reply {
        let mut replies = clients.iter_mut().map(|client| client.call(&words));
        let first = replies.next().expect("a client");
        for other in replies {
            assert_eq!(first, other, "{}", shown(&words));
        }
        first
    }

    fn reserve(&mut self, clients: &mut [&mut Connection]) {
        let key = self.key();
        let mut line = vec![b"BF.RESERVE".to_vec(), key.clone()];
        line.extend(words(&[self.one_of(&RATES), self.one_of(&CAPACITIES)]));
        line.extend(words(self.one_of(&SCALINGS)));
        if self.run(clients, line) == ok() {
            self.members.insert(key, BTreeSet::new());
        }
    }

    fn add(&mut self, clients: &mut [&mut Connection]) {
        let (key, item) = (self.key(), self.item());
        let reply = self.run(clients, vec![b"BF.ADD".to_vec(), key.clone(), item.clone()]);
        self.note(&key, &[item], std::slice::from_ref(&reply));
    }

    fn madd(&mut self, clients: &mut [&mut Connection]) {
        let (key, items) = (self.key(), self.items());
        let line = [vec![b"BF.MADD".to_vec(), key.clone()], items.clone()].concat();
        let reply = self.run(clients, line);
        self.note_all(&key, &items, &reply);
    }

    fn insert(&mut self, clients: &mut [&mut Connection]) {
        let (key, items) = (self.key(), self.items());
        let mut line = vec![b"BF.INSERT".to_vec(), key.clone()];
        let mut options = [
            vec!["CAPACITY", self.one_of(&CAPACITIES)],
            vec!["ERROR", self.one_of(&RATES)],
            self.one_of(&SCALINGS).to_vec(),
            vec!["NOCREATE"],
        ];
        let first = self.rng.below(4) as usize;
        options.rotate_left(first);
        for option in &options[..self.rng.below(4) as usize] {
            line.extend(words(option));
        }
        line.push(b"ITEMS".to_vec());
        line.extend_from_slice(&items);
        let reply = self.run(clients, line);
        self.note_all(&key, &items, &reply);
    }

    /// A filter is dumped in chunks and loaded under another name.
    fn load(&mut self, clients: &mut [&mut Connection]) {
        let Some(from) = self.filter() else { return };
        let to = self.key();
        if self.members.contains_key(&to) {
            return;
        }
        for (iterator, data) in records(clients[0], &from) {
            let line = vec![b"BF.LOADCHUNK".to_vec(), to.clone(), iterator.to_string().into_bytes(), data];
            assert_eq!(self.run(clients, line), ok());
        }
        let members = self.members[&from].clone();
        self.members.insert(to, members);
    }

    fn delete(&mut self, clients: &mut [&mut Connection]) {
        let key = self.key();
        let name = self.one_of(&["DEL", "UNLINK"]);
        self.run(clients, vec![name.into(), key.clone()]);
        self.members.remove(&key);
    }

    fn rename(&mut self, clients: &mut [&mut Connection]) {
        let Some(from) = self.filter() else { return };
        let to = self.key();
        assert_eq!(self.run(clients, vec![b"RENAME".to_vec(), from.clone(), to.clone()]), ok());
        let members = self.members.remove(&from).expect("a filter");
        self.members.insert(to, members);
    }

    /// A filter expires now, or is to expire in some years, or no more.
    fn expire(&mut self, clients: &mut [&mut Connection]) {
        let Some(key) = self.filter() else { return };
        match self.rng.below(3) {
            0 => {
                self.run(clients, vec![b"PEXPIRE".to_vec(), key.clone(), b"1".to_vec()]);
                for client in clients.iter_mut() {
                    eventually("a key to expire", || client.call(&[b"EXISTS", key.as_slice()]) == integer(0));
                }
                self.members.remove(&key);
            }
            1 => drop(self.run(clients, vec![b"PEXPIREAT".to_vec(), key, b"4102444800123".to_vec()])),
            _ => drop(self.run(clients, vec![b"PERSIST".to_vec(), key])),
        }
    }

    fn script(&mut self, clients: &mut [&mut Connection]) {
        let (key, items) = (self.key(), self.items());
        let text = b"return redis.call('BF.MADD', KEYS[1], unpack(ARGV))".to_vec();
        let line = [vec![b"EVAL".to_vec(), text, b"1".to_vec(), key.clone()], items.clone()].concat();
        let reply = self.run(clients, line);
        self.note_all(&key, &items, &reply);
    }

    fn transaction(&mut self, clients: &mut [&mut Connection]) {
        let lines: Vec<(Vec<u8>, Vec<Vec<u8>>)> = (0..3).map(|_| (self.key(), self.items())).collect();
        assert_eq!(self.run(clients, words(&["MULTI"])), ok());
        for (key, items) in &lines {
            let line = [vec![b"BF.MADD".to_vec(), key.clone()], items.clone()].concat();
            assert_eq!(self.run(clients, line), simple("QUEUED"));
        }
        let replies = self.run(clients, words(&["EXEC"]));
        for ((key, items), reply) in lines.iter().zip(replies.elements()) {
            self.note_all(key, items, reply);
        }
    }

    /// What only looks, among the writes.
    fn keep(&mut self, clients: &mut [&mut Connection]) {
        let (key, items) = (self.key(), self.items());
        let line = [vec![b"BF.MEXISTS".to_vec(), key], items].concat();
        self.run(clients, line);
    }

    /// What both refuse in the same words.
    fn mistake(&mut self, clients: &mut [&mut Connection]) {
        let key = self.key();
        let line: &[&[u8]] = match self.rng.below(9) {
            0 => &[b"BF.RESERVE", TEXT, b"0.01", b"100"],
            1 => &[b"BF.RESERVE", &key, b"x", b"100"],
            2 => &[b"BF.RESERVE", &key, b"0.01", b"100", b"EXPANSION"],
            3 => &[b"BF.ADD", TEXT, b"x"],
            4 => &[b"BF.MADD", TEXT, b"x", b"y"],
            5 => &[b"BF.INSERT", TEXT, b"ITEMS", b"x"],
            6 => &[b"BF.INSERT", &key, b"ERROR", b"x", b"ITEMS", b"x"],
            7 => &[b"BF.INSERT", b"missing", b"NOCREATE", b"ITEMS", b"x"],
            _ => &[b"BF.LOADCHUNK", b"missing", b"1", b"no header"],
        };
        let line = line.iter().map(|word| word.to_vec()).collect::<Words>();
        let reply = self.run(clients, line.clone());
        assert!(reply.is_error(), "{}: {reply:?}", shown(&line));
    }

    fn note_all(&mut self, key: &[u8], items: &[Vec<u8>], reply: &Reply) {
        if !reply.is_error() {
            self.note(key, items, reply.elements());
        }
    }

    /// What was answered without an error is in.
    fn note(&mut self, key: &[u8], items: &[Vec<u8>], replies: &[Reply]) {
        let answered = items.iter().zip(replies).filter(|(_, reply)| !reply.is_error());
        let members: Vec<Vec<u8>> = answered.map(|(item, _)| item.clone()).collect();
        if !members.is_empty() {
            self.members.entry(key.to_vec()).or_default().extend(members);
        }
    }

    fn key(&mut self) -> Vec<u8> {
        self.one_of(&KEYS).to_vec()
    }

    /// The key of a filter, where there is one.
    fn filter(&mut self) -> Option<Vec<u8>> {
        let count = self.members.len() as u64;
        if count == 0 { None } else { self.members.keys().nth(self.rng.below(count) as usize).cloned() }
    }

    /// Some few items, at times hundreds, so that filters grow.
    fn items(&mut self) -> Vec<Vec<u8>> {
        let count = if self.rng.below(5) == 0 { 400 } else { 1 + self.rng.below(6) };
        (0..count).map(|_| self.item()).collect()
    }

    /// Often one that came before, at times no text.
    fn item(&mut self) -> Vec<u8> {
        match self.rng.below(10) {
            0 => self.rng.bytes(60),
            1 => Vec::new(),
            _ => format!("item/{}", self.rng.below(3000)).into_bytes(),
        }
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.rng.below(list.len() as u64) as usize]
    }
}

fn words(line: &[&str]) -> Words {
    line.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn shown(words: &Words) -> String {
    let start: Vec<String> = words.iter().take(12).map(|word| word.escape_ascii().to_string()).collect();
    format!("{}{}", start.join(" "), if words.len() > 12 { " ..." } else { "" })
}
