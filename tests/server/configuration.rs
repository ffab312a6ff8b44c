//! Settings: load-time words, redis.conf, CONFIG GET, SET and REWRITE, and which of them wins.

use std::fs;

use testing::{Connection, Server, Stop, array, integer, nil, ok, on_every_server, with_client};

const DEFAULTS: [(&str, &str); 4] =
    [("bf.error-rate", "0.01"), ("bf.initial-size", "100"), ("bf.expansion-factor", "2"), ("bf.max-filter-bytes", "0")];

fn setting(client: &mut Connection, name: &str) -> String {
    let reply = client.run(&format!("CONFIG GET {name}"));
    assert_eq!(reply.elements().len(), 2, "{name} is no setting");
    reply.elements()[1].text()
}

/// A rate by its value: a server may show it with more digits than it was given.
fn rate(client: &mut Connection) -> f64 {
    setting(client, "bf.error-rate").parse().expect("a rate")
}

#[test]
fn settings_have_their_defaults() {
    with_client(|_, client| {
        for (name, value) in DEFAULTS {
            assert_eq!(setting(client, name), value, "{name}");
        }
    });
}

#[test]
fn settings_make_the_next_filter() {
    with_client(|_, client| {
        client.run("BF.ADD before x");
        assert_eq!(client.run("CONFIG SET bf.error-rate 0.0001"), ok());
        assert_eq!(client.run("CONFIG SET bf.initial-size 5000 bf.expansion-factor 7"), ok());
        assert_eq!(setting(client, "bf.error-rate"), "0.0001");
        assert_eq!(setting(client, "bf.initial-size"), "5000");
        assert_eq!(setting(client, "bf.expansion-factor"), "7");
        client.run("BF.INSERT k SEED 1 ITEMS x");
        client.run("BF.INSERT same CAPACITY 5000 ERROR 0.0001 EXPANSION 7 SEED 1 ITEMS x");
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), client.run("DEBUG DIGEST-VALUE same"));
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(5000)]));
        assert_eq!(client.run("BF.INFO k EXPANSION"), array([integer(7)]));
        assert_eq!(client.run("BF.INFO before CAPACITY"), array([integer(100)]), "what exists is not touched");
        // BF.RESERVE without EXPANSION takes the setting too.
        client.run("BF.RESERVE reserved 0.01 10");
        assert_eq!(client.run("BF.INFO reserved EXPANSION"), array([integer(7)]));
        client.run("CONFIG SET bf.expansion-factor 0");
        client.run("BF.ADD fixed x");
        assert_eq!(client.run("BF.INFO fixed EXPANSION"), array([nil(2)]));
    });
}

#[test]
fn bad_values_are_refused_and_change_nothing() {
    with_client(|_, client| {
        for (name, values) in [
            ("bf.error-rate", ["0", "1", "-0.1", "x", "nan", "", "inf", "2"].as_slice()),
            ("bf.initial-size", &["0", "-1", "x", "", "1.5"]),
            ("bf.expansion-factor", &["-1", "32769", "x", ""]),
            ("bf.max-filter-bytes", &["-1", "x"]),
        ] {
            for value in values {
                let reply = client.call(&["CONFIG", "SET", name, value]);
                assert!(reply.is_error(), "{name} {value:?}: {reply:?}");
                assert!(reply.error_text().starts_with("ERR CONFIG SET failed"), "{name} {value:?}: {reply:?}");
            }
        }
        for (name, value) in DEFAULTS {
            assert_eq!(setting(client, name), value, "{name}");
        }
        assert!(client.run("CONFIG SET bf.frobnicate 1").is_error());
    });
}

#[test]
fn rates_beyond_the_useful_ones_are_clamped_with_a_warning() {
    with_client(|server, client| {
        for (given, taken) in [("0.7", "0.25"), ("1e-30", "1e-12")] {
            let before = server.log().lines().count();
            assert_eq!(client.run(&format!("CONFIG SET bf.error-rate {given}")), ok());
            client.run("DEL k same");
            client.run("BF.INSERT k SEED 1 ITEMS x");
            client.run(&format!("BF.INSERT same ERROR {taken} SEED 1 ITEMS x"));
            assert_eq!(client.run("DEBUG DIGEST-VALUE k"), client.run("DEBUG DIGEST-VALUE same"), "{given}");
            assert!(
                server
                    .log()
                    .lines()
                    .skip(before)
                    .any(|line| line.contains(" # <") && line.contains("is out of range: using ")),
                "{given}: no warning"
            );
        }
    });
}

#[test]
fn load_time_words_change_the_defaults() {
    on_every_server(|program| {
        for words in ["ERROR_RATE 0.002 INITIAL_SIZE 777", "initial_size 777 Error_Rate 2e-3"] {
            let server = Server::with(program).module_words(words).start();
            let mut client = server.connect();
            assert_eq!(rate(&mut client), 0.002, "{words}");
            assert_eq!(setting(&mut client, "bf.initial-size"), "777", "{words}");
            client.run("BF.ADD k x");
            assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(777)]), "{words}");
        }
    });
}

