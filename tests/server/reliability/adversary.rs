//! Somebody who wants to pass: with ids picked in advance on a filter of his own, and with ids built from a member. A
//! seed of each filter's own stops the first; nothing stops the second, for the hash has collisions for every seed, and
//! the README says so. Filters of valkey-bloom's layout have a keyed hash, which has no such collisions.

use std::io::Cursor;

use murmur3::murmur3_x64_128;

use super::{hits, most_hits, scaled};
use crate::harness::{Connection, Reply, Rng, Server, figures, integer, ok, on_every_server};

const CAPACITY: usize = 10_000;
const RATE: f64 = 0.01;

fn members() -> Vec<String> {
    (0..CAPACITY).map(|number| format!("user:{number}")).collect()
}

fn filled(client: &mut Connection, key: &str, words: &str) {
    assert_eq!(client.run(&format!("BF.RESERVE {key} {RATE} {CAPACITY} NONSCALING{words}")), ok());
    let answers = client.batched(&[b"BF.MADD", key.as_bytes()], &members());
    assert_eq!(answers.len(), CAPACITY);
}

/// Ids that are no members and pass the filter all the same.
fn picked(client: &mut Connection, key: &str, tries: usize) -> Vec<String> {
    let ids: Vec<String> = (0..tries).map(|number| format!("forged:{number}")).collect();
    let passed = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &ids);
    ids.into_iter().zip(passed).filter_map(|(id, passed)| passed.then_some(id)).collect()
}

#[test]
fn ids_picked_in_advance_pass_a_filter_with_another_seed_no_more_often_than_the_rate() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        filled(&mut client, "rehearsal", "");
        let forged = picked(&mut client, "rehearsal", scaled(300_000).clamp(200_000, 5_000_000));
        assert!(forged.len() > 1000, "{} ids pass the filter on which they were picked", forged.len());
        let filters = scaled(20).min(200);
        let mut passed = 0;
        for number in 0..filters {
            let key = format!("victim-{number}");
            filled(&mut client, &key, "");
            passed += hits(&mut client, &key, &forged);
            client.run(&format!("DEL {key}"));
        }
        let trials = forged.len() * filters;
        eprintln!("random seeds: {passed} of {trials} picked ids pass, {:.4}", passed as f64 / trials as f64);
        assert!(passed <= most_hits(trials, RATE), "{passed} of {trials} picked ids pass");
    });
}

#[test]
fn ids_picked_in_advance_pass_every_filter_with_the_same_seed() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        filled(&mut client, "rehearsal", " SEED 42");
        let forged = picked(&mut client, "rehearsal", 200_000);
        assert!(forged.len() > 1000);
        // A server of its own: nothing but the members and the seed is the same.
        let elsewhere = Server::start(program);
        let mut far = elsewhere.connect();
        filled(&mut far, "victim", " SEED 42");
        let passed = hits(&mut far, "victim", &forged);
        eprintln!("one known seed: {passed} of {} picked ids pass", forged.len());
        assert_eq!(passed, forged.len());
    });
}

/// The constants of MurmurHash3_x64_128, and their inverses modulo 2^64.
const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn inverse(odd: u64) -> u64 {
    // Newton's iteration doubles the number of right bits; the first three are right from the start.
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// The word that is mixed into the state as `word`'s mix XOR `difference`; the mix is multiply, rotate, multiply.
fn changed(word: &[u8], first: u64, rotation: u32, second: u64, difference: u64) -> [u8; 8] {
    let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
    let mixed = word.wrapping_mul(first).rotate_left(rotation).wrapping_mul(second) ^ difference;
    mixed.wrapping_mul(inverse(second)).rotate_right(rotation).wrapping_mul(inverse(first)).to_le_bytes()
}

/// Another id of the same length and the same hash, whatever the seed (Aumasson and Bernstein, 2012, in the paper on
/// SipHash). A block mixes its words into the state h1, h2 as `h1 = (rotl(h1 ^ k1, 27) + h2) * 5 + c` and
/// `h2 = (rotl(h2 ^ k2, 31) + h1) * 5 + c`. Bit 36 of the first word becomes bit 63 of h1, where neither carries nor the
/// odd factor spread it; bit 32 of the second becomes bit 63 of h2 just before h1 is added, and both cancel. What is left
/// is bit 63 of h1, which bit 63 of the third word takes back: no state knows the difference, from 24 bytes on.
fn twin(member: &[u8]) -> Vec<u8> {
    let mut twin = member.to_vec();
    twin[..8].copy_from_slice(&changed(&member[..8], C1, 31, C2, 1 << 36));
    twin[8..16].copy_from_slice(&changed(&member[8..16], C2, 33, C1, 1 << 32));
    twin[16..24].copy_from_slice(&changed(&member[16..24], C1, 31, C2, 1 << 63));
    twin
}

#[test]
fn a_second_id_with_the_same_hash_can_be_built_for_every_seed() {
    let mut rng = Rng::new(2012);
    let tries = scaled(2000);
    for number in 0..tries {
        let length = 24 + number % 80;
        let member: Vec<u8> = (0..length).map(|_| rng.number() as u8).collect();
        let twin = twin(&member);
        assert!(twin != member && twin.len() == member.len());
        for seed in [0, 1, u32::MAX, rng.number() as u32, rng.number() as u32] {
            let hash = |bytes: &[u8]| murmur3_x64_128(&mut Cursor::new(bytes), seed).expect("a slice reads");
            assert_eq!(hash(&twin), hash(&member), "seed {seed}, {length} bytes");
        }
    }
    figures(&format!("adversary: {tries} executions, each a twin that is the same under 5 seeds"));
}

#[test]
fn an_id_built_from_a_member_passes_every_native_filter_that_holds_the_member() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        let members: Vec<String> = (0..2000).map(|number| format!("session:{number:020}")).collect();
        let twins: Vec<Vec<u8>> = members.iter().map(|member| twin(member.as_bytes())).collect();
        let filters = scaled(20).min(500);
        for number in 0..filters {
            let rate = ["0.01", "1e-6", "1e-12"][number % 3];
            assert_eq!(client.run(&format!("BF.RESERVE native {rate} 500")), ok());
            client.batched(&[b"BF.MADD", b"native"], &members);
            assert_eq!(hits(&mut client, "native", &twins), twins.len(), "{rate}");
            assert_eq!(client.run("DEL native"), integer(1));
        }
        // A check of an id's form before the question stops them: a built id is no text of the application's.
        let formed = twins.iter().filter(|twin| twin.starts_with(b"session:") && twin.is_ascii()).count();
        assert_eq!(formed, 0);
        // Filters with another hash do not know these twins.
        client.run("BF.RESERVE redisbloom 1e-6 2000 LAYOUT redisbloom");
        let made = client.run("BF.INSERT valkey-bloom ERROR 1e-6 CAPACITY 2000 TIGHTENING 0.5 NONSCALING");
        assert_eq!(made, Reply::Array(Vec::new()));
        for key in ["redisbloom", "valkey-bloom"] {
            client.batched(&[b"BF.MADD", key.as_bytes()], &members);
            assert_eq!(hits(&mut client, key, &members), members.len());
            let passed = hits(&mut client, key, &twins);
            assert!(passed <= 1, "{key}: {passed} twins pass");
        }
        eprintln!("{} built ids passed each of {filters} native filters, 0 or 1 of other layouts", twins.len());
    });
}
