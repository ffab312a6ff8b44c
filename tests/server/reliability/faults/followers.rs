//! Processes that cannot answer with an error exit: the child that rewrites the append-only file, a replica, and a server that
//! loads its own files.

use super::loads::load_command;
use super::{raw, with_faults, with_items, words};
use crate::reliability::LAYOUTS;
use testing::{Connection, LAST_WORDS, Server, Stop, eventually, figures, integer, ok, on_every_server};

#[test]
fn a_rewrite_without_memory_keeps_the_existing_file() {
    on_every_server(|program| {
        let mut server = with_faults(program).line("appendonly yes").line("aof-use-rdb-preamble no").start();
        let mut client = server.connect();
        for (key, line) in LAYOUTS {
            client.run(line);
            client.call(&with_items(&format!("BF.MADD {key}"), 0, 300));
        }
        for (fault, outcome) in [("1 ON", "err"), ("1", "err"), ("3", "err"), ("0", "ok")] {
            client.run(&format!("FAULTS.FAIL {fault}"));
            client.run("BGREWRITEAOF");
            eventually("the rewrite to end", || !client.has_rewrite());
            assert_eq!(client.info("aof_last_bgrewrite_status"), outcome, "with fault {fault}");
            client.run("FAULTS.FAIL 0");
            for (key, _) in LAYOUTS {
                client.run(&format!("BF.ADD {key} beside-{}", fault.len()));
            }
            let digest =
                |client: &mut Connection| LAYOUTS.map(|(key, _)| client.run(&format!("DEBUG DIGEST-VALUE {key}")));
            let before = digest(&mut client);
            server.restart(Stop::Kill);
            client = server.connect();
            assert_eq!(digest(&mut client), before);
        }
        assert!(server.log().contains("bloomgate: cannot rewrite the AOF: "));
        // A snapshot allocates nothing.
        client.run("FAULTS.FAIL 1 ON");
        client.run("FAULTS.COUNT");
        assert_eq!(client.run("SAVE"), ok());
        assert_eq!(client.run("FAULTS.COUNT").elements()[0], integer(0));
    });
}

#[test]
fn a_replica_without_memory_for_an_effect_exits() {
    on_every_server(|program| {
        let primary = Server::start(program);
        let mut client = primary.connect();
        for (key, line) in LAYOUTS {
            client.run(line);
            client.call(&with_items(&format!("BF.MADD {key}"), 0, 50));
        }
        let payload = client.run("DUMP native").bytes().to_vec();
        let header = client.run("BF.SCANDUMP native 0");
        let iterator = header.elements()[0].number().to_string();
        let commands = [
            words("BF.RESERVE made 0.01 100"),
            with_items("BF.MADD native", 1000, 300),
            with_items("BF.MADD valkey-bloom", 1000, 300),
            // The first entry, and a table that grows.
            with_items("BF.MDEL keyed", 0, 1),
            with_items("BF.MDEL keyed", 1, 40),
            words("BF.MERGE united keyed"),
            words("COPY redisbloom copied"),
            raw("RESTORE restored 0", &payload),
            raw(&format!("BF.LOADCHUNK arriving {iterator}"), header.elements()[1].bytes()),
            load_command(program),
        ];
        for command in &commands {
            let mut replica = with_faults(program).line(&format!("replicaof 127.0.0.1 {}", primary.port)).start();
            let mut follower = replica.connect();
            eventually("the replica to have all", || follower.info("master_link_status") == "up");
            follower.run("FAULTS.FAIL 1 ON");
            // A client's query is answered, because it does not apply an effect.
            assert!(!follower.run("BF.EXISTS native x").is_error());
            let reply = client.call(command);
            assert!(!reply.is_error(), "{reply:?}");
            eventually("the replica to end", || replica.log().contains(LAST_WORDS));
            replica.stop(Stop::Kill);
        }
        figures(&format!("replicas without memory: {} faults injected, all ended", commands.len()));
    });
}

#[test]
fn a_server_without_memory_for_its_data_exits_and_keeps_the_file() {
    on_every_server(|program| {
        let mut ended = 0;
        // The commands as they were written, the records of a rewrite, and a snapshot.
        for (is_rewritten, reload) in
            [(false, "DEBUG LOADAOF"), (true, "DEBUG LOADAOF"), (false, "DEBUG RELOAD NOSAVE")]
        {
            for (key, line) in LAYOUTS {
                let preamble = "aof-use-rdb-preamble no";
                let mut server = with_faults(program).line("appendonly yes").line(preamble).line("save 3600 1").start();
                let mut client = server.connect();
                client.run(line);
                client.call(&with_items(&format!("BF.MADD {key}"), 0, 300));
                if is_rewritten {
                    client.run("BGREWRITEAOF");
                    eventually("the rewrite to end", || !client.has_rewrite());
                }
                client.run("SAVE");
                let before = client.run(&format!("DEBUG DIGEST-VALUE {key}"));
                client.run("FAULTS.FAIL 2 ON");
                let words: Vec<&str> = reload.split(' ').collect();
                assert!(client.try_call(&words).is_err(), "{key}, {reload}: the server is still there");
                eventually("the server to say why", || server.log().contains(LAST_WORDS));
                server.restart(Stop::Kill);
                assert_eq!(server.connect().run(&format!("DEBUG DIGEST-VALUE {key}")), before);
                ended += 1;
            }
        }
        figures(&format!("readers of their own data without memory: {ended} faults injected, all ended"));
    });
}
