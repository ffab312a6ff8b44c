//! Writers that know nothing of the guard. Each has rows that no other writer changes; only TRUNCATE concerns all rows.

use std::io::Write as _;
use std::sync::RwLock;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use postgres::error::SqlState;
use postgres::{Client, Error};

use super::{Mode, Run, connect};

/// The number of writers, and the rows of each.
pub const WRITERS: usize = 4;
pub const ROWS: usize = 16;
/// Rows of a large transaction, more than the follower announces by name. No reader asks for them.
const MANY: usize = 10_500;
/// Statements of a writer at most that alter the table: PostgreSQL counts dropped columns as columns.
const ALTERED: usize = 1000;
/// One in this many transactions is a TRUNCATE, and one an alteration of the table. After each the follower fills anew, and there is
/// no heartbeat until then.
const REFILLS: u32 = 3000;

/// A part of a transaction.
enum Step {
    Run(String),
    /// Lines for COPY.
    Copy(String),
}

/// A transaction.
struct Plan {
    statement: &'static str,
    steps: Vec<Step>,
    /// Rows, each with whether it exists afterwards.
    changes: Vec<(usize, bool)>,
    is_committed: bool,
}

pub struct Writer<'a> {
    run: &'a Run,
    /// Held exclusively by TRUNCATE.
    gate: &'a RwLock<()>,
    number: usize,
    random: fastrand::Rng,
    session: Client,
    altered: usize,
    has_many: bool,
}

