//! What holds for all commands alike: the number of words, keys of other types, rights, and unknown subcommands.

use testing::{Reply, Server, error, integer, on_every_server};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_wrong_number_of_words_is_the_servers_usual_error() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            for line in [
                "BF.ADD",
                "BF.ADD k",
                "BF.ADD k a b",
                "BF.MADD",
                "BF.MADD k",
                "BF.EXISTS",
                "BF.EXISTS k",
                "BF.EXISTS k a b",
                "BF.MEXISTS",
                "BF.MEXISTS k",
                "BF.CARD",
                "BF.CARD k a",
                "BF.INFO",
                "BF.INFO k SIZE ITEMS",
                "BF.LOAD",
                "BF.LOAD k",
                "BF.LOAD k payload more",
                "BF.DEL k",
                "BF.DEL k a b",
                "BF.MDEL k",
                "BF.COUNT",
                "BF.COUNT k",
                "BF.COUNT k a b",
                "BF.CLEAR",
                "BF.CLEAR k a",
                "BF.MERGE k",
                "BF.ROTATE k 1",
                "BF.ROTATE k 5 1700000000000 1700000100000",
                "BF.ROTATE k 5 1700000000000 1700000100000 50 6",
                "BF.LOADCHUNK k 1",
                "BF.LOADCHUNK k 1 x y",
            ] {
                let name = line.split(' ').next().unwrap().to_lowercase();
                let text = format!("ERR wrong number of arguments for '{name}' command");
                assert_eq!(client.run(line).error_text().to_lowercase(), text.to_lowercase(), "{line}");
            }
        }
    });
}

#[test]
fn a_key_of_another_type_is_left_alone() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            client.run("FLUSHALL");
            client.run("SET string x");
            client.run("RPUSH list x");
            client.run("SADD set x");
            client.run("HSET hash x y");
            client.run("ZADD sorted 1 x");
            client.run("XADD stream * x y");
            for key in ["string", "list", "set", "hash", "sorted", "stream"] {
                for line in [
                    "BF.RESERVE k 0.01 100",
                    "BF.ADD k x",
                    "BF.MADD k x y",
                    "BF.INSERT k ITEMS x",
                    "BF.INSERT k NOCREATE ITEMS x",
                    "BF.INSERT k CAPACITY 1000000000000000000 ITEMS x",
                    "BF.EXISTS k x",
                    "BF.MEXISTS k x y",
                    "BF.CARD k",
                    "BF.INFO k",
                    "BF.INFO k SIZE",
                ] {
                    let line = line.replacen(" k", &format!(" {key}"), 1);
                    assert_eq!(client.run(&line), error(WRONG_TYPE), "{line}");
                }
                assert_ne!(client.run(&format!("TYPE {key}")).text(), "bloomgate");
            }
        }
    });
}

#[test]
fn other_types_commands_refuse_a_filter() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.ADD k x");
        assert_eq!(client.run("TYPE k").text(), "bloomgate");
        for line in ["GET k", "SADD k x", "HGET k x", "APPEND k x", "LPUSH k x"] {
            assert_eq!(client.run(line), error(WRONG_TYPE), "{line}");
        }
        assert_eq!(client.run("BF.EXISTS k x"), integer(1));
        assert_eq!(client.run("SCAN 0 TYPE bloomgate").elements()[1].elements().len(), 1);
    });
}

#[test]
fn a_reader_may_look_and_not_write() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut admin = server.connect();
        admin.run("BF.ADD k x");
        let allowed = "ACL SETUSER guard on nopass %R~k +bf.exists +bf.mexists +bf.card +bf.info +bf.add +bf.insert";
        assert_eq!(admin.run(allowed).text(), "OK");
        let mut guard = server.connect();
        guard.run("AUTH guard none");
        assert_eq!(guard.run("BF.EXISTS k x"), integer(1));
        assert_eq!(guard.run("BF.MEXISTS k x"), Reply::Array(vec![integer(1)]));
        assert_eq!(guard.run("BF.CARD k"), integer(1));
        assert!(!guard.run("BF.INFO k").is_error());
        for line in ["BF.ADD k y", "BF.INSERT k ITEMS y", "BF.EXISTS other x", "BF.MADD k y", "BF.RESERVE k 0.01 100"] {
            assert!(guard.run(line).error_text().starts_with("NOPERM"), "{line}");
        }
        assert_eq!(admin.run("BF.CARD k"), integer(1));
    });
}

#[test]
fn loadchunk_refuses_what_no_rewrite_wrote() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        assert_eq!(client.run("BF.LOADCHUNK k x data"), error("ERR Second argument must be numeric"));
        for data in ["", "x", "bloomgate", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"] {
            assert!(client.call(&["BF.LOADCHUNK", "k", "1", data]).is_error(), "{data:?}");
            assert!(client.call(&["BF.LOADCHUNK", "k", "2", data]).is_error(), "{data:?}");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
        client.run("SET string x");
        assert!(client.run("BF.LOADCHUNK string 1 data").is_error());
        assert_eq!(client.run("GET string").text(), "x");
    });
}
