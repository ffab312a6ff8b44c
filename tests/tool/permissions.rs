//! The tool's README lists the ACL permissions of each subcommand, and docs/monitoring.md those of `web`. A user with exactly these
//! permissions can run it, and all are needed. `follow/permissions.rs` tests the permissions of `follow`.

use std::collections::{BTreeMap, BTreeSet};

use crate::running::{Files, run, url};
use crate::web::asking::Web;
use testing::{Connection, Server, ok, on_every_server};

pub const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/tool/README.md");

/// Permissions that Redis 7.0 lacks.
const NEWER: [&str; 2] = ["client|no-touch", "client|setinfo"];

/// Command lines. FILE is a backup, LINES a file of lines, NEW a file that the run creates, URL the server.
const RUNS: [&str; 25] = [
    "backup --all --verify -o NEW",
    "backup plain sharded -o NEW",
    "dedup LINES --key deduped --create 0.01 100",
    "dedup LINES --key plain --dry-run",
    "dedup LINES --key sharded --shards",
    "load LINES --key loaded --create 0.01",
    "load LINES --key loaded --create 0.01 --resume",
    "load LINES --key plain",
    "load LINES --key plain --create 0.01",
    "load LINES --key plain --in-place",
    "load LINES --key sharded --in-place --shards",
    "plan 0.01 1000 --url URL",
    "restore FILE --replace",
    "restore FILE --key plain=copy --key counting=copy:counting",
    "restore FILE --key sharded=copy:sharded",
    "shards create made 0.01 1000 --shards 2",
    "shards info made",
    "shards double made",
    "shards merge united made",
    "shards copy made --to URL --rename other",
    "shards delete made",
    "survey",
    "survey --beside URL",
    "watch",
    "watch --json --samples 2 --interval 0.1",
];

/// The commands that are sent on reconnecting.
const AFTER_A_LOSS: [(&str, &str); 1] = [("watch", "exists")];

fn fill(client: &mut Connection) {
    client.run("FLUSHALL");
    for words in ["plain 0.01 100", "counting 0.01 100 COUNTING", "window 0.01 100 WINDOW 60"] {
        client.run(&format!("BF.RESERVE {words}"));
    }
    // valkey-bloom's layout is copied by DUMP and RESTORE.
    client.run("BF.INSERT valkey TIGHTENING 0.5 CAPACITY 100 ITEMS a b");
    client.run("CF.RESERVE cuckoo 100 LAYOUT redisbloom");
    client.run("CF.ADD cuckoo a");
    client.run("EXPIRE plain 1000");
    client.pipeline(&["SELECT 1", "BF.ADD other x", "SELECT 0"]);
}

/// Returns the rows of the README's table: a subcommand and its permissions.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let readme = std::fs::read_to_string(README).unwrap();
    let section = readme.split("\n## Permissions\n").nth(1).unwrap().split("\n## ").next().unwrap();
    // In a cell of Markdown a bar is escaped.
    let section = section.replace("\\|", "|");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | `"));
    rows.map(|(name, words)| {
        let words = words.trim_end_matches(['|', ' ', '`']).split(' ');
        (name.to_owned(), words.map(|word| word.strip_prefix('+').unwrap().to_owned()).collect())
    })
    .collect()
}

