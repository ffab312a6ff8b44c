//! The guard without faults: its promises, that the model would notice a violation, and how many queries reach the database
//! compared with other ways.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::course::{look_up_every_row, make_filter, run, until_looked_up};
use crate::world::{Settings, Way, World, read};
use crate::{one_at_a_time, report, seconds};
use testing::database::Database;
use testing::{Server, figures, on_every_server, patience};

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
            report::wait_for_all(&world);
        });
        let rows = look_up_every_row(&world);
        report::report("model", &world, time, rows);
        report::assert_promises(&world);
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
        report::compare(&worlds);
        let queries = worlds.each_ref().map(|(world, _)| read(&world.counts.queries));
        figures(&format!(
            "guard: {lookups} lookups each way, {} queries with GET and SET, {} with a filter, {} with the guard",
            queries[0], queries[1], queries[2]
        ));
        assert!(queries[2] < queries[0] / 5, "queries by way: {queries:?}");
        report::assert_promises(&worlds[2].0);
    });
}
