//! Faults of other modules, with a test named after each, through a server. `tests/corpus/cases.rs` and the tests of the
//! layouts have similar cases at the level of bytes and numbers.

use crate::redisbloom::payload::{Field, payload_of};
use testing::{Connection, Reply, Server, Stop, error, integer, ok, on_every_server};

/// The maximum memory of the server, in megabytes.
fn peak_megabytes(client: &mut Connection) -> i64 {
    client.info_number("used_memory_peak") >> 20
}

/// Returns the payload of a RedisBloom filter with one layer of 144 bytes for 100 items, with changes.
fn redisbloom(change: impl FnOnce(&mut Vec<Field>)) -> Vec<u8> {
    let front = [0, 1, 5, 2].map(Field::Uint);
    let layer = [
        Field::Uint(100),
        Field::Double(0.005),
        Field::Uint(8),
        Field::Double(11.027_754_410_427_546),
        Field::Uint(BITS_MAX),
        Field::Uint(0),
        Field::Text(vec![0; 144]),
        Field::Uint(0),
    ];
    let mut fields = [&front[..], &layer[..]].concat();
    change(&mut fields);
    payload_of("MBbloom--", 4, &fields)
}

/// The bits: 144 bytes.
const BITS_MAX: u64 = 1152;
/// Offsets of fields in a payload of RedisBloom.
const LAYERS: usize = 1;
const HASHES: usize = 6;
const BITS: usize = 8;
const N2: usize = 9;
const BYTES: usize = 10;

/// Returns the payload of a valkey-bloom filter with one layer of 120 bytes for 100 items, with changes.
fn valkey_bloom(rate: f64, tightening: f64) -> Vec<u8> {
    let mut bitmap = vec![1];
    bitmap.extend(120u64.to_le_bytes());
    bitmap.extend(7u32.to_le_bytes());
    bitmap.extend([9; 32]);
    bitmap.extend([0; 120]);
    let numbers = [Field::Uint(1), Field::Uint(2), Field::Double(rate), Field::Double(tightening), Field::Uint(1)];
    let layer = [Field::Uint(100), Field::Uint(0), Field::Text(bitmap)];
    payload_of("bloomfltr", 1, &[&numbers[..], &layer[..]].concat())
}

fn restore(client: &mut Connection, payload: &[u8]) -> Reply {
    let words: [&[u8]; 5] = [b"RESTORE", b"k", b"0", payload, b"REPLACE"];
    client.call(&words)
}

/// Asserts that the payload is refused, and that the server is running and uses little memory.
fn refused(client: &mut Connection, payload: &[u8], what: &str) {
    assert_eq!(restore(client, payload), error("ERR Bad data format"), "{what}");
    assert_eq!(client.run("EXISTS k"), integer(0), "{what}");
    assert!(peak_megabytes(client) < 64, "{what}");
}

fn header(bytes: u64, bits: u64, hashes: u32) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(0u64.to_le_bytes());
    [1u32, 5, 2].iter().for_each(|number| header.extend(number.to_le_bytes()));
    [bytes, bits, 0].iter().for_each(|number| header.extend(number.to_le_bytes()));
    [0.005f64, 11.027_754_410_427_546].iter().for_each(|number| header.extend(number.to_le_bytes()));
    header.extend(hashes.to_le_bytes());
    header.extend(100u64.to_le_bytes());
    header.push(0);
    header
}

fn load_header(client: &mut Connection, header: &[u8]) -> Reply {
    let words: [&[u8]; 4] = [b"BF.LOADCHUNK", b"k", b"1", header];
    client.call(&words)
}

fn on_a_server(test: impl Fn(&mut Connection)) {
    on_every_server(|program| {
        let server = Server::with(program).line("sanitize-dump-payload yes").start();
        let mut client = server.connect();
        test(&mut client);
        assert_eq!(client.run("PING").text(), "PONG");
    });
}

/// Without changes, the payloads of these tests are filters.
#[test]
fn the_unchanged_payloads_are_valid() {
    on_a_server(|client| {
        for payload in [redisbloom(|_| ()), valkey_bloom(0.01, 0.5)] {
            assert_eq!(restore(client, &payload), ok());
            assert_eq!(client.run("BF.EXISTS k x"), integer(0));
        }
        client.run("DEL k");
        assert_eq!(load_header(client, &header(144, BITS_MAX, 8)), ok());
    });
}

#[test]
fn cve_2026_25589_bits_beyond_the_end_of_the_bit_string() {
    on_a_server(|client| {
        for bits in [BITS_MAX + 1, 1 << 32, 1 << 63, u64::MAX] {
            refused(client, &redisbloom(|fields| fields[BITS] = Field::Uint(bits)), &format!("{bits} bits"));
        }
        for n2 in [11, 31, 63, 64, 255] {
            refused(client, &redisbloom(|fields| fields[N2] = Field::Uint(n2)), &format!("n2 of {n2}"));
        }
    });
}

#[test]
fn cve_2026_25589_an_empty_bit_string() {
    on_a_server(|client| {
        for bits in [0, 1, BITS_MAX] {
            let payload = redisbloom(|fields| {
                fields[BYTES] = Field::Text(Vec::new());
                fields[BITS] = Field::Uint(bits);
            });
            refused(client, &payload, &format!("{bits} bits"));
        }
    });
}

#[test]
fn redisbloom_rdb_with_0_or_too_many_layers() {
    on_a_server(|client| {
        for layers in [0, 2, 1 << 32, u64::MAX] {
            refused(client, &redisbloom(|fields| fields[LAYERS] = Field::Uint(layers)), &format!("{layers} layers"));
        }
    });
}

