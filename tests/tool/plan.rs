//! `plan`: its figures equal BF.PLAN's, and so the figures of the filter that is created.

use serde_json::Value;

use crate::running::{run, run_with, url, with_servers};

/// Options of the tool, and the same options of BF.PLAN.
const FILTERS: [(&str, &str); 8] = [
    ("0.01 1000", "0.01 1000"),
    ("1000 0.01", "0.01 1000"),
    ("0.0001 500 --expansion 1", "0.0001 500 EXPANSION 1"),
    ("0.01 1000 --expansion 0 --hash siphash", "0.01 1000 NONSCALING HASH siphash"),
    ("0.001 100000 --counting", "0.001 100000 COUNTING"),
    ("0.01 1000 --rolling --buckets 5", "0.01 1000 ROLLING BUCKETS 5"),
    ("0.01 1000 --layout redisbloom", "0.01 1000 LAYOUT redisbloom"),
    ("0.01 100 --items 3000", "0.01 100 ITEMS 3000"),
];

fn plan(words: &str, more: &[&str]) -> Value {
    let words = ["plan", "--json"].into_iter().chain(words.split(' ')).chain(more.iter().copied());
    serde_json::from_str(&run(words).success().text()).unwrap()
}

#[test]
fn a_plan_without_a_server_equals_bf_plan() {
    with_servers(|server| {
        let mut client = server.connect();
        for (words, command) in FILTERS {
            let offline = plan(words, &[]);
            assert_eq!(offline, plan(words, &["--url", &url(&server)]), "{words}");
            let reply = client.run(&format!("BF.PLAN {command}"));
            for (name, field) in [("capacity", "Capacity"), ("size_bytes", "Size")] {
                assert_eq!(offline[name], reply.field(field).number(), "{words}: {name}");
            }
            assert_eq!(offline["layers"].as_array().unwrap().len(), reply.field("Layers").elements().len());
        }
    });
}

#[test]
fn a_named_server_plans_with_its_own_settings() {
    with_servers(|server| {
        server.connect().run("CONFIG SET bf.layout redisbloom");
        assert_eq!(plan("0.01 1000", &["--port", &server.port.to_string()])["layout"], "redisbloom");
        assert_eq!(plan("0.01 1000", &[])["layout"], "native");
    });
}

#[test]
fn the_table_shows_each_layer_or_only_the_first_and_last_ones() {
    let text = run(["size", "1000000", "0.01", "--items", "10000000"]).success().text();
    assert!(text.contains("1,000,000") && text.contains("15,000,000"), "{text}");
    let many = run(["plan", "0.01", "1000", "--expansion", "1", "--items", "100000"]).success().text();
    assert!(many.contains("... 76 more") && many.lines().count() < 30, "{many}");
}

#[test]
fn a_lookup_reads_two_cache_lines_or_four_in_each_layer() {
    let lines = |words: &str| {
        let plan = plan(words, &[]);
        plan["layers"].as_array().unwrap().iter().map(|layer| layer["lines"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(lines("0.0001 1000"), [2]);
    assert_eq!(lines("0.000001 1000"), [4]);
    assert_eq!(lines("0.000001 10 --items 150"), [2, 2, 2, 4], "the first layers have fewer than four blocks");
    assert_eq!(lines("0.000001 1000 --counting"), [2]);
    assert_eq!(lines("0.000001 1000 --layout redisbloom"), [21]);
}

#[test]
fn a_rate_that_no_filter_can_have_is_replaced_aloud() {
    let highest = "bloomgate: the filter gets a rate of 25%, the highest, instead of 50%\n";
    assert_eq!(run(["plan", "0.5", "1000"]).success().stderr, highest);
    assert_eq!(run(["plan", "0.5", "1000", "--json"]).success().stderr, highest);
    assert!(run(["plan", "1e-15", "1000"]).success().stderr.contains("a rate of 1e-12, the lowest, instead of 1e-15"));
    // The layouts of other modules have other limits.
    for more in [["--tightening", "0.5"], ["--layout", "native"]] {
        let ended = run(["plan", if more[0] == "--layout" { "0.25" } else { "0.5" }, "1000", more[0], more[1]]);
        assert_eq!(ended.success().stderr, "");
    }
    with_servers(|server| {
        let url = url(&server);
        for words in [
            vec!["load", "-", "--key", "a", "--create", "50%", "1k"],
            vec!["dedup", "--key", "b", "--create", "50%", "1,000"],
        ] {
            assert!(run_with(words.into_iter().chain(["--url", &url]), "a\n").success().stderr.contains(highest));
        }
        assert_eq!(
            run(["shards", "create", "d", "50%", "1K", "--shards", "1", "--url", &url]).success().stderr,
            highest
        );
    });
}

/// The page accepts the same forms: `web::the_calculator_equals_bf_plan`.
#[test]
fn counts_and_rates_are_accepted_in_every_usual_form() {
    let expected = plan("0.01 1000000 --items 2500000", &[]);
    for words in ["1% 1e6 --items 2.5M", "1M 0.01 --items 2_500_000", "0.01 1,000,000 --items 25e5"] {
        assert_eq!(plan(words, &[]), expected, "{words}");
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let built = run_with(["build", "1%", "1e6", "--nonscaling", "-o", &out, "--json"], "a\n").success().text();
    assert_eq!(serde_json::from_str::<Value>(&built).unwrap()["filters"][0]["capacity"], 1_000_000);
}
