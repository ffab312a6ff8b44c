//! The guard without faults: its promises, that the model would notice a violation, and how many queries reach the database
//! compared with other ways. Then while servers are killed, a replica takes over, and the filter is lost and refilled: no announced
//! row may be reported absent.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use testing::database::Database;
use testing::{
    Builder, Connection, Rng, Server, Stop, catch_up, eventually, figures, follow, integer, ok, on_every_server,
    patience,
};

use crate::world::{
    FILLING, FILTER, Settings, Way, World, assert_promises, compare, look_up_every_row, make_filter, read, report, run,
    wait_for_all,
};
use crate::{one_at_a_time, seconds};

/// A server with settings for a guard.
fn guard_server(program: &Path) -> Builder {
    Server::with(program).line("bf.auto-create no")
}

/// Creates the table and, on this server, the filter of its rows.
fn prepare(settings: Settings, server: &Server) -> (Database, World) {
    let database = Database::with_rows(settings.rows);
    make_filter(&mut server.connect(), settings.rows);
    let world = World::new(settings, &database, server.port);
    (database, world)
}

/// Runs readers and writers while `meanwhile` runs. Then no row of the table may be missing, and no promise broken.
fn keeps_its_promises(name: &str, world: &World, meanwhile: impl FnOnce()) {
    let time = run(world, || {
        meanwhile();
        wait_for_all(world);
    });
    let rows = look_up_every_row(world);
    report(name, world, time, rows);
    assert_promises(world);
}

/// Injects faults for the duration of a part, and then leaves readers and writers alone for a while. Returns the number of faults.
fn inject(seed: u64, mut fault: impl FnMut(&mut Rng, u64)) -> u64 {
    let (mut rng, begun, mut count) = (Rng::new(seed), Instant::now(), 0);
    while begun.elapsed() < seconds() {
        thread::sleep(Duration::from_millis(200 + rng.below(800)));
        fault(&mut rng, count);
        count += 1;
    }
    thread::sleep(Duration::from_millis(500));
    count
}

#[test]
fn no_row_is_reported_absent_no_value_is_outdated_and_no_void_token_is_accepted() {
    let _turn = one_at_a_time();
    on_every_server(|program| {
        let server = guard_server(program).start();
        let (_database, world) = prepare(Settings::full(), &server);
        keeps_its_promises("model", &world, || thread::sleep(seconds()));
        assert_eq!(read(&world.counts.troubles), 0, "the first refusal: {:?}", world.first_refusal());
    });
}

#[test]
fn the_model_detects_a_writer_that_omits_a_call() {
    let _turn = one_at_a_time();
    on_every_server(|program| {
        let settings = Settings { rows: 2000, readers: 60, ..Settings::full() };
        for omits in [Settings { second_call: false, ..settings }, Settings { first_call: false, ..settings }] {
            let server = guard_server(program).start();
            let (_database, world) = prepare(omits, &server);
            // A row of a dead writer is checked two seconds later.
            run(&world, || {
                let begun = Instant::now();
                while world.model.faults().0 == 0 && begun.elapsed() < patience() {
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let (faults, first) = world.model.faults();
            eprintln!("    {faults} faults: {}", first.first().map_or("", String::as_str));
            assert!(faults > 0, "the first call: {}, the second: {}", omits.first_call, omits.second_call);
        }
    });
}

#[test]
fn the_guard_reduces_queries_to_the_database() {
    let _turn = one_at_a_time();
    let lookups = 10_000 * seconds().as_secs().max(1) as i64;
    on_every_server(|program| {
        let worlds = [Way::Cache, Way::FilterAndCache, Way::Guard].map(|way| {
            let server = guard_server(program).start();
            let (_database, world) = prepare(Settings { way, mischief: false, ..Settings::full() }, &server);
            world.lookups_left.store(lookups, Ordering::Relaxed);
            run(&world, || {
                while world.lookups_left.load(Ordering::Relaxed) > 0 {
                    thread::sleep(Duration::from_millis(5));
                }
            });
            if way == Way::Guard {
                look_up_every_row(&world);
            }
            world
        });
        compare(&worlds);
        let queries = worlds.each_ref().map(|world| read(&world.counts.queries));
        figures(&format!(
            "guard: {lookups} lookups each way, {} queries with GET and SET, {} with a filter, {} with the guard",
            queries[0], queries[1], queries[2]
        ));
        assert!(queries[2] < queries[0] / 5, "queries by way: {queries:?}");
        assert_promises(&worlds[2]);
    });
}

/// Settings for runs with faults: few rows, because the final check and refilling take longer with more.
fn with_faults() -> Settings {
    Settings { rows: 20_000, ..Settings::full() }
}

#[test]
fn a_killed_and_restarted_server_reports_no_row_absent() {
    let _turn = one_at_a_time();
    on_every_server(|program| {
        let mut server = guard_server(program).line("appendonly yes").line("appendfsync always").start();
        let (_database, world) = prepare(with_faults(), &server);
        let mut kills = 0;
        keeps_its_promises("kill -9", &world, || {
            kills = inject(6, |_, _| {
                server.restart(Stop::Kill);
                world.primary.set(server.port);
            });
        });
        figures(&format!("guard kill -9: {kills} kills survived"));
    });
}

#[test]
fn a_promoted_replica_reports_no_confirmed_row_absent() {
    let _turn = one_at_a_time();
    on_every_server(|program| {
        let [mut primary, mut other] = [guard_server(program).start(), guard_server(program).start()];
        let (_database, world) = prepare(Settings { confirm: true, ..with_faults() }, &primary);
        // Before the first replica's link is up, WAIT may confirm writes that no replica has.
        let mut replica = other.connect();
        follow(&mut replica, &primary);
        catch_up(&mut primary.connect(), &mut replica);
        let mut kills = 0;
        keeps_its_promises("failover", &world, || {
            kills = inject(7, |_, _| {
                primary.stop(Stop::Kill);
                assert_eq!(other.connect().run("REPLICAOF NO ONE"), ok());
                world.primary.set(other.port);
                // The server restarts empty and gets all data from the other.
                primary.start_again();
                follow(&mut primary.connect(), &other);
                eventually("the replica to be confirmed", || {
                    let mut client = other.connect();
                    client.run("SET confirmed yes");
                    client.run("WAIT 1 1000") == integer(1)
                });
                std::mem::swap(&mut primary, &mut other);
            });
        });
        figures(&format!("guard failover: {kills} kills survived"));
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
        let server = guard_server(program).start();
        let mut client = server.connect();
        let (_database, world) = prepare(Settings { first_call_inside: true, ..with_faults() }, &server);
        let mut losses = 0;
        keeps_its_promises("lost filter", &world, || {
            losses = inject(8, |rng, number| {
                // Sometimes the filter is refilled although it exists.
                if number % 3 < 2 {
                    lose(&mut client, number % 3 == 1);
                }
                thread::sleep(Duration::from_millis(rng.below(300)));
                eventually("the filter to be filled again", || refill(&world, &mut client));
            });
        });
        figures(&format!("guard lost filter: {losses} times filled again"));
    });
}
