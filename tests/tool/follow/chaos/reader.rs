//! Readers. They compare each answer with the COMMITs that had returned when they asked.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use std::{io, thread};

use testing::{Connection, Reply};

use crate::follow::chaos::{MAX_LAG, Mode, Run, Session, connect};

pub const READERS: u64 = 4;
/// A time to live is rounded to milliseconds.
const ROUNDED: Duration = Duration::from_millis(2);
/// The FRESH of half of the readers in eventual mode: longer than `max-lag` and than a lease. And the precision of the guard's times.
const FRESH: Duration = Duration::from_secs(3);
const FRESH_MS: &str = "3000";
const PRECISION: Duration = Duration::from_millis(70);

pub struct Reader<'a, S> {
    run: &'a Run,
    number: u64,
    random: fastrand::Rng,
    client: Connection,
    session: S,
}

impl<'a, S: Session> Reader<'a, S> {
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

    /// Fetches a row, and fills it in if it gets the lease. An error means a lost connection to the server.
    fn read(&mut self) -> io::Result<()> {
        let id = self.random.usize(..self.run.rows.len());
        let (text, key) = (id.to_string(), format!("{{users}}:{id}"));
        let mut words = vec!["BF.FETCH", "{users}", &text, &key, "LEASE", "2000", "WHILE", "{users}:feed"];
        let has_fresh = self.run.mode == Mode::Eventual && self.number.is_multiple_of(2);
        if has_fresh {
            words.extend(["FRESH", FRESH_MS]);
        }
        // The time up to which all changes are applied, according to the heartbeat.
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
            // Without a heartbeat, a NONE may be as old as a value.
            (Mode::Eventual, _) if has_fresh => asked.checked_sub(FRESH + PRECISION).max(applied),
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

    /// Returns the version in the database, or `None` if the database is unreachable. Some readers are slow.
    fn load(&mut self, id: usize) -> Option<Option<i32>> {
        match self.session.version(id) {
            Ok(version) => {
                match self.random.u16(..800) {
                    0 => thread::sleep(Duration::from_millis(self.random.u64(..500))),
                    1..100 => thread::sleep(Duration::from_millis(self.random.u64(..5))),
                    _ => {}
                }
                Some(version)
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

    /// Sends a command. Treats the error of a server that is loading or out of memory like a lost connection.
    fn call(&mut self, words: &[&str]) -> io::Result<Reply> {
        let reply = self.client.try_call(words)?;
        if let Reply::Error(text) = &reply {
            if !["LOADING", "OOM"].iter().any(|code| text.starts_with(code)) {
                self.run.fail(&format!("{words:?}: {text}"));
            }
            return Err(io::Error::other(text.clone()));
        }
        Ok(reply)
    }
}

/// Connects to the server, which may be unreachable.
fn open(run: &Run) -> Connection {
    loop {
        match Connection::open(run.port) {
            Ok(client) => return client,
            Err(error) if run.is_given_up() => panic!("no server: {error}"),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

// The history of each row: the writers' changes and the readers' answers. It decides which answers break a promise.

/// The minimum number of changes that are kept per row. Further changes are dropped once they are older than [`KEPT_FOR`].
const KEPT: usize = 100;
const KEPT_FOR: Duration = Duration::from_secs(60);
/// The number of answers that are kept per row.
const ANSWERS: usize = 200;

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Its COMMIT has not returned yet.
    Sent,
    Returned(Instant),
    /// The database was stopped during the COMMIT, and the change is now visible.
    Visible,
    RolledBack,
}

/// A change of a row by a transaction.
#[derive(Debug)]
struct Change {
    /// The number of the transaction, which is the row's version if it then exists.
    version: i32,
    exists: bool,
    statement: &'static str,
    sent: Instant,
    outcome: Outcome,
}

/// An answer to a reader, or its fill.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    Absent,
    Hit(i32),
    Load,
    Wait,
    /// It loaded this version and filled it in; true if the reply to BF.FILL was OK.
    Filled(Option<i32>, bool),
}

#[derive(Default)]
struct Row {
    changes: VecDeque<Change>,
    /// Whether the row exists, according to its writer.
    exists: bool,
    /// The reader, the times of its question and of the answer, and the answer.
    answers: VecDeque<(u64, Instant, Instant, Answer)>,
}

/// All rows.
pub struct Rows {
    begin: Instant,
    version: AtomicI32,
    rows: Vec<Mutex<Row>>,
}

impl Row {
    /// The last change whose COMMIT had returned at that moment, and all later changes.
    fn since(&self, moment: Instant) -> (Option<&Change>, impl Iterator<Item = &Change>) {
        let has_returned = |change: &Change| matches!(change.outcome, Outcome::Returned(at) if at <= moment);
        let base = self.changes.iter().rposition(has_returned);
        let later = self.changes.iter().skip(base.map_or(0, |base| base + 1));
        (base.map(|base| &self.changes[base]), later.filter(|change| change.outcome != Outcome::RolledBack))
    }

    fn last(&mut self, version: i32) -> &mut Change {
        self.changes.back_mut().filter(|change| change.version == version).expect("the row's last change")
    }

    /// Returns why an answer is wrong if it must show every COMMIT that had returned at `moment`.
    fn objection(&self, moment: Instant, answer: Answer) -> Option<String> {
        let (base, mut later) = self.since(moment);
        let (version, existed) = base.map_or((0, false), |change| (change.version, change.exists));
        match answer {
            Answer::Absent if existed => {
                later.all(|change| change.exists).then(|| format!("absent, although version {version} was committed"))
            }
            Answer::Hit(cached) => {
                let is_cached = |change: &Change| change.version == cached && change.exists;
                let what = if existed { "was committed" } else { "had deleted the row, or nothing" };
                (!base.into_iter().chain(later).any(is_cached))
                    .then(|| format!("cached in version {cached}, although version {version} {what}"))
            }
            _ => None,
        }
    }
}

impl Rows {
    pub fn new(count: usize) -> Self {
        let rows = (0..count).map(|_| Mutex::default()).collect();
        Self { begin: Instant::now(), version: AtomicI32::new(1), rows }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns a number for a transaction.
    pub fn next_version(&self) -> i32 {
        self.version.fetch_add(1, SeqCst)
    }

    pub fn exists(&self, id: usize) -> bool {
        self.rows[id].lock().unwrap().exists
    }

    /// Records a transaction before it is sent.
    pub fn send(&self, version: i32, statement: &'static str, changes: &[(usize, bool)]) {
        let sent = Instant::now();
        for &(id, exists) in changes {
            let mut row = self.rows[id].lock().unwrap();
            // The second change must remain a base for every moment that readers ask about.
            while row.changes.len() > KEPT
                && matches!(row.changes[1].outcome, Outcome::Returned(at) if at.elapsed() > KEPT_FOR)
            {
                row.changes.pop_front();
            }
            row.changes.push_back(Change { version, exists, statement, sent, outcome: Outcome::Sent });
        }
    }

    /// Records that the COMMIT or ROLLBACK of a transaction has returned.
    pub fn end(&self, version: i32, changes: &[(usize, bool)], is_committed: bool) {
        let returned = Instant::now();
        for &(id, exists) in changes {
            let mut row = self.rows[id].lock().unwrap();
            if is_committed {
                row.exists = exists;
            }
            row.last(version).outcome = if is_committed { Outcome::Returned(returned) } else { Outcome::RolledBack };
        }
    }

    /// Records the outcome of a transaction whose end was unknown: `found` is the version in the database.
    pub fn resolve(&self, version: i32, id: usize, found: Option<i32>) {
        let mut row = self.rows[id].lock().unwrap();
        row.exists = found.is_some();
        let change = row.last(version);
        let is_visible = if change.exists { found == Some(version) } else { found.is_none() };
        change.outcome = if is_visible { Outcome::Visible } else { Outcome::RolledBack };
    }

    /// Records an answer to a reader that asked at `asked`. If the answer does not show every COMMIT that had returned at `moment`, returns
    /// the reason, with the history of the row.
    pub fn answer(
        &self,
        reader: u64,
        id: usize,
        asked: Instant,
        moment: Option<Instant>,
        answer: Answer,
    ) -> Option<String> {
        let mut row = self.rows[id].lock().unwrap();
        if row.answers.len() == ANSWERS {
            row.answers.pop_front();
        }
        row.answers.push_back((reader, asked, Instant::now(), answer));
        let objection = row.objection(moment?, answer)?;
        let moment = self.at(moment?);
        Some(format!("row {id} is {objection} by {moment}\n{}", self.history(&row)))
    }

    /// Seconds since the beginning.
    pub fn at(&self, moment: Instant) -> String {
        format!("{:.6}", moment.saturating_duration_since(self.begin).as_secs_f64())
    }

    fn history(&self, row: &Row) -> String {
        let mut lines: Vec<(Instant, String)> = Vec::new();
        for change in &row.changes {
            let effect = if change.exists { "exists" } else { "deleted" };
            let text = format!("version {} is sent ({}: {effect})", change.version, change.statement);
            lines.push((change.sent, text));
            match change.outcome {
                Outcome::Returned(at) => lines.push((at, format!("version {} has returned", change.version))),
                other => lines.push((change.sent, format!("version {} was {other:?}", change.version))),
            }
        }
        for (reader, asked, answered, answer) in &row.answers {
            let text = match answer {
                Answer::Filled(version, is_accepted) => format!("filled in {version:?}, accepted: {is_accepted}"),
                other => format!("{other:?}"),
            };
            lines.push((*answered, format!("reader {reader}, which asked at {}: {text}", self.at(*asked))));
        }
        lines.sort_by_key(|(at, _)| *at);
        let skipped = lines.len().saturating_sub(150);
        lines[skipped..].iter().map(|(at, text)| format!("{:>14} {text}\n", self.at(*at))).collect()
    }
}
