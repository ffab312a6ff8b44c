//! A primary with pending adds that becomes a replica, and a primary again. The new primary answers 0 for an item whose bits all belong to
//! other items, and replicates nothing. The old primary reports that item absent as long as the adds of those other items are pending.
//! Digests include pending adds and do not show this, so these tests compare answers.

use std::ops::Range;
use std::path::Path;

use testing::{Connection, Server, catch_up, eventually, follow, integer, ok, on_every_server};

use super::{add, begin_endless_save, items, kill_child, no_child, pending};

/// 16 groups of 4 KiB, the only group size with which adds may be pending. An item has two bits, so that one bit shared with another item
/// often causes a false positive.
const RESERVE: &str = "0.25 162000 NONSCALING SEED 7";
/// The items that are added before the save; during the save, when a few hundred become pending; and after the failover, if they are false
/// positives. On average, 23 of these have a bit of a pending item.
const BEFORE: Range<u32> = 0..120_000;
const DURING: Range<u32> = 120_000..120_400;
const LATER: Range<u32> = 121_000..161_000;

/// A primary with pending adds in the filter `k`, which the module lists, and its replica.
struct Pair {
    servers: [Server; 2],
    old: Connection,
    new: Connection,
}

/// A server whose layers of 32 KiB and more may have pending adds.
fn start(program: &Path) -> (Server, Connection) {
    let server = Server::with(program).with_faults("PEND 32768").start();
    let client = server.connect();
    (server, client)
}

impl Pair {
    fn start(program: &Path) -> Self {
        let ((one, mut old), (other, mut new)) = (start(program), start(program));
        assert_eq!(old.run(&format!("BF.RESERVE k {RESERVE}")), ok());
        add(&mut old, "k", BEFORE);
        follow(&mut new, &one);
        no_child(&mut old);
        begin_endless_save(&mut old);
        add(&mut old, "k", DURING);
        assert!(pending(&mut old) > 0);
        Self { servers: [one, other], old, new }
    }

    fn end_save(&mut self) {
        kill_child(&self.servers[0], &mut self.old);
    }

    /// Promotes the replica, adds items to the filter there, and promotes the old primary again. It must find all items.
    fn fail_over_and_back(&mut self, database: u32, name: &str) {
        let Self { old, new, .. } = self;
        fail_over(old, new);
        for client in [&mut *old, &mut *new] {
            assert_eq!(client.run(&format!("SELECT {database}")), ok());
        }
        // Items that are false positives are not written to the old primary's filter, whether they are replicated or not.
        let later = items(LATER);
        let found = new.batched(&[b"BF.MEXISTS", name.as_bytes()], &later);
        let later: Vec<String> =
            later.into_iter().zip(found).filter_map(|(item, found)| found.then_some(item)).collect();
        assert!(later.len() > 1000);
        for head in [&[b"BF.MADD", name.as_bytes()][..], &[b"BF.INSERT", name.as_bytes(), b"SYNC", b"ITEMS"]] {
            assert!(!new.batched(head, &later).contains(&true));
            assert_eq!(new.run("WAIT 1 60000"), integer(1));
        }
        fail_over(new, old);
        let items = [items(BEFORE), items(DURING), later].concat();
        let found = old.batched(&[b"BF.MEXISTS", name.as_bytes()], &items);
        assert_eq!(found.iter().filter(|found| !**found).count(), 0, "acknowledged items are absent");
        assert_eq!(new.info_number("sync_full"), 0, "the old primary kept its data when it became a replica");
    }
}

/// Promotes the replica of a primary, which becomes its replica.
fn fail_over(primary: &mut Connection, replica: &mut Connection) {
    catch_up(primary, replica);
    assert_eq!(primary.run("FAILOVER"), ok());
    eventually("the roles to change", || replica.info("role") == "master" && primary.info("role") == "slave");
    catch_up(replica, primary);
}

#[test]
fn a_filter_that_is_not_under_its_listed_name_is_complete_after_failovers() {
    on_every_server(|program| {
        for (line, database, name) in [("RENAME k renamed", 0, "renamed"), ("MOVE k 3", 3, "k"), ("SWAPDB 0 5", 5, "k")]
        {
            let mut pair = Pair::start(program);
            assert!(!pair.old.run(line).is_error(), "{line}");
            pair.end_save();
            pair.fail_over_and_back(database, name);
        }
    });
}

/// The fault module holds the timer, so nothing is flushed while the server is a replica.
#[test]
fn a_filter_that_is_not_flushed_in_time_is_complete_after_failovers() {
    on_every_server(|program| {
        for (name, is_over) in [("k", true), ("k", false), ("renamed", true)] {
            let mut pair = Pair::start(program);
            assert_eq!(pair.old.run(&format!("RENAME k {name}")), ok());
            pair.old.run("FAULTS.HOLD 1");
            if is_over {
                pair.end_save();
            }
            pair.fail_over_and_back(0, name);
        }
    });
}
