//! The memory of large filters is freed, however they are deleted and whichever thread frees them.

use std::fs;
use std::path::PathBuf;

use testing::{Connection, Server, eventually, integer, ok, on_every_server};

/// 64 MiB of bits.
const RESERVE: &str = "0.01 55500000 NONSCALING";
/// The server's lazyfree settings, whose defaults differ between servers.
const LAZY: [&str; 2] = ["no", "yes"];

fn start(program: &std::path::Path, lazy: &str) -> Server {
    let settings = ["lazy-eviction", "lazy-expire", "lazy-server-del", "lazy-user-del", "lazy-user-flush"];
    let lines = settings.map(|setting| format!("lazyfree-{setting} {lazy}"));
    lines.iter().fold(Server::with(program), |builder, line| builder.line(line)).start()
}

/// A filter of 64 MiB, some of whose pages are in memory.
fn make(client: &mut Connection, key: &str) {
    assert_eq!(client.run(&format!("BF.RESERVE {key} {RESERVE}")), ok());
    let items: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    client.batched(&[b"BF.MADD", key.as_bytes()], &items);
}

/// The folders in /proc of the module's threads in a server; `None` if the system has no such folders.
fn thread_folders(server: &Server) -> Option<Vec<PathBuf>> {
    let threads = fs::read_dir(format!("/proc/{}/task", server.process_id())).ok()?;
    let is_own = |thread: &PathBuf| fs::read_to_string(thread.join("comm")).is_ok_and(|name| name == "bloom_free\n");
    Some(threads.filter_map(Result::ok).map(|thread| thread.path()).filter(is_own).collect())
}

/// The number of the module's threads in a server.
fn threads(server: &Server) -> Option<usize> {
    thread_folders(server).map(|threads| threads.len())
}

fn assert_freed(client: &mut Connection, used: i64, how: &str) {
    client.assert_no_filters();
    eventually(how, || client.info_number("used_memory") < used + (4 << 20));
}

#[test]
fn memory_is_freed_however_a_filter_is_deleted() {
    on_every_server(|program| {
        for lazy in LAZY {
            let server = start(program, lazy);
            let mut client = server.connect();
            make(&mut client, "k");
            client.run("DEL k");
            eventually("the first one to be gone", || client.info_number("used_memory") < 32 << 20);
            let used = client.info_number("used_memory");
            for end in ["DEL k", "UNLINK k", "SET k x", "FLUSHALL SYNC", "FLUSHALL ASYNC", "FLUSHDB SYNC", "EXPIRE k 0"]
            {
                make(&mut client, "k");
                assert!(client.info_number("used_memory") > used + (60 << 20));
                assert!(!client.run(end).is_error());
                assert_freed(&mut client, used, end);
                client.run("DEL k");
            }

            make(&mut client, "k");
            client.run("SET other x");
            assert_eq!(client.run("RENAME other k"), ok());
            assert_freed(&mut client, used, "RENAME");

            make(&mut client, "expires");
            client.run("PEXPIRE expires 1");
            eventually("the key to expire", || client.run("EXISTS expires") == integer(0));
            assert_freed(&mut client, used, "expiry");

            client.run("BF.ADD small x");
            let payload = client.run("DUMP small").bytes().to_vec();
            client.run("DEL small k");
            make(&mut client, "k");
            let words: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &payload, b"REPLACE"];
            assert_eq!(client.call(&words), ok());
            assert_eq!(client.gauge("num_objects"), 1);
            client.run("DEL k");
            assert_freed(&mut client, used, "RESTORE");
        }
    });
}

/// One thread of the module frees values if the server would free them in the command thread, and none if the server uses its own thread.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc, which lists a process's threads")]
fn one_thread_frees_what_the_server_would_not_free_in_the_background() {
    on_every_server(|program| {
        let server = start(program, "no");
        let mut client = server.connect();
        make(&mut client, "k");
        let lazily = client.info_number("lazyfreed_objects");
        client.run("UNLINK k");
        eventually("the server's own thread", || client.info_number("lazyfreed_objects") == lazily + 1);
        client.run("BF.ADD small x");
        client.run("DEL small");
        assert_eq!(threads(&server), Some(0), "what is small or UNLINKed needs no thread");
        make(&mut client, "k");
        let limited = client.info_number("used_memory") - 1;
        assert_eq!(client.run(&format!("CONFIG SET maxmemory {limited}")), ok());
        client.run("DEL k");
        assert!(client.info_number("used_memory") < limited - (60 << 20), "above maxmemory it is freed at once");
        assert_eq!(threads(&server), Some(0), "above maxmemory");
        client.run("CONFIG SET maxmemory 0");
        for _ in 0..3 {
            make(&mut client, "k");
            client.run("DEL k");
        }
        eventually("one thread", || threads(&server) == Some(1));
    });
}

