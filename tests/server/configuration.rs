//! Settings: load-time arguments, redis.conf, CONFIG GET, SET and REWRITE, and their precedence.

use std::fs;

use testing::{Connection, Server, Stop, array, error, integer, nil, ok, on_every_server, with_client};

const DEFAULTS: [(&str, &str); 4] =
    [("bf.error-rate", "0.01"), ("bf.initial-size", "100"), ("bf.expansion-factor", "2"), ("bf.max-filter-bytes", "0")];

fn setting(client: &mut Connection, name: &str) -> String {
    let reply = client.run(&format!("CONFIG GET {name}"));
    assert_eq!(reply.elements().len(), 2, "{name} is no setting");
    reply.elements()[1].text()
}

/// Returns the rate as a number: a server may show more digits than were set.
fn rate(client: &mut Connection) -> f64 {
    setting(client, "bf.error-rate").parse().expect("a rate")
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
        // BF.RESERVE without EXPANSION uses the setting, too.
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
fn bytes_have_the_servers_units() {
    with_client(|_, client| {
        for bytes in ["7", "7b", "7k", "7KB", "7m", "7mB", "7g", "7Gb", "7tb", "7 mb", "-7", "7.5gb", "x", "+7mb"] {
            let mut set = |name| (client.call(&["CONFIG", "SET", name, bytes]).is_error(), setting(client, name));
            let (theirs, ours) = (set("maxmemory"), set("bf.max-filter-bytes"));
            assert_eq!(ours, theirs, "{bytes}");
        }
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

/// Which words are accepted is in `crates/filter/tests/corpus/words.rs`.
#[test]
fn load_time_words_change_the_defaults_or_refuse_the_load_with_a_reason() {
    on_every_server(|program| {
        for words in [
            "initial_size 777 Error_Rate 2e-3 CF_MAX_EXPANSIONS 1 CF-Bucket-Size 4",
            "bf-error-rate 0.002 BF-Initial-Size 777 cf-max-expansions 1 cf-bucket-size 4",
        ] {
            let server = Server::with(program).module_words(words).start();
            let mut client = server.connect();
            assert_eq!(
                (rate(&mut client), setting(&mut client, "bf.initial-size").as_str()),
                (0.002, "777"),
                "{words}"
            );
            client.run("BF.ADD k x");
            assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(777)]), "{words}");
            client.run("CF.RESERVE cuckoo 100");
            assert_eq!(client.run("CF.INFO cuckoo").field("Bucket size"), &integer(4), "{words}");
            assert_eq!(client.run("CF.ADD cuckoo x"), error("Maximum expansions reached"), "{words}");
        }
        for (words, reason) in [
            ("INITIAL_SIZE 100 ERROR_RATE", "load-time words come in pairs, 'ERROR_RATE' has no value"),
            ("FROBNICATE 1", "unknown load-time word 'FROBNICATE'"),
            ("ERROR_RATE nan", "bad value 'nan' for ERROR_RATE: a number inside (0, 1) is expected"),
        ] {
            let log = Server::with(program).module_words(words).refuses_to_start();
            assert!(log.contains(reason), "{words}:\n{log}");
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
        for line in [
            "bf.error-rate 7",
            "bf.error-rate \"\"",
            "bf.initial-size 0",
            "bf.expansion-factor 40000",
            "bf.frobnicate 1",
        ] {
            let log = Server::with(program).line(line).refuses_to_start();
            assert!(!log.contains("panicked"), "{line}:\n{log}");
        }
    });
}

#[test]
fn config_rewrite_keeps_the_settings() {
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

/// Returns the lines of redis.conf that set the module's settings, without lines that the server adds by itself.
fn lines_of(server: &Server) -> Vec<String> {
    let text = fs::read_to_string(server.folder().join("redis.conf")).expect("the configuration file");
    let ours = |line: &&str| line.starts_with("bf.") || line.starts_with("bf-") || line.starts_with("cf-");
    // A server may write a text in quotes.
    text.lines().filter(ours).map(|line| line.replace('"', "")).collect()
}

/// The settings with several names, each with a value other than the default. On Redis 8 they also have names without a prefix.
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

/// A module cannot distinguish CONFIG GET from CONFIG REWRITE, which must not write a line for each name.
#[test]
fn a_setting_is_shown_under_the_name_that_set_it() {
    with_client(|_, client| {
        for (all, value) in ALIASED {
            let names = names_of(client, &all);
            assert!(names.len() >= 2, "{all:?}");
            let default = setting(client, names[0]);
            for set_by in &names {
                assert_eq!(client.run(&format!("CONFIG SET {set_by} {value}")), ok());
                for name in &names {
                    assert_eq!(setting(client, name), if name == set_by { value } else { "" }, "{name}");
                }
                assert_eq!(client.run(&format!("CONFIG SET {set_by} {default}")), ok());
                for name in &names {
                    assert_eq!(setting(client, name), default, "{name}");
                }
            }
        }
    });
}

/// After an error, the server sets each name of the command back to its former text.
#[test]
fn a_config_set_that_fails_changes_no_setting_under_any_name() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (all, value) in ALIASED {
            let names = names_of(&mut client, &all);
            for (set_by, other) in names.iter().flat_map(|one| names.iter().map(move |other| (one, other))) {
                assert_eq!(client.run(&format!("CONFIG SET {set_by} {value}")), ok());
                let (another, third) = if value == "0.05" { ("0.02", "0.03") } else { ("11", "12") };
                for line in [
                    format!("CONFIG SET {other} {another} bf.bloom-tightening-ratio 5"),
                    format!("CONFIG SET bf.bloom-tightening-ratio 5 {other} {another}"),
                    format!("CONFIG SET {other} {another} bf.max-leases 0"),
                    // Two names of one setting.
                    format!("CONFIG SET {set_by} {third} {other} {another} bf.max-leases 0"),
                    format!("CONFIG SET {other} {another} {set_by} {third} bf.max-leases 0"),
                ] {
                    assert!(client.run(&line).is_error(), "{line}");
                    for name in &names {
                        let shown = if name == set_by { value } else { "" };
                        assert_eq!(setting(&mut client, name), shown, "{name} after {line}");
                    }
                }
            }
        }
        for name in ["bf.initial-size", "bf.bloom-capacity"] {
            for wrong in ["", "0", "x"] {
                assert!(client.call(&["CONFIG", "SET", name, wrong]).is_error(), "{name} {wrong:?}");
            }
        }
        assert!(!server.log().contains("Failed restoring"), "{}", server.log());
        client.run("BF.ADD k x");
        assert_eq!(client.run("BF.INFO k CAPACITY"), array([integer(300)]));
        assert_eq!(client.run("BF.INFO k EXPANSION"), array([integer(7)]));
        assert!(client.run("BF.RESERVE large 0.01 200000000").is_error());
    });
}

