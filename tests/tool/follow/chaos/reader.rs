//! Readers. They compare each answer with the COMMITs that had returned when they asked.

use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use super::rows::Answer;
use super::{MAX_LAG, Mode, Run, connect};
use testing::{Connection, Reply};

pub const READERS: u64 = 4;
/// A time to live is rounded to milliseconds.
const ROUNDED: Duration = Duration::from_millis(2);

pub struct Reader<'a> {
    run: &'a Run,
    number: u64,
    random: fastrand::Rng,
    client: Connection,
    session: Client,
}

impl<'a> Reader<'a> {
    pub fn new(run: &'a Run, number: u64) -> Self {
        let random = fastrand::Rng::with_seed(run.seed.wrapping_mul(2000) + number);
        Self { run, number, random, client: open(run), session: connect(run) }
    }

    /// Reads until the end of the run.
    pub fn run(mut self) {
        while !self.run.done.load(SeqCst) {
            if self.read().is_err() {
                self.client = open(self.run);
            }
        }
        self.run.threads.fetch_sub(1, SeqCst);
    }

    /// Asks for a row, and fills it in if told to. An error is that of a lost connection to the server.
    fn read(&mut self) -> io::Result<()> {
        let id = self.random.usize(..self.run.rows.len());
        let (text, key) = (id.to_string(), format!("{{users}}:{id}"));
        let mut words = vec!["BF.FETCH", "{users}", &text, &key, "LEASE", "2000", "WHILE", "{users}:feed"];
        // The time up to which the heartbeat promises that changes are applied.
        let mut applied = None;
        match self.run.mode {
            Mode::Synchronous => words.extend(["UNLESS", "{users}:feed:open"]),
            Mode::Eventual => {
                let now = Instant::now();
                if let Some(left_ms) = self.number_of(&["PTTL", "{users}:feed"])?.filter(|left_ms| *left_ms >= 0) {
                    applied = (now + Duration::from_millis(left_ms as u64)).checked_sub(MAX_LAG + ROUNDED);
                }
            }
        }
        let asked = Instant::now();
        let Reply::Array(parts) = self.call(&words)? else { return Ok(()) };
        let answer = match parts[0].text().as_str() {
            "absent" => Answer::Absent,
            "hit" => Answer::Hit(parts[1].text().parse().expect("a version")),
            "load" => Answer::Load,
            _ => Answer::Wait,
        };
        let moment = match (self.run.mode, answer) {
            (Mode::Synchronous, _) => Some(asked),
            (Mode::Eventual, Answer::Absent) => asked.checked_sub(MAX_LAG + ROUNDED).max(applied),
            (Mode::Eventual, _) => applied,
        };
        self.run.count(answer, moment.is_some());
        if let Some(broken) = self.run.rows.answer(self.number, id, asked, moment, answer) {
            self.run.fail(&broken);
        }
        if let (Answer::Load, Some(version)) = (answer, self.load(id)) {
            let fill = ["BF.FILL", "{users}", &text, &key, &parts[1].text()].map(str::to_owned);
            let value = version.map(|version| version.to_string());
            let end = match &value {
                Some(value) => vec!["VALUE", value, "EX", "60"],
                None => vec!["NONE", "EX", "60"],
            };
            let reply = self.call(&[&fill.each_ref().map(String::as_str)[..], &end].concat())?;
            let filled = Answer::Filled(version, reply == Reply::Simple("OK".to_owned()));
            self.run.rows.answer(self.number, id, asked, None, filled);
        }
        Ok(())
    }

    /// Returns the version in the database, or `None` if it is away. Some readers are slow.
    fn load(&mut self, id: usize) -> Option<Option<i32>> {
        match self.session.query_opt("SELECT version FROM users WHERE id = $1", &[&(id as i64)]) {
            Ok(row) => {
                match self.random.u16(..800) {
                    0 => thread::sleep(Duration::from_millis(self.random.u64(..500))),
                    1..100 => thread::sleep(Duration::from_millis(self.random.u64(..5))),
                    _ => {}
                }
                Some(row.map(|row| row.get(0)))
            }
            Err(_) => {
                self.session = connect(self.run);
                None
            }
        }
    }

    fn number_of(&mut self, words: &[&str]) -> io::Result<Option<i64>> {
        Ok(match self.call(words)? {
            Reply::Integer(number) => Some(number),
            _ => None,
        })
    }

    /// Sends a command. An error of a server that is starting is like a lost connection.
    fn call(&mut self, words: &[&str]) -> io::Result<Reply> {
        let reply = self.client.try_call(words)?;
        if let Reply::Error(text) = &reply {
            if !text.starts_with("LOADING") {
                self.run.fail(&format!("{words:?}: {text}"));
            }
            return Err(io::Error::other(text.clone()));
        }
        Ok(reply)
    }
}

/// Connects to the server, which may be away.
fn open(run: &Run) -> Connection {
    loop {
        match Connection::open(run.port) {
            Ok(client) => return client,
            Err(error) if run.is_given_up() => panic!("no server: {error}"),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}
