//! The guard and other parts of the server: access control, clusters, key specifications, restarts, databases.

use super::{FETCH, INVENTED, fill, load, with_filter, word};
use testing::{Reply, Server, Stop, error, nil, ok, on_every_server};

#[test]
fn access_control_sees_two_keys_and_what_is_done_to_each() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        with_filter(&mut client);
        let login = |rules: &str| {
            let mut user = server.connect();
            assert_eq!(user.run(&format!("ACL SETUSER reader reset on nopass +@all {rules}")), ok());
            assert_eq!(user.run("AUTH reader x"), ok());
            user
        };
        let denied = |reply: &Reply| reply.is_error() && reply.error_text().starts_with("NOPERM");
        let fill = format!("BF.FILL {{f}} 42 {{f}}:42 {INVENTED} GIVEUP");
        let fill = fill.as_str();
        let changed = "BF.CHANGED {f} 42 {f}:42";
        let mfetch = "BF.MFETCH {f} ITEMS 42 {f}:42";
        // A user who may not fill a cache key gets no lease of it, even in a script.
        let mut user = login("%R~* &*");
        assert!([FETCH, mfetch, fill, changed].iter().all(|line| denied(&user.run(line))));
        let script = "return redis.pcall('BF.FETCH', KEYS[1], '42', KEYS[2])";
        assert!(user.call(&["EVAL", script, "2", "{f}", "{f}:42"]).is_error());
        assert_eq!(client.info_number("bf_bloom_leases"), 0);
        assert!(!user.run("BF.EXISTS {f} 42").is_error() && !user.run("GET {f}:42").is_error());
        for rules in ["%R~{f} %W~{f}:42", "%R~{f} %R~{f}:42"] {
            assert!(denied(&login(rules).run(FETCH)), "{rules}");
        }
        let mut user = login("%R~{f} ~{f}:42");
        assert!([FETCH, mfetch, fill].iter().all(|line| !denied(&user.run(line))) && denied(&user.run(changed)));
        let mut user = login("~{f} ~{f}:42");
        assert!(!denied(&user.run(changed)));
        let mut user = login("~{f}");
        assert!(denied(&user.run(FETCH)), "the cache key is a key");
        // A user without SET may FILL.
        let mut user = login("~{f} ~{f}:42 -set");
        client.run("BF.CHANGED {f} 42 {f}:42");
        let lease = load(&mut user, FETCH);
        assert_eq!(super::fill(&mut user, &lease, "VALUE v"), ok());
    });
}

#[test]
fn the_server_knows_the_keys_of_the_commands() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for line in ["BF.FETCH a i b WAIT 5", "BF.FILL a i b 0 GIVEUP", "BF.CHANGED a i b"] {
            let keys = client.run(&format!("COMMAND GETKEYS {line}"));
            let keys: Vec<String> = keys.elements().iter().map(Reply::text).collect();
            assert_eq!(keys, ["a", "b"], "{line}");
        }
        let flags = |client: &mut testing::Connection, line: &str| {
            let keys = client.run(&format!("COMMAND GETKEYSANDFLAGS {line}"));
            let flags =
                |key: &Reply| key.elements()[1].elements().iter().map(Reply::text).collect::<Vec<_>>().join(" ");
            keys.elements().iter().map(flags).collect::<Vec<_>>()
        };
        assert_eq!(flags(&mut client, "BF.FETCH a i b"), ["RO access", "RW access update"]);
        assert_eq!(flags(&mut client, "BF.MFETCH a ITEMS i b"), ["RO access", "RW access update"]);
        assert_eq!(flags(&mut client, "BF.FILL a i b 0 GIVEUP"), ["RO access", "RW update"]);
        assert_eq!(flags(&mut client, "BF.CHANGED a i b"), ["RW insert", "RW update"]);
    });
}

#[test]
fn in_a_cluster_the_keys_lie_in_one_slot() {
    on_every_server(|program| {
        let server = Server::with(program).line("cluster-enabled yes").start();
        let mut client = server.connect();
        assert_eq!(client.run("CLUSTER ADDSLOTSRANGE 0 16383"), ok());
        testing::eventually("the cluster to be up", || {
            client.info("cluster_enabled") == "1" && !client.run("GET x").is_error()
        });
        with_filter(&mut client);
        let lease = load(&mut client, FETCH);
        assert_eq!(fill(&mut client, &lease, "VALUE v"), ok());
        for line in ["BF.FETCH f 42 c:42", "BF.FILL f 42 c:42 0 GIVEUP", "BF.CHANGED f 42 c:42"] {
            assert_eq!(client.run(line), error("CROSSSLOT Keys in request don't hash to the same slot"));
        }
    });
}

#[test]
fn nothing_of_it_is_saved() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("appendonly yes").start();
        let mut client = server.connect();
        with_filter(&mut client);
        client.run("BF.CHANGED {f} 43 {f}:43");
        let lease = load(&mut client, "BF.FETCH {f} 43 {f}:43");
        let other = load(&mut client, FETCH);
        fill(&mut client, &other, "NONE EX 1000");
        server.restart(Stop::Kill);
        let mut client = server.connect();
        assert_eq!(client.run(&format!("BF.FILL {{f}} 43 {{f}}:43 {lease} VALUE v")), nil(2));
        assert_eq!(word(&client.run(FETCH)), "load", "the miss is not remembered");
        assert_eq!(word(&client.run("BF.FETCH {f} 43 {f}:43")), "load", "the announcement is");
    });
}

/// On some versions of Valkey a module that listens to events moves clients to another database. The log says so on those.
#[test]
fn the_log_says_where_move_and_copy_change_a_client_s_database() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let database = |client: &mut testing::Connection| {
            let text = client.run("CLIENT INFO").text();
            text.split(' ').find_map(|field| field.strip_prefix("db=")).unwrap().to_owned()
        };
        let warns = |server: &Server| server.log().contains("leave their client in the other database");
        client.run("SET a 1");
        assert_eq!(client.run("MOVE a 5").number(), 1);
        assert_eq!((database(&mut client).as_str(), warns(&server)), ("0", false), "without the guard");
        with_filter(&mut client);
        load(&mut client, FETCH);
        client.run("SET a 1");
        assert_eq!(client.run("MOVE a 6").number(), 1);
        let moved = database(&mut client) != "0";
        client.run("SELECT 0");
        client.run("SET b 1");
        assert_eq!(client.run("COPY b b DB 7").number(), 1);
        assert_eq!(database(&mut client) != "0", moved);
        assert_eq!(warns(&server), moved, "the log warns of what happens, and of nothing else");
    });
}