#[test]
fn redisblooms_words_for_other_families_are_passed_over() {
    on_every_server(|program| {
        let server = Server::with(program).module_words("CF_MAX_EXPANSIONS 32 ERROR_RATE 0.002").start();
        assert_eq!(rate(&mut server.connect()), 0.002);
        assert!(
            server
                .log()
                .lines()
                .any(|line| line.contains(" # ") && line.contains("CF_MAX_EXPANSIONS has no effect: cuckoo filters"))
        );
    });
}

#[test]
fn bad_load_time_words_refuse_the_load_and_say_why() {
    on_every_server(|program| {
        for (words, mentioned) in [
            ("ERROR_RATE", "ERROR_RATE"),
            ("INITIAL_SIZE 100 ERROR_RATE", "ERROR_RATE"),
            ("FROBNICATE 1", "FROBNICATE"),
            ("ERROR_RATE x", "ERROR_RATE"),
            ("ERROR_RATE 0", "ERROR_RATE"),
            ("ERROR_RATE 1.5", "ERROR_RATE"),
            ("ERROR_RATE nan", "ERROR_RATE"),
            ("INITIAL_SIZE 0", "INITIAL_SIZE"),
            ("INITIAL_SIZE -5", "INITIAL_SIZE"),
            ("INITIAL_SIZE x", "INITIAL_SIZE"),
        ] {
            let log = Server::with(program).module_words(words).refuses_to_start();
            // The server's own lines name the file, not the words.
            let why = log.lines().find(|line| line.contains('<') && line.to_uppercase().contains(mentioned));
            assert!(why.is_some(), "{words}: no line of the log says why:\n{log}");
            assert!(!log.contains("panicked"), "{words}:\n{log}");
        }
    });
}

#[test]
fn redis_conf_wins_over_load_time_words() {
    on_every_server(|program| {
        let server = Server::with(program)
            .module_words("ERROR_RATE 0.002 INITIAL_SIZE 777")
            .line("bf.error-rate 0.003")
            .line("bf.expansion-factor 5")
            .start();
        let mut client = server.connect();
        assert_eq!(rate(&mut client), 0.003);
        assert_eq!(setting(&mut client, "bf.initial-size"), "777");
        assert_eq!(setting(&mut client, "bf.expansion-factor"), "5");
    });
}

#[test]
fn bad_lines_in_redis_conf_stop_the_start() {
    on_every_server(|program| {
        for line in ["bf.error-rate 7", "bf.initial-size 0", "bf.expansion-factor 40000", "bf.frobnicate 1"] {
            let log = Server::with(program).line(line).refuses_to_start();
            assert!(!log.contains("panicked"), "{line}:\n{log}");
        }
    });
}

#[test]
fn config_rewrite_keeps_what_was_set() {
    on_every_server(|program| {
        let mut server = Server::with(program).module_words("INITIAL_SIZE 50").start();
        let mut client = server.connect();
        client.run("CONFIG SET bf.error-rate 0.0005 bf.expansion-factor 9 bf.max-filter-bytes 123456789");
        assert_eq!(client.run("CONFIG REWRITE"), ok());
        server.restart(Stop::NoSave);
        let mut client = server.connect();
        assert_eq!(rate(&mut client), 0.0005);
        assert_eq!(setting(&mut client, "bf.expansion-factor"), "9");
        assert_eq!(setting(&mut client, "bf.max-filter-bytes"), "123456789");
        assert_eq!(setting(&mut client, "bf.initial-size"), "50");
        client.run("CONFIG SET bf.initial-size 60");
        assert_eq!(client.run("CONFIG REWRITE"), ok());
        server.restart(Stop::NoSave);
        assert_eq!(setting(&mut server.connect(), "bf.initial-size"), "60", "what was set wins over the words");
    });
}

/// The lines of redis.conf that set something of the module, without those that the server has put there by itself.
fn lines_of(server: &Server) -> Vec<String> {
    let text = fs::read_to_string(server.folder().join("redis.conf")).expect("the configuration file");
    let ours = |line: &&str| line.starts_with("bf.") || line.starts_with("bf-") || line.starts_with("cf-");
    // A server may write a text in quotes.
    text.lines().filter(ours).map(|line| line.replace('"', "")).collect()
}

/// The settings that have several names, and a value other than the default. Redis 8 has the names without a prefix, too.
const ALIASED: [([&str; 3], &str); 4] = [
    (["bf.error-rate", "bf.bloom-fp-rate", "bf-error-rate"], "0.05"),
    (["bf.initial-size", "bf.bloom-capacity", "bf-initial-size"], "300"),
    (["bf.expansion-factor", "bf.bloom-expansion", "bf-expansion-factor"], "7"),
    (["bf.max-filter-bytes", "bf.bloom-memory-usage-limit", "bf.none"], "123456789"),
];

