//! Writers that do not use the guard. Each writer changes only its own rows, except with TRUNCATE.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use super::{Failure, Mode, Run, Session, connect};

/// The number of writers, and the rows of each.
pub const WRITERS: usize = 4;
pub const ROWS: usize = 16;
/// Rows of a large transaction, more than the follower announces individually. Readers do not query them.
const MANY: usize = 10_500;
/// The maximum number of ALTER statements of a writer, because the databases count dropped columns.
const ALTERED: usize = 1000;
/// One in this many transactions is a TRUNCATE, and one an alteration of the table. After each, the follower refills the filter, and has no
/// heartbeat until then.
const REFILLS: u32 = 3000;

/// A part of a transaction.
enum Step {
    Run(String),
    /// New rows, in bulk.
    Load(Vec<usize>),
}

/// A transaction.
struct Plan {
    statement: &'static str,
    steps: Vec<Step>,
    /// Rows, and whether each exists afterwards.
    changes: Vec<(usize, bool)>,
    is_committed: bool,
}

pub struct Writer<'a, S> {
    run: &'a Run,
    number: usize,
    random: fastrand::Rng,
    session: S,
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

impl<'a, S: Session> Writer<'a, S> {
    pub fn new(run: &'a Run, number: usize) -> Self {
        let random = fastrand::Rng::with_seed(run.seed.wrapping_mul(1000) + number as u64);
        Self { run, number, random, session: connect(run), altered: 0, has_many: false }
    }

    /// Writes until the end of the run.
    pub fn run(mut self) {
        while !self.run.done.load(SeqCst) {
            if self.run.mode == Mode::Eventual {
                // COMMITs do not wait for the follower, which would always be late without a pause.
                thread::sleep(Duration::from_millis(self.random.u64(..10)));
            }
            if !self.run.is_ordinary && self.random.u32(..REFILLS) == 0 {
                let _alone = self.run.gate.write().unwrap();
                let plan = self.truncate();
                self.execute(plan);
            } else {
                let _shared = self.run.gate.read().unwrap();
                let plan = self.plan();
                self.execute(plan);
            }
        }
        self.run.threads.fetch_sub(1, SeqCst);
    }

    /// Returns some of the writer's rows that exist, or that do not exist.
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
        let kept: Vec<usize> = all.clone().filter(|_| S::TRUNCATE_IS_UNDONE && self.random.u8(..3) == 0).collect();
        let is_committed = !S::TRUNCATE_IS_UNDONE || self.random.u8(..5) > 0;
        let mut text = "BEGIN; TRUNCATE users".to_owned();
        if !kept.is_empty() {
            text += &format!("; {}", insert(&kept, if is_committed { version } else { -version }));
        }
        text += if is_committed { "; COMMIT" } else { "; ROLLBACK" };
        let changes = all.map(|id| (id, kept.contains(&id))).collect();
        (version, Plan { statement: "TRUNCATE", steps: vec![Step::Run(text)], changes, is_committed })
    }

    fn plan(&mut self) -> (i32, Plan) {
        let version = self.run.rows.next_version();
        let (here, gone) = (self.some(true, 4), self.some(false, 4));
        let (mut exist, mut deleted) = (Vec::new(), Vec::new());
        let (mut is_committed, mut loaded) = (true, None);
        let number = match self.run.is_ordinary {
            true => self.random.u16(50..1000),
            false if self.random.u32(..REFILLS) == 0 => 0,
            false => self.random.u16(1..1000),
        };
        let (statement, text) = match (number, here.first(), gone.first()) {
            (0, ..) if self.altered < ALTERED => {
                let text = S::alter(self.altered, &format!("n{}", self.number));
                self.altered += 1;
                ("table altered", text)
            }
            (1, Some(_), _) => {
                exist.clone_from(&here);
                let first = (self.number + 1) * 1_000_000;
                let last = first + MANY;
                self.has_many = !self.has_many;
                let many = if self.has_many {
                    S::insert_many(first, last)
                } else {
                    format!("DELETE FROM users WHERE id BETWEEN {first} AND {last}")
                };
                ("large transaction", format!("BEGIN; {many}; {}; COMMIT", update(&here, version)))
            }
            (..50, _, Some(_)) => {
                exist.clone_from(&gone);
                loaded = Some(gone.clone());
                ("bulk load", String::new())
            }
            (..150, _, Some(_)) => {
                exist = [&here[..], &gone].concat();
                ("ON CONFLICT", format!("{} {}", insert(&exist, version), S::ON_CONFLICT))
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
        let steps = vec![loaded.map_or(Step::Run(text), Step::Load)];
        let changes = deleted.iter().map(|id| (*id, false)).chain(exist.iter().map(|id| (*id, true))).collect();
        (version, Plan { statement, steps, changes, is_committed })
    }

    /// A prepared transaction, which is committed or rolled back in a second step.
    fn prepared(&mut self, version: i32, old: usize, new: Vec<usize>) -> (i32, Plan) {
        let (is_committed, name) = (self.random.u8(..4) > 0, format!("writer{}", self.number));
        let inserted = insert(&new, if is_committed { version } else { -version });
        let end = if is_committed { "COMMIT" } else { "ROLLBACK" };
        let statements = format!("{}; {inserted}", delete(&[old]));
        let steps = [S::prepare(&name, &statements), S::end_prepared(&name, end)].map(Step::Run).into();
        let changes = new.into_iter().map(|id| (id, true)).chain([(old, false)]).collect();
        (version, Plan { statement: "prepared", steps, changes, is_committed })
    }

    fn execute(&mut self, (version, plan): (i32, Plan)) {
        let run = self.run;
        run.rows.send(version, plan.statement, &plan.changes);
        for step in &plan.steps {
            let result = match step {
                Step::Run(text) => self.session.run(text),
                Step::Load(ids) => self.session.load(ids, version),
            };
            if let Err(failure) = result {
                if let Failure::Refused(why) = failure {
                    run.fail(&format!("{}: {why}", plan.statement));
                }
                return self.resolve(version, &plan.changes);
            }
        }
        run.rows.end(version, &plan.changes, plan.is_committed);
        run.commits.fetch_add(u64::from(plan.is_committed), SeqCst);
    }

    /// Determines the outcome of a transaction that has failed.
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

    fn look(&mut self, version: i32, changes: &[(usize, bool)]) -> Result<(), Failure> {
        let name = format!("writer{}", self.number);
        if self.session.is_prepared(&name)? {
            self.session.run(&S::end_prepared(&name, "ROLLBACK"))?;
        }
        for &(id, _) in changes {
            let found = self.session.version(id)?;
            self.run.rows.resolve(version, id, found);
        }
        Ok(())
    }
}
