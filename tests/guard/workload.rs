//! The guard without faults: its promises, that the model would notice a violation, and how many queries reach the database
//! compared with other ways. Then while servers are killed, a replica takes over, and the filter is lost and refilled: no announced
//! row may be reported absent.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use testing::database::Database;
use testing::{
    Connection, Reply, Rng, Server, Stop, catch_up, eventually, figures, follow, integer, ok, on_every_server, patience,
};

use crate::world::{
    FILLING, FILTER, Settings, Way, World, assert_promises, compare, look_up_every_row, make_filter, read, report, run,
    until_looked_up, wait_for_all,
};
use crate::{one_at_a_time, seconds};

/// Starts a server with settings for a guard.
pub fn guard_server(program: &Path) -> Server {
    Server::with(program).line("bf.auto-create no").start()
}

#[test]
fn no_row_is_reported_absent_no_value_is_outdated_and_no_void_token_is_accepted() {
    let _turn = one_at_a_time();
    on_every_server(|program| {
        let settings = Settings::full();
        let database = Database::with_rows(settings.rows);
        let server = guard_server(program);
        make_filter(&mut server.connect(), "rows", settings.rows);
        let world = World::new(settings, &database, server.port);
        let time = run(&world, || {
            thread::sleep(seconds());
            wait_for_all(&world);
        });
        let rows = look_up_every_row(&world);
        report("model", &world, time, rows);
        assert_promises(&world);
        assert_eq!(read(&world.counts.troubles), 0, "the first refusal: {:?}", world.first_refusal());
    });
}

