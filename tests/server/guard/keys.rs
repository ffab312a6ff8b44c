//! The keys of the guard's commands: their positions, the required permissions, and that they must be in one slot.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{FETCH, INVENTED, UNLESS, WHILE, absent, fill, load, with_filter, word};
use testing::{Connection, Reply, Server, array, error, eventually, integer, ok, on_every_server, with_client};

#[test]
fn the_server_finds_every_key_and_its_access_flags() {
    with_client(|_, client| {
        for (line, expected) in [
            ("BF.FETCH a i b WAIT 5", "read a, lease b"),
            ("BF.FETCH a i b WHILE w", "read a, lease b, read w"),
            ("BF.FETCH a i b LEASE 5 UNLESS u WAIT 7", "read a, lease b, read u"),
            ("BF.FETCH a i b UNLESS u STALE 1 while w", "read a, lease b, read w, read u"),
            ("BF.FETCH a i b WHILE UNLESS UNLESS WHILE", "read a, lease b, read UNLESS, read WHILE"),
            ("BF.FETCH WHILE UNLESS WHILE UNLESS u", "read WHILE, lease WHILE, read u"),
            ("BF.MFETCH a ITEMS i b j c", "read a, lease b, lease c"),
            ("BF.MFETCH a WHILE w LEASE 5 UNLESS u ITEMS i b j c", "read a, lease b, lease c, read w, read u"),
            ("BF.MFETCH a UNLESS ITEMS WHILE UNLESS ITEMS ITEMS b", "read a, lease b, read UNLESS, read ITEMS"),
            ("BF.FILL a i b 0 GIVEUP", "read a, write b"),
            ("BF.CHANGED a i b", "add a, write b"),
            ("BF.MCHANGED a ITEMS i b j c", "add a, write b, write c"),
        ] {
            let keys = client.run(&format!("COMMAND GETKEYSANDFLAGS {line}"));
            let key = |key: &Reply| {
                let flags: Vec<String> = key.elements()[1].elements().iter().map(Reply::text).collect();
                let what = match flags.join(" ").as_str() {
                    "RO access" => "read",
                    "RW access update" => "lease",
                    "RW update" => "write",
                    "RW insert" => "add",
                    other => panic!("{line}: {other}"),
                };
                format!("{what} {}", key.elements()[0].text())
            };
            assert_eq!(keys.elements().iter().map(key).collect::<Vec<_>>().join(", "), expected, "{line}");
        }
        let docs = client.run("COMMAND DOCS BF.MCHANGED");
        let pair = &docs.field("bf.mchanged").field("arguments").elements()[1];
        assert_eq!((pair.field("token").text(), pair.field("type").text()), ("ITEMS".to_owned(), "block".to_owned()));
        let parts: Vec<String> =
            pair.field("arguments").elements().iter().map(|part| part.field("name").text()).collect();
        assert_eq!(parts, ["item", "cachekey"]);
    });
}

/// A user who may not fill a cache key gets no lease of it.
#[test]
fn a_user_needs_a_right_for_each_key() {
    with_client(|server, client| {
        with_filter(client);
        let login = |rules: &str| {
            let mut user = server.connect();
            assert_eq!(user.run(&format!("ACL SETUSER reader reset on nopass +@all {rules}")), ok());
            assert_eq!(user.run("AUTH reader x"), ok());
            user
        };
        let denied = |rules: &str, line: &str| {
            let reply = login(rules).run(line);
            reply.is_error() && reply.error_text().starts_with("NOPERM")
        };
        let fill = format!("BF.FILL {{f}} 42 {{f}}:42 {INVENTED} GIVEUP");
        for (line, needed) in [
            (FETCH, &["%R~{f}", "~{f}:42"] as &[&str]),
            (WHILE, &["%R~{f}", "~{f}:42", "%R~{f}:feed"]),
            (UNLESS, &["%R~{f}", "~{f}:42", "%R~{f}:open"]),
            // A key named like an option does not hide other keys.
            ("BF.FETCH {f} 42 {f}:42 WHILE UNLESS UNLESS {f}:open", &["%R~{f}", "~{f}:42", "%R~UNLESS", "%R~{f}:open"]),
            (
                "BF.MFETCH {f} WHILE {f}:feed UNLESS {f}:open ITEMS 42 {f}:42 43 {f}:43",
                &["%R~{f}", "%R~{f}:feed", "%R~{f}:open", "~{f}:42", "~{f}:43"],
            ),
            (&fill, &["%R~{f}", "~{f}:42"]),
            ("BF.CHANGED {f} 42 {f}:42", &["~{f}", "~{f}:42"]),
            ("BF.MCHANGED {f} ITEMS 42 {f}:42 43 {f}:43", &["~{f}", "~{f}:42", "~{f}:43"]),
        ] {
            assert!(!denied(&needed.join(" "), line), "{line}");
            for right in needed {
                let others: Vec<&str> = needed.iter().filter(|other| *other != right).copied().collect();
                let half = right.strip_prefix("%R").map_or(format!("%R{right}"), |key| format!("%W{key}"));
                for instead in ["", &half] {
                    assert!(denied(&format!("{} {instead}", others.join(" ")), line), "{line}, {instead} for {right}");
                }
            }
        }
        client.run("BF.MCHANGED {f} ITEMS 42 {f}:42 43 {f}:43");
        let mut user = login("%R~* &*");
        let script = "return redis.pcall('BF.FETCH', KEYS[1], '42', KEYS[2])";
        assert!(user.call(&["EVAL", script, "2", "{f}", "{f}:42"]).is_error());
        assert_eq!(client.info_number("bf_bloom_leases"), 0);
        assert!(!user.run("BF.EXISTS {f} 42").is_error() && !user.run("GET {f}:42").is_error());
        // A user without SET may FILL.
        let mut user = login("~{f} ~{f}:42 -set");
        let lease = load(&mut user, FETCH);
        assert_eq!(super::fill(&mut user, &lease, "VALUE v"), ok());
    });
}

