//! The exit status: 2 for invalid values, before a server is contacted; 1 for failures.

use crate::running::{run, run_with, url};
use testing::{Server, on_every_server};

/// Command lines and their error messages. Nothing listens on port 1.
const MISUSED: [(&str, &str); 26] = [
    ("survey --url http://nowhere", "a server's URL must have the form"),
    ("survey --beside http://nowhere -p 1", "a server's URL must have the form"),
    ("survey --insecure -p 1", "--insecure needs --tls"),
    ("survey -p x", "invalid value 'x'"),
    ("load - --key a --create 2 5", "--create: `2` is not a rate"),
    ("load - --key a --create x 5", "--create: `x` is not a rate"),
    ("load - --key a --create 0.1 0", "--create: it must be at least 1"),
    ("load - --key a --create 0.1 many", "--create: `many` is not a whole number"),
    ("load - --key a --create 0.1", "use --create RATE CAPACITY"),
    ("load - --key a --create 0.1 5 --resume", "the source can be read only once"),
    ("load a --column 0 --key a --create 0.1 5", "--column: columns are numbered from 1"),
    ("load --sqlite a --column b --key a --create 0.1 5", "say which rows to load"),
    ("load --postgres a://b --query x --key a --create 0.1 5", "a PostgreSQL server has the form"),
    ("load --postgres postgres://b --query x --resume --key a --create 0.1 5", "--resume needs a --table"),
    ("dedup --key a --create 1 5", "--create: `1` is not a rate"),
    ("dedup --key a --create 0.1 1.5", "--create: `1.5` is not a whole number"),
    ("dedup --key a --json /a~2", "`/a~2` is not a JSON Pointer"),
    ("dedup -", "--key <KEY>"),
    ("shards create a 1.5 100 --shards 2", "`1.5` is not a rate"),
    ("shards create a 0.1 0 --shards 2", "it must be at least 1"),
    ("backup a --verify -o -", "--verify reads the file back"),
    ("build 1.5 10 -o -", "invalid filter: error rate must be in the range"),
    ("build 0.01 many -o -", "invalid filter: bad capacity"),
    ("plan 2 1000", "error rate must be in the range"),
    ("plan 0.01 0 --url redis://127.0.0.1:1", "the capacity must be at least 1"),
    ("plan 0.01 1000 --rolling --window 5", "ROLLING"),
];

#[test]
fn invalid_values_exit_with_status_2_before_a_server_is_contacted() {
    for (line, part) in MISUSED {
        let mut words: Vec<_> = line.split(' ').collect();
        if ["load", "dedup", "shards"].contains(&words[0]) {
            words.extend(["-p", "1"]);
        }
        let ended = run(&words).misused(part);
        assert!(!ended.stderr.contains("cannot reach"), "{line}: {ended:?}");
    }
}

#[test]
fn failures_exit_with_status_1() {
    run(["survey", "-p", "1"]).refused("cannot reach");
    run(["load", "/nowhere", "--key", "a", "--create", "0.1", "-p", "1"]).refused("cannot reach");
    on_every_server(|program| {
        let server = Server::start(program);
        let url = url(&server);
        run(["load", "/nowhere", "--key", "a", "--create", "0.1", "--url", &url]).refused("cannot read /nowhere");
        run_with(["dedup", "--key", "a", "--url", &url], "a\n").refused("there is no filter `a`");
    });
}
