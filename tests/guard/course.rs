//! A run: fills the filter, runs readers and writers while the test injects faults into the servers, and finally looks up
//! every row of the table.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{FILTER, cache_key, version_in};
use crate::world::{Way, World};
use crate::{readers, writers};
use testing::{Connection, Reply, integer, ok};

/// Rows per query of the final check.
const BATCH: usize = 500;

/// Stops readers and writers, even if the test fails before it does so itself.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Creates the filter and adds the ids of the table. Its capacity exceeds the rows of every test, and it allows deletes.
pub fn make_filter(client: &mut Connection, name: &str, rows: u64) {
    let capacity = rows.max(1000) * 2;
    assert_eq!(client.run(&format!("BF.RESERVE {name} 0.01 {capacity} HASH siphash")), ok());
    let ids: Vec<String> = (0..rows).map(|id| id.to_string()).collect();
    client.batched(&[b"BF.MADD", name.as_bytes()], &ids);
}

/// Runs readers and writers while `meanwhile` runs. Returns the duration.
pub fn run(world: &World, meanwhile: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    thread::scope(|scope| {
        let stop = StopAtEnd(&world.stop);
        for number in 0..world.settings.readers {
            scope.spawn(move || readers::run(world, 1 + number as u64));
        }
        for number in 0..world.settings.writers {
            scope.spawn(move || writers::run(world, 1_000_001 + number as u64));
        }
        meanwhile();
        drop(stop);
    });
    begun.elapsed()
}

/// Waits until the lookups of the run have been made.
pub fn until_looked_up(world: &World) {
    while world.lookups_left.load(Ordering::Relaxed) > 0 {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Looks up every row of the table when the servers are idle: none may be reported absent or have another version. Returns the
/// number of rows.
pub fn look_up_every_row(world: &World) -> usize {
    while world.adopt() > 0 {
        thread::sleep(Duration::from_millis(20));
    }
    let rows = world.pool.take().client.query("SELECT id, version FROM rows", &[]).expect("SELECT");
    let rows: Vec<(u64, u64)> =
        rows.iter().map(|row| (row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64)).collect();
    let mut client = Connection::open(world.primary.port()).expect("the server accepts a connection");
    for batch in rows.chunks(BATCH) {
        let lines: Vec<String> =
            batch.iter().map(|(id, _)| format!("BF.FETCH {FILTER} {id} {} LEASE 1", cache_key(*id))).collect();
        let replies = client.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for (&(id, version), reply) in batch.iter().zip(&replies) {
            let parts = reply.elements();
            match (parts[0].text().as_str(), parts.get(1)) {
                ("hit", Some(Reply::Bulk(value))) => {
                    let cached = version_in(id, value);
                    let what = || format!("at the end: {id} is cached in version {cached}, the row has {version}");
                    world.model.expect(cached == version, what);
                }
                ("load" | "wait", Some(_)) => (),
                _ => world.model.expect(false, || format!("at the end: {id} exists, BF.FETCH answered {reply:?}")),
            }
        }
    }
    if world.settings.way == Way::Guard {
        let found = client.batched(
            &[b"BF.MEXISTS", FILTER.as_bytes()],
            &rows.iter().map(|(id, _)| id.to_string()).collect::<Vec<_>>(),
        );
        let denied = found.iter().filter(|&&found| !found).count();
        world.model.expect(denied == 0, || format!("at the end: the filter denies {denied} rows"));
    }
    assert_eq!(client.run(&format!("EXISTS {FILTER}")), integer(1));
    rows.len()
}