#[test]
fn in_a_cluster_the_keys_of_a_command_lie_in_one_slot() {
    on_every_server(|program| {
        let server = Server::with(program).line("cluster-enabled yes").start();
        let mut client: Connection = server.connect();
        assert_eq!(client.run("CLUSTER ADDSLOTSRANGE 0 16383"), ok());
        eventually("the cluster to be up", || !client.run("GET x").is_error());
        with_filter(&mut client);
        let lease = load(&mut client, &format!("{WHILE} UNLESS {{f}}:open"));
        assert_eq!(fill(&mut client, &lease, "VALUE v"), ok());
        // Items are not keys.
        assert_eq!(client.run("BF.MCHANGED {f} ITEMS x {f}:42 y {f}:43"), array([integer(1), integer(1)]));
        assert_eq!(client.run("BF.MFETCH {f} ITEMS never {f}:never"), array([absent()]));
        for line in [
            "BF.FETCH {f} 42 elsewhere",
            "BF.FETCH {f} 42 {f}:42 WHILE elsewhere",
            "BF.FETCH {f} 42 {f}:42 UNLESS elsewhere",
            "BF.FETCH {f} 42 {f}:42 WHILE {f}:feed UNLESS elsewhere",
            "BF.MFETCH {f} WHILE {f}:feed ITEMS 42 {f}:42 43 elsewhere",
            "BF.MFETCH {f} WHILE elsewhere ITEMS 42 {f}:42",
            "BF.FILL {f} 42 elsewhere 0 GIVEUP",
            "BF.CHANGED {f} 42 elsewhere",
            "BF.MCHANGED {f} ITEMS 42 {f}:42 43 elsewhere",
            "BF.MCHANGED {f} ITEMS 42 elsewhere",
        ] {
            assert!(client.run(line).error_text().starts_with("CROSSSLOT"), "{line}");
        }
    });
}

/// The value of a follower's heartbeat describes the cache keys that the follower deletes. Other cache keys get no lease.
#[test]
fn a_cache_key_that_the_follower_does_not_delete_gets_no_lease() {
    with_client(|_, client| {
        with_filter(client);
        for (heartbeat, allowed, refused) in [
            ("1", &["{f}:42", "{f}:x"] as &[&str], &[] as &[&str]),
            ("1\n={f}:", &["{f}:42"], &["{f}:x42", "{f}:421", "{f}:", "{f}:4", "42"]),
            ("1\n={f}:a:\n^{f}:b:", &["{f}:a:42", "{f}:b:x"], &["{f}:42", "{f}:a:x", "{f}:c:42"]),
            ("1\nother", &["{f}:42", "{f}:x"], &[]),
        ] {
            client.call(&["SET", "{f}:feed", heartbeat]);
            let mut ask = |key: &str| {
                let single = client.call(&["BF.FETCH", "{f}", "42", key, "LEASE", "1", "WHILE", "{f}:feed"]);
                eventually("the lease to end", || client.info_number("bf_bloom_leases") == 0);
                let batch = client.call(&["BF.MFETCH", "{f}", "LEASE", "1", "WHILE", "{f}:feed", "ITEMS", "42", key]);
                eventually("the lease to end", || client.info_number("bf_bloom_leases") == 0);
                [single, batch.elements()[0].clone()]
            };
            for key in allowed {
                assert!(ask(key).iter().all(|reply| reply.elements()[0].text() == "load"), "{heartbeat}: {key}");
            }
            for key in refused {
                let text = "ERR the follower of WHILE does not delete this cache key";
                assert!(ask(key).iter().all(|reply| reply.error_text().starts_with(text)), "{heartbeat}: {key}");
            }
        }
        // Without the heartbeat, the templates are unknown.
        client.run("DEL {f}:feed");
        load(client, WHILE);
    });
}

