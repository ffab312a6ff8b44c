//! Tests with RedisBloom itself: replication in both directions, snapshots and append-only files of both modules, and the same commands to
//! both.
//!
//! `BLOOMGATE_PEERS` names a folder with RedisBloom's libraries: `redisbloom-8.so`, `redisbloom-2.6.28.so`, a release after the dash. Each
//! is loaded into the first suitable server: Redis 8 for releases from 8 on, Redis 7 for earlier ones. Our module runs on the same server
//! program. RedisBloom is not part of the project, so these tests are ignored by default. If requested, they fail without a library, or
//! without a server for one.
//!
//! `BLOOMGATE_SEED` (default 1) is the seed of the random commands, and `BLOOMGATE_EFFORT` (default 1) multiplies their number.

mod commands;
mod cuckoo;
mod exchange;
mod extremes;
mod moving;
mod registration;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use testing::{
    Builder, Connection, FOOTER, Reply, Rng, Server, Stop, dump, eventually, integer, module, ok, records, servers,
    simple, watched,
};

/// A release of RedisBloom and a server that supports it.
pub struct Peer {
    /// The major version, such as 2 or 8.
    pub major: u32,
    library: PathBuf,
    program: PathBuf,
}

/// Which of the two modules a server has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Side {
    Ours,
    Theirs,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Ours, Self::Theirs];

    pub fn other(self) -> Self {
        match self {
            Self::Ours => Self::Theirs,
            Self::Theirs => Self::Ours,
        }
    }
}

impl Peer {
    /// Configures a server with the module of one side.
    pub fn with(&self, side: Side) -> Builder {
        let builder = Server::with(&self.program);
        if side == Side::Theirs { builder.module(&self.library) } else { builder }
    }

    /// Starts a server with the module of one side, on which new filters have RedisBloom's layout.
    pub fn start(&self, side: Side, lines: &[&str]) -> Server {
        let server = lines.iter().fold(self.with(side), |builder, line| builder.line(line)).start();
        use_redisblooms_layout(&server, side);
        server
    }

    /// Stops a server and starts it on its files with the module of one side.
    pub fn restart_with(&self, side: Side, server: &mut Server, how: Stop) {
        server.stop(how);
        match side {
            Side::Ours => server.load_instead(&module()),
            Side::Theirs => server.load_instead(&self.library),
        }
        server.start_again();
        use_redisblooms_layout(server, side);
    }
}

/// New filters of ours get RedisBloom's layout. This is not a line in the configuration file, which stays when the module is exchanged:
/// RedisBloom lacks the setting.
fn use_redisblooms_layout(server: &Server, side: Side) {
    if side == Side::Ours {
        assert_eq!(server.connect().run("CONFIG SET bf.layout redisbloom"), ok());
    }
}

/// Runs a test with each release of RedisBloom in the folder.
fn beside_redisbloom(test: impl Fn(&Peer)) {
    beside_releases(|_| true, test);
}

/// Runs a test with each release whose major version is wanted. Panics if there is none, or no server for one.
fn beside_releases(wanted: impl Fn(u32) -> bool, test: impl Fn(&Peer)) {
    let folder = env::var_os("BLOOMGATE_PEERS").expect("BLOOMGATE_PEERS names a folder with RedisBloom's libraries");
    assert!(!watched(), "the memory of RedisBloom is not ours to watch");
    let mut libraries = libraries(Path::new(&folder));
    libraries.retain(|(major, _)| wanted(*major));
    assert!(!libraries.is_empty(), "BLOOMGATE_PEERS names {}: no redisbloom-*.so of this test there", folder.display());
    for (major, library) in libraries {
        // RedisBloom 8 needs functions of Redis 8; 2.x was released for the servers of its time.
        let (least, most) = if major >= 8 { (8, u32::MAX) } else { (7, 7) };
        let suits = |program: &PathBuf| redis_version(program).is_some_and(|version| (least..=most).contains(&version));
        let program = servers().into_iter().find(suits);
        let program =
            program.unwrap_or_else(|| panic!("{} needs a Redis {least} in BLOOMGATE_SERVERS", library.display()));
        eprintln!("{} in {}", library.display(), program.display());
        test(&Peer { major, library, program });
    }
}

/// The libraries in a folder with their major versions, the oldest first.
fn libraries(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(folder).unwrap_or_else(|fault| panic!("BLOOMGATE_PEERS: {}: {fault}", folder.display()));
    let mut libraries: Vec<(u32, PathBuf)> = entries
        .map(|entry| entry.expect("a directory entry").path().canonicalize().expect("a file that is there"))
        .filter_map(|path| {
            let release = path.file_name()?.to_str()?.strip_prefix("redisbloom-")?.strip_suffix(".so")?;
            Some((release.split('.').next()?.parse().ok()?, path))
        })
        .collect();
    libraries.sort();
    libraries
}

/// The major version of a Redis server; `None` for other servers.
fn redis_version(program: &Path) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().expect("the server says its version");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.strip_prefix("Redis server v=")?.split('.').next()?.parse().ok()
}

