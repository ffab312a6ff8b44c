//! Replicas under load: links are cut and restored, with full and partial synchronisations, and in the end all servers have
//! the same filters bit for bit.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use super::{StopAtEnd, assert_equal, catch_up, contrary, denied, effort, follow, load, load_chunk, scan_dump};
use testing::{Connection, Reply, Rng, Server, error, eventually, figures, integer, ok, on_every_server};

/// More bytes than a backlog of 128 KiB holds, written while a link is cut.
fn cut_and_flood(primary: &mut Connection, name: &str) {
    let script = "for i = 1, 8000 do redis.call('BF.ADD', KEYS[1], ARGV[1] .. i) end";
    assert_eq!(primary.run("MULTI"), ok());
    primary.run("CLIENT KILL TYPE replica");
    primary.call(&["EVAL", script, "1", "flood", name]);
    let reply = primary.run("EXEC");
    assert!(!reply.elements()[1].is_error(), "{reply:?}");
}

/// A fault on the link between a server and its replica.
fn disturb(rng: &mut Rng, upstream: &Server, replica: &Server, writable: bool) {
    let (mut above, mut below) = (upstream.connect(), replica.connect());
    match rng.below(6) {
        0 => drop(above.run("CLIENT KILL TYPE replica")),
        1 => drop(below.run("CLIENT KILL TYPE master")),
        2 => {
            eventually("REPLICAOF to be taken", || below.run("REPLICAOF NO ONE") == ok());
            below.run("CONFIG SET bf.max-filter-bytes 0");
            below.run("BF.ADD of-its-own x");
            thread::sleep(Duration::from_millis(rng.below(50)));
            follow(&mut below, upstream.port);
        }
        3 => drop(below.run(&format!("DEBUG SLEEP 0.{}", rng.below(3)))),
        4 if writable => cut_and_flood(&mut above, &rng.number().to_string()),
        _ => {
            let diskless = ["yes", "no"][rng.below(2) as usize];
            above.run(&format!("CONFIG SET repl-diskless-sync {diskless}"));
            above.run("CLIENT KILL TYPE replica");
        }
    }
    thread::sleep(Duration::from_millis(rng.below(150)));
}

/// Applies load to the first server and faults to the links `(upstream, replica)`, waits until all is idle, and compares all
/// servers.
fn stay_equal_under_load(what: &str, servers: &[Server], links: &[(usize, usize)], seed: u64) {
    for &(above, below) in links {
        follow(&mut servers[below].connect(), servers[above].port);
    }
    let stop = AtomicBool::new(false);
    let faults = effort(20);
    let commands: usize = thread::scope(|scope| {
        let stop = &stop;
        let writers: Vec<_> = (0..3)
            .map(|worker| scope.spawn(move || load::write_until(&servers[0], seed * 100 + worker, stop)))
            .collect();
        let end = StopAtEnd(stop);
        let mut rng = Rng::new(seed);
        for _ in 0..faults {
            let (above, below) = links[rng.below(links.len() as u64) as usize];
            disturb(&mut rng, &servers[above], &servers[below], above == 0);
        }
        drop(end);
        writers.into_iter().map(|writer| writer.join().expect("a writer without a fault")).sum()
    });

    let mut primary = servers[0].connect();
    // A cut of each kind is certain to occur: one that the backlog covers, and one that it does not.
    load::wait_for_expiries(&mut primary);
    for partial in [true, false] {
        for &(_, below) in links {
            catch_up(&mut primary, &mut servers[below].connect());
        }
        if partial {
            primary.pipeline(&["CLIENT KILL TYPE replica", "BF.ADD native-0 missed"]);
        } else {
            cut_and_flood(&mut primary, "last");
        }
    }
    for &(_, below) in links {
        let mut replica = servers[below].connect();
        catch_up(&mut primary, &mut replica);
        assert_equal(&format!("{what}, server {below}"), &mut primary, &mut replica);
        assert!(!servers[below].log().contains("== CRITICAL =="), "server {below} met a command that failed");
    }
    let [mut whole, mut partial] = [0, 0];
    for server in servers {
        let mut client = server.connect();
        whole += client.info_number("sync_full");
        partial += client.info_number("sync_partial_ok");
    }
    figures(&format!(
        "{what}: {commands} commands, {faults} faults injected, {whole} full and {partial} partial synchronisations"
    ));
    assert!(commands > 0 && whole > links.len() as i64 && partial > 0);
}

fn primary(program: &Path) -> Server {
    Server::with(program).line("repl-backlog-size 128kb").line("repl-diskless-sync yes").start()
}

#[test]
fn two_replicas_under_load_stay_equal() {
    on_every_server(|program| {
        let servers = [
            primary(program),
            contrary(program).line("repl-diskless-load swapdb").start(),
            contrary(program).line("bf.layout native").line("repl-diskless-load disabled").start(),
        ];
        stay_equal_under_load("side by side", &servers, &[(0, 1), (0, 2)], 1);
    });
}

#[test]
fn a_chain_of_replicas_under_load_stays_equal() {
    on_every_server(|program| {
        let servers = [
            primary(program),
            contrary(program).line("repl-backlog-size 128kb").line("repl-diskless-load swapdb").start(),
            contrary(program).line("repl-diskless-load swapdb").start(),
        ];
        stay_equal_under_load("in a chain", &servers, &[(0, 1), (1, 2)], 2);
    });
}

