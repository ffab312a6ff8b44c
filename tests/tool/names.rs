//! Keys of any length: the printed names are bounded and distinct, and the empty key is visible.

use std::collections::BTreeSet;

use crate::backup::backup;
use crate::running::{Files, run, url, with_servers};
use crate::web::asking::{Web, hex};
use crate::web::metrics;
use testing::{Connection, Server, on_every_server};

const LONG: usize = 5_000_000;

/// Three long keys, of which the first two differ only in their last byte, and one that is printed unchanged.
fn fill(client: &mut Connection) -> Vec<Vec<u8>> {
    let long = |last: &[u8]| [&vec![b'x'; LONG], last].concat();
    let keys = vec![long(b"1"), long(b"2"), [&[0xff; 300][..], b"\n"].concat(), b"short".to_vec()];
    for key in &keys {
        client.call(&[&b"BF.ADD"[..], key, b"item"]);
    }
    keys
}

#[test]
fn tables_and_json_cut_a_long_name_and_append_its_digest() {
    with_servers(|server| {
        let mut client = server.connect();
        let keys = fill(&mut client);
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

#[test]
fn the_page_and_the_metrics_cut_long_names() {
    let server = Server::start(&testing::servers()[0]);
    let mut client = server.connect();
    let keys = fill(&mut client);
    let web = Web::start(&server, &[]);
    let state = web.state_when("all filters", |state| {
        let filters = state["filters"].as_array().unwrap();
        filters.len() == keys.len() && filters.iter().all(|filter| filter["kind"].is_string())
    });
    assert!(state.to_string().len() < 20_000);
    let metrics = metrics::of(&web);
    assert!(metrics.len() < 40_000, "{}", metrics.len());
    let series: BTreeSet<_> = metrics.lines().filter(|line| line.starts_with("bloomgate_filter_items{")).collect();
    assert_eq!(series.len(), keys.len(), "{series:?}");
    // Each filter is found by its id and can be queried.
    for filter in state["filters"].as_array().unwrap() {
        let id = filter["id"].as_str().unwrap();
        assert!(id.len() <= 400);
        let told = web.ask(&format!("/api/filter?key={id}")).json();
        assert_eq!(told["name"], filter["name"]);
        assert_eq!(web.ask(&format!("/api/exists?key={id}&item={}", hex(b"item"))).json()["is_in"], true, "{id}");
        assert_eq!(web.ask(&format!("/api/exists?key={id}&item={}", hex(b"none"))).json()["is_in"], false, "{id}");
    }
    assert_eq!(web.ask("/api/filter?key=~0123").status, 404);
}

#[test]
fn the_empty_name_is_visible() {
    on_every_server(|program| {
        let (server, files) = (Server::start(program), Files::new());
        let mut client = server.connect();
        client.call(&["BF.ADD", "", "item"]);
        let table = run(["watch", "--url", &url(&server)]).success().text();
        assert!(table.lines().nth(2).unwrap().starts_with("\"\" "), "{table}");
        let file = files.path("file");
        let table = backup(&server, &[""], &file).success().text();
        assert!(table.lines().nth(1).unwrap().starts_with("\"\" "), "{table}");
        run(["restore", file.to_str().unwrap(), "--url", &url(&server)]).refused("the server already has `\"\"`");
        let json = run(["watch", "--json", "--once", "--url", &url(&server)]).success().text();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["filters"][0]["key"], "");
    });
}
