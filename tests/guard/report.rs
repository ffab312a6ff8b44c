//! The report of a run: its counts, and a table that compares the ways to guard a database.

use std::time::Duration;

use crate::world::{Way, World, read};
use testing::{eventually, figures};

/// Prints the counts of a run.
pub fn report(name: &str, world: &World, time: Duration, rows: usize) {
    let counts = &world.counts;
    let lookups = read(&counts.lookups);
    let writes = [&counts.inserted, &counts.changed, &counts.deleted, &counts.rolled_back, &counts.died].map(read);
    let [inserted, changed, deleted, rolled_back, died] = writes;
    eprintln!("  {name}, {:.1} s: {lookups} lookups by {} clients", time.as_secs_f64(), world.settings.readers);
    eprintln!(
        "    answers   {} absent, {} hit, {} stale ({} of them older than announced), {} load, {} wait",
        read(&counts.absent),
        read(&counts.hits),
        read(&counts.stale),
        read(&counts.outdated_stale),
        read(&counts.loads),
        read(&counts.waits)
    );
    eprintln!(
        "    leases    {} tokens given, {} taken, {} refused; {} clients left in the middle, {} calls failed",
        read(&counts.stale) + read(&counts.loads),
        read(&counts.fills),
        read(&counts.refused_fills),
        read(&counts.left),
        read(&counts.troubles)
    );
    eprintln!(
        "    writes    {inserted} inserted, {changed} changed, {deleted} deleted, {rolled_back} rolled back, \
         {died} writers died before their second call"
    );
    eprintln!("    database  {} queries, {rows} rows looked up one by one at the end", read(&counts.queries));
    let (faults, _) = world.model.faults();
    figures(&format!("guard {name}: {lookups} lookups verified, {rows} rows verified at the end, {faults} faults"));
}

/// Fails the test if a promise was broken.
pub fn assert_promises(world: &World) {
    let (faults, first) = world.model.faults();
    assert_eq!(faults, 0, "promises were broken; the first of them:\n{}", first.join("\n"));
    if let Some(text) = world.first_refusal() {
        eprintln!("    the first refusal: {text}");
    }
}

/// Lets a run continue until everything has happened, because less would prove nothing. On a busy machine a few seconds may be
/// too short.
pub fn wait_for_all(world: &World) {
    let counts = &world.counts;
    for (name, counter) in [
        ("absent", &counts.absent),
        ("hits", &counts.hits),
        ("loads", &counts.loads),
        ("fills", &counts.fills),
        ("refused fills", &counts.refused_fills),
        ("inserted", &counts.inserted),
        ("changed", &counts.changed),
        ("deleted", &counts.deleted),
    ] {
        eventually(name, || read(counter) > 0);
    }
}

/// Prints the ways side by side.
pub fn compare(runs: &[(World, Duration)]) {
    eprintln!(
        "  way                     lookups  no row   queries  a 1000 lookups  round trips each  outdated  denied   time"
    );
    for (world, time) in runs {
        let counts = &world.counts;
        let lookups = read(&counts.lookups).max(1) as f64;
        let name = match world.settings.way {
            Way::Cache => "GET and SET",
            Way::FilterAndCache => "BF.EXISTS, GET and SET",
            Way::Guard => "the guard",
        };
        eprintln!(
            "  {name:<22} {lookups:>8} {:>6.1}% {:>9} {:>15.1} {:>17.2} {:>9} {:>7} {:>4.1} s",
            100.0 * read(&counts.without_row) as f64 / lookups,
            read(&counts.queries),
            1000.0 * read(&counts.queries) as f64 / lookups,
            read(&counts.round_trips) as f64 / lookups,
            read(&counts.outdated),
            read(&counts.denied),
            time.as_secs_f64()
        );
    }
}