/// Replaces the lines of redis.conf that set the module's settings by one line for each of these names and values.
fn edit(server: &Server, lines: &[String]) {
    let path = server.folder().join("redis.conf");
    let text = fs::read_to_string(&path).expect("the configuration file");
    let others = text.lines().filter(|line| !line.starts_with("bf.") && !line.starts_with("bf-"));
    let lines: Vec<&str> = others.chain(lines.iter().map(String::as_str)).collect();
    fs::write(&path, lines.join("\n") + "\n").expect("the configuration file");
}

/// If an operator edits the only line, no other line can override it.
#[test]
fn config_rewrite_writes_a_setting_under_the_name_that_the_file_has() {
    on_every_server(|program| {
        let mut server = Server::start(program);
        let places = names_of(&mut server.connect(), &ALIASED[0].0).len();
        for (in_file, set_by) in (0..places).flat_map(|one| (0..places).map(move |other| (one, other))) {
            // The ceiling has no third name.
            let settings = &ALIASED[..if in_file.max(set_by) < 2 { 4 } else { 3 }];
            let lines = |values: [&str; 4]| -> Vec<String> {
                settings.iter().zip(values).map(|((all, _), value)| format!("{} {value}", all[in_file])).collect()
            };
            // The second values are the defaults.
            for values in [["0.02", "200", "3", "200000000"], ["0.01", "100", "2", "0"]] {
                edit(&server, &lines(values));
                server.restart(Stop::NoSave);
                let mut client = server.connect();
                for (all, value) in settings {
                    assert_eq!(client.run(&format!("CONFIG SET {} {value}", all[set_by])), ok());
                }
                assert_eq!(client.run("CONFIG REWRITE"), ok());
                let (mut written, mut expected) = (lines_of(&server), lines(["0.05", "300", "7", "123456789"]));
                written.sort();
                expected.sort();
                assert_eq!(written, expected, "{set_by}");
            }
            edit(&server, &lines(["0.001", "400", "5", "1000"]));
            server.restart(Stop::NoSave);
            let mut client = server.connect();
            client.run("BF.INSERT k SEED 1 ITEMS x");
            client.run("BF.INSERT same CAPACITY 400 ERROR 0.001 EXPANSION 5 SEED 1 ITEMS x");
            assert_eq!(client.run("DEBUG DIGEST-VALUE k"), client.run("DEBUG DIGEST-VALUE same"));
            assert_eq!(client.run("BF.RESERVE large 0.01 100000").is_error(), settings.len() == 4);
        }
    });
}