#[test]
fn redisbloom_loadchunk_with_hashes_near_2_to_the_31() {
    on_a_server(|client| {
        for hashes in [(1 << 31) - 1, 1 << 31, u32::MAX, 1101, 0] {
            assert_eq!(load_header(client, &header(144, BITS_MAX, hashes)), error("ERR received bad data"));
            refused(client, &redisbloom(|fields| fields[HASHES] = Field::Uint(hashes.into())), &format!("{hashes}"));
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

#[test]
fn redisbloom_header_whose_bytes_times_8_overflows() {
    on_a_server(|client| {
        for bytes in [1 << 61, 1 << 63, u64::MAX] {
            for bits in [bytes.wrapping_mul(8), 1, u64::MAX] {
                assert!(load_header(client, &header(bytes, bits, 8)).is_error(), "{bytes} bytes, {bits} bits");
                assert_eq!(client.run("EXISTS k"), integer(0));
            }
        }
        assert!(peak_megabytes(client) < 64);
    });
}

#[test]
fn redisbloom_reserve_of_exabytes() {
    on_a_server(|client| {
        for layout in ["", " LAYOUT redisbloom"] {
            assert!(client.run(&format!("BF.RESERVE k 0.01 1000000000000000000{layout}")).is_error());
        }
        assert!(client.run("BF.INSERT k CAPACITY 1000000000000000000 TIGHTENING 0.5").is_error());
        assert_eq!(client.run("EXISTS k"), integer(0));
        assert!(peak_megabytes(client) < 64);
    });
}

#[test]
fn redisbloom_filters_with_a_rate_near_1_have_bits_and_hashes() {
    on_a_server(|client| {
        for line in [
            "BF.RESERVE k 0.999999999999 1",
            "BF.RESERVE k 0.999999999999 1 LAYOUT redisbloom",
            "BF.INSERT k ERROR 0.999999999999 CAPACITY 1 TIGHTENING 0.999999999999",
        ] {
            assert!(!client.run(line).is_error(), "{line}");
            for item in 0..10 {
                client.run(&format!("BF.ADD k {item}"));
                assert_eq!(client.run(&format!("BF.EXISTS k {item}")), integer(1), "{line}");
            }
            for layer in &client.run("BF.DEBUG k").elements()[1..] {
                let text = layer.text();
                assert!(!text.contains("bits:0 ") && !text.contains("hashes:0 "), "{text}");
            }
            client.run("DEL k");
        }
    });
}

/// The module declares that it handles I/O errors; otherwise the server exits at the first one.
#[test]
fn cve_2026_21864_a_payload_that_ends_too_early() {
    on_a_server(|client| {
        let whole = valkey_bloom(0.01, 0.5);
        let (body, footer) = whole.split_at(whole.len() - 10);
        for length in 10..body.len() - 10 {
            let cut = testing::with_fixed_checksum([&body[..length], footer].concat());
            assert!(restore(client, &cut).is_error(), "{length} bytes");
        }
        assert_eq!(client.run("EXISTS k"), integer(0));
    });
}

#[test]
fn valkey_bloom_issue_90_a_double_out_of_range() {
    on_a_server(|client| {
        for number in [0.0, -0.0, 1.0, -0.5, 2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            refused(client, &valkey_bloom(number, 0.5), &format!("a rate of {number}"));
            refused(client, &valkey_bloom(0.01, number), &format!("a ratio of {number}"));
        }
    });
}

#[test]
fn valkey_bloom_a_server_starts_with_a_filter_above_the_limit() {
    on_every_server(|program| {
        let mut server = Server::with(program).line("bf.max-filter-bytes 1000000").start();
        let mut client = server.connect();
        client.run("CONFIG SET bf.max-filter-bytes 0");
        let lines = ["native 0.01 1000000", "redisbloom 0.01 1000000 LAYOUT redisbloom"];
        lines.iter().for_each(|line| assert_eq!(client.run(&format!("BF.RESERVE {line}")), ok()));
        client.run("BF.INSERT valkey CAPACITY 1000000 TIGHTENING 0.5 ITEMS a");
        server.restart(Stop::Save);
        let mut client = server.connect();
        assert_eq!(client.run("CONFIG GET bf.max-filter-bytes").elements()[1].text(), "1000000");
        for key in ["native", "redisbloom", "valkey"] {
            assert!(client.run(&format!("MEMORY USAGE {key}")).number() > 1_000_000, "{key}");
        }
        assert_eq!(client.run("BF.EXISTS valkey a"), integer(1));
        assert!(client.run("BF.RESERVE k 0.01 1000000").is_error(), "a client is bound");
    });
}

#[test]
fn dragonfly_a_header_without_its_chunks_is_no_live_filter() {
    on_a_server(|client| {
        assert_eq!(load_header(client, &header(144, BITS_MAX, 8)), ok());
        let loading = error("ERR filter is still being loaded");
        for line in ["BF.EXISTS k a", "BF.MEXISTS k a b", "BF.ADD k a", "BF.CARD k", "BF.INFO k"] {
            assert_eq!(client.run(line), loading, "{line}");
        }
        let words: [&[u8]; 4] = [b"BF.LOADCHUNK", b"k", b"145", &[0xff; 144]];
        assert_eq!(client.call(&words), ok());
        assert_eq!(client.run("BF.EXISTS k a"), integer(1), "with its chunks it is one");
    });
}