/// Returns the command that creates a user, from a page.
fn created_by(page: &str, user: &str) -> String {
    let begin = format!("ACL SETUSER {user} ");
    let page = std::fs::read_to_string(format!("{}/{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (_, rest) = page.split_once(&begin).unwrap();
    let end = rest.find(['\n', '`']).unwrap();
    format!("{begin}{}", &rest[..end])
}

/// Returns the commands that the server has executed since its statistics were reset.
pub fn used(client: &mut Connection) -> BTreeSet<String> {
    let text = client.run("INFO commandstats").text();
    let lines = text.lines().filter(|line| !line.contains(":calls=0,"));
    lines.filter_map(|line| Some(line.strip_prefix("cmdstat_")?.split_once(':')?.0.to_owned())).collect()
}

#[test]
fn each_subcommand_runs_with_exactly_the_permissions_of_the_readme() {
    let table = table();
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let mut client = server.connect();
        let (file, lines) = (files.name("file"), files.name("lines"));
        std::fs::write(&lines, "a\nb\nc\n").unwrap();
        let user_url = url(&server).replace("redis://", "redis://limited:secret@");
        let mut ran: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let admin = url(&server);
        let prepare = |client: &mut Connection| {
            fill(client);
            for name in ["sharded", "sharded2"] {
                run(["shards", "create", name, "0.01", "100", "--shards", "2", "--url", &admin]).success();
            }
        };
        prepare(&mut client);
        run(["backup", "--all", "-o", &file, "--url", &admin]).success();
        for line in RUNS {
            let name = line.split(' ').next().unwrap();
            let listed = table.get(name).unwrap_or_else(|| panic!("the README has no row for {name}"));
            if !line.starts_with("shards") {
                prepare(&mut client);
            }
            let rules = listed.iter().map(|word| format!(" +{word}")).collect::<String>();
            let reply = client.run(&format!("ACL SETUSER limited reset on >secret ~* -@all{rules}"));
            assert!(!reply.is_error(), "{name}: {reply:?}");
            client.run("CONFIG RESETSTAT");
            let new = files.name("new");
            let words = line.split(' ').map(|word| match word {
                "FILE" => &*file,
                "LINES" => &*lines,
                "NEW" => &*new,
                "URL" => &*user_url,
                word => word,
            });
            let words: Vec<&str> =
                if line.contains("--url") { words.collect() } else { words.chain(["--url", &user_url]).collect() };
            let ended = run(words);
            assert_eq!(ended.status, Some(0), "{line}: {ended:?}");
            // Commands that the test itself sends, and those that the README calls optional.
            let own = "info config|resetstat config auth hello acl|setuser client|setinfo client|no-touch command|info command";
            let is_own = |name: &String| own.split(' ').any(|own| own == name) && !listed.contains(name);
            ran.entry(name).or_default().extend(used(&mut client).into_iter().filter(|name| !is_own(name)));
        }
        for (name, mut used) in ran {
            used.extend(AFTER_A_LOSS.iter().filter(|(other, _)| *other == name).map(|(_, word)| (*word).to_owned()));
            assert_eq!(used, table[name], "{name}: what it runs, and what the README lists");
        }
    });
}

#[test]
fn the_example_of_the_readme_runs_dedup() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let mut client = server.connect();
        assert_eq!(client.run(&created_by("crates/tool/README.md", "dedup")), ok());
        let lines = files.name("lines");
        std::fs::write(&lines, "a\nb\na\n").unwrap();
        let url = url(&server).replace("redis://", "redis://dedup:secret@");
        let ended = run(["dedup", &lines, "--key", "seen", "--create", "0.01", "100", "--url", &url]).success();
        assert_eq!(ended.text(), "a\nb\n");
        run(["dedup", &lines, "--key", "other", "--create", "0.01", "100", "--url", &url]).refused("denies this user");
    });
}

#[test]
fn web_runs_with_exactly_the_permissions_of_the_page() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        fill(&mut client);
        let created = created_by("docs/monitoring.md", "page");
        // As documented, this server may lack some of them.
        let known = client.run(&created);
        let created = if known == ok() {
            created
        } else {
            NEWER.iter().fold(created, |line, name| line.replace(&format!(" +{name}"), ""))
        };
        assert_eq!(client.run(&created), ok());
        let listed: BTreeSet<String> =
            created.split(' ').filter_map(|word| word.strip_prefix('+')).map(str::to_owned).collect();
        client.run("CONFIG RESETSTAT");
        client.run("ACL LOG RESET");
        let web = Web::of(&url(&server).replace("redis://", "redis://page:secret@"), &[]);
        web.state_when("a sample of each filter", |state| {
            let filters = state["filters"].as_array().unwrap();
            filters.len() == 4 && filters.iter().all(|filter| filter["kind"].is_string())
        });
        for path in ["/metrics", "/api/filter?key=706c61696e", "/api/exists?key=706c61696e&item=61"] {
            web.ask(path).success();
        }
        testing::eventually("a command of each permission", || {
            let own = ["acl|log", "auth", "config|resetstat", "hello", "info"];
            let mut used: BTreeSet<_> = used(&mut client).into_iter().filter(|name| !own.contains(&&**name)).collect();
            used.insert("info".to_owned());
            used.is_superset(&listed) && listed.is_superset(&used)
        });
        let refused = client.run("ACL LOG");
        let refused: Vec<_> = refused.elements().iter().map(|entry| entry.field("object").text()).collect();
        assert!(refused.iter().all(|object| object == "command|info"), "{refused:?}");
    });
}
