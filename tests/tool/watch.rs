//! `watch`: compares its figures with the server's.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testing::{Server, Stop, eventually, on_every_server, tool};

use crate::running::{Ended, Running, collect, command, run, send, start, three_nodes, url};
use crate::web::asking::Web;

fn samples(server: &Server, words: &[&str]) -> Vec<Value> {
    let url = url(server);
    let words = ["watch", "--json", "--url", &url].into_iter().chain(words.iter().copied());
    run(words).success().text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Creates three filters and a key of another type.
fn filled(program: &std::path::Path) -> Server {
    let server = Server::start(program);
    let mut client = server.connect();
    client.run("SET text 1");
    client.run("BF.RESERVE large 0.001 100000");
    client.run("BF.RESERVE small 0.01 1000 COUNTING");
    client.run("BF.MADD large a b c d");
    client.run("BF.MADD small a b");
    client.run("BF.ADD default a");
    client.run("BF.MEXISTS large a x y");
    server
}

#[test]
fn a_sample_has_the_figures_of_bf_info_and_bf_stats() {
    on_every_server(|program| {
        let server = filled(program);
        let sample = samples(&server, &["--once"]).remove(0);
        assert_eq!([&sample["filters_known"], &sample["filters_of_server"]], [3, 3]);
        assert_eq!([&sample["adds"], &sample["lookups"], &sample["positives"]], [7, 3, 1]);
        assert!(sample["adds_a_second"].is_null());
        let filters = sample["filters"].as_array().unwrap();
        assert_eq!(
            filters.iter().map(|filter| filter["key"].as_str().unwrap()).collect::<Vec<_>>(),
            ["large", "small", "default"]
        );
        let mut client = server.connect();
        for filter in filters {
            let key = filter["key"].as_str().unwrap();
            let (info, stats) = (client.run(&format!("BF.INFO {key}")), client.run(&format!("BF.STATS {key}")));
            for (name, field) in [
                ("items", "Number of items inserted"),
                ("capacity", "Capacity"),
                ("size_bytes", "Size"),
                ("layers", "Number of filters"),
            ] {
                assert_eq!(filter[name], info.field(field).number(), "{key}: {name}");
            }
            assert!(filter["fill"].as_f64().unwrap() > 0.0 && !stats.field("Kind").is_error());
            assert!(filter["rate_now"].as_f64().unwrap() <= filter["rate"].as_f64().unwrap());
        }
        assert_eq!([&filters[1]["kind"], &filters[2]["kind"]], ["counting", "scaling"]);
    });
}

/// One node has many more keys than the others, so the walk over the keys ends last there.
#[test]
fn watch_and_web_find_the_filters_of_every_node() {
    on_every_server(|program| {
        let nodes = three_nodes(program);
        let mut added = 0;
        for mut client in nodes.each_ref().map(Server::connect) {
            // Each node refuses the keys of the others.
            added += (0..60).filter(|number| !client.run(&format!("BF.ADD filter:{number} a")).is_error()).count();
            (0..2000).for_each(|number| _ = client.run(&format!("SET {{a}}{number} x")));
        }
        assert_eq!(added, 60);
        let seen = samples(&nodes[1], &["--samples", "2", "--interval", "0.1"]);
        assert!(seen.len() == 2 && seen.iter().all(|sample| sample["filters_known"] == 60), "{seen:?}");
        let web = Web::start(&nodes[1], &[]);
        let state = web.state_when("a complete walk", |state| state["walk"]["is_complete"] == true);
        assert_eq!(state["filters"].as_array().unwrap().len(), 60);
        web.state_when("all keys scanned", |state| state["walk"]["looked_at"].as_u64() >= Some(2060));
    });
}

#[test]
fn a_second_sample_shows_the_activity_since_the_first() {
    on_every_server(|program| {
        let server = filled(program);
        let url = url(&server);
        let words = ["watch", "--json", "--samples", "2", "--interval", "1.5", "--sort", "activity", "--url", &url];
        let mut child = command(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut client = server.connect();
        // Adds until the second sample is printed; the first one may be printed at any time.
        let mut number = 0;
        while child.try_wait().unwrap().is_none() {
            number += 1;
            client.run(&format!("BF.MADD small x{number} y{number}"));
            client.run(&format!("BF.EXISTS small z{number}"));
            thread::sleep(Duration::from_millis(20));
        }
        let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let samples: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(samples.len(), 2);
        assert!(samples[1]["adds_a_second"].as_f64().unwrap() > 0.0, "{text}");
        assert!(samples[1]["lookups_a_second"].as_f64().unwrap() > 0.0, "{text}");
        let first = &samples[1]["filters"][0];
        assert!(first["key"] == "small" && first["new_a_second"].as_f64().unwrap() > 0.0, "{text}");
    });
}

#[test]
fn only_the_first_sample_queries_all_filters() {
    const FILTERS: usize = 3000;
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        (0..FILTERS).for_each(|number| _ = client.run(&format!("BF.RESERVE filter:{number} 0.01 100")));
        // A hundredth of a second is too short for all of them.
        let samples = samples(&server, &["--samples", "3", "--interval", "0.1", "--top", "2"]);
        for sample in &samples {
            assert_eq!((&sample["filters_known"], sample["filters"].as_array().unwrap().len()), (&FILTERS.into(), 2));
        }
        let stats = client.info("cmdstat_bf.stats");
        let calls: usize = stats.strip_prefix("calls=").unwrap().split(',').next().unwrap().parse().unwrap();
        assert!((FILTERS + 4..3 * FILTERS).contains(&calls), "{calls}");
    });
}

