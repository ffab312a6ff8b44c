//! Large layers are put into huge pages: which layers, when, and without other effects.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::pending::{begin_endless_save, kill_child};
use testing::{Connection, Rng, Server, eventually, load_records, ok, on_every_server, records, with_client};

/// 64 MiB of bits: 31 huge pages at least, wherever they begin.
const RESERVE: &str = "0.01 55500000 NONSCALING SEED 7";
/// 64 MiB of counters.
const COUNTING: &str = "0.01 14000000 NONSCALING COUNTING SEED 7";
const MOST_OF_IT: u64 = 60 << 20;
const ALL_OF_IT: u64 = 64 << 20;
/// This many items touch 97% of the pages of 4 KiB.
const MANY: u32 = 60_000;

fn reserve(client: &mut Connection, key: &str, huge_pages: &str) {
    assert_eq!(client.run(&format!("CONFIG SET bf.huge-pages {huge_pages}")), ok());
    assert_eq!(client.run(&format!("BF.RESERVE {key} {RESERVE}")), ok());
}

fn add(client: &mut Connection, key: &str, number: u32) {
    let items: Vec<String> = (0..number).map(|number| format!("item {number}")).collect();
    client.batched(&[b"BF.MADD", key.as_bytes()], &items);
}

/// Bytes of the server's memory in huge pages.
fn huge_bytes(server: &Server) -> u64 {
    let path = format!("/proc/{}/smaps_rollup", server.process_id());
    let text = fs::read_to_string(path).expect("/proc tells how much memory is in huge pages");
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).expect("AnonHugePages");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of KiB") << 10
}

fn has_huge_pages(server: &Server) -> bool {
    huge_bytes(server) >= MOST_OF_IT
}

/// Starts a server without other huge pages, which libc's malloc may request.
fn start(program: &std::path::Path) -> (Server, Connection) {
    let server = Server::start(program);
    let client = server.connect();
    assert_eq!(huge_bytes(&server), 0, "before there is a filter");
    (server, client)
}

#[test]
fn the_setting_is_yes_or_no() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let setting = |client: &mut Connection| client.run("CONFIG GET bf.huge-pages").elements()[1].text();
        assert_eq!(setting(&mut client), "yes");
        assert_eq!(client.run("CONFIG SET bf.huge-pages no"), ok());
        assert_eq!(setting(&mut client), "no");
        assert!(client.run("CONFIG SET bf.huge-pages 7").is_error());
        assert_eq!(setting(&mut client), "no");
        let server = Server::with(program).line("bf.huge-pages no").start();
        assert_eq!(setting(&mut server.connect()), "no");
    });
}

#[test]
fn a_large_filter_is_the_same_with_and_without() {
    with_client(|_, client| {
        let used = client.info_number("used_memory");
        let figures = ["no", "yes"].map(|huge_pages| {
            reserve(client, "k", huge_pages);
            add(client, "k", MANY);
            if huge_pages == "yes" {
                // The thread looks at blocks after a second. The result must not depend on it.
                thread::sleep(Duration::from_millis(1500));
            }
            let usage = client.run("MEMORY USAGE k");
            let payload = client.run("DUMP k");
            let digest = client.run("DEBUG DIGEST-VALUE k");
            assert_eq!(client.run("COPY k copy").number(), 1);
            assert_eq!(client.run("DEBUG DIGEST-VALUE copy"), digest);
            client.run("DEL k copy");
            eventually("the memory to be freed", || client.info_number("used_memory") < used + (4 << 20));
            (usage, payload, digest)
        });
        assert!(figures[0] == figures[1]);
    });
}

