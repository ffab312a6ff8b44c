//! Sources without items replace nothing, unless `--allow-empty` is given.

use std::fs;

use crate::backup::{Files, backup, restore};
use crate::running::{run, run_with, url};
use testing::{Server, integer, on_every_server};

#[test]
fn a_load_without_items_keeps_the_existing_filter() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, url) = (server.connect(), url(&server));
        client.run("BF.MADD seen a b c");
        let path = |name: &str| files.path(name).display().to_string();
        fs::write(path("empty"), "").unwrap();
        fs::write(path("blank"), "\n\r\n\n").unwrap();
        fs::write(path("header.csv"), "id,name\n").unwrap();
        let database = rusqlite::Connection::open(path("data.db")).unwrap();
        database.execute_batch("CREATE TABLE rows (id); INSERT INTO rows VALUES (NULL)").unwrap();
        let (empty, blank, header, data) = (path("empty"), path("blank"), path("header.csv"), path("data.db"));
        let sources = [
            vec![&*empty],
            vec![&blank],
            vec!["-"],
            vec![&header, "--column", "name"],
            vec!["--sqlite", &data, "--table", "rows", "--column", "id"],
            vec![&empty, "--resume"],
        ];
        let load = |source: &[&str], more: &[&str]| {
            let words = ["load", "--url", &url, "--key", "seen", "--create", "0.01", "100"];
            run_with([&words, source, more].concat(), "")
        };
        for source in &sources {
            load(source, &[]).refused("the source has no items: `seen` is unchanged");
            assert_eq!(client.run("BF.CARD seen"), integer(3), "{source:?}");
            assert_eq!(client.run("DBSIZE"), integer(1), "{source:?}");
        }
        // A load in place replaces nothing.
        run_with(["load", "--url", &url, "-", "--key", "seen", "--in-place"], "").success();
        for source in &sources {
            client.run("BF.ADD seen a");
            load(source, &["--allow-empty"]).success();
            assert_eq!(client.run("BF.CARD seen"), integer(0), "{source:?}");
            assert_eq!(client.run("DBSIZE"), integer(1), "{source:?}");
        }
    });
}

#[test]
fn a_backup_without_filters_keeps_the_existing_file() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file) = (server.connect(), files.path("file"));
        client.run("BF.MADD seen a b c");
        backup(&server, &["--all"], &file).success();
        let before = fs::read(&file).unwrap();
        backup(&server, &["--match", "nothing:*"], &file).refused("no filter was found, so no file was written");
        client.run("FLUSHALL");
        backup(&server, &["--all"], &file).refused("use --allow-empty");
        assert_eq!((fs::read(&file).unwrap() == before, files.names().len()), (true, 1));
        let text = backup(&server, &["--all", "--allow-empty"], &file).success().text();
        assert!(text.starts_with("0 filters in "), "{text}");
        restore(&server, &[], &file).refused("has no filters");
        restore(&server, &["--allow-empty"], &file).success();
        run(["restore", "--dry-run", file.to_str().unwrap()]).success();
    });
}

#[test]
fn an_empty_filter_does_not_replace_one_with_items() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let (mut client, file) = (server.connect(), files.path("file"));
        client.run("BF.RESERVE seen 0.01 100");
        client.run("BF.MADD other a b");
        backup(&server, &["--all"], &file).success();
        // An empty filter may be replaced, and one with items by one with fewer.
        client.run("BF.ADD other c");
        restore(&server, &["--replace"], &file).success();
        assert_eq!(client.run("BF.CARD other"), integer(2));
        client.run("BF.MADD seen a b c");
        client.run("BF.ADD other c");
        restore(&server, &["--replace"], &file).refused("`seen` is empty in the file and has 3");
        // The error is found before anything is written.
        assert_eq!([client.run("BF.CARD seen"), client.run("BF.CARD other")], [integer(3), integer(3)]);
        restore(&server, &["--replace", "--allow-empty"], &file).success();
        assert_eq!(client.run("BF.CARD seen"), integer(0));
    });
}

#[test]
fn a_build_without_lines_keeps_the_existing_file() {
    let files = Files::new();
    let out = files.path("out").display().to_string();
    let words = ["build", "0.01", "100", "-o", &out];
    run_with(words, "a\n").success();
    let before = fs::read(&out).unwrap();
    for input in ["", "\n\n"] {
        run_with(words, input).refused("the input has no lines, so no file was written");
        assert_eq!((fs::read(&out).unwrap() == before, files.names().len()), (true, 1));
    }
    run_with([&words[..], &["--allow-empty"]].concat(), "").success();
    assert!(fs::read(&out).unwrap() != before);
}
