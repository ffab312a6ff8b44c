//! MariaDB in a run, or MySQL with `BLOOMGATE_MYSQL`.

use testing::integer;
use testing::mariadb::{self, MariaDb, in_sql};

use crate::follow::chaos::{Base, Chaos, Failure, Fault, MAX_LAG, Session};
use crate::follow::mariadb::{purge, reset, semi_sync};
use crate::follow::{Followed, Follower, has, soon};

/// The numbers of the errors that end a transaction: a deadlock, a lock timeout, a table altered meanwhile, a server that is shutting down
/// (MySQL may also report that its hook failed), an interrupted statement, and a killed connection. The last two are a duplicate and an
/// unknown column, because it is unknown whether an earlier ALTER was executed.
const ENDED: [u16; 9] = [1213, 1205, 1412, 1053, 3100, 1317, 1927, 1060, 1091];

impl Base for MariaDb {
    const MORE: &'static [Fault] =
        &[Fault::StopDatabase, Fault::PurgeLog, Fault::ResetLog, Fault::LoseLog, Fault::FailOver, Fault::Restore];

    fn name() -> &'static str {
        in_sql("MariaDB", "MySQL")
    }

    /// Gap locks between different writers' rows would abort their transactions. Held COMMITs wait until they are released.
    fn settings() -> Vec<&'static str> {
        vec![
            "--log-slave-updates=ON",
            "--max-binlog-size=1M",
            "--transaction-isolation=READ-COMMITTED",
            in_sql("--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--plugin-load-add=semisync_source.so"),
            in_sql("--rpl-semi-sync-master-timeout=600000", "--rpl-semi-sync-source-timeout=600000"),
            // For large transactions.
            in_sql("--max-recursive-iterations=20000", "--cte-max-recursion-depth=20000"),
        ]
    }

    fn address(&self) -> String {
        self.socket().to_str().expect("a path in UTF-8").to_owned()
    }

    fn inflict(chaos: &mut Chaos<Self>, fault: Fault) {
        match fault {
            Fault::HoldCommits => {
                chaos.world.database.session().run(&format!("SET GLOBAL {}_enabled = ON", semi_sync()));
                let time = chaos.some_time(50..1000);
                chaos.pause(time);
                chaos.world.database.let_commits_return();
                chaos.let_readers_look();
            }
            Fault::CutDatabase => {
                let mut session = chaos.world.database.session();
                for line in session.run("SHOW PROCESSLIST") {
                    if let Some((connection, _)) = line.split_once("\tgate\t") {
                        // It may have ended meanwhile.
                        _ = session.try_run(&format!("KILL {connection}"));
                    }
                }
            }
            Fault::CrashDatabase => chaos.world.database.restart(),
            Fault::ShutdownDatabase => chaos.world.database.shut_down_and_restart(),
            Fault::StopDatabase => {
                let time = chaos.some_time(50..1500);
                chaos.stop(chaos.world.database.process_id(), time);
            }
            Fault::PurgeLog => {
                chaos.kill_followers();
                let time = chaos.some_time(0..500);
                chaos.pause(time);
                let mut session = chaos.world.database.session();
                session.run("FLUSH BINARY LOGS");
                purge(&mut session);
                chaos.tend();
            }
            Fault::ResetLog => {
                if chaos.random.bool() {
                    chaos.kill_followers();
                }
                chaos.world.database.session().run(reset());
                let time = chaos.some_time(0..500);
                chaos.pause(time);
                chaos.tend();
            }
            Fault::LoseLog => {
                chaos.world.database.restart_with(["--skip-log-bin".to_owned()]);
                let mut client = chaos.world.server.connect();
                soon(|| {
                    chaos.tend();
                    let sees = |follower: &Follower| {
                        follower.log().lines().last().is_some_and(|line| line.contains("log_bin is OFF"))
                    };
                    // The position may be missing because of a fill, which may still store it.
                    client.run("EXISTS {users}:feed:position") == integer(0) && chaos.followers.iter().any(sees)
                });
                let time = chaos.some_time(0..1000);
                chaos.pause(time);
                chaos.world.database.restart();
            }
            Fault::FailOver => {
                let gate = &chaos.run.gate;
                let alone = gate.write().unwrap();
                let replica = chaos.world.database.replica();
                drop(alone);
                let time = chaos.some_time(50..2000);
                chaos.pause(time);
                // The replica must receive all commits.
                let _alone = gate.write().unwrap();
                chaos.world.database.promote(&replica);
                chaos.world.database.replace_by(replica);
            }
            Fault::Restore => {
                let run = chaos.run;
                let alone = run.gate.write().unwrap();
                chaos.world.database.save();
                let mut session = chaos.world.database.session();
                let saved = (0..run.rows.len()).map(|id| (id, session.version(id).expect("the row, if it exists")));
                let saved: Vec<_> = saved.collect();
                drop(alone);
                let time = chaos.some_time(50..500);
                chaos.pause(time);
                let alone = run.gate.write().unwrap();
                // A follower whose position was not yet past the backup could not detect the restore, and would keep values that readers
                // have cached since. It stores the position of a group before it applies the next one.
                let mut client = chaos.world.server.connect();
                for id in [999_998, 999_997] {
                    let insert = format!("INSERT INTO users (id, version) VALUES ({id}, 1)");
                    chaos.world.database.session().run(&insert);
                    soon(|| {
                        chaos.tend();
                        has(&mut client, id)
                    });
                }
                if chaos.random.bool() {
                    chaos.kill_followers();
                }
                for &(id, version) in &saved {
                    run.rows.send(version.unwrap_or(0), "backup", &[(id, version.is_some())]);
                }
                chaos.world.database.put_back();
                for &(id, version) in &saved {
                    run.rows.end(version.unwrap_or(0), &[(id, version.is_some())], true);
                }
                drop(alone);
                // The new transactions have the same numbers as the lost ones.
                let time = chaos.some_time(0..3000);
                chaos.pause(time);
                chaos.tend();
                let _alone = run.gate.write().unwrap();
                chaos.pause(2 * MAX_LAG);
            }
            _ => panic!("{fault:?} is not in the round"),
        }
    }
}

