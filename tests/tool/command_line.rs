//! The exit status: 2 for invalid values, before a server is contacted; 1 for failures.

use std::collections::BTreeSet;

use testing::{Server, eventually, on_every_server};

use crate::backup::backup;
use crate::running::{Ended, Files, Running, collect, command, run, run_with, start, url, with_servers};

/// Command lines and their error messages. Nothing listens on port 1.
const MISUSED: &[(&str, &str)] = &[
    ("survey --url http://nowhere", "a server's URL must have the form"),
    ("survey --beside http://nowhere -p 1", "a server's URL must have the form"),
    ("survey --insecure -p 1", "--insecure needs --tls"),
    ("survey -p x", "invalid value 'x'"),
    ("load - --key a --create 2 5", "--create: `2` is not a rate"),
    ("load - --key a --create x 5", "`x` is neither a rate such as 0.001 nor a capacity"),
    ("load --key a --create 0.1 ids.txt", "`ids.txt` is neither a rate such as 0.001 nor a capacity"),
    ("load --key a --create 0.1 ids.txt", "A file must precede --create"),
    ("load --key a --create 0.1 5 x 6", "unexpected argument '6'"),
    ("dedup --key a --create 0.1 ids.txt", "A file must precede --create"),
    ("build 0.1 ids.txt -o -", "`ids.txt` is not a whole number"),
    ("load - --key a --create 0.1 0", "--create: it must be at least 1"),
    ("load - --key a --create 5 0.1", "--create: `5` is not a rate"),
    ("load - --key a --create 0.1 0.2", "--create: `0.2` is not a whole number"),
    ("load - --key a --create 0.1", "use --create RATE CAPACITY"),
    ("load - --key a --create 0.1 5 --resume", "the source can be read only once"),
    ("load a --column 0 --key a --create 0.1 5", "--column: columns are numbered from 1"),
    ("load --sqlite a --column b --key a --create 0.1 5", "say which rows to load"),
    ("load --postgres a://b --query x --key a --create 0.1 5", "a PostgreSQL server has the form"),
    ("load --postgres postgres://b --query x --resume --key a --create 0.1 5", "--resume needs a --table"),
    ("dedup --key a --create 1 5", "--create: `1` is not a rate"),
    ("dedup --key a --create 0.1 0.5", "--create: `0.5` is not a whole number"),
    ("dedup --key a --json /a~2", "`/a~2` is not a JSON Pointer"),
    ("dedup -", "--key <KEY>"),
    ("shards create a 1.5 100 --shards 2", "`1.5` is not a rate"),
    ("shards create a 0.1 0 --shards 2", "it must be at least 1"),
    ("backup a --verify -o -", "--verify reads the file back"),
    ("build 1.5 10 -o -", "invalid filter: error rate must be in the range"),
    ("build 0.01 many -o -", "`many` is not a whole number"),
    ("plan 2 1000", "error rate must be in the range"),
    ("plan 0.01 0 --url redis://127.0.0.1:1", "the capacity must be at least 1"),
    ("plan 0.01 1000 --rolling --window 5", "ROLLING"),
    ("plan 0.01 0", "the capacity must be at least 1"),
    ("plan 0.01 0 --layout redisbloom", "capacity must be in the range [1, 1073741824]"),
    ("plan 0.01 1000 --expansion 0 --items 2000", "full"),
    ("plan 0.01", "<CAPACITY>"),
    ("build 0.01 0 -o -", "the capacity must be at least 1"),
    ("build 0.01 18446744073709551615 -o -", "bad capacity"),
    ("build 0.01 10 --seed x -o -", "bad seed"),
    ("build 0.01 10 --seed 7 --hash siphash -o -", "bad seed"),
    ("build 0.01 10 --expansion 40000 -o -", "expansion must be in the range"),
    ("build 0.01 10 --layout redisbloom --counting -o -", "exclude each other"),
    ("build 0.01 10 --expansion 2 --nonscaling -o -", "cannot be used with '--nonscaling'"),
    ("build 0.01 10 --hash md5 -o -", "invalid value 'md5'"),
    ("load --key a --create 0.1", "<FILE|--sqlite <FILE>|--postgres <URL>>"),
    ("load - --key a --create 0.1 1 --shards", "cannot be used with '--shards'"),
    ("load a --key b --create 0.1 --tsv --field 2", "unexpected argument '--field'"),
    ("load - --key a -- HASH siphash", "--create"),
    ("dedup --key a -- COUNTING", "--create"),
    ("dedup --key a --tsv --field 2", "unexpected argument '--field'"),
    ("dedup --key a --tsv", "--column"),
    ("dedup --key a --header", "--column"),
    ("dedup --key a --tsv --column 0", "columns are numbered from 1"),
    ("dedup --key a --column a --json a", "cannot be used with '--json"),
    ("dedup --key a -z --column 1", "cannot be used with '--column"),
    ("dedup --key a --seen --only-new", "cannot be used with '--only-new'"),
    ("backup -o file", "<KEY|--all|--match <PATTERN>>"),
    ("backup one --all -o file", "cannot be used with '--all'"),
    ("survey --url redis://a -p 1", "cannot be used with '--port"),
    ("survey --cert a", "--tls-key"),
    ("watch --interval 0", "must be 0.1 to 86400 seconds"),
    ("web --url redis://127.0.0.1:port", "a server's URL must have the form"),
    ("web --listen 0.0.0.0:0", "must be a loopback address"),
];