/// Signals to the process are handled by the server's threads, faults by the thread that caused them.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc, which lists a process's threads")]
fn the_thread_blocks_signals_but_not_faults() {
    on_every_server(|program| {
        let server = start(program, "no");
        let mut client = server.connect();
        make(&mut client, "k");
        client.run("DEL k");
        eventually("the filter to be freed", || client.info_number("used_memory") < 32 << 20);
        let threads = thread_folders(&server).expect("/proc");
        let status = fs::read_to_string(threads[0].join("status")).expect("the state of the thread");
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("the blocked signals");
        let blocked = u64::from_str_radix(blocked.trim(), 16).expect("a mask");
        let is_blocked = |signal: &i32| blocked >> (signal - 1) & 1 == 1;
        const HUP: i32 = 1;
        const INT: i32 = 2;
        const USR1: i32 = 10;
        const ALRM: i32 = 14;
        const TERM: i32 = 15;
        assert!([HUP, INT, USR1, ALRM, TERM].iter().all(is_blocked), "{blocked:x}");
        const ILL: i32 = 4;
        const ABRT: i32 = 6;
        const BUS: i32 = 7;
        const FPE: i32 = 8;
        const SEGV: i32 = 11;
        assert!(![ILL, ABRT, BUS, FPE, SEGV].iter().any(is_blocked), "{blocked:x}");
    });
}

#[test]
fn a_filter_fits_where_one_of_its_size_was() {
    on_every_server(|program| {
        for (policy, cached) in [("noeviction", 0), ("allkeys-lru", 20_000), ("volatile-lru", 20_000)] {
            let server = start(program, "no");
            let mut client = server.connect();
            client.run(&format!("DEBUG POPULATE {cached} cached 400"));
            client.run(&format!("CONFIG SET maxmemory-policy {policy}"));
            client.run("CONFIG SET maxmemory 100mb");
            make(&mut client, "k");
            let reserve = format!("BF.RESERVE k {RESERVE}");
            for round in 0..20 {
                let replies = client.pipeline(&["DEL k", &reserve, "BF.MADD k a b c"]);
                assert_eq!(replies[..2], [integer(1), ok()], "{policy}, round {round}");
            }
            assert_eq!(client.info_number("evicted_keys"), 0, "{policy}");
        }
    });
}

#[test]
fn a_snapshot_is_taken_while_filters_are_freed() {
    on_every_server(|program| {
        let server = start(program, "no");
        let mut client = server.connect();
        client.run("BF.MADD kept a b c");
        for _ in 0..5 {
            for key in ["a", "b", "c", "d"] {
                make(&mut client, key);
            }
            let replies = client.pipeline(&["DEL a b c d", "BGSAVE", "PING"]);
            assert!(!replies[1].is_error(), "{:?}", replies[1]);
            eventually("the snapshot", || client.info_number("rdb_bgsave_in_progress") == 0);
            assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
            eventually("the memory", || client.info_number("used_memory") < 32 << 20);
        }
        assert_eq!(client.gauge("num_objects"), 1);
    });
}

/// A session of the script debugger is a child of the server, which lacks the thread.
#[test]
fn a_child_of_the_server_frees_by_itself() {
    on_every_server(|program| {
        let server = start(program, "no");
        let mut client = server.connect();
        client.run("CONFIG SET maxmemory 200mb");
        for key in ["k", "gone"] {
            make(&mut client, key);
        }
        let mut debugger = server.connect();
        assert_eq!(debugger.run("SCRIPT DEBUG YES"), ok());
        let script =
            format!("redis.call('DEL', 'k') return redis.call('BF.RESERVE', 'k', '{}')", RESERVE.replace(' ', "', '"));
        // The child does not wait for the values queued in the parent's thread at the fork.
        client.run("DEL gone");
        debugger.send(&["EVAL", &script, "0"]).expect("the server takes the script");
        let _ = debugger.receive().expect("where the debugger stands");
        debugger.send(&["continue"]).expect("the session continues");
        let _ = debugger.receive().expect("the end of the session");
        assert_eq!(debugger.receive().expect("what the script answered"), ok());
        assert_eq!(client.run("BF.CARD k").number(), 2000, "the child's keys are its own");
    });
}

/// A server that frees evicted keys in the background may evict more than necessary, whatever their type.
#[test]
fn no_more_is_evicted_than_has_to_be() {
    on_every_server(|program| {
        let server = start(program, "no");
        let mut client = server.connect();
        client.run("CONFIG SET maxmemory-policy allkeys-lru");
        client.run("CONFIG SET maxmemory 100mb");
        // Otherwise a filter that fits only after another one is deleted would be refused.
        assert_eq!(client.run("CONFIG SET bf.max-filter-bytes 1gb"), ok());
        let before = client.info_number("used_memory");
        // 8 MiB each, and the allocator's rounding.
        assert_eq!(client.run("BF.RESERVE k 0.01 6900000"), ok());
        let size = client.info_number("used_memory") - before;
        for number in 1..40 {
            assert_eq!(client.run(&format!("BF.RESERVE k{number} 0.01 6900000")), ok());
        }
        client.run("SET a write");
        let used = client.info_number("used_memory");
        assert!(used < 100 << 20, "{used}");
        assert!(used + size + (1 << 20) > 100 << 20, "{used} bytes are left, filters have {size}");
        assert_eq!(client.info_number("evicted_keys"), 41 - client.run("DBSIZE").number());
    });
}
