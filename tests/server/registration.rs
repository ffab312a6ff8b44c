//! The server's description of the module and its commands, which clients, proxies and ACLs rely on.

use std::fs;

use tempfile::TempDir;
use testing::{
    Connection, Reply, Server, Stop, Version, array, bulk, error, in_both_protocols, integer, module, ok, old_server,
    on_every_server, with_client,
};

/// Name, arity, whether it writes, whether it is refused above `maxmemory`, whether it is marked fast, and the version of RedisBloom, or of
/// bloomgate, that introduced it.
const COMMANDS: [(&str, i64, bool, bool, bool, &str); 28] = [
    ("bf.reserve", -4, true, true, false, "1.0.0"),
    ("bf.add", 3, true, true, false, "1.0.0"),
    ("bf.madd", -3, true, true, false, "1.0.0"),
    ("bf.insert", -4, true, true, false, "1.0.0"),
    ("bf.exists", 3, false, false, true, "1.0.0"),
    ("bf.mexists", -3, false, false, true, "1.0.0"),
    ("bf.info", -2, false, false, true, "1.0.0"),
    ("bf.card", 2, false, false, true, "2.4.4"),
    ("bf.loadchunk", 4, true, true, false, "1.0.0"),
    ("bf.load", 3, true, true, false, ""),
    ("bf.del", 3, true, false, false, ""),
    ("bf.mdel", -3, true, false, false, ""),
    ("bf.count", 3, false, false, true, ""),
    ("bf.rotate", -2, true, true, false, ""),
    ("cf.reserve", -3, true, true, false, "1.0.0"),
    ("cf.add", 3, true, true, false, "1.0.0"),
    ("cf.addnx", 3, true, true, false, "1.0.0"),
    ("cf.insert", -4, true, true, false, "1.0.0"),
    ("cf.insertnx", -4, true, true, false, "1.0.0"),
    ("cf.exists", 3, false, false, true, "1.0.0"),
    ("cf.mexists", -3, false, false, true, "1.0.0"),
    ("cf.count", 3, false, false, true, "1.0.0"),
    ("cf.del", 3, true, false, false, "1.0.0"),
    ("cf.compact", 2, true, false, false, "1.0.0"),
    ("cf.info", 2, false, false, true, "1.0.0"),
    ("cf.debug", 2, false, false, true, "1.0.0"),
    ("cf.scandump", 3, false, false, true, "1.0.0"),
    ("cf.loadchunk", 4, true, true, false, "1.0.0"),
];

/// Name and arity of the guard's commands, whose keys are not a single range.
const GUARD: [(&str, i64); 5] =
    [("bf.fetch", -4), ("bf.mfetch", -5), ("bf.fill", -6), ("bf.changed", 4), ("bf.mchanged", -5)];

fn texts(reply: &Reply) -> Vec<String> {
    reply.elements().iter().map(Reply::text).collect()
}

#[test]
fn the_module_is_listed_at_the_level_of_commands_that_it_matches() {
    on_every_server(|program| {
        let server = Server::start(program);
        for protocol in [2, 3] {
            let list = server.connect_speaking(protocol).run("MODULE LIST");
            let module =
                list.elements().iter().find(|module| module.field("name").text() == "bf").expect("bf is loaded");
            assert_eq!(module.field("ver").number(), 80000);
        }
        assert!(server.log().contains(env!("CARGO_PKG_VERSION")), "our own version is in the log");
    });
}

#[test]
fn commands_have_arity_flags_and_keys() {
    with_client(|_, client| {
        for (name, arity, writes, takes_memory, fast, _) in COMMANDS {
            let reply = client.run(&format!("COMMAND INFO {name}"));
            let fields = reply.elements()[0].elements();
            assert_eq!(fields[0].text(), name);
            assert_eq!(fields[1].number(), arity, "{name}");
            let flags = texts(&fields[2]);
            let has = |flag: &str| flags.iter().any(|word| word == flag);
            assert_eq!((has("write"), has("readonly")), (writes, !writes), "{name}: {flags:?}");
            assert_eq!(has("denyoom"), takes_memory, "{name}: {flags:?}");
            assert_eq!(has("fast"), fast, "{name}: {flags:?}");
            assert!(has("module") && !has("movablekeys"), "{name}: {flags:?}");
            let keys: Vec<i64> = fields[3..6].iter().map(Reply::number).collect();
            assert_eq!(keys, [1, 1, 1], "{name}");
            let specs = fields[8].elements();
            assert_eq!(specs.len(), 1, "{name}");
            let flags = texts(specs[0].field("flags"));
            assert!(flags.contains(&if writes { "RW" } else { "RO" }.to_owned()), "{name}: {flags:?}");
            let frees = name.ends_with("del") || name == "cf.compact";
            assert!(flags.contains(&"delete".to_owned()) == frees, "{name}: {flags:?}");
            assert_eq!(specs[0].field("begin_search").field("spec").field("index").number(), 1, "{name}");
            assert_eq!(specs[0].field("find_keys").field("spec").field("lastkey").number(), 0, "{name}");
        }
        for (name, arity) in GUARD {
            let reply = client.run(&format!("COMMAND INFO {name}"));
            assert_eq!(reply.elements()[0].elements()[1].number(), arity, "{name}");
        }
    });
}