#[test]
fn invalid_values_exit_with_status_2_before_a_server_is_contacted() {
    for (line, part) in MISUSED {
        let mut words: Vec<_> = line.split(' ').collect();
        if ["load", "dedup", "shards"].contains(&words[0]) {
            words.splice(1..1, ["-p", "1"]);
        }
        let ended = run(&words).misused(part);
        assert!(!ended.stderr.contains("cannot reach"), "{line}: {ended:?}");
    }
}

#[test]
fn failures_exit_with_status_1() {
    run(["survey", "-p", "1"]).refused("cannot reach");
    run(["watch", "-p", "1"]).refused("cannot reach");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    run(["web", "--listen", &address]).refused("choose another port with --listen");
    run(["load", "/nowhere", "--key", "a", "--create", "0.1", "-p", "1"]).refused("cannot reach");
    with_servers(|server| {
        let url = url(&server);
        run(["load", "/nowhere", "--key", "a", "--create", "0.1", "--url", &url]).refused("cannot read /nowhere");
        run_with(["dedup", "--key", "a", "--url", &url], "a\n").refused("there is no filter `a`");
    });
}

// Manual pages and completions.

#[test]
fn every_subcommand_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    run([std::ffi::OsStr::new("man"), folder.path().as_os_str()]).success();
    let help = run(["--help"]).success().text();
    let words = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let mut pages = 0;
    for word in words.filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "help") {
        let page = std::fs::read_to_string(folder.path().join(format!("bloomgate-{word}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains("\\-\\-url"), "{word}: {page}");
        pages += 1;
    }
    assert!(pages > 3, "{help}");
    assert!(!folder.path().join("bloomgate-help-load.1").exists());
}

#[test]
fn the_help_and_the_page_of_follow_have_every_key_of_the_configuration() {
    let table = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/crates/follow/settings.md")).unwrap();
    let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() > 15, "{table}");
    let help = run(["follow", "--help"]).success().text();
    let manual = run(["man", "follow"]).success().text().replace("\\*(Aq", "'").replace('\\', "");
    for row in rows {
        let cells: Vec<_> = row.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let entry = format!("\n  {} ({}; ", cells[1], cells[2]);
        for text in [&help, &manual] {
            let (_, rest) = text.split_once(&entry).unwrap_or_else(|| panic!("{entry} is not in {text}"));
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
            let (_, meaning) = rest.split_once(")\n").unwrap();
            assert!(words(meaning).starts_with(&words(&cells[5])), "{meaning}");
        }
    }
}

#[test]
fn without_a_folder_the_manual_page_is_printed_and_no_file_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let ended = Ended::from(command(["man"]).current_dir(folder.path()).output().unwrap()).success();
    assert!(ended.text().contains(".SH NAME") && ended.text().contains("bloomgate"), "{}", ended.text());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_page_of_a_subcommand_is_printed_and_no_folder_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let man = |what: &str| Ended::from(command(["man", what]).current_dir(folder.path()).output().unwrap());
    let page = man("load").success().text();
    assert!(
        page.contains(".TH bloomgate-load") && page.contains("\\-\\-resume") && page.contains("\\-\\-url"),
        "{page}"
    );
    man("laod").misused("there is no subcommand and no folder laod");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // A name that could be a subcommand or a folder.
    std::fs::create_dir(folder.path().join("man")).unwrap();
    man("man").misused("`man` is a subcommand and a folder here: `man ./man` writes all pages to the folder");
    assert!(man("bloomgate-man").success().text().contains(".TH bloomgate-man"));
    assert!(man("./man").success().text().is_empty());
    assert!(folder.path().join("man/bloomgate-load.1").exists());
}

