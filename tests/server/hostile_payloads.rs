//! Filters of every kind and layout that somebody damaged or made up, in every form in which a client can send one. The server
//! answers, stays up, and whatever it accepted can be used like any filter.

use std::path::Path;

use crate::{redisbloom, valkey_bloom};
use testing::{
    Connection, FOOTER, Reply, Rng, Server, digest, dump, figures, is_accepted, load_record, ok, on_every_server,
    restore, use_and_delete, value_of, with_fixed_checksum,
};

/// Native filters that are small enough to damage byte by byte, and the items in each.
const FILTERS: [(&str, usize); 9] = [
    ("0.01 10 NONSCALING SEED 1", 5),
    ("0.01 100 SEED 1", 0),
    ("0.01 2 EXPANSION 1 SEED 1", 7),
    ("1e-12 3 EXPANSION 32768 SEED 1", 3),
    ("0.25 1 NONSCALING SEED 4294967295", 1),
    ("0.01 10 HASH siphash", 5),
    ("0.2 8 COUNTING SEED 1", 5),
    ("0.2 8 WINDOW 100000000 BUCKETS 3 SEED 1", 5),
    ("0.2 8 ROLLING BUCKETS 3 SEED 1", 5),
];

/// How a client sends a filter.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Restore,
    /// BF.LOAD.
    Record,
    /// The header of RedisBloom's dump, by BF.LOADCHUNK.
    Header,
}

/// A filter in one form.
struct Form {
    name: String,
    way: Way,
    /// Without the server's footer.
    bytes: Vec<u8>,
}

impl Form {
    /// The bytes at the start that are the server's: that a module's value follows, and which module's.
    fn fixed(&self) -> usize {
        if self.way == Way::Restore { 10 } else { 0 }
    }

    /// Sends other bytes in this form, uses the filter if they were accepted, and says whether they were.
    fn is_accepted(&self, client: &mut Connection, bytes: &[u8]) -> bool {
        let reply = self.send(client, bytes);
        // A few bytes may make a filter of many megabytes, of which no copy is made.
        if reply.is_error() { is_accepted(client, &reply) } else { use_and_delete(client) }
    }

    fn send(&self, client: &mut Connection, bytes: &[u8]) -> Reply {
        match self.way {
            Way::Restore => {
                let footer: [u8; FOOTER] = [10, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                restore(client, "k", &with_fixed_checksum([bytes, &footer].concat()))
            }
            Way::Record => valkey_bloom::model::load(client, "k", bytes),
            Way::Header => {
                let reply = load_record(client, "k", &(1, bytes.to_vec()));
                if !reply.is_error() {
                    for record in redisbloom::hostile::sound().chunks(Vec::new()).split_off(1) {
                        load_record(client, "k", &record);
                    }
                }
                reply
            }
        }
    }
}

/// Filters of every kind in every form.
fn forms(client: &mut Connection) -> Vec<Form> {
    let mut forms = Vec::new();
    for (words, items) in FILTERS {
        assert_eq!(client.run(&format!("BF.RESERVE source {words}")), ok());
        for number in 0..items {
            client.run(&format!("BF.ADD source {number}"));
        }
        let payload = dump(client, "source");
        assert_eq!(with_fixed_checksum(payload.clone()), payload, "the checksum is the server's");
        forms.push(Form { name: words.to_owned(), way: Way::Restore, bytes: value_of(&payload).to_vec() });
        client.run("DEL source");
    }
    for encoding in 0..=4 {
        let name = format!("RedisBloom's encoding {encoding}");
        let bytes = value_of(&redisbloom::hostile::sound_payload(encoding)).to_vec();
        forms.push(Form { name, way: Way::Restore, bytes });
    }
    let sound = redisbloom::hostile::sound();
    for (name, header) in [("header", sound.header()), ("header of 2018", sound.header_of_2018())] {
        forms.push(Form { name: format!("RedisBloom's {name}"), way: Way::Header, bytes: header });
    }
    for (number, model) in valkey_bloom::hostile::victims().into_iter().enumerate() {
        let name = format!("valkey-bloom's {number}");
        forms.push(Form { name: name.clone(), way: Way::Restore, bytes: value_of(&model.dump()).to_vec() });
        forms.push(Form { name, way: Way::Record, bytes: model.payload() });
    }
    forms
}

/// A server that checks payloads itself too, with a ceiling that keeps the machine usable.
pub fn start(program: &Path) -> (Server, Connection) {
    let server = Server::with(program).line("sanitize-dump-payload yes").line("maxmemory 1gb").start();
    let client = server.connect();
    (server, client)
}

/// RESTORE at `k`; whether it was accepted.
pub fn is_restored(client: &mut Connection, payload: &[u8]) -> bool {
    let reply = restore(client, "k", payload);
    is_accepted(client, &reply)
}

#[test]
fn what_is_not_damaged_is_accepted() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        for form in forms(&mut client) {
            assert!(form.is_accepted(&mut client, &form.bytes), "{}", form.name);
            // Damage does not reach the module unless the checksum is put right.
            if form.way == Way::Restore {
                let mut damaged = with_fixed_checksum([form.bytes.as_slice(), &[10, 0], &[0; 8]].concat());
                damaged[12] ^= 1;
                assert!(!is_restored(&mut client, &damaged), "{}", form.name);
            }
        }
    });
}