/// Runs briefly with writers that omit a step. Returns the number of faults.
fn faults_of(program: &Path, settings: Settings) -> u64 {
    let database = Database::with_rows(settings.rows);
    let server = guard_server(program);
    make_filter(&mut server.connect(), "rows", settings.rows);
    let world = World::new(settings, &database, server.port);
    run(&world, || {
        // Runs until the first fault. A row of a dead writer is checked two seconds later.
        let begun = Instant::now();
        while world.model.faults().0 == 0 && begun.elapsed() < patience() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let (faults, first) = world.model.faults();
    eprintln!("    {faults} faults: {}", first.first().map_or("", String::as_str));
    faults
}

#[test]
fn the_model_detects_a_writer_that_omits_a_call() {
    let _turn = one_at_a_time();
    on_every_server(|program| {
        let settings = Settings { rows: 2000, readers: 60, ..Settings::full() };
        assert!(faults_of(program, Settings { second_call: false, ..settings }) > 0, "without the second call");
        assert!(faults_of(program, Settings { first_call: false, ..settings }) > 0, "without the first call");
    });
}

#[test]
fn the_guard_reduces_queries_to_the_database() {
    let _turn = one_at_a_time();
    let lookups = 10_000 * seconds().as_secs().max(1) as i64;
    on_every_server(|program| {
        let ways = [Way::Cache, Way::FilterAndCache, Way::Guard];
        let worlds = ways.map(|way| {
            let settings = Settings { way, mischief: false, ..Settings::full() };
            let database = Database::with_rows(settings.rows);
            let server = guard_server(program);
            make_filter(&mut server.connect(), "rows", settings.rows);
            let world = World::new(settings, &database, server.port);
            world.lookups_left.store(lookups, Ordering::Relaxed);
            let time = run(&world, || until_looked_up(&world));
            if way == Way::Guard {
                look_up_every_row(&world);
            }
            (world, time)
        });
        compare(&worlds);
        let queries = worlds.each_ref().map(|(world, _)| read(&world.counts.queries));
        figures(&format!(
            "guard: {lookups} lookups each way, {} queries with GET and SET, {} with a filter, {} with the guard",
            queries[0], queries[1], queries[2]
        ));
        assert!(queries[2] < queries[0] / 5, "queries by way: {queries:?}");
        assert_promises(&worlds[2].0);
    });
}

/// Rows for runs with faults: few, because the final check and refilling take longer with more.
const ROWS: u64 = 20_000;

#[test]
fn a_killed_and_restarted_server_reports_no_row_absent() {
    let _turn = one_at_a_time();
    on_every_server(|program| {
        let settings = Settings { rows: ROWS, ..Settings::full() };
        let database = Database::with_rows(ROWS);
        let lines = ["appendonly yes", "appendfsync always", "bf.auto-create no"];
        let mut server = lines.iter().fold(Server::with(program), |builder, line| builder.line(line)).start();
        make_filter(&mut server.connect(), FILTER, ROWS);
        let world = World::new(settings, &database, server.port);
        let (mut rng, mut kills) = (Rng::new(6), 0);
        let time = run(&world, || {
            let begun = Instant::now();
            while begun.elapsed() < seconds() {
                thread::sleep(Duration::from_millis(300 + rng.below(900)));
                server.restart(Stop::Kill);
                world.primary.set(server.port);
                kills += 1;
            }
            thread::sleep(Duration::from_millis(500));
            wait_for_all(&world);
        });
        let rows = look_up_every_row(&world);
        report("kill -9", &world, time, rows);
        figures(&format!("guard kill -9: {kills} kills survived"));
        assert_promises(&world);
    });
}

#[test]
fn a_promoted_replica_reports_no_confirmed_row_absent() {
    let _turn = one_at_a_time();
    on_every_server(|program| {
        let settings = Settings { rows: ROWS, confirm: true, ..Settings::full() };
        let database = Database::with_rows(ROWS);
        let start = || Server::with(program).line("bf.auto-create no").start();
        let mut servers = [start(), start()];
        make_filter(&mut servers[0].connect(), FILTER, ROWS);
        // Before the first replica's link is up, WAIT may confirm writes that no replica has.
        let mut replica = servers[1].connect();
        follow(&mut replica, &servers[0]);
        catch_up(&mut servers[0].connect(), &mut replica);
        let world = World::new(settings, &database, servers[0].port);
        let (mut rng, mut kills) = (Rng::new(7), 0);
        let time = run(&world, || {
            let begun = Instant::now();
            while begun.elapsed() < seconds() {
                thread::sleep(Duration::from_millis(300 + rng.below(900)));
                let (first, second) = servers.split_at_mut(1);
                let (old, new) =
                    if kills % 2 == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
                old.stop(Stop::Kill);
                assert_eq!(new.connect().run("REPLICAOF NO ONE"), ok());
                world.primary.set(new.port);
                kills += 1;
                // The server restarts empty and gets all data from the other.
                old.start_again();
                let mut replica = old.connect();
                follow(&mut replica, new);
                eventually("the replica to be confirmed", || {
                    let mut client = new.connect();
                    client.run("SET confirmed yes");
                    client.run("WAIT 1 1000") == integer(1)
                });
            }
            thread::sleep(Duration::from_millis(500));
            wait_for_all(&world);
        });
        let rows = look_up_every_row(&world);
        report("failover", &world, time, rows);
        figures(&format!("guard failover: {kills} kills survived"));
        assert_promises(&world);
    });
}

/// Refills the filter while rows are written, as `docs/guard.md` describes. Returns false if the filter was lost while it was
/// being filled.
fn refill(world: &World, client: &mut Connection) -> bool {
    client.run(&format!("DEL {FILLING}"));
    let capacity = world.settings.rows * 2;
    assert_eq!(client.run(&format!("BF.RESERVE {FILLING} 0.01 {capacity} HASH siphash")), ok());
    // From here on writers announce to both names, the new one first. They check this inside their transactions, after the
    // first write, so a writer that has not seen it has a smaller transaction id than the one assigned now.
    world.filling.store(true, Ordering::SeqCst);
    let mut session = world.pool.take();
    let row = session.client.query_one("SELECT pg_current_xact_id()::text", &[]).expect("a transaction id");
    let id: u64 = row.get::<_, String>(0).parse().expect("a number");
    eventually("transactions from before to end", || {
        let row = session.client.query_one("SELECT pg_snapshot_xmin(pg_current_snapshot())::text", &[]);
        row.expect("a snapshot").get::<_, String>(0).parse::<u64>().expect("a number") > id
    });
    let rows = session.client.query("SELECT id FROM rows", &[]).expect("the scan");
    let ids: Vec<String> = rows.iter().map(|row| row.get::<_, i64>(0).to_string()).collect();
    for batch in ids.chunks(1000) {
        let mut words = vec!["BF.MADD", FILLING];
        words.extend(batch.iter().map(String::as_str));
        // With `bf.auto-create no` this does not create a filter without the earlier batches.
        if client.call(&words).is_error() {
            return false;
        }
    }
    let renamed = client.run(&format!("RENAME {FILLING} {FILTER}")) == ok();
    world.filling.store(false, Ordering::SeqCst);
    renamed
}

/// Removes the filter, by DEL or by eviction.
fn lose(client: &mut Connection, by_eviction: bool) {
    if !by_eviction {
        client.run(&format!("DEL {FILTER}"));
        return;
    }
    client.run("CONFIG SET maxmemory-policy allkeys-random maxmemory 1");
    // A command that may need memory makes the server evict keys.
    eventually("the filter to be evicted", || {
        client.run("SET something new");
        client.run(&format!("EXISTS {FILTER}")) == integer(0)
    });
    assert_eq!(client.run("CONFIG SET maxmemory 0"), ok());
}

#[test]
fn a_lost_and_refilled_filter_reports_no_row_absent() {
    let _turn = one_at_a_time();
    on_every_server(|program| {
        let settings = Settings { rows: ROWS, first_call_inside: true, ..Settings::full() };
        let database = Database::with_rows(ROWS);
        let server = Server::with(program).line("bf.auto-create no").start();
        let mut client = server.connect();
        make_filter(&mut client, FILTER, ROWS);
        let world = World::new(settings, &database, server.port);
        let (mut rng, mut losses) = (Rng::new(8), 0);
        let time = run(&world, || {
            let begun = Instant::now();
            while begun.elapsed() < seconds() {
                thread::sleep(Duration::from_millis(200 + rng.below(500)));
                // Sometimes the filter is refilled although it exists.
                match losses % 3 {
                    0 => lose(&mut client, false),
                    1 => lose(&mut client, true),
                    _ => (),
                }
                losses += 1;
                thread::sleep(Duration::from_millis(rng.below(300)));
                eventually("the filter to be filled again", || refill(&world, &mut client));
            }
            thread::sleep(Duration::from_millis(500));
            wait_for_all(&world);
        });
        assert!(matches!(client.run(&format!("EXISTS {FILTER}")), Reply::Integer(1)));
        let rows = look_up_every_row(&world);
        report("lost filter", &world, time, rows);
        figures(&format!("guard lost filter: {losses} times filled again"));
        assert_promises(&world);
    });
}
