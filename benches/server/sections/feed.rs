//! `bloomgate follow`: the cost of commits compared with the same database without a follower, the speed of fills and of catching up with
//! the log, the delay until readers see a change, and the memory that a large transaction needs.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use postgres::{Client, Statement};
use tempfile::TempDir;

use crate::arguments;
use crate::info;
use crate::statistics::Samples;
use crate::table::{Cell, Results, Table, summary};
use crate::variants::{Bench, Running};
use testing::database::Database;
use testing::mariadb::{self, MariaDb};
use testing::{Connection, integer, patience, tool};

const ROWS: u64 = 100_000;
/// The numbers of writers.
const WRITERS: [usize; 2] = [1, 32];
/// The followers, with the minimum fraction of the commits without a follower. The last one is for PostgreSQL only.
const FOLLOWERS: [(&str, f64); 3] = [("none", 1.0), ("eventual", 0.85), ("synchronous", 0.6)];
const NONE: usize = 0;
const EVENTUAL: usize = 1;
/// Rows of a large transaction.
const MANY: u64 = 1_000_000;

/// A database whose commits are on disk before they return.
enum Followed {
    PostgreSql(Database),
    MariaDb(MariaDb),
}

enum Session {
    PostgreSql(Box<Client>, Statement),
    MariaDb(mariadb::Session),
}

impl Followed {
    /// Starts a database whose table `users` has the ids from 1 to `rows`.
    fn start(kind: arguments::Database, rows: u64) -> Result<Self> {
        Ok(match kind {
            arguments::Database::Postgresql => {
                let database = Database::durable();
                let mut session = database.connect()?;
                session.batch_execute(&format!(
                    "CREATE TABLE users (id bigint PRIMARY KEY, version int NOT NULL) WITH (fillfactor = 50);
                     INSERT INTO users SELECT id, 1 FROM generate_series(1, {rows}) id;
                     CREATE PUBLICATION bloomgate FOR TABLE users"
                ))?;
                ["VACUUM ANALYZE users", "CHECKPOINT"].into_iter().try_for_each(|text| session.batch_execute(text))?;
                Self::PostgreSql(database)
            }
            arguments::Database::Mariadb => {
                let database = MariaDb::start(&[
                    "--innodb-flush-log-at-trx-commit=1",
                    "--sync-binlog=1",
                    "--innodb-log-file-size=1G",
                    "--innodb-buffer-pool-size=1G",
                ]);
                database.session().try_run(&format!(
                    "SET sql_log_bin = 0; CREATE TABLE users (id bigint PRIMARY KEY, version int NOT NULL);
                     INSERT INTO users SELECT seq, 1 FROM seq_1_to_{rows}; ANALYZE TABLE users"
                ))?;
                Self::MariaDb(database)
            }
        })
    }

    fn url(&self) -> String {
        match self {
            Self::PostgreSql(database) => database.url(),
            Self::MariaDb(database) => database.url(),
        }
    }

    fn session(&self) -> Result<Session> {
        Ok(match self {
            Self::PostgreSql(database) => {
                let mut session = database.connect()?;
                let update = session.prepare("UPDATE users SET version = version + 1 WHERE id = $1")?;
                Session::PostgreSql(Box::new(session), update)
            }
            Self::MariaDb(database) => Session::MariaDb(database.session()),
        })
    }
}

impl Session {
    /// Changes a row.
    fn update(&mut self, id: u64) -> Result<()> {
        match self {
            Self::PostgreSql(session, update) => {
                ensure!(session.execute(&*update, &[&(id as i64)])? == 1, "row {id} is missing");
            }
            Self::MariaDb(session) => {
                session.try_run(&format!("UPDATE users SET version = version + 1 WHERE id = {id}"))?;
            }
        }
        Ok(())
    }

    /// Changes the rows with the ids from `first` to `last` in one transaction.
    fn update_range(&mut self, first: u64, last: u64) -> Result<()> {
        let text = format!("UPDATE users SET version = version + 1 WHERE id BETWEEN {first} AND {last}");
        match self {
            Self::PostgreSql(session, _) => session.batch_execute(&text)?,
            Self::MariaDb(session) => drop(session.try_run(&text)?),
        }
        Ok(())
    }
}

/// A database, and a server with a follower between them.
struct Side {
    mode: &'static str,
    follower: Option<Child>,
    database: Followed,
    server: Running,
    folder: TempDir,
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some(mut follower) = self.follower.take() {
            _ = follower.kill();
            _ = follower.wait();
        }
    }
}

impl Side {
    fn start(bench: &Bench, mode: &'static str, rows: u64) -> Result<Self> {
        let database = Followed::start(bench.database, rows)?;
        let folder = tempfile::tempdir()?;
        let mut side = Self { mode, follower: None, database, server: bench.start(0, true)?, folder };
        if mode != FOLLOWERS[NONE].0 {
            side.configure(rows)?;
            side.follow()?;
        }
        if let (Followed::PostgreSql(database), "synchronous") = (&side.database, mode) {
            side.wait("the fill", |_, client| Ok(client.run("EXISTS {users}") == integer(1)))?;
            let text = "ALTER SYSTEM SET synchronous_standby_names = 'bloomgate'";
            database.connect()?.batch_execute(text)?;
            database.connect()?.batch_execute("SELECT pg_reload_conf()")?;
        }
        if mode != FOLLOWERS[NONE].0 {
            side.wait("the heartbeat", |_, client| Ok(client.run("EXISTS {users}:feed") == integer(1)))?;
        }
        Ok(side)
    }