#[test]
fn every_byte_may_be_anything() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let forms = forms(&mut client);
        client.wait_for_frees();
        let before = client.info_number("used_memory");
        for form in forms {
            let (mut tried, mut accepted) = (0, 0);
            let masks: &[u8] = match form.name.starts_with("RedisBloom") {
                true => &[0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff],
                false => &[0x01, 0x02, 0x10, 0x40, 0x80, 0xff],
            };
            // The first byte names the server's own kind of value.
            for place in usize::from(form.way == Way::Restore)..form.bytes.len() {
                for mask in masks.iter().copied().chain([form.bytes[place]]) {
                    let mut damaged = form.bytes.clone();
                    damaged[place] ^= mask;
                    accepted += usize::from(form.is_accepted(&mut client, &damaged));
                    tried += 1;
                }
            }
            figures(&format!("damaged payloads: {tried} executions, {accepted} were accepted, {}", form.name));
        }
        client.wait_for_frees();
        let grown = client.info_number("used_memory") - before;
        assert!(grown < 8 << 20, "{grown} bytes more in use");
    });
}

#[test]
fn a_filter_may_end_anywhere() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut forms = forms(&mut client);
        for golden in valkey_bloom::model::goldens() {
            forms.push(Form { name: golden.key.clone(), way: Way::Restore, bytes: value_of(&golden.dump).to_vec() });
            forms.push(Form { name: golden.key, way: Way::Record, bytes: golden.payload });
        }
        for form in forms {
            let whole = form.bytes.len();
            let lengths: Vec<usize> = match whole {
                ..400 => (1..whole).collect(),
                _ => [40, whole / 2, whole - 17, whole - 16, whole - 8, whole - 2, whole - 1].into(),
            };
            for length in lengths {
                let accepted = form.is_accepted(&mut client, &form.bytes[..length]);
                // The server lets a value be read on into the footer, so only a larger cut is sure to be noticed.
                let may_be = form.way == Way::Restore && whole - length <= FOOTER;
                assert!(!accepted || may_be, "{}: {length} of {whole} bytes", form.name);
            }
            let longer = [&form.bytes[..], b"x"].concat();
            assert!(form.way != Way::Header || !form.is_accepted(&mut client, &longer), "{}", form.name);
        }
    });
}

#[test]
fn bytes_may_be_missing_doubled_or_foreign() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        let mut rng = Rng::new(1);
        let forms = forms(&mut client);
        let mut accepted = 0;
        for round in 0..6000 {
            let form = &forms[round % forms.len()];
            let fixed = form.fixed().max(1);
            let mut bytes = form.bytes.clone();
            for _ in 0..=rng.below(3) {
                let place = fixed + rng.below((bytes.len() - fixed) as u64) as usize;
                match rng.below(4) {
                    0 => drop(bytes.remove(place)),
                    1 => bytes.insert(place, rng.number() as u8),
                    2 => {
                        let other = &forms[rng.below(forms.len() as u64) as usize].bytes;
                        bytes.truncate(place);
                        bytes.extend_from_slice(&other[fixed + rng.below((other.len() - fixed) as u64) as usize..]);
                    }
                    _ => bytes[place] = [0, 0x7f, 0x80, 0x81, 0xff][rng.below(5) as usize],
                }
                if bytes.len() <= fixed {
                    break;
                }
            }
            let reply = form.send(&mut client, &bytes);
            accepted += usize::from(!reply.is_error());
            if !reply.is_error() && round % 5 == 0 {
                let before = digest(&mut client, "k");
                assert_eq!(client.run("DEBUG RELOAD"), ok(), "{}", form.name);
                assert_eq!(digest(&mut client, "k"), before, "{}", form.name);
            }
            use_and_delete(&mut client);
        }
        for name in ["num_objects", "num_filters_across_objects", "num_items_across_objects", "total_memory_bytes"] {
            client.wait_for_frees();
            assert_eq!(client.gauge(name), 0, "{name}");
        }
        figures(&format!("damaged payloads: 6000 executions, {accepted} were accepted"));
    });
}

#[test]
fn a_filter_without_the_memory_for_it_is_refused() {
    on_every_server(|program| {
        let (_server, mut client) = start(program);
        // More than a hundred megabytes in a few hundred bytes of payload.
        client.run("BF.RESERVE source 0.01 100000000 NONSCALING");
        let payload = dump(&mut client, "source");
        assert!(payload.len() < 4096, "{} bytes", payload.len());
        assert!(is_restored(&mut client, &payload));
        client.run("DEL source");
        client.run("CONFIG SET maxmemory 100mb");
        assert!(!is_restored(&mut client, &payload), "RESTORE is a client's request and maxmemory binds it");
        client.run("CONFIG SET maxmemory 0");
        client.run("CONFIG SET bf.max-filter-bytes 100000");
        assert!(!is_restored(&mut client, &payload), "the ceiling binds it too");
        client.run("CONFIG SET bf.max-filter-bytes 0");
        assert!(is_restored(&mut client, &payload));
    });
}
