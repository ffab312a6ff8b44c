//! JSON changes in a run: PostgreSQL, a relay that writes its log in the format of Debezium, and a separate server for the stream.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use postgres::{Client, Error};
use testing::database::Database;
use testing::{Builder, Connection, Server};

use crate::follow::chaos::{Base, Chaos, Fault, Mode, growing};
use crate::follow::{Follower, USERS, USERS_TABLE, World, permissions};

/// A database whose log is written to a stream.
pub struct Relayed {
    database: Arc<Database>,
    is_done: Arc<AtomicBool>,
    relay: Option<JoinHandle<()>>,
    _stream: Server,
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.is_done.store(true, SeqCst);
        _ = self.relay.take().map(JoinHandle::join);
    }
}

impl Base for Relayed {
    const MORE: &'static [Fault] = &[];
    // The relay waits until a transaction is visible to it.
    const WITHOUT: &'static [Fault] = &[Fault::HoldCommits, Fault::CrashDatabase, Fault::ShutdownDatabase];
    // A second follower would take over.
    const FOLLOWERS: usize = 1;
    type Session = Client;

    fn name() -> &'static str {
        "JSON"
    }

    fn start(_: Mode, program: &Path, server: Builder) -> (World<Self>, Follower) {
        let database = Arc::new(Database::logical());
        let mut session = database.connect().unwrap();
        session.batch_execute(USERS).unwrap();
        session.batch_execute("SELECT pg_create_logical_replication_slot('relay', 'test_decoding')").unwrap();
        let (stream, is_done) = (Server::start(program), Arc::default());
        let (relayed, done, client) = (Arc::clone(&database), Arc::clone(&is_done), stream.connect());
        let relay = Some(thread::spawn(move || relay(&relayed, &done, client)));
        let user = format!("user follower on >secret ~{{* -@all {}", permissions());
        let (server, folder) = (server.line(&user).start(), tempfile::tempdir().unwrap());
        let table = growing(USERS_TABLE).replace("filter =", "key = { id = \"integer\" }\nfilter =");
        let text = format!(
            "server = \"redis://follower:secret@127.0.0.1:{}\"\n[source]\nkind = \"json\"\nformat = \"debezium\"\nstream = \"changes\"\n\
             server = \"redis://127.0.0.1:{}\"\n{table}",
            server.port, stream.port
        );
        let database = Self { database, is_done, relay, _stream: stream };
        let world = World { mode: "eventual", database, server, folder };
        std::fs::write(world.path(), text).unwrap();
        world.server.connect().run(&format!("BF.RESERVE {{users}} {}", super::CREATE));
        let follower = world.follow();
        world.wait_for_heartbeat();
        (world, follower)
    }

    fn address(&self) -> String {
        format!("{}?application_name=chaos", self.database.url())
    }

    fn inflict(chaos: &mut Chaos<Self>, fault: Fault) {
        assert_eq!(fault, Fault::CutDatabase);
        let text = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name <> 'chaos' \
                    AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        chaos.world.database.database.connect().unwrap().batch_execute(text).unwrap();
    }

    fn let_commits_return(_: &World<Self>) {}
}

/// Writes the log to the stream until the end of the run. After a lost session it repeats the unconfirmed part.
fn relay(database: &Database, is_done: &AtomicBool, mut stream: Connection) {
    while !is_done.load(SeqCst) {
        if let Ok(mut session) = database.connect() {
            while !is_done.load(SeqCst) && pass_on(&mut session, &mut stream).is_ok() {}
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Writes new changes to the stream, or a heartbeat.
fn pass_on(session: &mut Client, stream: &mut Connection) -> Result<(), Error> {
    let time = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let now_ms: i64 = session.query_one(time, &[])?.get(0);
    let changes = "SELECT lsn::text, xid::text, data FROM pg_logical_slot_peek_changes('relay', NULL, 2000, 'include-timestamp', 'on')";
    let rows: Vec<(String, String, String)> =
        session.query(changes, &[])?.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    // Transactions are visible to readers of the database before the filter has them.
    let ids: Vec<&String> = rows.iter().map(|(_, id, _)| id).collect();
    let is_visible = "SELECT coalesce(bool_and(pg_visible_in_snapshot(id::xid8, pg_current_snapshot())), true) FROM unnest($1::text[]) id";
    while !session.query_one(is_visible, &[&ids])?.get::<_, bool>(0) {
        thread::sleep(Duration::from_millis(1));
    }
    let time_of =
        |data: &str| Some(data.strip_prefix("COMMIT ")?.split_once("(at ")?.1.trim_end_matches(')').to_owned());
    let times: Vec<String> = rows.iter().filter_map(|(_, _, data)| time_of(data)).collect();
    let in_ms = "SELECT (extract(epoch FROM time::timestamptz) * 1000)::bigint FROM unnest($1::text[]) WITH ORDINALITY t (time, n) ORDER BY n";
    let times = session.query(in_ms, &[&times])?;
    let (mut times, mut transaction) = (times.iter().map(|row| row.get::<_, i64>(0)), Vec::new());
    for (_, id, data) in &rows {
        if let Some(change) = data.strip_prefix("table public.users: ") {
            transaction.push((id, change));
        } else if data.starts_with("COMMIT ") {
            let time_ms = times.next().unwrap();
            transaction.drain(..).for_each(|(id, change)| add(stream, "users", id, time_ms, change));
        }
    }
    if let Some((place, ..)) = rows.last() {
        session.execute("SELECT pg_replication_slot_advance('relay', $1::text::pg_lsn)", &[place])?;
    }
    if rows.is_empty() {
        add(stream, "heartbeat", "0", now_ms, "UPDATE: id[bigint]:1");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Adds a change in the format of Debezium.
fn add(stream: &mut Connection, table: &str, transaction: &str, time_ms: i64, change: &str) {
    let (operation, rest) = change.split_once(':').unwrap();
    let ids = rest.split("id[bigint]:").skip(1).map(|rest| rest.split(' ').next().unwrap());
    let mut ids = ids.map(|id| format!("{{\"id\":{id}}}"));
    let null = || "null".to_owned();
    let (op, before, after) = match operation {
        "INSERT" => ("c", null(), ids.next().unwrap()),
        "DELETE" => ("d", ids.next().unwrap(), null()),
        "TRUNCATE" => ("t", null(), null()),
        _ => {
            let (first, second) = (ids.next().unwrap(), ids.next());
            if let Some(second) = second { ("u", first, second) } else { ("u", null(), first) }
        }
    };
    let source = format!(
        r#"{{"ts_ms":{time_ms},"snapshot":"false","db":"shop","schema":"public","table":"{table}","txId":{transaction}}}"#
    );
    let json = format!(r#"{{"before":{before},"after":{after},"source":{source},"op":"{op}","ts_ms":1}}"#);
    assert!(!stream.call(&["XADD", "changes", "*", "value", &json]).is_error());
}