/// Random numbers for one test, determined by `BLOOMGATE_SEED`.
fn rng(test: &str) -> Rng {
    let seed: u64 = env::var("BLOOMGATE_SEED").map_or(1, |text| text.parse().expect("a number"));
    eprintln!("{test}: BLOOMGATE_SEED={seed}");
    Rng::new(test.bytes().fold(seed, |seed, letter| seed.wrapping_mul(31).wrapping_add(letter.into())))
}

// All that a client can see of the keys of a server: types, times to live, the replies of BF.INFO and BF.DEBUG, every record of
// BF.SCANDUMP, every payload of DUMP. On two servers with the same filters, all of it is byte-identical.

/// The keys of a server's first database.
#[derive(PartialEq)]
pub struct View(BTreeMap<Vec<u8>, KeyView>);

#[derive(PartialEq)]
struct KeyView {
    kind: Reply,
    expires_at_ms: Reply,
    info: Reply,
    debug: Reply,
    records: Vec<(i64, Vec<u8>)>,
    /// Without the version of the server's format and the checksum.
    payload: Vec<u8>,
}

impl View {
    pub fn of(client: &mut Connection) -> Self {
        let keys = client.run("KEYS *");
        Self(keys.elements().iter().map(|key| (key.bytes().to_vec(), KeyView::of(client, key.bytes()))).collect())
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(Vec::as_slice)
    }

    /// Asserts that both are equal. The message names the difference, without the megabytes.
    pub fn assert_same(&self, other: &Self, occasion: &str) {
        assert!(self.keys().eq(other.keys()), "{occasion}: {} and {}", self.names(), other.names());
        for ((key, one), other) in self.0.iter().zip(other.0.values()) {
            let key = key.escape_ascii();
            assert_eq!(one.kind, other.kind, "{occasion}: type of {key}");
            assert_eq!(one.expires_at_ms, other.expires_at_ms, "{occasion}: time to live of {key}");
            assert_eq!(one.info, other.info, "{occasion}: BF.INFO {key}");
            assert_eq!(one.debug, other.debug, "{occasion}: BF.DEBUG {key}");
            let iterators = |view: &KeyView| view.records.iter().map(|(iterator, _)| *iterator).collect::<Vec<_>>();
            assert_eq!(iterators(one), iterators(other), "{occasion}: iterators of {key}");
            for ((iterator, one), (_, other)) in one.records.iter().zip(&other.records) {
                assert_bytes(one, other, &format!("{occasion}: record {iterator} of {key}"));
            }
            assert_bytes(&one.payload, &other.payload, &format!("{occasion}: payload of {key}"));
        }
    }

    fn names(&self) -> String {
        self.keys().map(|key| key.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
    }
}

impl KeyView {
    fn of(client: &mut Connection, key: &[u8]) -> Self {
        let kind = client.call(&[b"TYPE", key]);
        let is_filter = kind == simple("MBbloom--");
        let mut payload = dump(client, key);
        payload.truncate(payload.len() - FOOTER);
        Self {
            kind,
            expires_at_ms: client.call(&[b"PEXPIRETIME", key]),
            info: client.call(&[b"BF.INFO", key]),
            debug: client.call(&[b"BF.DEBUG", key]),
            records: if is_filter { records(client, key) } else { Vec::new() },
            payload,
        }
    }
}

fn assert_bytes(one: &[u8], other: &[u8], what: &str) {
    if one == other {
        return;
    }
    let place = one.iter().zip(other).position(|(one, other)| one != other).unwrap_or(one.len().min(other.len()));
    let around = |bytes: &[u8]| bytes[place.saturating_sub(8)..bytes.len().min(place + 24)].escape_ascii().to_string();
    let lengths = format!("{} and {} bytes", one.len(), other.len());
    panic!("{what} differs ({lengths}), from byte {place} on: {} and {}", around(one), around(other));
}

// Random commands that both modules treat alike: filters are created, filled, grown, loaded, renamed, deleted. The stream tracks the
// members of each filter, so that all of them can be looked up afterwards.

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
    /// Creates the stream of a test, determined by `BLOOMGATE_SEED`.
    pub fn new(test: &str) -> Self {
        Self { rng: rng(test), members: BTreeMap::new() }
    }

    /// Sends this many commands to one server, or to several, whose replies must be equal.
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

    /// Asserts that every member of every filter is found.
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

    /// Makes a filter expire now, in some years, or never.
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

    /// Reads among the writes.
    fn keep(&mut self, clients: &mut [&mut Connection]) {
        let (key, items) = (self.key(), self.items());
        let line = [vec![b"BF.MEXISTS".to_vec(), key], items].concat();
        self.run(clients, line);
    }

    /// Commands that both refuse with the same error.
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

    /// Records the items without an error as members.
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

    /// The key of a random filter, if there is one.
    fn filter(&mut self) -> Option<Vec<u8>> {
        let count = self.members.len() as u64;
        if count == 0 { None } else { self.members.keys().nth(self.rng.below(count) as usize).cloned() }
    }

    /// A few items, sometimes hundreds, so that filters grow.
    fn items(&mut self) -> Vec<Vec<u8>> {
        let count = if self.rng.below(5) == 0 { 400 } else { 1 + self.rng.below(6) };
        (0..count).map(|_| self.item()).collect()
    }

    /// An item that is often repeated, and sometimes not text.
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
