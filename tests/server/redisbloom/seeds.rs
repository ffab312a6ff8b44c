//! Data of encoding 3, whose hash had seeds of 32 bits or of 64, depending on the release. Nothing stored says which. Every
//! member is found whichever it was, and what is added is found by RedisBloom's releases of today.

use super::golden::{Golden, OF_ENCODING_3, items, load_chunks, of_encoding_3, restore};
use super::model::{Model, Seeds};
use testing::{
    Connection, Reply, Server, Stop, catch_up, digest, dump, follow, integer, on_every_server, with_append_only_file,
};

/// Names that the data has an answer about, and that are not in.
fn strangers() -> Vec<String> {
    (0..2000).map(|number| format!("absent:{number}")).collect()
}

/// The places of those that are found.
fn numbers(found: impl IntoIterator<Item = bool>) -> Vec<u64> {
    (0..).zip(found).filter(|(_, found)| *found).map(|(number, _)| number).collect()
}

/// The numbers of the strangers that are found under either hash. Under the release's own, they are those that it found.
fn expected(golden: &Golden, seeds: Seeds, of_release: &[u64]) -> Vec<u64> {
    let model = golden.model();
    let own = numbers(strangers().iter().map(|name| model.contains_under(seeds, name.as_bytes())));
    assert_eq!(own, of_release, "{}: what the release found", golden.key);
    assert!(items(0, 60).iter().all(|name| model.contains_under(seeds, name.as_bytes())), "{}", golden.key);
    let found = numbers(strangers().iter().map(|name| model.contains(name.as_bytes())));
    assert!(own.iter().all(|number| found.contains(number)) && found.len() < 8, "{found:?}");
    found
}

#[test]
fn every_member_is_found_whichever_seeds_the_release_used() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (release, seeds) in OF_ENCODING_3 {
            let (golden, of_release) = of_encoding_3(release);
            let expected = expected(&golden, seeds, &of_release);
            restore(&server, "restored", &golden.payload);
            load_chunks(&server, "loaded", &golden.chunks);
            for key in ["restored", "loaded"] {
                let found = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &strangers());
                assert_eq!(numbers(found), expected, "{release}: {key}");
                for name in items(0, 60) {
                    assert_eq!(client.run(&format!("BF.EXISTS {key} {name}")), integer(1), "{release}: {name}");
                    assert_eq!(client.run(&format!("BF.ADD {key} {name}")), integer(0), "{release}: {name}");
                }
            }
            client.run("DEL restored loaded");
        }
    });
}

/// A filter that grew here, with the members of the release and 500 more.
fn grown(server: &Server, release: &str) {
    let (golden, _) = of_encoding_3(release);
    restore(server, release, &golden.payload);
    let mut client = server.connect();
    client.batched(&[b"BF.MADD", release.as_bytes()], &more());
    assert_all_found(&mut client, release, "grown");
}

fn more() -> Vec<String> {
    (0..500).map(|number| format!("more:{number}")).collect()
}

fn assert_all_found(client: &mut Connection, key: &str, occasion: &str) {
    let found = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &[items(0, 60), more()].concat());
    let lost = found.iter().filter(|found| !**found).count();
    assert_eq!(lost, 0, "{key}, {occasion}: {lost} items are lost");
}

#[test]
fn both_are_found_after_every_way_out_and_in() {
    on_every_server(|program| {
        let mut server = with_append_only_file(program);
        let other = Server::start(program);
        let mut replica = other.connect();
        for (release, _) in OF_ENCODING_3 {
            grown(&server, release);
        }
        follow(&mut replica, &server);
        let mut client = server.connect();
        // The replica applies what comes now as its primary does.
        for (release, _) in OF_ENCODING_3 {
            client.run(&format!("BF.MADD {release} live:1 live:2"));
        }
        catch_up(&mut client, &mut replica);
        let digests: Vec<Reply> = OF_ENCODING_3.iter().map(|(release, _)| digest(&mut client, *release)).collect();
        let assert_same = |client: &mut Connection, key: &dyn Fn(&str) -> String, occasion: &str| {
            for ((release, _), before) in OF_ENCODING_3.iter().zip(&digests) {
                let key = key(release);
                assert_all_found(client, &key, occasion);
                assert_eq!(digest(client, key.as_str()), *before, "{key}, {occasion}");
            }
        };
        let own = |release: &str| release.to_owned();
        assert_same(&mut replica, &own, "a replica");
        client.run("DEBUG RELOAD");
        assert_same(&mut client, &own, "a snapshot");
        server.restart(Stop::Kill);
        let mut client = server.connect();
        assert_same(&mut client, &own, "the append-only file");
        crate::persistence::rewrite_append_only_file(&mut client);
        server.restart(Stop::Kill);
        let mut client = server.connect();
        assert_same(&mut client, &own, "a rewritten append-only file");
        for (release, _) in OF_ENCODING_3 {
            let records = testing::records(&mut client, release);
            load_chunks(&server, &format!("loaded/{release}"), &records);
            client.run(&format!("COPY {release} copied/{release}"));
        }
        assert_same(&mut client, &|release| format!("loaded/{release}"), "BF.SCANDUMP and BF.LOADCHUNK");
        assert_same(&mut client, &|release| format!("copied/{release}"), "COPY");
    });
}

/// RedisBloom of today hashes with seeds of 64 bits.
#[test]
fn what_is_added_takes_the_seeds_of_redisbloom_today() {
    on_every_server(|program| {
        let server = Server::start(program);
        for (release, seeds) in OF_ENCODING_3 {
            grown(&server, release);
            let model = Model::of_payload(&dump(&mut server.connect(), release)).1;
            let under = |seeds, names: &[String]| {
                names.iter().filter(|name| model.contains_under(seeds, name.as_bytes())).count()
            };
            // A few were found under the other hash, and so were not added.
            assert!(under(Seeds::Of64Bits, &more()) > 480, "{release}");
            assert!(under(Seeds::Of32Bits, &more()) < 20, "{release}");
            assert_eq!(under(seeds, &items(0, 60)), 60, "{release}");
        }
    });
}

#[test]
fn the_operator_sees_it() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (release, _) in OF_ENCODING_3 {
            restore(&server, release, &of_encoding_3(release).0.payload);
            for number in 0..46 {
                client.run(&format!("BF.ADD {release} fill:{number}"));
            }
            let stats = client.run(&format!("BF.STATS {release}"));
            assert_eq!(stats.field("Hash").text(), "murmur2-either-seed");
            // Of 50,000 names, as many are found as the estimate says: half of them under either hash.
            let strangers: Vec<String> = (0..50_000).map(|number| format!("stranger:{number}")).collect();
            let found = client.batched(&[b"BF.MEXISTS", release.as_bytes()], &strangers);
            let measured = found.iter().filter(|found| **found).count() as f64 / 50_000.0;
            let rate: f64 = stats.field("Error rate now").text().parse().expect("a number");
            assert!((0.8..1.25).contains(&(measured / rate)), "{release}: {measured} of strangers, {rate} said");
            let model = Model::of_payload(&dump(&mut client, release)).1;
            let under_one =
                strangers.iter().filter(|name| model.contains_under(Seeds::Of64Bits, name.as_bytes())).count();
            assert!((under_one as f64) < 0.7 * measured * 50_000.0, "{release}: {under_one} under one hash");
        }
        client.run("BF.RESERVE k 0.01 100 LAYOUT redisbloom");
        assert_eq!(client.run("BF.STATS k").field("Hash").text(), "murmur2");
    });
}