#[test]
fn config_rewrite_keeps_one_of_two_names_in_the_file_and_the_last_that_set_a_setting() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("bf.initial-size 300").line("bf.bloom-capacity 400").start();
        let mut client = server.connect();
        assert_eq!(client.run("CONFIG SET bf.bloom-fp-rate 0.05"), ok());
        assert_eq!(client.run("CONFIG REWRITE"), ok());
        let sorted = |server: &Server| {
            let mut lines = lines_of(server);
            lines.sort();
            lines
        };
        assert_eq!(sorted(&server), ["bf.bloom-capacity 400", "bf.bloom-fp-rate 0.05"]);
        // Before a restart, no name of the rate is set by the file.
        assert_eq!(client.run("CONFIG SET bf.error-rate 0.06 bf.initial-size 500"), ok());
        assert_eq!(client.run("CONFIG REWRITE"), ok());
        assert_eq!(sorted(&server), ["bf.bloom-capacity 500", "bf.error-rate 0.06"]);
        server.restart(Stop::NoSave);
        assert_eq!(rate(&mut server.connect()), 0.06);
        assert_eq!(setting(&mut server.connect(), "bf.bloom-capacity"), "500");
    });
}

#[test]
fn the_log_names_the_one_of_two_names_in_redis_conf_that_takes_effect() {
    on_every_server(|program| {
        // 100 is the default.
        for (ours, theirs) in [("300", "400"), ("300", "100"), ("100", "300")] {
            let lines = [format!("bf.bloom-capacity {theirs}"), format!("bf.initial-size {ours}")];
            let server = Server::with(program).line(&lines[0]).line(&lines[1]).start();
            let line = "bloomgate: redis.conf sets one setting under two names; 'bloom-capacity' takes effect, 'initial-size' does not";
            let warned = server.log().lines().filter(|logged| logged.contains(" # ") && logged.ends_with(line)).count();
            assert_eq!(warned, 1, "{}", server.log());
            assert_eq!(setting(&mut server.connect(), "bf.bloom-capacity"), theirs);
        }
        let server = Server::with(program).line("bf.bloom-capacity 300").line("bf.initial-size 300").start();
        assert!(!server.log().contains("two names"), "{}", server.log());
    });
}