fn list(ids: &[usize]) -> String {
    ids.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

fn values(ids: &[usize], version: i32) -> String {
    ids.iter().map(|id| format!("({id}, {version})")).collect::<Vec<_>>().join(", ")
}

fn insert(ids: &[usize], version: i32) -> String {
    format!("INSERT INTO users (id, version) VALUES {}", values(ids, version))
}

fn update(ids: &[usize], version: i32) -> String {
    format!("UPDATE users SET version = {version} WHERE id IN ({})", list(ids))
}

fn delete(ids: &[usize]) -> String {
    format!("DELETE FROM users WHERE id IN ({})", list(ids))
}

impl<'a> Writer<'a> {
    pub fn new(run: &'a Run, gate: &'a RwLock<()>, number: usize) -> Self {
        let random = fastrand::Rng::with_seed(run.seed.wrapping_mul(1000) + number as u64);
        Self { run, gate, number, random, session: connect(run), altered: 0, has_many: false }
    }

    /// Writes until the end of the run.
    pub fn run(mut self) {
        while !self.run.done.load(SeqCst) {
            if self.run.mode == Mode::Eventual {
                // No COMMIT waits for the follower, and without a pause it would always be late.
                thread::sleep(Duration::from_millis(self.random.u64(..10)));
            }
            if self.random.u32(..REFILLS) == 0 {
                let _alone = self.gate.write().unwrap();
                let plan = self.truncate();
                self.execute(plan);
            } else {
                let _shared = self.gate.read().unwrap();
                let plan = self.plan();
                self.execute(plan);
            }
        }
        self.run.threads.fetch_sub(1, SeqCst);
    }

    /// Returns some own rows that exist, or do not.
    fn some(&mut self, exist: bool, most: usize) -> Vec<usize> {
        let mut ids: Vec<_> = (0..ROWS).map(|row| row * WRITERS + self.number).collect();
        ids.retain(|id| self.run.rows.exists(*id) == exist);
        self.random.shuffle(&mut ids);
        ids.truncate(self.random.usize(1..=most));
        ids
    }

    fn truncate(&mut self) -> (i32, Plan) {
        let version = self.run.rows.next_version();
        let all = 0..self.run.rows.len();
        let kept: Vec<usize> = all.clone().filter(|_| self.random.u8(..3) == 0).collect();
        let is_committed = self.random.u8(..5) > 0;
        let mut text = "BEGIN; TRUNCATE users; ".to_owned();
        if !kept.is_empty() {
            text += &insert(&kept, if is_committed { version } else { -version });
        }
        text += if is_committed { "; COMMIT" } else { "; ROLLBACK" };
        let changes = all.map(|id| (id, kept.contains(&id))).collect();
        (version, Plan { statement: "TRUNCATE", steps: vec![Step::Run(text)], changes, is_committed })
    }

    fn plan(&mut self) -> (i32, Plan) {
        let version = self.run.rows.next_version();
        let (here, gone) = (self.some(true, 4), self.some(false, 4));
        let (mut exist, mut deleted) = (Vec::new(), Vec::new());
        let (mut is_committed, mut copy) = (true, None);
        let number = if self.random.u32(..REFILLS) == 0 { 0 } else { self.random.u16(1..1000) };
        let (statement, text) = match (number, here.first(), gone.first()) {
            (0, ..) if self.altered < ALTERED => {
                self.altered += 1;
                let column = format!("n{}", self.number);
                // Each but the last writes the whole table anew.
                let text = match self.altered % 4 {
                    1 => format!("ALTER TABLE users ADD COLUMN IF NOT EXISTS {column} float DEFAULT random()"),
                    2 => "ALTER TABLE users ALTER COLUMN version TYPE int USING version + 0".to_owned(),
                    3 => "VACUUM FULL users".to_owned(),
                    _ => format!("ALTER TABLE users DROP COLUMN IF EXISTS {column}"),
                };
                ("table written anew", text)
            }
            (1, Some(_), _) => {
                exist.clone_from(&here);
                let first = (self.number + 1) * 1_000_000;
                let last = first + MANY;
                self.has_many = !self.has_many;
                let many = if self.has_many {
                    format!(
                        "INSERT INTO users (id, version) SELECT id, 1 FROM generate_series({first}, {last}) id ON CONFLICT DO NOTHING"
                    )
                } else {
                    format!("DELETE FROM users WHERE id BETWEEN {first} AND {last}")
                };
                ("large transaction", format!("BEGIN; {many}; {}; COMMIT", update(&here, version)))
            }
            (..50, _, Some(_)) => {
                exist.clone_from(&gone);
                copy = Some(gone.iter().map(|id| format!("{id}\t{version}\n")).collect());
                ("COPY", String::new())
            }
            (..150, _, Some(_)) => {
                exist = [&here[..], &gone].concat();
                let end = "ON CONFLICT (id) DO UPDATE SET version = excluded.version";
                ("ON CONFLICT", format!("{} {end}", insert(&exist, version)))
            }
            (..250, Some(&old), Some(&new)) => {
                (deleted, exist) = (vec![old], vec![new]);
                ("key change", format!("UPDATE users SET id = {new}, version = {version} WHERE id = {old}"))
            }
            (..330, Some(_), _) => {
                exist.clone_from(&here);
                ("DELETE and INSERT", format!("BEGIN; {}; {}; COMMIT", delete(&here), insert(&here, version)))
            }
            (..410, Some(_), _) => {
                exist.clone_from(&here);
                let undone = format!("{}; {}", delete(&here[..1]), insert(&here[..1], -version));
                (
                    "savepoint",
                    format!("BEGIN; SAVEPOINT s; {undone}; ROLLBACK TO s; {}; COMMIT", update(&here, version)),
                )
            }
            (..450, Some(_), _) => {
                (exist, is_committed) = (here.clone(), false);
                ("rolled back", format!("BEGIN; {}; ROLLBACK", update(&here, -version)))
            }
            (..520, Some(&old), Some(_)) => return self.prepared(version, old, gone),
            (..700, Some(_), _) => {
                deleted = here[..1].to_vec();
                ("DELETE", delete(&here[..1]))
            }
            (..720, Some(_), _) => {
                deleted.clone_from(&here);
                ("DELETE of several rows", delete(&here))
            }
            (number, _, Some(_)) if number % 2 == 0 => {
                exist.clone_from(&gone);
                ("INSERT", insert(&gone, version))
            }
            (_, Some(_), _) => {
                exist.clone_from(&here);
                ("UPDATE", update(&here, version))
            }
            _ => {
                exist.clone_from(&gone);
                ("INSERT", insert(&gone, version))
            }
        };
        let steps = vec![copy.map_or(Step::Run(text), Step::Copy)];
        let changes = deleted.iter().map(|id| (*id, false)).chain(exist.iter().map(|id| (*id, true))).collect();
        (version, Plan { statement, steps, changes, is_committed })
    }

    /// A prepared transaction, which is committed or rolled back in a second step.
    fn prepared(&mut self, version: i32, old: usize, new: Vec<usize>) -> (i32, Plan) {
        let (is_committed, name) = (self.random.u8(..4) > 0, format!("writer{}", self.number));
        let inserted = insert(&new, if is_committed { version } else { -version });
        let end = if is_committed { "COMMIT" } else { "ROLLBACK" };
        let steps = vec![
            Step::Run(format!("BEGIN; {}; {inserted}; PREPARE TRANSACTION '{name}'", delete(&[old]))),
            Step::Run(format!("{end} PREPARED '{name}'")),
        ];
        let changes = new.into_iter().map(|id| (id, true)).chain([(old, false)]).collect();
        (version, Plan { statement: "prepared", steps, changes, is_committed })
    }

    fn execute(&mut self, (version, plan): (i32, Plan)) {
        let run = self.run;
        run.rows.send(version, plan.statement, &plan.changes);
        for step in &plan.steps {
            let result = match step {
                Step::Run(text) => self.session.batch_execute(text),
                Step::Copy(lines) => self.copy(lines),
            };
            if let Err(error) = result {
                if !is_stopped(&error) {
                    run.fail(&format!("{}: {error:?}", plan.statement));
                }
                return self.resolve(version, &plan.changes);
            }
        }
        run.rows.end(version, &plan.changes, plan.is_committed);
        run.commits.fetch_add(u64::from(plan.is_committed), SeqCst);
    }

    fn copy(&mut self, lines: &str) -> Result<(), Error> {
        // By itself, COPY would commit after its CommandComplete, which arrives even if a shutdown rolls it back.
        let mut transaction = self.session.transaction()?;
        let mut copy = transaction.copy_in("COPY users (id, version) FROM STDIN")?;
        // An error is the error of `finish`, too.
        _ = copy.write_all(lines.as_bytes());
        copy.finish()?;
        transaction.commit()
    }

    /// Finds out what became of a transaction during which PostgreSQL was stopped.
    fn resolve(&mut self, version: i32, changes: &[(usize, bool)]) {
        self.run.unknown.fetch_add(1, SeqCst);
        while !self.run.is_given_up() {
            self.session = connect(self.run);
            match self.look(version, changes) {
                Ok(()) => return,
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn look(&mut self, version: i32, changes: &[(usize, bool)]) -> Result<(), Error> {
        let name = format!("writer{}", self.number);
        if self.session.query_opt("SELECT 1 FROM pg_prepared_xacts WHERE gid = $1", &[&name])?.is_some() {
            self.session.batch_execute(&format!("ROLLBACK PREPARED '{name}'"))?;
        }
        for &(id, _) in changes {
            let row = self.session.query_opt("SELECT version FROM users WHERE id = $1", &[&(id as i64)])?;
            self.run.rows.resolve(version, id, row.map(|row| row.get(0)));
        }
        Ok(())
    }
}

/// Whether PostgreSQL was stopped.
fn is_stopped(error: &Error) -> bool {
    let codes = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
    error.is_closed() || error.code().is_none_or(|code| codes.contains(code))
}