#[test]
fn commands_have_tips_for_clients_that_cache() {
    with_client(|_, client| {
        let tips = |client: &mut Connection, name: &str| {
            let reply = client.run(&format!("COMMAND INFO {name}"));
            texts(&reply.elements()[0].elements()[7])
        };
        for name in ["bf.info", "bf.debug", "bf.stats", "cf.info", "cf.debug"] {
            assert_eq!(tips(client, name), ["dont_cache"], "{name}");
        }
        for name in ["bf.fetch", "bf.mfetch"] {
            assert_eq!(tips(client, name), ["nondeterministic_output"], "{name}");
        }
        for name in ["bf.exists", "bf.mexists", "bf.card", "bf.add"] {
            assert!(tips(client, name).is_empty(), "{name}");
        }
    });
}

#[test]
fn keys_are_found_in_a_command() {
    with_client(|_, client| {
        for (name, arity, ..) in COMMANDS {
            let mut words = vec!["COMMAND", "GETKEYS", name, "the-key"];
            words.extend(std::iter::repeat_n("1", arity.unsigned_abs() as usize - 2));
            assert_eq!(client.call(&words), array([bulk("the-key")]), "{name}");
        }
    });
}

#[test]
fn commands_are_documented() {
    with_client(|_, client| {
        let arguments = |client: &mut Connection, name: &str| {
            let docs = client.run(&format!("COMMAND DOCS {name}"));
            texts_of(docs.field(name).field("arguments"))
        };
        for (name, arity, .., since) in COMMANDS {
            let docs = client.run(&format!("COMMAND DOCS {name}"));
            let docs = docs.field(name);
            assert!(docs.field("summary").text().len() > 10, "{name}");
            assert!(docs.field("complexity").text().starts_with("O("), "{name}");
            assert!(since.is_empty() || docs.field("since").text() == since, "{name}");
            assert_eq!(docs.field("group").text(), "module", "{name}");
            assert_eq!(docs.field("module").text(), "bf", "{name}");
            let arguments = arguments(client, name);
            assert_eq!(arguments[0], "key", "{name}");
            assert!(
                arity.abs() != 3 || arguments.len() == 2 || ["bf.info", "cf.reserve"].contains(&name),
                "{name}: {arguments:?}"
            );
        }
        assert_eq!(arguments(client, "bf.add"), ["key", "item"]);
        let options = ["key", "capacity", "bucketsize", "maxiterations", "expansion"];
        assert_eq!(arguments(client, "cf.reserve"), options);
        assert_eq!(arguments(client, "cf.insert"), ["key", "capacity", "nocreate", "item"]);
        let mut docs = |name: &str| format!("{:?}", client.run(&format!("COMMAND DOCS {name}"))).to_lowercase();
        let reserve = docs("bf.reserve");
        for word in [
            "capacity",
            "expansion",
            "nonscaling",
            "seed",
            "exist_ok",
            "hash",
            "window",
            "rolling",
            "buckets",
            "sliding",
            "counting",
            "px",
        ] {
            assert!(reserve.contains(word), "{word} is not in {reserve:?}");
        }
        let insert = docs("bf.insert");
        for word in ["capacity", "error", "expansion", "nocreate", "nonscaling", "seed", "item", "sync"] {
            assert!(insert.contains(word), "{word} is not in {insert:?}");
        }
    });
}

/// The names of a command's arguments.
fn texts_of(arguments: &Reply) -> Vec<String> {
    arguments.elements().iter().map(|argument| argument.field("name").text()).collect()
}

/// Whether a user with these permissions may run a command.
fn may_run(client: &mut Connection, rights: &str, name: &str, arity: i64) -> bool {
    let rights = format!("ACL SETUSER somebody reset on nopass ~* -@all {rights}");
    assert_eq!(client.run(&rights), ok());
    let mut words = vec!["ACL", "DRYRUN", "somebody", name];
    words.extend(std::iter::repeat_n("1", arity.unsigned_abs() as usize - 1));
    client.call(&words) == ok()
}