#[test]
#[ignore = "needs Linux 6.1, with transparent huge pages set to madvise"]
fn huge_pages_hold_layers_that_are_large_and_touched() {
    on_every_server(|program| {
        let (server, mut client) = start(program);
        reserve(&mut client, "without", "no");
        add(&mut client, "without", MANY);
        reserve(&mut client, "sparse", "yes");
        add(&mut client, "sparse", 1000);
        let absent: Vec<String> = (0..MANY).map(|number| format!("absent {number}")).collect();
        client.batched(&[b"BF.MEXISTS", b"sparse"], &absent);
        assert_eq!(client.run("BF.RESERVE small 0.01 10000000 NONSCALING"), ok());
        add(&mut client, "small", MANY);
        reserve(&mut client, "k", "yes");
        add(&mut client, "k", MANY);
        eventually("huge pages", || has_huge_pages(&server));
        // The thread visits layers in order of creation, so once another layer has huge pages, k has been visited.
        thread::sleep(Duration::from_secs(2));
        assert!(huge_bytes(&server) <= ALL_OF_IT, "only k has them: {}", huge_bytes(&server));

        // A layer can also get huge pages later. A new filter makes the thread look again after a second, instead of after twice its last
        // wait.
        add(&mut client, "sparse", MANY);
        reserve(&mut client, "news", "yes");
        eventually("more huge pages", || huge_bytes(&server) >= 2 * MOST_OF_IT);
        let digest = |client: &mut Connection, key: &str| client.run(&format!("DEBUG DIGEST-VALUE {key}"));
        assert_eq!(digest(&mut client, "k"), digest(&mut client, "without"));
        assert_eq!(digest(&mut client, "sparse"), digest(&mut client, "without"));
        client.run("DEL k sparse news");
        eventually("the memory to be freed", || client.info_number("used_memory") < 100 << 20);
        assert_eq!(client.run("DEBUG RELOAD"), ok(), "without is loaded, while the setting is yes");
        eventually("huge pages of what was loaded", || has_huge_pages(&server));
    });
}

/// The server hands over the buffers that it has read such a layer into.
#[test]
#[ignore = "needs Linux 6.1, with transparent huge pages set to madvise"]
fn huge_pages_hold_loaded_layers_of_redisbloom() {
    on_every_server(|program| {
        let (server, mut client) = start(program);
        assert_eq!(client.run("CONFIG SET bf.huge-pages no"), ok());
        client.run("BF.RESERVE empty 0.01 55500000 NONSCALING LAYOUT redisbloom");
        let mut records = records(&mut client, "empty");
        client.run("DEL empty");
        // Incompressible bytes.
        let mut random = Rng::new(1);
        records[1..].iter_mut().flat_map(|(_, bits)| bits).for_each(|byte| *byte = random.below(256) as u8);
        load_records(&mut client, "k", &records);
        assert_eq!(client.run("CONFIG SET bf.huge-pages yes"), ok());
        assert_eq!(client.run("DEBUG RELOAD"), ok());
        eventually("huge pages", || has_huge_pages(&server));
    });
}

/// A child shares its parent's memory, and collapsing pages would copy them.
#[test]
#[ignore = "needs Linux 6.1, with transparent huge pages set to madvise"]
fn huge_pages_wait_for_the_end_of_a_child() {
    on_every_server(|program| {
        let (server, mut client) = start(program);
        reserve(&mut client, "k", "yes");
        add(&mut client, "k", MANY);
        begin_endless_save(&mut client);
        // The child does not share a filter created after the fork. When the thread has collapsed that filter, it has visited k. A counting
        // filter, because the adds to another one would be pending.
        assert_eq!(client.run(&format!("BF.RESERVE newer {COUNTING}")), ok());
        add(&mut client, "newer", MANY);
        eventually("huge pages of the newer filter", || has_huge_pages(&server));
        assert!(huge_bytes(&server) <= ALL_OF_IT, "{} while the child lives", huge_bytes(&server));
        kill_child(&server, &mut client);
        eventually("huge pages of both", || huge_bytes(&server) >= 2 * MOST_OF_IT);
    });
}

/// A counting filter has no pending adds: its adds write to what a child shares, and so split its huge pages.
#[test]
#[ignore = "needs Linux 6.1, with transparent huge pages set to madvise"]
fn huge_pages_that_a_child_split_are_collapsed_again() {
    on_every_server(|program| {
        let (server, mut client) = start(program);
        assert_eq!(client.run(&format!("BF.RESERVE k {COUNTING}")), ok());
        add(&mut client, "k", MANY);
        eventually("huge pages", || has_huge_pages(&server));
        begin_endless_save(&mut client);
        add(&mut client, "k", 2000);
        assert!(huge_bytes(&server) < MOST_OF_IT / 2, "{} are left", huge_bytes(&server));
        kill_child(&server, &mut client);
        eventually("huge pages after the child", || has_huge_pages(&server));
    });
}
