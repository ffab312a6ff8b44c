//! Keys of any length: the printed names are bounded and distinct.

use std::collections::BTreeSet;

use crate::backup::backup;
use crate::running::{Files, run, url, with_servers};

const LONG: usize = 5_000_000;

#[test]
fn tables_and_json_cut_a_long_name_and_append_its_digest() {
    with_servers(|server| {
        let mut client = server.connect();
        // The first two differ only in their last byte, and the last one is printed unchanged.
        let long = |last: &[u8]| [&vec![b'x'; LONG], last].concat();
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