#[test]
fn without_a_terminal_one_table_is_printed() {
    on_every_server(|program| {
        let server = filled(program);
        let text = run(["watch", "--url", &url(&server)]).success().text();
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].starts_with(&format!("127.0.0.1:{}: 3 filters, ", server.port))
                && lines[0].ends_with("7 adds and 3 lookups so far"),
            "{text}"
        );
        assert!(lines[2].starts_with("large ") && lines[4].starts_with("default ") && lines.len() == 5, "{text}");
        let text = run(["watch", "--url", &url(&server), "--match", "s*"]).success().text();
        assert!(text.contains("small") && !text.contains("large"), "{text}");
        let text = run(["watch", "--url", &url(&server), "--top", "1"]).success().text();
        assert!(text.contains("large") && text.ends_with("and 2 more\n"), "{text}");
        // The server counts the filters of all databases, but only one database is searched.
        server.connect().pipeline(&["SELECT 3", "BF.ADD three x", "SELECT 5", "SET text x"]);
        let text = run(["watch", "--url", &url(&server)]).success().text();
        assert!(text.contains(": 4 filters, ") && !text.contains("three"), "{text}");
        assert!(text.ends_with("other databases with keys: 3, 5 (-n NUMBER shows their filters)\n"), "{text}");
        let text = run(["watch", "--url", &url(&server), "-n", "3"]).success().text();
        assert!(text.starts_with(&format!("127.0.0.1:{}/3: ", server.port)) && text.contains("\nthree "), "{text}");
        assert!(text.ends_with("other databases with keys: 0, 5 (-n NUMBER shows their filters)\n"), "{text}");
    });
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs `script` of util-linux, which makes a terminal")]
fn a_terminal_shows_a_lost_server_and_is_restored_by_q_and_by_signals() {
    on_every_server(|program| {
        let mut server = filled(program);
        for end in ["q", "TERM", "INT"] {
            let watch = format!("exec {} watch --url {}", tool().display(), url(&server));
            let line = format!("sh -c 'echo process $$; {watch}'; echo status $?; stty -a");
            let mut script = Command::new("script");
            script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("TERM", "xterm");
            let mut script = Running(script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
            let mut keys = script.0.stdin.take().unwrap();
            let shown = collect(script.0.stdout.take().unwrap());
            eventually("the first sample", || shown.lock().unwrap().contains(" filter"));
            let status = if end == "q" {
                let port = server.port;
                server.stop(Stop::Kill);
                eventually("the report of the lost server", || {
                    shown.lock().unwrap().contains("waiting for the server")
                });
                server.start_again();
                assert_eq!(server.port, port, "another program took the port of the killed server");
                server.connect().run("BF.ADD after a");
                eventually("its new filter", || shown.lock().unwrap().contains("after "));
                keys.write_all(b"am").unwrap();
                0
            } else {
                let process = shown.lock().unwrap().split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
                send(end, process);
                if end == "TERM" { 143 } else { 130 }
            };
            eventually("it to end", || {
                _ = keys.write_all(if end == "q" { b"q" } else { b"" });
                script.0.try_wait().unwrap().is_some()
            });
            eventually("the settings of the terminal", || shown.lock().unwrap().contains(" echo "));
            let text = shown.lock().unwrap();
            let (during, after) = text.rsplit_once("\u{1b}[?1049l").unwrap();
            assert!(during.contains("\u{1b}[?1049h"), "{text}");
            assert!(during.contains(&format!("\u{1b}]0;127.0.0.1:{}: bloomgate watch\u{7}", server.port)), "{text}");
            assert!(after.contains(&format!("status {status}")) && after.contains(" icanon"), "{end}: {text}");
        }
    });
}

/// As with `| head -1`, the output is closed after one line, while the next sample is due a day later.
#[test]
fn a_closed_output_ends_it_at_once() {
    on_every_server(|program| {
        let server = filled(program);
        let url = url(&server);
        let words = ["watch", "--json", "--interval", "86400", "--url", &url];
        let mut watch = Running(command(words).stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(watch.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with('{') && line.ends_with("}\n"), "{line}");
        let mut status = None;
        eventually("it to end", || {
            status = watch.0.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success());
    });
}

/// No subcommand fails if its output is closed before the first line.
#[test]
fn a_closed_output_fails_no_subcommand() {
    on_every_server(|program| {
        let server = filled(program);
        let url = url(&server);
        run(["shards", "--url", &url, "create", "many", "0.01", "100", "--shards", "2"]).success();
        for words in [
            vec!["watch"],
            vec!["watch", "--json", "--samples", "2"],
            vec!["survey"],
            vec!["shards", "info", "many"],
            vec!["plan", "0.01", "100"],
            vec!["load", "/dev/null", "--key", "small", "--in-place"],
            vec!["completions", "bash"],
        ] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = command(words.iter().copied().chain(["--url", &url]));
            let ended = Ended::from(command.stdout(writer).stderr(Stdio::piped()).output().unwrap());
            assert_eq!((ended.status, &*ended.stderr), (Some(0), ""), "{words:?}");
        }
    });
}

#[test]
fn watch_continues_after_a_server_has_hung_and_after_a_restart() {
    on_every_server(|program| {
        let mut server = filled(program);
        let url = url(&server);
        let words = ["watch", "--json", "--interval", "0.1", "--url", &url];
        let mut watch = Running(start(words));
        let samples = collect(watch.0.stdout.take().unwrap());
        let errors = collect(watch.0.stderr.take().unwrap());
        eventually("samples", || samples.lock().unwrap().lines().count() > 1);
        let lines = || errors.lock().unwrap().lines().count();
        let is_back = || errors.lock().unwrap().ends_with(" is back\n");
        // A server that hangs keeps its connections.
        send("STOP", server.process_id());
        eventually("the report", || errors.lock().unwrap().contains("no answer for 5 s; waiting for it"));
        send("CONT", server.process_id());
        eventually("the second line", is_back);
        let port = server.port;
        server.stop(Stop::Kill);
        eventually("the report of the lost server", || lines() == 3);
        assert!(errors.lock().unwrap().ends_with("; waiting for it\n"));
        server.start_again();
        assert_eq!(server.port, port, "another program took the port of the killed server");
        server.connect().run("BF.ADD after a");
        eventually("a sample with only the filter of the new server", || {
            let text = samples.lock().unwrap();
            let last = text.lines().rfind(|line| line.ends_with('}')).unwrap_or_default();
            let last: Value = serde_json::from_str(last).unwrap();
            last["filters"].as_array().unwrap().iter().map(|filter| filter["key"].as_str().unwrap()).eq(["after"])
        });
        eventually("the fourth line", is_back);
        assert_eq!(lines(), 4, "{}", errors.lock().unwrap());
        // Without the module the new server has no samples.
        server.stop(Stop::Kill);
        let port = server.port.to_string();
        let _bare =
            Running(Command::new(program).args(["--port", &port, "--save", ""]).stdout(Stdio::null()).spawn().unwrap());
        eventually("the end", || watch.0.try_wait().unwrap().is_some());
        eventually("the reason", || errors.lock().unwrap().contains("has not loaded the module"));
    });
}
