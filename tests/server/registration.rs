//! What the server says about the module and its commands, by which clients, proxies and rights find their way.

use testing::{Connection, Reply, Server, Version, array, bulk, module, ok, old_server, on_every_server};

/// Name, arity, whether it writes, whether it is refused above `maxmemory`, whether it is marked fast, and the version of
/// RedisBloom that has it first, or our own.
const COMMANDS: [(&str, i64, bool, bool, bool, &str); 13] = [
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
];

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
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
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
            assert!(flags.contains(&"delete".to_owned()) == name.ends_with("del"), "{name}: {flags:?}");
            assert_eq!(specs[0].field("begin_search").field("spec").field("index").number(), 1, "{name}");
            assert_eq!(specs[0].field("find_keys").field("spec").field("lastkey").number(), 0, "{name}");
        }
    });
}

#[test]
fn commands_have_tips_for_clients_that_cache() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let tips = |client: &mut Connection, name: &str| {
            let reply = client.run(&format!("COMMAND INFO {name}"));
            texts(&reply.elements()[0].elements()[7])
        };
        for name in ["bf.info", "bf.debug", "bf.stats"] {
            assert_eq!(tips(&mut client, name), ["dont_cache"], "{name}");
        }
        for name in ["bf.fetch", "bf.mfetch"] {
            assert_eq!(tips(&mut client, name), ["nondeterministic_output"], "{name}");
        }
        for name in ["bf.exists", "bf.mexists", "bf.card", "bf.add"] {
            assert!(tips(&mut client, name).is_empty(), "{name}");
        }
    });
}

#[test]
fn keys_are_found_in_a_command() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (name, arity, ..) in COMMANDS {
            let mut words = vec!["COMMAND", "GETKEYS", name, "the-key"];
            words.extend(std::iter::repeat_n("1", arity.unsigned_abs() as usize - 2));
            assert_eq!(client.call(&words), array([bulk("the-key")]), "{name}");
        }
    });
}

#[test]
fn commands_are_documented() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
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
            let arguments = arguments(&mut client, name);
            assert_eq!(arguments[0], "key", "{name}");
            assert!(arity.abs() != 3 || arguments.len() == 2 || name == "bf.info", "{name}: {arguments:?}");
        }
        assert_eq!(arguments(&mut client, "bf.add"), ["key", "item"]);
        let reserve = arguments(&mut client, "bf.reserve").join(" ").to_lowercase();
        for word in ["capacity", "expansion", "nonscaling", "seed"] {
            assert!(reserve.contains(word), "{word} is not in {reserve:?}");
        }
        let insert = arguments(&mut client, "bf.insert").join(" ").to_lowercase();
        for word in ["capacity", "error", "expansion", "nocreate", "nonscaling", "seed", "item"] {
            assert!(insert.contains(word), "{word} is not in {insert:?}");
        }
    });
}

/// The names of a command's arguments.
fn texts_of(arguments: &Reply) -> Vec<String> {
    arguments.elements().iter().map(|argument| argument.field("name").text()).collect()
}

/// Whether a user with these rights may run a command.
fn may_run(client: &mut Connection, rights: &str, name: &str, arity: i64) -> bool {
    let rights = format!("ACL SETUSER somebody reset on nopass ~* -@all {rights}");
    assert_eq!(client.run(&rights), ok());
    let mut words = vec!["ACL", "DRYRUN", "somebody", name];
    words.extend(std::iter::repeat_n("1", arity.unsigned_abs() as usize - 1));
    client.call(&words) == ok()
}

/// Before 7.2 no category has a module's commands, and every right to them has to name them.
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
            assert!(may_run(&mut client, "+@bloom", name, arity), "{name}");
            if version.lists_module_commands_in_categories() {
                assert!(texts(&client.run("ACL CAT bloom")).contains(name), "{name}");
            }
        }
    });
}

#[test]
fn a_second_module_of_the_name_is_refused_with_a_reason() {
    on_every_server(|program| {
        let again = format!("loadmodule {}", module().display());
        let log = Server::with(program).line(&again).refuses_to_start();
        assert!(log.contains("another module named 'bf' is already loaded"), "{log}");
        assert!(!log.contains("panicked"), "{log}");
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

#[test]
fn the_module_stays_while_filters_may_be_there() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        client.run("BF.ADD k a");
        assert!(client.run("MODULE UNLOAD bf").is_error());
        assert_eq!(client.run("BF.EXISTS k a").number(), 1);
    });
}

#[test]
fn unknown_commands_are_unknown() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        assert!(client.run("BF.FROBNICATE k").error_text().starts_with("ERR unknown command"));
    });
}
