//! What happens to a filter while adds pend in it, and while the timer writes them.

use testing::{Connection, Server, eventually, integer, ok, on_every_server, simple};

use super::{RESERVE, add, all_written, assert_has, begin_endless_save, kill_child, pending, reserve};

/// So many that it takes the timer a while.
const MANY: u32 = 30_000;

/// A server with a filter, `k`, in which adds pend; after that something is done, while the child lives or after its end.
fn each_time(what: impl Fn(&Server, &mut Connection)) {
    on_every_server(|program| {
        for is_over in [false, true] {
            let server = Server::with(program).line("activerehashing no").start();
            let mut client = server.connect();
            reserve(&mut client, "k");
            begin_endless_save(&mut client);
            add(&mut client, "k", 0..MANY);
            assert!(pending(&mut client) > 0);
            if is_over {
                kill_child(&server, &mut client);
            }
            what(&server, &mut client);
            if !is_over {
                kill_child(&server, &mut client);
            }
            all_written(&mut client);
            assert_eq!(client.run("PING"), simple("PONG"));
        }
    });
}

fn assert_gone(client: &mut Connection) {
    for gauge in ["num_objects", "total_memory_bytes", "pending_bytes"] {
        assert_eq!(client.gauge(gauge), 0, "{gauge}");
    }
}

#[test]
fn a_filter_that_goes_takes_its_adds_with_it() {
    for end in
        ["DEL k", "UNLINK k", "SET k x", "FLUSHALL SYNC", "FLUSHALL ASYNC", "FLUSHDB", "PEXPIRE k 1", "RENAME other k"]
    {
        each_time(|_, client| {
            client.run("SET other x");
            assert!(!client.run(end).is_error(), "{end}");
            eventually("the key to go", || client.gauge("num_objects") == 0);
            assert_gone(client);
            // Another one in its place.
            client.run("DEL k");
            reserve(client, "k");
            assert_eq!(add(client, "k", 0..100), 100, "{end}");
        });
    }
}

#[test]
fn a_filter_that_is_elsewhere_keeps_its_adds() {
    each_time(|_, client| {
        assert_eq!(client.run("RENAME k r"), ok());
        assert_has(client, "r", 0..MANY);
        assert_eq!(client.run("MOVE r 3"), integer(1));
        client.run("SELECT 3");
        assert_has(client, "r", 0..MANY);
        assert_eq!(client.run("SWAPDB 3 5"), ok());
        client.run("SELECT 5");
        assert_has(client, "r", 0..MANY);
        add(client, "r", MANY..MANY + 100);
        assert_has(client, "r", 0..MANY + 100);
    });
}

#[test]
fn copies_and_payloads_have_what_pends() {
    each_time(|server, client| {
        let digest = client.run("DEBUG DIGEST-VALUE k");
        assert_eq!(client.run("COPY k copy"), integer(1));
        let payload = client.run("DUMP k").bytes().to_vec();
        assert_eq!(client.call(&[&b"RESTORE"[..], b"restored", b"0", &payload]), ok());
        let mut iterator = 0;
        loop {
            let record = client.run(&format!("BF.SCANDUMP k {iterator}"));
            iterator = record.elements()[0].number();
            if iterator == 0 {
                break;
            }
            let loaded = client.call(&[
                b"BF.LOADCHUNK",
                &b"loaded"[..],
                iterator.to_string().as_bytes(),
                record.elements()[1].bytes(),
            ]);
            assert_eq!(loaded, ok());
        }
        reserve(client, "union");
        assert_eq!(client.run("BF.MERGE union k"), ok());
        assert_eq!(client.run("BF.MERGE new k"), ok());
        for key in ["copy", "restored", "loaded", "union", "new"] {
            assert_eq!(client.run(&format!("DEBUG DIGEST-VALUE {key}")), digest, "{key}");
            assert_has(client, key, 0..MANY);
        }
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), digest);
        assert!(server.process_id() > 0);
    });
}

#[test]
fn a_filter_that_is_emptied_has_nothing_that_pends() {
    each_time(|_, client| {
        assert_eq!(client.run("BF.CLEAR k"), ok());
        assert_eq!(client.gauge("pending_bytes"), 0);
        assert_eq!(client.run("BF.CARD k"), integer(0));
        assert_eq!(client.run("BF.EXISTS k item"), integer(0));
        assert_eq!(add(client, "k", 0..1000), 1000);
        assert_has(client, "k", 0..1000);
    });
}

#[test]
fn writes_go_on_while_the_timer_writes() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        // Two, so that one is left when the other is done; of one the set is full.
        for key in ["k", "other"] {
            assert_eq!(client.run(&format!("BF.RESERVE {key} {} HASH siphash", RESERVE.replace(" SEED 7", ""))), ok());
        }
        begin_endless_save(&mut client);
        add(&mut client, "k", 0..MANY);
        add(&mut client, "other", 0..1000);
        let full = pending(&mut client);
        assert!(full < 4_900_000 / 8 * 2);
        kill_child(&server, &mut client);
        let mut next = MANY;
        while pending(&mut client) > 0 {
            assert_eq!(client.run(&format!("BF.DEL k item_{next}")), integer(0));
            add(&mut client, "k", next..next + 50);
            let (first, last) = (format!("item {}", next - 20), format!("item {next}"));
            assert_eq!(client.call(&["BF.DEL", "k", &first]), integer(1));
            assert_eq!(client.call(&["BF.EXISTS", "k", &last]), integer(1));
            next += 50;
        }
        let found = client.batched(&[b"BF.MEXISTS", b"k"], &super::items(0..next));
        let absent = found.iter().filter(|found| !**found).count();
        assert_eq!(absent, ((next - MANY) / 50) as usize);
    });
}