#[test]
fn keys_of_the_follower_are_not_cache_keys() {
    with_client(|_, client| {
        with_filter(client);
        client.run("BF.ADD {f} feed");
        let heartbeat = "time\n={f}:";
        assert_eq!(client.call(&["SET", "{f}:feed", heartbeat]), ok());
        client.run("SET {f}:feed:cut x");
        let refused = error("ERR the cache key belongs to WHILE");
        for key in ["{f}:feed", "{f}:feed:", "{f}:feed:cut"] {
            let item = key.strip_prefix("{f}:").unwrap();
            client.run(&format!("BF.ADD {{f}} {item}"));
            for words in ["", " STALE 1 REPLACE", " FRESH 1000 PEEK"] {
                assert_eq!(
                    client.run(&format!("BF.FETCH {{f}} {item} {key} WHILE {{f}}:feed{words}")),
                    refused,
                    "{key}"
                );
            }
            let reply = client.run(&format!("BF.MFETCH {{f}} WHILE {{f}}:feed ITEMS never {{f}}:never {item} {key}"));
            assert_eq!((word(&reply.elements()[0]), &reply.elements()[1]), ("absent".to_owned(), &refused));
        }
        client.run("BF.ADD {f} feeds");
        load(client, "BF.FETCH {f} feeds {f}:feeds WHILE {f}:feed");
    });
}

/// The clients in every language send the commands of the specification's cases.
#[test]
fn the_documented_users_may_send_all_commands_of_the_clients() {
    let read = |path: &str| std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let page = read("docs/guard.md");
    let users: Vec<_> = page.lines().filter(|line| line.starts_with("ACL SETUSER ")).collect();
    assert_eq!(users.len(), 2, "{users:?}");
    // According to the page, `replicas` and `aof` need these.
    let durability = ["WAIT", "WAITAOF"];
    let mut sent = BTreeSet::new();
    for part in ["cancel", "fail", "feed", "many", "read", "wait", "write"] {
        let cases: Value = serde_json::from_str(&read(&format!("clients/specification/guard-{part}.json"))).unwrap();
        for case in cases["cases"].as_array().unwrap() {
            let filter = case["guard"]["filter"].as_str().unwrap_or("rows");
            let steps = case["steps"].as_array().unwrap();
            let calls: Vec<_> = steps.iter().filter_map(|step| step["call"].as_str()).collect();
            let is_reader = calls.iter().all(|call| call.starts_with("guard.get"));
            for step in steps.iter().filter(|step| step["expect"].is_array()) {
                // Values are replaced by a token or a number between two bounds; other words stand for many items.
                let word = |word: &Value| {
                    let number = word.get("from").map(Value::to_string);
                    let token = word.get("token").map(|_| INVENTED.to_owned());
                    word.as_str().map(str::to_owned).or(number).or(token)
                };
                let Some(words) = step["expect"].as_array().unwrap().iter().map(word).collect::<Option<Vec<_>>>()
                else {
                    continue;
                };
                let fills_filter = calls.contains(&"fill_filter");
                if !durability.contains(&&*words[0]) && !fills_filter && case["guard"]["prefix"].is_null() {
                    // A case may have both.
                    let reads = ["BF.FETCH", "BF.MFETCH", "BF.FILL"].contains(&&*words[0]);
                    let user = if is_reader || reads { "reader" } else { "writer" };
                    sent.insert((user, filter.to_owned(), words));
                }
            }
        }
    }
    let used: BTreeSet<_> =
        sent.iter().map(|(user, _, words)| (*user, format!("+{}", words[0].to_lowercase()))).collect();
    let listed = users.iter().flat_map(|line| {
        let name = line.split(' ').nth(2).unwrap();
        line.split(' ').filter(|word| word.starts_with('+')).map(move |word| (name, word.to_owned()))
    });
    assert_eq!(used, listed.collect(), "what the clients send, and what the page lists");
    let (_, near) = page.split_once("A near cache needs `+client|tracking` in Python, and\n`").unwrap();
    let near = near.split('`').next().unwrap();
    with_client(|server, client| {
        client.run("ACL SETUSER near reset on nopass resetchannels -@all +client|tracking");
        for (rules, lines) in [
            ("", &["HELLO 3 AUTH near x", "CLIENT TRACKING ON BCAST PREFIX {rows}:"] as &[_]),
            (
                near,
                &[
                    "AUTH near x",
                    "CLIENT ID",
                    "CLIENT TRACKING ON BCAST PREFIX {rows}:",
                    "SUBSCRIBE __redis__:invalidate",
                ],
            ),
        ] {
            client.run(&format!("ACL SETUSER near {rules}"));
            let mut user = server.connect();
            lines.iter().for_each(|line| assert!(!user.run(line).is_error(), "{line}"));
        }
        for (user, filter, words) in &sent {
            let base = if filter.contains('{') { filter.clone() } else { format!("{{{filter}}}") };
            let line = users.iter().find(|line| line.contains(&format!(" {user} "))).unwrap();
            let line = line.replace("{rows}", "BASE").replace("rows", filter).replace("BASE", &base);
            assert_eq!(client.run(&line.replace(" on ", " reset on ")), ok());
            let dry: Vec<_> = ["ACL", "DRYRUN", user].into_iter().chain(words.iter().map(String::as_str)).collect();
            assert_eq!(client.call(&dry), ok(), "{user}: {words:?}");
        }
    });
}