/// Before 7.2, categories do not include a module's commands, so permissions must name each command.
#[test]
fn commands_are_in_categories_where_the_server_has_them() {
    on_every_server(|program| {
        let server = Server::start(program);
        let (mut client, version) = (server.connect(), Version::of(program));
        let knows_modules = version.puts_module_commands_in_categories();
        for (name, arity, writes, ..) in COMMANDS {
            assert_eq!(may_run(&mut client, "+@read", name, arity), knows_modules && !writes, "{name}");
            assert_eq!(may_run(&mut client, "+@write", name, arity), knows_modules && writes, "{name}");
        }
    });
}

#[test]
fn every_command_is_in_the_category_of_the_module_where_the_server_has_one() {
    on_every_server(|program| {
        let server = Server::start(program);
        let (mut client, version) = (server.connect(), Version::of(program));
        let has_own = texts(&client.run("ACL CAT")).iter().any(|category| category == "bloom");
        assert_eq!(has_own, version.has_categories_of_modules());
        let names = texts(&client.run("COMMAND LIST FILTERBY MODULE bf"));
        assert!(names.len() > COMMANDS.len(), "{names:?}");
        for name in names.iter().filter(|_| has_own) {
            let arity = client.run(&format!("COMMAND INFO {name}")).elements()[0].elements()[1].number();
            let category = if name.starts_with("cf.") { "cuckoo" } else { "bloom" };
            assert!(may_run(&mut client, &format!("+@{category}"), name, arity), "{name}");
            if version.lists_module_commands_in_categories() {
                assert!(texts(&client.run(&format!("ACL CAT {category}"))).contains(name), "{name}");
            }
        }
    });
}

/// Copies the module to the server's folder: for the server, a different module with the same name.
fn copy_of_module(folder: &TempDir) -> String {
    let copy = folder.path().join("copy.so");
    fs::copy(module(), &copy).expect("a copy");
    copy.display().to_string()
}

#[test]
fn a_second_module_of_the_name_is_refused_with_the_path_of_the_first() {
    on_every_server(|program| {
        let folder = tempfile::tempdir().expect("a folder");
        let first = copy_of_module(&folder);
        let log = Server::with(program).line(&format!("loadmodule {first}")).refuses_to_start();
        let reason = format!("another module named 'bf' is already loaded, from {first}: load only one");
        assert!(log.contains(&reason), "{log}");
        assert!(!log.contains("panicked"), "{log}");
    });
}

#[test]
fn the_same_library_with_other_arguments_is_refused_with_its_loadmodule_line() {
    on_every_server(|program| {
        let line = format!("loadmodule {} INITIAL_SIZE 50", module().display());
        for words in ["", "INITIAL_SIZE 60", "INITIAL_SIZE 50 ERROR_RATE 0.01"] {
            let log = Server::with(program).line(&line).module_words(words).refuses_to_start();
            assert!(log.contains(&format!("this library is already loaded, as: {line}")), "{log}");
        }
        let log = Server::with(program).module_words("UNLESS_LOADED maybe").refuses_to_start();
        assert!(log.contains("bad value 'maybe' for UNLESS_LOADED: yes or no is expected"), "{log}");
    });
}

/// A server starts as before if the module is loaded by the command line and also by a line of CONFIG REWRITE, which Sentinel sends.
#[test]
fn a_repeated_load_has_no_effect() {
    on_every_server(|program| {
        let library = module().display().to_string();
        let words = ["--loadmodule", &library, "INITIAL_SIZE", "50"];
        let mut server = Server::with(program).without_module().arguments(&words).start();
        // Recent servers have built-in modules.
        let loaded = |client: &mut Connection| {
            let modules = client.run("MODULE LIST");
            let ours = modules.elements().iter().filter(|module| module.field("name").text() == "bf").cloned();
            ours.collect::<Vec<Reply>>()
        };
        let before = loaded(&mut server.connect());
        assert_eq!(before.len(), 1);
        for _ in 0..2 {
            assert_eq!(server.connect().run("CONFIG REWRITE"), ok());
            server.restart(Stop::Kill);
            let mut client = server.connect();
            assert_eq!(loaded(&mut client), before);
            client.run("FLUSHALL");
            assert_eq!(client.run("BF.MADD k a b a"), array([integer(1), integer(1), integer(0)]));
            assert_eq!(client.run("DEBUG RELOAD"), ok());
            assert_eq!(client.run("BF.MEXISTS k a c"), array([integer(1), integer(0)]));
            assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(50)]));
        }
        let said = format!("the module 'bf' is already loaded, from {library}; this loadmodule line has no effect");
        assert_eq!(server.log().matches(&said).count(), 2, "{}", server.log());
        let configuration = fs::read_to_string(server.folder().join("redis.conf")).expect("the configuration");
        assert_eq!(configuration.matches("loadmodule").count(), 1, "{configuration}");
    });
}