#[test]
fn a_partly_loaded_filter_is_replicated_across_cuts_of_every_kind() {
    on_every_server(|program| {
        let source = Server::start(program);
        let mut client = source.connect();
        let items: Vec<String> = (0..3000).map(|number| format!("item/{number}")).collect();
        client.run("BF.INSERT native CAPACITY 1000 EXPANSION 4000 ITEMS x");
        client.run("BF.INSERT redisbloom CAPACITY 10 EXPANSION 2 LAYOUT redisbloom ITEMS x");
        let mut cuts = 0;
        for key in ["native", "redisbloom"] {
            client.batched(&[b"BF.MADD", key.as_bytes()], &items);
            let mut records = Vec::new();
            scan_dump(&mut client, key, |_, iterator, data| records.push((iterator.to_owned(), data.to_vec())));
            let digest = client.run(&format!("DEBUG DIGEST-VALUE {key}"));
            assert!(records.len() > 5, "{key}: {} records", records.len());
            for load in ["disabled", "swapdb"] {
                let server = primary(program);
                let other = contrary(program).line(&format!("repl-diskless-load {load}")).start();
                let (mut primary, mut replica) = (server.connect(), other.connect());
                follow(&mut replica, server.port);
                for (number, (iterator, data)) in records.iter().enumerate() {
                    load_chunk(&mut primary, key, iterator, data);
                    if number == records.len() - 1 {
                        break;
                    }
                    match number % 3 {
                        0 => drop(primary.run("CLIENT KILL TYPE replica")),
                        1 => cut_and_flood(&mut primary, iterator),
                        _ => continue,
                    }
                    cuts += 1;
                    catch_up(&mut primary, &mut replica);
                    assert_equal(key, &mut primary, &mut replica);
                    let reply = replica.run(&format!("BF.EXISTS {key} item/1"));
                    assert_eq!(reply, error("ERR filter is still being loaded"));
                }
                // The replica takes over with the complete filter.
                catch_up(&mut primary, &mut replica);
                assert_equal(key, &mut primary, &mut replica);
                assert_eq!(replica.run(&format!("DEBUG DIGEST-VALUE {key}")), digest);
                assert_eq!(replica.run("REPLICAOF NO ONE"), ok());
                assert_eq!(denied(&mut replica, key, &items), 0);
            }
        }
        figures(&format!("half a filter: {cuts} faults injected, cuts in the middle of a load"));
    });
}

#[test]
fn reads_during_a_swap_of_the_data_set_have_no_false_negatives() {
    on_every_server(|program| {
        let server = primary(program);
        let other = contrary(program)
            .line("repl-diskless-load swapdb")
            .line("key-load-delay 2000")
            .line("loading-process-events-interval-bytes 1024")
            .start();
        let (mut primary, mut replica) = (server.connect(), other.connect());
        let items: Vec<String> = (0..1000).map(|number| format!("item/{number}")).collect();
        let keys: Vec<String> =
            (0..90).map(|number| format!("{}:{number}", super::LAYOUTS[number % super::LAYOUTS.len()].0)).collect();
        for (number, key) in keys.iter().enumerate() {
            let line = format!(
                "BF.INSERT {key} CAPACITY 50 {} ITEMS x",
                super::LAYOUTS[number % super::LAYOUTS.len()].1.join(" ")
            );
            assert_eq!(primary.run(&line.replace("  ", " ")).elements(), [integer(1)]);
            primary.batched(&[b"BF.MADD", key.as_bytes()], &items);
        }
        follow(&mut replica, server.port);
        catch_up(&mut primary, &mut replica);
        let (mut asked, mut while_loading) = (0, 0);
        let mut rounds = 0;
        // On a busy machine a load may finish before it is observed.
        while rounds < effort(3) || while_loading == 0 {
            let before = primary.info_number("sync_full");
            cut_and_flood(&mut primary, &rounds.to_string());
            let mut rng = Rng::new(rounds as u64);
            rounds += 1;
            assert!(rounds < 100, "no question in {rounds} loads");
            eventually("the data set to come", || {
                let loading = replica.info("async_loading") == "1";
                let key = &keys[rng.below(90) as usize];
                let item = &items[rng.below(1000) as usize];
                for words in [["BF.EXISTS", key, item], ["BF.MEXISTS", key, item]] {
                    let reply = replica.call(&words);
                    let answer = if let Reply::Array(answers) = &reply { &answers[0] } else { &reply };
                    assert_eq!(answer, &integer(1), "{words:?}, loading: {loading}");
                }
                for line in ["BF.INFO", "BF.CARD", "BF.DEBUG", "MEMORY USAGE"] {
                    assert!(!replica.run(&format!("{line} {key}")).is_error(), "{line} {key}");
                }
                assert!(replica.run(&format!("BF.ADD {key} {item}")).is_error(), "a replica takes no adds");
                replica.run("INFO everything");
                asked += 6;
                while_loading += usize::from(loading) * 6;
                !loading && primary.info_number("sync_full") > before && replica.info("master_link_status") == "up"
            });
            catch_up(&mut primary, &mut replica);
            assert_equal("after the swap", &mut primary, &mut replica);
        }
        figures(&format!("reads during a load: {asked} in {rounds} swaps, {while_loading} while loading"));
    });
}
