//! The commands inside MULTI, inside scripts and functions, and under WATCH.

use crate::harness::{Server, array, error, integer, nil, ok, on_every_server, simple};

#[test]
fn a_transaction_answers_each_command_as_it_would_alone() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            client.run("SET string x");
            client.run("MULTI");
            for line in [
                "BF.RESERVE k 0.0001 2 NONSCALING SEED 1",
                "BF.RESERVE k 0.01 100",
                "BF.ADD k a",
                "BF.MADD k a b c",
                "BF.EXISTS k b",
                "BF.ADD string x",
                "BF.INSERT k NOCREATE ITEMS a",
                "BF.INSERT k FROBNICATE ITEMS a",
                "BF.CARD k",
            ] {
                assert_eq!(client.run(line), simple("QUEUED"), "{line}");
            }
            let yes = client.answer(true);
            let no = client.answer(false);
            let expected = array([
                ok(),
                error("ERR item exists"),
                yes.clone(),
                array([no.clone(), yes.clone(), error("ERR non scaling filter is full")]),
                yes,
                error("WRONGTYPE Operation against a key holding the wrong kind of value"),
                array([no]),
                error("Unknown argument received"),
                integer(2),
            ]);
            assert_eq!(client.run("EXEC"), expected);

            client.run("MULTI");
            assert!(client.run("BF.ADD k").is_error());
            assert!(client.run("EXEC").error_text().starts_with("EXECABORT"));
        }
    });
}

#[test]
fn an_add_of_nothing_new_does_not_break_a_watch() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut other = server.connect();
        other.run("BF.RESERVE full 0.0001 1 NONSCALING SEED 1");
        other.run("BF.ADD full a");
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            other.run("DEL k");
            other.run("BF.MADD k a b");
            for line in [
                "BF.ADD k a",
                "BF.MADD k a b a",
                "BF.INSERT k ITEMS b",
                "BF.INSERT k NOCREATE CAPACITY 9 ITEMS b",
                "BF.EXISTS k a",
                "BF.MEXISTS k z",
                "BF.CARD k",
                "BF.INFO k",
                "BF.INFO k ITEMS",
                "BF.DEBUG k",
                "BF.SCANDUMP k 0",
                "BF.RESERVE k 0.01 100",
                "BF.INSERT k CAPACITY 0 ITEMS z",
                "BF.ADD full z",
                "BF.MADD full z a",
                "BF.EXISTS missing a",
                "BF.INSERT missing NOCREATE ITEMS a",
                "BF.INSERT missing CAPACITY x ITEMS a",
                "BF.LOADCHUNK missing 2 rubbish",
            ] {
                client.run("WATCH k full missing");
                other.run(line);
                client.run("MULTI");
                client.run("PING");
                assert_eq!(client.run("EXEC"), array([simple("PONG")]), "{line}");
            }
            for line in [
                "BF.ADD k c",
                "BF.MADD k a d",
                "BF.INSERT k ITEMS e",
                "BF.ADD missing x",
                "BF.RESERVE r 0.1 9",
                "BF.INSERT new CAPACITY 9 ITEMS a",
            ] {
                client.run("WATCH k missing r new");
                other.run(line);
                client.run("MULTI");
                client.run("PING");
                let aborted = if protocol == 3 { nil(3) } else { crate::harness::Reply::NullArray };
                assert_eq!(client.run("EXEC"), aborted, "{line}");
            }
            other.run("DEL missing r new");
        }
    });
}

#[test]
fn a_script_gets_numbers_or_booleans_by_its_own_protocol() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            let mut script = |body: &str| client.call(&["EVAL", body, "1", "k", "a", "b"]);
            assert_eq!(script("return redis.call('BF.ADD', KEYS[1], ARGV[1])"), integer(1));
            assert_eq!(script("return redis.call('BF.ADD', KEYS[1], ARGV[1])"), integer(0));
            let madd = "return redis.call('BF.MADD', KEYS[1], ARGV[1], ARGV[2], ARGV[2])";
            assert_eq!(script(madd), array([integer(0), integer(1), integer(0)]));
            assert_eq!(script("return redis.call('BF.EXISTS', KEYS[1], 'z')"), integer(0));
            assert_eq!(script("return redis.call('BF.CARD', KEYS[1])"), integer(2));
            let kind = "redis.setresp(3); return type(redis.call('BF.EXISTS', KEYS[1], ARGV[1]))";
            assert_eq!(script(kind).text(), "boolean");
            let kind = "redis.setresp(3); return type(redis.call('BF.INFO', KEYS[1])['map'])";
            assert_eq!(script(kind).text(), "table");
            assert_eq!(script("return redis.call('BF.INFO', KEYS[1], 'ITEMS')"), array([integer(2)]));
            assert_eq!(script("return redis.pcall('BF.RESERVE', KEYS[1], 0.01, 100)"), error("ERR item exists"));
            assert_eq!(
                script("return redis.pcall('BF.INSERT', KEYS[1], 'FROBNICATE', 'ITEMS', 'a').err"),
                crate::harness::bulk("Unknown argument received")
            );
            assert!(script("return redis.call('BF.ADD', KEYS[1])").is_error());
        }
    });
}

#[test]
fn a_reading_script_cannot_add() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.ADD k a");
        assert_eq!(client.call(&["EVAL_RO", "return redis.call('BF.EXISTS', KEYS[1], 'a')", "1", "k"]), integer(1));
        let reply = client.call(&["EVAL_RO", "return redis.call('BF.ADD', KEYS[1], 'b')", "1", "k"]);
        assert!(reply.is_error());
        assert_eq!(client.run("BF.CARD k"), integer(1));
    });
}
