//! PostgreSQL in a run, in both modes.

use std::io::Write as _;

use postgres::error::SqlState;
use postgres::{Client, Error, NoTls};
use testing::database::Database;

use crate::follow::chaos::{Base, Chaos, Failure, Fault, Mode, Session};
use crate::follow::synchronous::{FOLLOWER, WITH_GHOST};

impl Base for Database {
    const MORE: &'static [Fault] = &[];

    fn name() -> &'static str {
        "PostgreSQL"
    }

    fn address(&self) -> String {
        format!("{}?application_name=chaos", self.url())
    }

    fn inflict(chaos: &mut Chaos<Self>, fault: Fault) {
        match fault {
            Fault::HoldCommits => {
                // COMMITs wait for a standby that never connects until the setting is reset. The follower already has them.
                let (held, usual) = match chaos.run.mode {
                    Mode::Synchronous => (WITH_GHOST, FOLLOWER),
                    Mode::Eventual => ("ghost", ""),
                };
                chaos.world.demand(held);
                let time = chaos.some_time(50..1000);
                chaos.pause(time);
                chaos.world.demand(usual);
                chaos.let_readers_look();
            }
            Fault::CutDatabase => {
                let text = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name <> 'chaos' \
                            AND pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender')";
                chaos.world.session().batch_execute(text).unwrap();
            }
            Fault::CrashDatabase => chaos.world.database.restart("immediate"),
            Fault::ShutdownDatabase => chaos.world.database.restart("fast"),
            _ => panic!("{fault:?} is not in the round"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let stopped = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
        let is_stopped = error.is_closed() || error.code().is_none_or(|code| stopped.contains(code));
        if is_stopped { Self::Unknown } else { Self::Refused(format!("{error:?}")) }
    }
}

impl Session for Client {
    const TRUNCATE_IS_UNDONE: bool = true;
    const ON_CONFLICT: &'static str = "ON CONFLICT (id) DO UPDATE SET version = excluded.version";

    fn connect(address: &str) -> Result<Self, Failure> {
        Ok(Self::connect(address, NoTls)?)
    }

    fn run(&mut self, statements: &str) -> Result<(), Failure> {
        Ok(self.batch_execute(statements)?)
    }

    fn version(&mut self, id: usize) -> Result<Option<i32>, Failure> {
        let row = self.query_opt("SELECT version FROM users WHERE id = $1", &[&(id as i64)])?;
        Ok(row.map(|row| row.get(0)))
    }

    fn load(&mut self, ids: &[usize], version: i32) -> Result<(), Failure> {
        // Without a transaction, COPY would commit after its CommandComplete, which arrives even if a shutdown rolls the COPY back.
        let mut transaction = self.transaction()?;
        let mut copy = transaction.copy_in("COPY users (id, version) FROM STDIN")?;
        let lines: String = ids.iter().map(|id| format!("{id}\t{version}\n")).collect();
        // `finish` returns the same error.
        _ = copy.write_all(lines.as_bytes());
        copy.finish()?;
        Ok(transaction.commit()?)
    }

    fn alter(number: usize, column: &str) -> String {
        // Each except the last rewrites the whole table.
        match number % 4 {
            0 => format!("ALTER TABLE users ADD COLUMN IF NOT EXISTS {column} float DEFAULT random()"),
            1 => "ALTER TABLE users ALTER COLUMN version TYPE int USING version + 0".to_owned(),
            2 => "VACUUM FULL users".to_owned(),
            _ => format!("ALTER TABLE users DROP COLUMN IF EXISTS {column}"),
        }
    }

    fn insert_many(first: usize, last: usize) -> String {
        format!(
            "INSERT INTO users (id, version) SELECT id, 1 FROM generate_series({first}, {last}) id ON CONFLICT DO NOTHING"
        )
    }

    fn prepare(name: &str, statements: &str) -> String {
        format!("BEGIN; {statements}; PREPARE TRANSACTION '{name}'")
    }

    fn end_prepared(name: &str, end: &str) -> String {
        format!("{end} PREPARED '{name}'")
    }

    fn is_prepared(&mut self, name: &str) -> Result<bool, Failure> {
        Ok(self.query_opt("SELECT 1 FROM pg_prepared_xacts WHERE gid = $1", &[&name])?.is_some())
    }
}
