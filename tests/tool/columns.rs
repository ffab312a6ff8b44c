//! Columns and NUL-terminated lines: `dedup` and `load` have the same options for them, and extract the same items.

use crate::backup::Files;
use crate::running::{run, run_with, url};
use testing::{Server, on_every_server};

const EXACT: [&str; 3] = ["--create", "1e-9", "1000"];

/// CSV with quoted commas, quotes and line ends, and with both kinds of line ends.
const CSV: &str = "\u{feff}id,\"full name\"\r\n1,\"a, \"\"b\"\"\nc\"\r\n\n2,d\n3,\"a, \"\"b\"\"\nc\"\n4,\"d\"";

#[test]
fn csv_records_are_printed_unchanged_and_the_header_once() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let url = url(&server);
        let path = |name: &str, text: &str| {
            std::fs::write(files.path(name), text).unwrap();
            files.path(name).display().to_string()
        };
        let (one, other) = (path("one", CSV), path("other", "full name,more\nd,x\ne,\"y\nz\"\n"));
        let by_name = ["dedup", "--url", &url, "--key", "names", "--column", "full name"];
        let new = run([&by_name[..], &EXACT, &[&one, &other]].concat()).success().text();
        let records = "1,\"a, \"\"b\"\"\nc\"\r\n2,d\ne,\"y\nz\"\n";
        assert_eq!(new, format!("\u{feff}id,\"full name\"\r\n{records}"));
        // A second run prints only the header.
        assert_eq!(run([&by_name[..], &[&one, &other]].concat()).success().text(), "\u{feff}id,\"full name\"\r\n");
        let seen = run([&by_name[..], &["--seen", &other]].concat()).success().text();
        assert_eq!(seen, "full name,more\nd,x\ne,\"y\nz\"\n");
        // By number, with and without a header.
        let by_number = ["dedup", "--url", &url, "--key", "ids", "--column", "1"];
        let text = run([&by_number[..], &EXACT, &["--header", &one]].concat()).success().text();
        assert_eq!(text.lines().count(), 7);
        assert_eq!(run_with(by_number, "1\n5\n5\n\"5\"").success().text(), "5\n");
        run([&by_name[..], &[&*path("none", "a,b\n1,2\n")]].concat())
            .refused("no column in the first line is named `full name`");
        let short = path("short", "id,full name\n1,\"x\ny\"\n\n2\n3,z\n");
        let ended = run([&by_name[..], &[&*short]].concat()).refused("line 5: there is no column 2");
        assert_eq!(ended.text(), "id,full name\n1,\"x\ny\"\n");
        let ended = run([&by_name[..], &[&*short, "--skip-bad"]].concat()).success();
        assert_eq!((ended.text(), ended.stderr.contains("1 line without")), ("id,full name\n3,z\n".to_owned(), true));
    });
}

#[test]
fn dedup_and_load_extract_the_same_items() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let url = url(&server);
        let tsv = "x\ty\n\"a\tb\"\nlast\tline";
        let nul = b"a\nb\0\r\0c\xff\0d".as_slice();
        for (number, (bytes, words)) in [
            (CSV.as_bytes(), vec!["--column", "full name"]),
            (CSV.as_bytes(), vec!["--column", "2"]),
            (CSV.as_bytes(), vec!["--column", "2", "--header"]),
            (tsv.as_bytes(), vec!["--tsv", "--column", "2"]),
            (tsv.as_bytes(), vec!["--tsv", "--column", "y"]),
            (tsv.as_bytes(), vec!["--tsv", "--column", "1"]),
            (b"\nx\ty\n\r\n1\t2\n\n", vec!["--tsv", "--column", "y"]),
            (nul, vec!["-z"]),
            (nul, vec!["--zero-terminated"]),
        ]
        .into_iter()
        .enumerate()
        {
            let (key, path) = (format!("key:{number}"), files.path("input"));
            std::fs::write(&path, bytes).unwrap();
            let path = path.display().to_string();
            let reach = ["--url", &*url, "--key", &key];
            run([&["load", &*path], &reach[..], &words, &EXACT[..2]].concat()).success();
            let items = server.connect().run(&format!("BF.CARD {key}")).number();
            let new = run([&["dedup"], &reach[..], &words, &["--verbose", &path]].concat()).success();
            assert!(new.stderr.contains(", 0 of them new"), "{words:?}: {new:?}");
            // An empty filter has as many new items as were loaded.
            let fresh = format!("fresh:{number}");
            let reach = ["--url", &*url, "--key", &fresh];
            let new = run([&["dedup"], &reach[..], &words, &EXACT, &["--summary-json", &path]].concat()).success();
            assert!(new.stderr.contains(&format!("\"new\":{items},")), "{words:?}: {new:?}");
        }
    });
}

#[test]
fn conflicting_column_options_are_refused() {
    for words in [&["dedup", "--key", "k"][..], &["load", "file", "--key", "k", "--create", "0.01"]] {
        run([words, &["--tsv", "--field", "2"]].concat()).misused("unexpected argument '--field'");
        let ended = run([words, &["--tsv", "--column", "2", "-p", "1"]].concat());
        assert_eq!(ended.status, Some(1), "{ended:?}");
    }
}

#[test]
fn nul_terminated_lines_are_printed_nul_terminated() {
    on_every_server(|program| {
        let server = Server::start(program);
        let words = ["dedup", "-z", "--url", &url(&server), "--key", "names", "--create", "1e-9", "100"];
        assert_eq!(run_with(words, "a\nb\0a\nb\0\0c\r\0d").success().text(), "a\nb\0\0c\r\0d\0");
        let json = [&words[..], &["--json", "id"]].concat();
        assert_eq!(run_with(json, "{\n\"id\":7}\0{\"id\":\n7}\0").success().text(), "{\n\"id\":7}\0");
    });
}