    fn configure(&self, rows: u64) -> Result<()> {
        let text = format!(
            "database = \"{}\"\nserver = \"redis://127.0.0.1:{}\"\nslot = \"bloomgate\"\nmode = \"{}\"\n[[table]]\n\
             name = \"users\"\nfilter = \"{{users}}\"\ncreate = \"0.001 {} HASH siphash\"\nitem = \"{{id}}\"\n\
             cache-key = \"{{users}}:{{id}}\"\nmax-lag = \"5s\"\n",
            self.database.url(),
            self.server.server.port,
            self.mode,
            rows * 2,
        );
        Ok(fs::write(self.folder.path().join("follow.toml"), text)?)
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("follow.log")
    }

    fn follow(&mut self) -> Result<()> {
        let mut command = Command::new(tool());
        command.arg("follow").arg(self.folder.path().join("follow.toml")).stdin(Stdio::null());
        self.follower = Some(command.stderr(File::create(self.log())?).spawn()?);
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        let mut follower = self.follower.take().context("a follower")?;
        Command::new("kill").arg(follower.id().to_string()).status()?;
        follower.wait()?;
        Ok(())
    }

    /// Waits for an effect of the follower.
    fn wait(&self, what: &str, mut condition: impl FnMut(&Self, &mut Connection) -> Result<bool>) -> Result<()> {
        let (begin, mut client) = (Instant::now(), Connection::open(self.server.server.port)?);
        while !condition(self, &mut client)? {
            if begin.elapsed() > 5 * patience() {
                bail!("gave up waiting for {what}: {}", fs::read_to_string(self.log()).unwrap_or_default());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Updates rows by random ids. Returns the commits a second and the median time of one in ms.
    fn commits(&self, writers: usize, duration: Duration) -> Result<(f64, f64)> {
        let begin = Instant::now();
        let times = thread::scope(|scope| {
            let writer = |seed| {
                move || -> Result<Vec<f64>> {
                    let mut session = self.database.session()?;
                    let (mut random, mut times) = (fastrand::Rng::with_seed(seed), Vec::new());
                    while begin.elapsed() < duration {
                        let (id, one) = (random.u64(1..=ROWS), Instant::now());
                        session.update(id)?;
                        times.push(one.elapsed().as_secs_f64() * 1000.0);
                    }
                    Ok(times)
                }
            };
            let threads: Vec<_> = (0..writers as u64).map(|seed| scope.spawn(writer(seed))).collect();
            let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a writer panicked"))?);
            ended.collect::<Result<Vec<_>>>()
        })?;
        let seconds = begin.elapsed().as_secs_f64();
        let times: Samples = times.into_iter().flatten().collect();
        Ok((times.rounds() as f64 / seconds, times.median().context("no commit")?))
    }

    /// The times in ms, in ascending order, from the return of COMMIT to the moment when a reader sees the change.
    fn delays(&self, count: u64) -> Result<Vec<f64>> {
        let mut session = self.database.session()?;
        let mut client = Connection::open(self.server.server.port)?;
        let mut delays = Vec::new();
        for id in 1..=count {
            client.run(&format!("SET {{users}}:{id} old"));
            session.update(id)?;
            let begin = Instant::now();
            let questions = [format!("EXISTS {{users}}:{id}"), format!("HEXISTS {{users}}:feed:open {{users}}:{id}")];
            for question in questions {
                while client.run(&question) != integer(0) {}
            }
            delays.push(begin.elapsed().as_secs_f64() * 1000.0);
        }
        delays.sort_by(f64::total_cmp);
        Ok(delays)
    }

    /// Rows per second of a follower that starts this many changed rows behind, 100 in each transaction.
    fn catch_up(&mut self, changes: u64) -> Result<f64> {
        self.stop()?;
        let mut session = self.database.session()?;
        for number in 0..changes / 100 {
            // Not the last row, which is waited for.
            let first = number * 100 % (ROWS - 100);
            session.update_range(first + 1, first + 100)?;
        }
        let begin = Instant::now();
        self.follow()?;
        self.wait_for_log(&mut session)?;
        let seconds = begin.elapsed().as_secs_f64();
        let log = fs::read_to_string(self.log())?;
        ensure!(!log.contains("filling"), "the follower does not go on: {log}");
        Ok(changes as f64 / seconds)
    }

    /// Changes a row, and waits until the follower has applied this change and all earlier ones.
    fn wait_for_log(&self, session: &mut Session) -> Result<()> {
        Connection::open(self.server.server.port)?.run(&format!("SET {{users}}:{ROWS} old"));
        session.update(ROWS)?;
        self.wait("the end of the log", |_, client| Ok(client.run(&format!("EXISTS {{users}}:{ROWS}")) == integer(0)))
    }

    /// Returns the follower's peak memory, in MiB.
    fn peak_memory(&self) -> Result<f64> {
        let pid = self.follower.as_ref().context("a follower")?.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        Ok(info::number(&status, "VmHWM").context("no VmHWM")? as f64 / 1024.0)
    }
}

/// Runs the section.
pub fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    // Every program competes for every processor, as on one machine.
    if let Some(processors) = &bench.processors {
        processors.spread_this_program();
    }
    let result = measure(bench, results);
    if let Some(processors) = &bench.processors {
        processors.move_this_program();
    }
    result
}

fn measure(bench: &Bench, results: &mut Results) -> Result<()> {
    let followers = match bench.database {
        arguments::Database::Postgresql => &FOLLOWERS[..],
        arguments::Database::Mariadb => &FOLLOWERS[..=EVENTUAL],
    };
    let mut sides = followers.iter().map(|(mode, _)| Side::start(bench, mode, ROWS)).collect::<Result<Vec<_>>>()?;
    let rounds = bench.rounds(7, 2);
    let duration = Duration::from_millis(bench.size(5000, 1000));
    let mut rates: [[Samples; FOLLOWERS.len()]; WRITERS.len()] = Default::default();
    let mut times: [[Samples; FOLLOWERS.len()]; WRITERS.len()] = Default::default();
    for round in 0..rounds {
        eprintln!("bench: feed, round {} of {rounds}", round + 1);
        for (place, writers) in WRITERS.into_iter().enumerate() {
            for (index, side) in sides.iter().enumerate() {
                let (rate, time) = side.commits(writers, duration)?;
                rates[place][index].push(rate);
                times[place][index].push(time);
            }
        }
    }
    let columns = ["writers", "follower", "rounds", "commits/s", "least", "most", "ratio", "aim", "ms", "added ms"];
    let mut table = Table::new("Commits beside the follower", &columns);
    for (place, writers) in WRITERS.into_iter().enumerate() {
        for (index, (name, aim)) in followers.iter().copied().enumerate() {
            let mut cells: Vec<Cell> = vec![(writers as u64).into(), name.into(), (rounds as u64).into()];
            cells.extend(summary(&rates[place][index]));
            cells.extend([rates[place][index].ratio_to(&rates[place][NONE]).into(), Cell::Number(aim, 2)]);
            let (time, plain) = (times[place][index].median(), times[place][NONE].median());
            cells.extend([time.into(), time.zip(plain).map(|(time, plain)| time - plain).into()]);
            table.row(cells);
        }
    }
    table.note(format!(
        "Each writer updates rows of {ROWS} by random id, one in each transaction. The database, Redis, the follower and the writers share all \
         processors; each commit is on disk before it returns, and fsync is off in Redis. ms is the median time of a transaction. The databases \
         take turns."
    ));
    results.table(&table)?;
    follower(bench, &mut sides, results)
}

/// Measures the follower alone.
fn follower(bench: &Bench, sides: &mut Vec<Side>, results: &mut Results) -> Result<()> {
    let mut table = Table::new("The follower", &["what", "follower", "value", "unit", "aim"]);
    let mut row = |what: &str, mode: &str, value: f64, unit: &str, aim: Cell| {
        table.row([what.into(), mode.into(), Cell::Number(value, 3), unit.into(), aim]);
    };
    for side in &sides[EVENTUAL..] {
        let delays = side.delays(bench.size(2000, 200))?;
        let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
        row("from COMMIT to release, median", side.mode, at(0.5), "ms", Cell::Empty);
        row("from COMMIT to release, 99%", side.mode, at(0.99), "ms", Cell::Empty);
    }
    let changes = bench.size(500_000, 20_000);
    let rate = sides[EVENTUAL].catch_up(changes)?;
    row("catching up", "eventual", rate, "rows/s", Cell::Count(100_000));
    sides.clear();
    let rows = bench.size(10_000_000, 2 * ROWS);
    let side = Side::start(bench, "eventual", rows)?;
    let log = fs::read_to_string(side.log())?;
    let seconds = log.lines().find_map(|line| line.split_once(" rows (")?.1.strip_suffix(" s)")?.parse::<f64>().ok());
    let seconds = seconds.with_context(|| format!("no fill in {log}"))?;
    row("first fill", "eventual", rows as f64 / seconds, "rows/s", Cell::Count(1_000_000));
    row("peak memory after the fill", "eventual", side.peak_memory()?, "MiB", Cell::Empty);
    let mut session = side.database.session()?;
    let many = bench.size(MANY, 50_000);
    session.update_range(ROWS + 1, ROWS + many)?;
    side.wait_for_log(&mut session)?;
    row("peak memory after a large transaction", "eventual", side.peak_memory()?, "MiB", Cell::Empty);
    table.note(format!(
        "The first fill has {rows} rows, and the large transaction changes {many} of them. Catching up: a follower starts behind by \
         {changes} changed rows, 100 in each transaction, and the time includes its start. Release: the cached value is gone, and the cache key is not held."
    ));
    results.table(&table)
}