/// The names of a setting on this server.
fn names_of<'a>(client: &mut Connection, all: &[&'a str]) -> Vec<&'a str> {
    all.iter().copied().filter(|name| !client.run(&format!("CONFIG GET {name}")).elements().is_empty()).collect()
}

#[test]
fn a_setting_has_its_value_under_every_name() {
    with_client(|_, client| {
        for (all, value) in ALIASED {
            let names = names_of(client, &all);
            assert!(names.len() >= 2, "{all:?}");
            let default = setting(client, names[0]);
            for name in &names {
                assert_eq!(client.run(&format!("CONFIG SET {name} {value}")), ok());
                for name in &names {
                    assert_eq!(setting(client, name), value, "{name}");
                }
                assert_eq!(client.run(&format!("CONFIG SET {name} {default}")), ok());
            }
        }
    });
}

/// The server sets again what each name of the command showed before.
#[test]
fn a_config_set_that_fails_changes_no_setting_under_any_name() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (all, value) in ALIASED {
            let names = names_of(&mut client, &all);
            for (set_by, other) in names.iter().flat_map(|one| names.iter().map(move |other| (one, other))) {
                assert_eq!(client.run(&format!("CONFIG SET {set_by} {value}")), ok());
                let another = if value == "0.05" { "0.02" } else { "11" };
                for line in [
                    format!("CONFIG SET {other} {another} bf.bloom-tightening-ratio 5"),
                    format!("CONFIG SET bf.bloom-tightening-ratio 5 {other} {another}"),
                    format!("CONFIG SET {other} {another} bf.max-leases 0"),
                ] {
                    assert!(client.run(&line).is_error(), "{line}");
                    for name in &names {
                        assert_eq!(setting(&mut client, name), value, "{name} after {line}");
                    }
                }
            }
        }
        // What is shown is what is used.
        client.run("BF.ADD k x");
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(300)]));
        assert_eq!(client.run("BF.INFO k EXPANSION"), array([integer(7)]));
        assert!(client.run("BF.RESERVE large 0.01 200000000").is_error());
    });
}

#[test]
fn a_rewritten_configuration_has_a_line_for_each_name_and_one_of_them_is_enough() {
    on_every_server(|program| {
        let mut server = Server::start(program);
        let mut client = server.connect();
        assert_eq!(client.run("CONFIG SET bf.bloom-fp-rate 0.05 bf.initial-size 500"), ok());
        assert_eq!(client.run("CONFIG REWRITE"), ok());
        let names = [ALIASED[0], ALIASED[1]].map(|(all, _)| names_of(&mut client, &all));
        let mut expected: Vec<String> = names[0].iter().map(|name| format!("{name} 0.05")).collect();
        expected.extend(names[1].iter().map(|name| format!("{name} 500")));
        expected.sort();
        let mut lines = lines_of(&server);
        lines.sort();
        assert_eq!(lines, expected);
        server.restart(Stop::NoSave);
        let mut client = server.connect();
        assert_eq!((rate(&mut client), setting(&mut client, "bf.initial-size").as_str()), (0.05, "500"));

        let path = server.folder().join("redis.conf");
        let text = fs::read_to_string(&path).unwrap();
        let kept = text.lines().filter(|line| !line.starts_with("bf.error-rate") && !line.starts_with("bf-error-rate"));
        let edited: String = kept.map(|line| line.replace("0.05", "0.07") + "\n").collect();
        fs::write(&path, edited).unwrap();
        server.restart(Stop::NoSave);
        let mut client = server.connect();
        assert_eq!(rate(&mut client), 0.07);
        client.run("BF.INSERT k SEED 1 ITEMS x");
        client.run("BF.INSERT same CAPACITY 500 ERROR 0.07 SEED 1 ITEMS x");
        assert_eq!(client.run("DEBUG DIGEST-VALUE k"), client.run("DEBUG DIGEST-VALUE same"));
    });
}

#[test]
fn the_log_names_the_one_of_two_names_in_redis_conf_that_takes_effect() {
    on_every_server(|program| {
        let server = Server::with(program).line("bf.initial-size 300").line("bf.bloom-capacity 400").start();
        let line = "bloomgate: redis.conf sets one setting under several names; 'bloom-capacity' takes effect";
        assert!(server.log().lines().any(|logged| logged.contains(" # ") && logged.contains(line)), "{}", server.log());
    });
}

#[test]
fn the_names_of_redisblooms_settings_are_load_time_words() {
    on_every_server(|program| {
        let words = "bf-error-rate 0.02 BF-Initial-Size 200 bf-expansion-factor 4 cf-bucket-size 4";
        let server = Server::with(program).module_words(words).start();
        let mut client = server.connect();
        client.run("BF.ADD k x");
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(200)]));
        assert_eq!(client.run("BF.INFO k EXPANSION"), array([integer(4)]));
        assert_eq!(rate(&mut client), 0.02);
        assert!(server.log().lines().any(|line| line.contains(" # ") && line.contains("cf-bucket-size")));
    });
}
