//! Active defragmentation moves the memory of filters while they are used. This needs a server that was built with its own
//! jemalloc. Most of many small filters are deleted, so that the rest is scattered over nearly empty pages. The server
//! compacts them, and each filter must be unchanged.

use super::LAYOUTS;
use testing::{Connection, Reply, Server, defragments, eventually, figures, integer, ok, on_servers_with};

const FILTERS: usize = 12_000;
/// One in `STAYS` filters is kept, and one in `GROWN` grows to several layers. Neither is a multiple of the number of layouts.
const STAYS: usize = 7;
const GROWN: usize = 31;

fn key(filter: usize) -> String {
    format!("{}:{filter}", LAYOUTS[filter % LAYOUTS.len()].0)
}

fn items(filter: usize) -> Vec<String> {
    let count = if (filter / STAYS).is_multiple_of(GROWN) { 700 } else { 20 };
    (0..count).map(|item| format!("{filter}/{item}")).collect()
}

/// Creates filters of all layouts and deletes most of them. Returns the remaining ones.
fn scatter(client: &mut Connection) -> Vec<usize> {
    for filter in 0..FILTERS {
        let (name, line) = LAYOUTS[filter % LAYOUTS.len()];
        let end = if line.starts_with("BF.INSERT") { " ITEMS first" } else { "" };
        let line = line.replacen(name, &key(filter), 1) + end;
        assert!(!client.run(&line).is_error(), "{line}");
        client.batched(&[b"BF.MADD", key(filter).as_bytes()], &items(filter));
    }
    let (stay, go): (Vec<usize>, Vec<usize>) = (0..FILTERS).partition(|filter| filter.is_multiple_of(STAYS));
    for filter in go {
        assert_eq!(client.run(&format!("DEL {}", key(filter))), integer(1));
    }
    stay
}

fn digests(client: &mut Connection, filters: &[usize]) -> Vec<Reply> {
    filters.iter().map(|&filter| client.run(&format!("DEBUG DIGEST-VALUE {}", key(filter)))).collect()
}

fn assert_members(client: &mut Connection, filters: &[usize]) {
    for &filter in filters {
        let found = client.batched(&[b"BF.MEXISTS", key(filter).as_bytes()], &items(filter));
        assert!(found.iter().all(|&present| present), "{} denies an item", key(filter));
    }
}

#[test]
#[ignore = "needs a server with active defragmentation"]
fn filters_are_unchanged_after_defragmentation() {
    on_servers_with("active defragmentation", defragments, |program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let stay = scatter(&mut client);
        let before = digests(&mut client, &stay);
        assert_eq!(client.info_number("bf_bloom_defrag_hits"), 0);

        // Any fragmentation makes the server defragment.
        let eager = "active-defrag-ignore-bytes 1 active-defrag-threshold-lower 0 active-defrag-cycle-min 50";
        assert_eq!(client.run(&format!("CONFIG SET {eager} bf.bloom-defrag-enabled no activedefrag yes")), ok());
        eventually("the server to have moved what is its own", || client.info_number("active_defrag_key_hits") > 100);
        assert_eq!(client.info_number("bf_bloom_defrag_hits"), 0, "defragmentation is off");

        assert_eq!(client.run("CONFIG SET bf.bloom-defrag-enabled yes"), ok());
        // Filters are queried and added to while they are moved.
        let mut added = 0;
        eventually("filters to be moved", || {
            assert_members(&mut client, &stay[..300]);
            let filter = stay[added % stay.len()];
            assert!(!client.run(&format!("BF.ADD {}:more {added}", key(filter))).is_error());
            added += 1;
            client.info_number("bf_bloom_defrag_hits") > 1000
        });
        let (hits, moved) = (client.info_number("bf_bloom_defrag_hits"), digests(&mut client, &stay));
        assert!(moved == before, "a filter that was moved is another one");
        assert_members(&mut client, &stay);
        assert_eq!(client.run("CONFIG SET activedefrag no"), ok());
        for &filter in &stay {
            let items: Vec<String> = (0..30).map(|item| format!("new {item}")).collect();
            client.batched(&[b"BF.MADD", key(filter).as_bytes()], &items);
            let found = client.batched(&[b"BF.MEXISTS", key(filter).as_bytes()], &items);
            assert!(found.iter().all(|&present| present), "{} denies a new item", key(filter));
        }
        figures(&format!("defragmentation: {hits} blocks moved, {} filters as they were", stay.len()));
    });
}