#[test]
fn completions_cover_every_option() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(["completions", shell]).success().text();
        assert!(script.contains("survey") && script.contains("cacert"), "{shell}: {script}");
    }
}

// A server without the module: subcommands that only read report that, instead of a server without filters.

const MESSAGE: &str = "has not loaded the module: start it with redis-server --loadmodule";

#[test]
fn watch_survey_and_backup_report_a_missing_module() {
    on_every_server(|program| {
        let (bare, server, files) =
            (Server::with(program).without_module().start(), Server::start(program), Files::new());
        bare.connect().run("SET text 1");
        server.connect().run("BF.ADD seen a");
        let (file, with, without) = (files.name("file"), url(&server), url(&bare));
        for words in [
            vec!["watch"],
            vec!["watch", "--json"],
            vec!["survey"],
            vec!["backup", "--all", "--allow-empty", "-o", &file],
            vec!["backup", "seen", "-o", &file],
        ] {
            run(words.iter().copied().chain(["--url", &without])).refused(MESSAGE);
        }
        assert!(files.names().is_empty());
        let ended = run(["survey", "--url", &with, "--beside", &without]).refused(MESSAGE);
        assert!(ended.stderr.contains(&without.replace("redis://", "")), "{ended:?}");
        // A user without permission for COMMAND can still run these subcommands.
        server.connect().run("ACL SETUSER few on >few ~* +@all -command");
        let few = with.replace("redis://", "redis://few:few@");
        run(["watch", "--url", &few]).success();
        run(["survey", "--url", &few]).success();
    });
}

#[test]
fn web_prints_the_message_to_its_error_output() {
    let bare = Server::with(&testing::servers()[0]).without_module().start();
    let words = ["web", "--url", &url(&bare), "--listen", "0", "--interval", "0.1"];
    let mut web = Running(start(words));
    let errors = collect(web.0.stderr.take().unwrap());
    eventually("the message", || errors.lock().unwrap().contains('\n'));
    let errors = errors.lock().unwrap();
    assert!(errors.starts_with("bloomgate: ") && errors.contains(MESSAGE), "{errors}");
}

// Keys of any length: the printed names are bounded and distinct.

#[test]
fn tables_and_json_cut_a_long_name_and_append_its_digest() {
    with_servers(|server| {
        let mut client = server.connect();
        // The first two keys differ only in their last byte, and the last key is printed unchanged.
        let long = |last: &[u8]| [&vec![b'x'; 5_000_000], last].concat();
        let keys = [long(b"1"), long(b"2"), [&[0xff; 300][..], b"\n"].concat(), b"short".to_vec()];
        for key in &keys {
            client.call(&[&b"BF.ADD"[..], key, b"item"]);
        }
        let (files, url) = (Files::new(), url(&server));
        let file = files.name("file");
        for words in [
            vec!["watch"],
            vec!["watch", "--json", "--once"],
            vec!["survey"],
            vec!["backup", "--all", "-o", &file, "--json"],
            vec!["restore", &file, "--dry-run"],
        ] {
            let ended = run(words.iter().copied().chain(["--url", &url])).success();
            assert!(ended.stdout.len() < 5000, "{words:?}: {}", ended.stdout.len());
        }
        let json: serde_json::Value =
            serde_json::from_str(&run(["watch", "--json", "--once", "--url", &url]).success().text()).unwrap();
        let names: BTreeSet<_> =
            json["filters"].as_array().unwrap().iter().map(|filter| filter["key"].as_str().unwrap()).collect();
        assert_eq!(names.len(), keys.len());
        assert!(names.contains("short") && names.iter().any(|name| name.contains("xxx...#")), "{names:?}");
        // A backup contains the whole key.
        client.run("FLUSHALL");
        run(["restore", &file, "--url", &url]).success();
        assert!(keys.iter().all(|key| client.call(&[&b"BF.EXISTS"[..], key, b"item"]).number() == 1));
        client.call(&[&b"SET"[..], &keys[0], b"1"]);
        let refused = backup(&server, &["no such key", "short"], &files.path("other")).refused("no such key");
        assert!(refused.stderr.len() < 1000);
        assert!(run(["restore", &file, "--url", &url, "--replace"]).refused("not a filter").stderr.len() < 1000);
    });
}
