//! An attacker who tries to pass a filter with ids picked in advance on a filter of their own, or with ids constructed from a
//! member. A separate random seed per filter stops the former. Nothing stops the latter, because the hash has collisions for
//! every seed, as the README says. Filters with HASH siphash and those of valkey-bloom's layout have a keyed hash without such
//! collisions: an attacker who knows the code, the members and all answers, but not the key, passes no more often than the
//! rate.

use std::io::Cursor;

use murmur3::murmur3_x64_128;

use super::{hits, most_hits, scaled};
use testing::{Connection, Reply, Rng, Server, figures, integer, ok, on_every_server};

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

/// Returns ids that are not members but pass the filter.
fn picked(client: &mut Connection, key: &str, tries: usize) -> Vec<String> {
    let ids: Vec<String> = (0..tries).map(|number| format!("forged:{number}")).collect();
    let passed = client.batched(&[b"BF.MEXISTS", key.as_bytes()], &ids);
    ids.into_iter().zip(passed).filter_map(|(id, passed)| passed.then_some(id)).collect()
}

#[test]
fn ids_picked_in_advance_pass_another_seed_no_more_often_than_the_rate() {
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
        // Another server, which has only the members and the seed in common.
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
    // Newton's iteration doubles the number of correct bits; the first three are correct from the start.
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// Returns the word whose mix is that of `word` XOR `difference`. The mix is multiply, rotate, multiply.
fn changed(word: &[u8], first: u64, rotation: u32, second: u64, difference: u64) -> [u8; 8] {
    let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
    let mixed = word.wrapping_mul(first).rotate_left(rotation).wrapping_mul(second) ^ difference;
    mixed.wrapping_mul(inverse(second)).rotate_right(rotation).wrapping_mul(inverse(first)).to_le_bytes()
}

/// Returns another id of the same length with the same hash for every seed (Aumasson and Bernstein, 2012, in the paper on
/// SipHash). A block mixes its words into the state h1, h2 as `h1 = (rotl(h1 ^ k1, 27) + h2) * 5 + c` and `h2 = (rotl(h2 ^ k2,
/// 31) + h1) * 5 + c`. Flipping bit 36 of the first mixed word flips bit 63 of h1, where neither carries nor the odd factor
/// spread it. Flipping bit 32 of the second flips bit 63 of h2 just before h1 is added, so the two cancel. The remaining
/// difference is bit 63 of h1, which bit 63 of the third word cancels. So from 24 bytes on, no state depends on the
/// difference.
fn twin(member: &[u8]) -> Vec<u8> {
    let mut twin = member.to_vec();
    twin[..8].copy_from_slice(&changed(&member[..8], C1, 31, C2, 1 << 36));
    twin[8..16].copy_from_slice(&changed(&member[8..16], C2, 33, C1, 1 << 32));
    twin[16..24].copy_from_slice(&changed(&member[16..24], C1, 31, C2, 1 << 63));
    twin
}

#[test]
fn a_colliding_id_can_be_constructed_for_every_seed() {
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
fn an_id_constructed_from_a_member_passes_every_native_filter_with_that_member() {
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
        // Checking the form of an id before the lookup stops them: a constructed id does not have the application's format.
        let formed = twins.iter().filter(|twin| twin.starts_with(b"session:") && twin.is_ascii()).count();
        assert_eq!(formed, 0);
        // Filters with another hash do not report these colliding ids.
        client.run("BF.RESERVE redisbloom 1e-6 2000 LAYOUT redisbloom");
        let valkey_bloom = "TIGHTENING 0.5 SEED 0123456789abcdefghijklmnopqrstuv";
        let made = client.run(&format!("BF.INSERT valkey-bloom ERROR 1e-6 CAPACITY 2000 NONSCALING {valkey_bloom}"));
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

/// Inverts the mix of a word: see [`unmix`].
fn unshift(word: u64) -> u64 {
    // The upper 31 bits are unchanged; the lower ones follow from them.
    let upper = word ^ (word >> 33);
    word ^ (upper >> 33)
}

/// Inverts the end of the hash, fmix64.
fn unmix(word: u64) -> u64 {
    let word = unshift(word).wrapping_mul(inverse(0xc4ce_b9fe_1a85_ec53));
    unshift(unshift(word).wrapping_mul(inverse(0xff51_afd7_ed55_8ccd)))
}

/// Returns an id of 16 bytes with a chosen hash under a known seed, by running the hash backwards.
fn inverted(h1: u64, h2: u64, seed: u32) -> [u8; 16] {
    let seed = u64::from(seed);
    // The last sums, the mixes, the first sums, the length; then the single block.
    let (b, a) = (h2.wrapping_sub(h1), h1.wrapping_sub(h2.wrapping_sub(h1)));
    let (a, b) = (unmix(a), unmix(b));
    let (b, a) = (b.wrapping_sub(a), a.wrapping_sub(b.wrapping_sub(a)));
    let (a, b) = (a ^ 16, b ^ 16);
    let undone = |state: u64, constant: u64| state.wrapping_sub(constant).wrapping_mul(inverse(5));
    let k2 = undone(b, 0x3849_5ab5).wrapping_sub(a).rotate_right(31) ^ seed;
    let k1 = undone(a, 0x52dc_e729).wrapping_sub(seed).rotate_right(27) ^ seed;
    let first = k1.wrapping_mul(inverse(C2)).rotate_right(31).wrapping_mul(inverse(C1));
    let second = k2.wrapping_mul(inverse(C1)).rotate_right(33).wrapping_mul(inverse(C2));
    let mut id = [0; 16];
    id[..8].copy_from_slice(&first.to_le_bytes());
    id[8..].copy_from_slice(&second.to_le_bytes());
    id
}

#[test]
fn an_id_with_a_chosen_hash_can_be_constructed_if_the_seed_is_known() {
    let mut rng = Rng::new(64);
    for _ in 0..1000 {
        let (h1, h2, seed) = (rng.number(), rng.number(), rng.number() as u32);
        let id = inverted(h1, h2, seed);
        let hash = murmur3_x64_128(&mut Cursor::new(id), seed).expect("a slice reads");
        assert_eq!((hash as u64, (hash >> 64) as u64), (h1, h2));
    }
}

/// Ids that fill one block of a filter with a known seed, and pass it, do neither on a filter with a secret key.
#[test]
fn knowing_the_hash_function_gives_no_advantage_against_a_keyed_filter() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        // All in the first group, whatever the second half of the hash.
        let mut rng = Rng::new(4096);
        let mut crowd = |count: usize| -> Vec<Vec<u8>> {
            (0..count).map(|_| inverted(rng.number() >> 24, rng.number(), 42).to_vec()).collect()
        };
        let (crowded, strangers) = (crowd(4000), crowd(40_000));
        for (key, words) in [("known", " SEED 42"), ("keyed", " HASH siphash")] {
            filled(&mut client, key, words);
            client.run(&format!("BF.RESERVE {key}:crowd {RATE} 100000 NONSCALING{words}"));
            client.batched(&[b"BF.MADD", format!("{key}:crowd").as_bytes()], &crowded);
        }
        let passed = hits(&mut client, "known:crowd", &strangers);
        assert!(passed > strangers.len() / 2, "a crowd of {} of 100000 saturates a group: {passed}", crowded.len());
        let passed = hits(&mut client, "keyed:crowd", &strangers);
        eprintln!("saturation of one group: {passed} of {} pass a filter with a key", strangers.len());
        assert!(passed <= most_hits(strangers.len(), RATE), "{passed}");
        // Colliding ids of members.
        let members: Vec<String> = (0..2000).map(|number| format!("session:{number:020}")).collect();
        let twins: Vec<Vec<u8>> = members.iter().map(|member| twin(member.as_bytes())).collect();
        client.run(&format!("BF.RESERVE twins {RATE} 2000 NONSCALING HASH siphash"));
        client.batched(&[b"BF.MADD", b"twins"], &members);
        let passed = hits(&mut client, "twins", &twins);
        assert!(passed <= most_hits(twins.len(), RATE), "{passed} twins pass");
        // Ids that passed one filter pass another, with its own key, no more often than other ids.
        let forged = picked(&mut client, "keyed", 200_000);
        filled(&mut client, "second", " HASH siphash");
        let passed = hits(&mut client, "second", &forged);
        assert!(forged.len() > 1000 && passed <= most_hits(forged.len(), RATE), "{passed} of {}", forged.len());
        // On the same filter they pass permanently, which cannot be prevented. A delete ends it, and makes no member absent.
        assert_eq!(hits(&mut client, "keyed", &forged), forged.len());
        let replayed = &forged[..300];
        assert!(client.batched(&[b"BF.MDEL", b"keyed"], replayed).iter().all(|deleted| *deleted));
        assert_eq!(hits(&mut client, "keyed", replayed), 0);
        assert_eq!(hits(&mut client, "keyed", &self::members()), CAPACITY);
    });
}