#[test]
fn a_load_that_yields_has_no_effect_beside_another_module_of_the_name() {
    on_every_server(|program| {
        let folder = tempfile::tempdir().expect("a folder");
        let first = copy_of_module(&folder);
        let line = format!("loadmodule {first} INITIAL_SIZE 50");
        let server = Server::with(program).line(&line).module_words("unless_loaded YES INITIAL_SIZE 60").start();
        let mut client = server.connect();
        client.run("BF.ADD k a");
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(50)]));
        assert!(server.log().contains(&format!("is already loaded, from {first}; this loadmodule line has no effect")));
        drop(server);
        let server = Server::with(program).module_words("UNLESS_LOADED yes INITIAL_SIZE 60").start();
        let mut client = server.connect();
        client.run("BF.ADD k a");
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(60)]), "it is the first");
    });
}

#[test]
#[ignore = "needs BLOOMGATE_OLD_SERVER"]
fn a_server_older_than_7_refuses_the_module_with_a_reason() {
    let program = old_server();
    let server = Server::with(&program).older().without_module().start();
    let version = server.connect().info("redis_version");
    let log = Server::with(&program).older().refuses_to_start();
    let line = format!("bloomgate is not loaded: Redis 7.0 or Valkey is needed, this server is {version}");
    assert!(log.contains(&line), "{log}");
    assert!(log.contains("Can't load module from"), "{log}");
}

// Checks for all commands: the number of arguments, keys of other types, permissions, and unknown subcommands.

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn a_wrong_number_of_words_is_the_servers_usual_error() {
    in_both_protocols(|client, _| {
        // One command for each arity, and those that check the number themselves.
        for line in [
            "BF.ADD k",
            "BF.MADD k",
            "BF.CARD k a",
            "BF.INFO k SIZE ITEMS",
            "BF.ROTATE k 1",
            "BF.ROTATE k 5 1700000000000 1700000100000",
            "BF.ROTATE k 5 1700000000000 1700000100000 50 6",
            "BF.LOADCHUNK k 1",
        ] {
            let name = line.split(' ').next().unwrap().to_lowercase();
            let text = format!("ERR wrong number of arguments for '{name}' command");
            assert_eq!(client.run(line).error_text().to_lowercase(), text.to_lowercase(), "{line}");
        }
    });
}

#[test]
fn a_key_of_another_type_is_left_alone() {
    in_both_protocols(|client, _| {
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
                "BF.STATS k",
                "BF.DEBUG k",
                "BF.COUNT k x",
                "BF.DEL k x",
                "BF.MDEL k x y",
                "BF.MERGE k k",
                "BF.CLEAR k",
                "BF.ROTATE k",
                "BF.SCANDUMP k 0",
                "BF.LOADCHUNK k 1 x",
                "BF.LOAD k x",
            ] {
                let line = line.replacen(" k", &format!(" {key}"), 1);
                assert_eq!(client.run(&line), error(WRONG_TYPE), "{line}");
            }
            assert_ne!(client.run(&format!("TYPE {key}")).text(), "bloomgate");
        }
    });
}

#[test]
fn other_types_commands_refuse_a_filter() {
    with_client(|_, client| {
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
fn the_documented_users_may_read_but_not_write() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/commands.md")).unwrap();
    let lines: Vec<_> = page
        .match_indices("ACL SETUSER ")
        .map(|(start, _)| page[start..].split(['\n', '`']).next().unwrap())
        .filter(|line| line.contains(" on >"))
        .collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let names = client.run("COMMAND LIST FILTERBY MODULE bf");
        for line in &lines {
            let user = line.split(' ').nth(2).unwrap();
            client.run(&format!("ACL DELUSER {user}"));
            assert_eq!(client.run(line), ok(), "{line}");
            for name in names.elements().iter().map(Reply::text) {
                let details = client.run(&format!("COMMAND INFO {name}")).elements()[0].clone();
                let arity = details.elements()[1].number().unsigned_abs() as usize;
                let writes = details.elements()[2].elements().iter().any(|flag| flag.text() == "write");
                let mut words = vec!["ACL", "DRYRUN", user, &name];
                words.extend(std::iter::repeat_n("orders", arity - 1));
                let is_wanted = if user == "guard" { name == "bf.exists" || name == "bf.mexists" } else { !writes };
                assert_eq!(client.call(&words) == ok(), is_wanted, "{user}: {name}");
            }
        }
    });
}