impl From<mariadb::Error> for Failure {
    fn from(error: mariadb::Error) -> Self {
        match &error {
            mariadb::Error::Server(refusal) if !ENDED.contains(&refusal.code) => Self::Refused(error.to_string()),
            _ => Self::Unknown,
        }
    }
}

impl Session for mariadb::Session {
    const TRUNCATE_IS_UNDONE: bool = false;
    const ON_CONFLICT: &'static str = "ON DUPLICATE KEY UPDATE version = VALUES(version)";

    fn connect(address: &str) -> Result<Self, Failure> {
        Ok(Self::connect(address.as_ref())?)
    }

    fn run(&mut self, statements: &str) -> Result<(), Failure> {
        Ok(self.try_run(statements).map(drop)?)
    }

    fn version(&mut self, id: usize) -> Result<Option<i32>, Failure> {
        let rows = self.try_run(&format!("SELECT version FROM users WHERE id = {id}"))?;
        Ok(rows.first().map(|version| version.parse().expect("a number")))
    }

    fn load(&mut self, ids: &[usize], version: i32) -> Result<(), Failure> {
        let rows: Vec<_> = ids.iter().map(|id| format!("SELECT {id}, {version}")).collect();
        Session::run(self, &format!("REPLACE INTO users (id, version) {}", rows.join(" UNION ALL ")))
    }

    fn alter(number: usize, column: &str) -> String {
        match number % 4 {
            // The positions of the other columns change.
            0 => format!("ALTER TABLE users ADD COLUMN {column} float DEFAULT 0.5 FIRST"),
            1 => {
                format!("ALTER TABLE users MODIFY version {} NOT NULL", if number % 8 == 1 { "bigint" } else { "int" })
            }
            2 => "ALTER TABLE users FORCE".to_owned(),
            _ => format!("ALTER TABLE users DROP COLUMN {column}"),
        }
    }

    fn insert_many(first: usize, last: usize) -> String {
        format!(
            "INSERT IGNORE INTO users (id, version) WITH RECURSIVE ids AS \
             (SELECT {first} AS id UNION ALL SELECT id + 1 FROM ids WHERE id < {last}) SELECT id, 1 FROM ids"
        )
    }

    fn prepare(name: &str, statements: &str) -> String {
        format!("XA START '{name}'; {statements}; XA END '{name}'; XA PREPARE '{name}'")
    }

    fn end_prepared(name: &str, end: &str) -> String {
        format!("XA {end} '{name}'")
    }

    fn is_prepared(&mut self, name: &str) -> Result<bool, Failure> {
        Ok(self.try_run("XA RECOVER")?.iter().any(|row| row.ends_with(&format!("\t{name}"))))
    }
}
