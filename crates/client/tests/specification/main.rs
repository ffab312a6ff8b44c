//! Every case of clients/specification: on a scripted server in the test, which speaks RESP2 or RESP3, and on real ones. And the
//! Rust lines of docs/clients.md.
// This crate is test code, which fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

mod calls;
mod case;
mod cluster;
mod crowds;
mod failure;
mod logs;
mod options;
mod page;
mod panics;
mod pool;
mod runtimes;
mod scripted;
mod steps;
#[allow(clippy::duplicate_mod, reason = "both halves are tested by the same code")]
mod tasks;
#[allow(clippy::duplicate_mod, reason = "both halves are tested by the same code")]
mod threads;
mod words;

use std::fs;

use case::{Case, Half, Need, On, Target, folder, read_cases};
use redis::{ErrorKind, ProtocolVersion, ServerErrorKind};
use scripted::Scripted;
use steps::Run;
use testing::{Server, servers};

impl Half {
    /// Whether it can run the cases that need this.
    fn meets(self, need: Need) -> bool {
        match need {
            Need::Timeout | Need::Share | Need::Pause | Need::Fatal | Need::Resp2 | Need::Resp3 => true,
            Need::Pool => matches!(self, Self::Threads),
            Need::Cancel | Need::Turns => matches!(self, Self::Tasks),
        }
    }
}

/// Runs the cases of a file on one kind of server. Reports the cases whose needs this client does not meet.
fn run_all(file: &str, on: On, half: Half, run: impl Fn(&Case, ProtocolVersion) -> Result<(), String>) {
    let mut failures = Vec::new();
    for case in read_cases(file).unwrap() {
        let Case { name, needs, .. } = &case;
        if !case.servers.contains(&on) {
            continue;
        }
        if let Some(need) = needs.iter().find(|need| !half.meets(**need)) {
            println!("{name}: skipped, because it needs {need:?}");
            continue;
        }
        for (protocol, need, other) in
            [(ProtocolVersion::RESP2, Need::Resp2, Need::Resp3), (ProtocolVersion::RESP3, Need::Resp3, Need::Resp2)]
        {
            let is_run = needs.contains(&need) || !needs.contains(&other);
            if is_run && let Err(error) = run(&case, protocol) {
                failures.push(format!("{name} ({need:?}): {error}"));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn on_a_scripted_server(file: &str, half: Half) {
    run_all(file, On::Scripted, half, |case, protocol| {
        let server = Scripted::start();
        let target = Target { half, protocol, port: server.port, is_cluster: false };
        Run::new(case, target, Some(&server)).run()
    });
}

fn on_real_servers(file: &str, half: Half) {
    for program in servers() {
        let server = Server::start(&program);
        run_all(file, On::Real, half, |case, protocol| {
            set_up(case, &[&server])?;
            let target = Target { half, protocol, port: server.port, is_cluster: false };
            Run::new(case, target, None).run()
        });
    }
}

fn on_clusters(half: Half) {
    for program in servers() {
        let nodes = cluster::of_three(&program);
        let nodes: Vec<&Server> = nodes.iter().collect();
        for file in TESTED {
            run_all(&crate::file(file), On::Cluster, half, |case, protocol| {
                set_up(case, &nodes)?;
                let target = Target { half, protocol, port: nodes[0].port, is_cluster: true };
                Run::new(case, target, None).run()
            });
        }
    }
}

/// Empties the nodes, and sends the commands that come before a case to the node that serves them.
fn set_up(case: &Case, nodes: &[&Server]) -> Result<(), String> {
    let mut connections: Vec<_> = nodes.iter().map(|node| node.library_client(2)).collect();
    for connection in &mut connections {
        redis::cmd("FLUSHALL").exec(connection).map_err(|error| error.to_string())?;
    }
    for words in &case.setup {
        let mut setup = redis::cmd(&words[0]);
        setup.arg(&words[1..]);
        let mut results = connections.iter_mut().map(|connection| setup.exec(connection));
        let moved = ErrorKind::Server(ServerErrorKind::Moved);
        let served = results.find(|result| result.as_ref().err().is_none_or(|error| error.kind() != moved));
        served.ok_or("no node serves a command of the setup")?.map_err(|error| error.to_string())?;
    }
    Ok(())
}

macro_rules! files {
    ($($name:ident),*) => {
        mod scripted_server {
            pub mod threads {
                $(#[test]
                fn $name() {
                    crate::on_a_scripted_server(&crate::file(stringify!($name)), crate::Half::Threads);
                })*
            }

            pub mod tasks {
                $(#[test]
                fn $name() {
                    crate::on_a_scripted_server(&crate::file(stringify!($name)), crate::Half::Tasks);
                })*
            }
        }

        mod real_servers {
            pub mod threads {
                $(#[test]
                fn $name() {
                    crate::on_real_servers(&crate::file(stringify!($name)), crate::Half::Threads);
                })*
            }

            pub mod tasks {
                $(#[test]
                fn $name() {
                    crate::on_real_servers(&crate::file(stringify!($name)), crate::Half::Tasks);
                })*
            }
        }

        mod clusters {
            #[test]
            fn threads() {
                crate::on_clusters(crate::Half::Threads);
            }

            #[test]
            fn tasks() {
                crate::on_clusters(crate::Half::Tasks);
            }
        }

        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}

/// Returns the file of the cases with this name.
fn file(name: &str) -> String {
    format!("{}.json", name.replace('_', "-"))
}

files!(
    batches,
    dump,
    errors,
    guard_cancel,
    guard_fail,
    guard_feed,
    guard_many,
    guard_read,
    guard_wait,
    guard_write,
    items,
    replies,
    sharding
);

#[test]
fn every_file_of_cases_is_run() {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = entries.filter(|name| name.ends_with(".json") && name != "options.json").collect();
    found.sort();
    let mut known: Vec<String> = TESTED.iter().map(|name| file(name)).collect();
    known.sort();
    assert_eq!(found, known);
}

/// A runner that skipped what it does not know would pass with rules unnoticed.
#[test]
fn an_unknown_step_call_member_or_error_fails() {
    let unknown = [
        r#"{"wonder": "r"}"#,
        r#"{"call": "filter.wonder", "result": null}"#,
        r#"{"call": "filter.card", "wonder": 1, "result": null}"#,
        r#"{"call": "filter.card", "with": {"wonder": 1}, "result": null}"#,
        r#"{"call": "shard_of", "with": {"item": {"wonder": 1}, "shards": 2}, "error": "refused"}"#,
        r#"{"call": "item_bytes", "with": {"item": {"boolean": true}}, "error": "wonder"}"#,
    ];
    let run = |step: &str| {
        let case = format!(r#"{{"name": "", "servers": [], "filter": {{"key": "seen"}}, "steps": [{step}]}}"#);
        let case = serde_json::from_str::<Case>(&case).map_err(|error| format!("unknown: {error}"))?;
        let server = Scripted::start();
        let (half, protocol) = (Half::Threads, ProtocolVersion::RESP2);
        let target = Target { half, protocol, port: server.port, is_cluster: false };
        Run::new(&case, target, Some(&server)).run()
    };
    assert_eq!(run(r#"{"call": "item_bytes", "with": {"item": "a"}, "result": {"hex": "61"}}"#), Ok(()));
    for step in unknown {
        let result = run(step);
        assert!(result.as_ref().is_err_and(|error| error.contains("unknown")), "{step}: {result:?}");
    }
}
