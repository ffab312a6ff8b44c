//! Filters made by RedisBloom, and its answers about them: reads `tests/data/redisbloom`, and has the check that every way into the server
//! must pass.

use std::fs;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;

use super::model::{FORCE_64, Layer, Model, NO_ROUND, NO_SCALING, Seeds, encoded_value, fields_of, snapshot_of_value};
use crate::golden::{self, Source};
use crate::growth::{self, add_to_both, assert_as_the_model};
use testing::{
    Connection, Record, Reply, Server, array, dump, integer, load_records, ok, on_every_server, simple,
    start_on_snapshot, value_of, with_client, with_fixed_checksum,
};

/// Every release with data.
pub const RELEASES: [&str; 4] = ["1.0.0", "1.1.1", "2.2.0", "2.6.28"];

/// The release whose data has seeds of 32 bits, because its library called the server's hash instead of its own.
pub const NARROW: &str = "1.1.1";

/// The release whose data includes BF.INFO, SCANDUMP pairs and an append-only file.
pub const TODAY: &str = "2.6.28";

/// The releases of `encoding-3.json`, each built by its own Makefile, and the seeds of its hash.
pub const OF_ENCODING_3: [(&str, Seeds); 3] =
    [("v1.1.1", Seeds::Of64Bits), ("v2.0.0", Seeds::Of32Bits), ("v2.0.3", Seeds::Of64Bits)];

/// The number of absent items with answers in the data.
const STRANGERS: usize = 20_000;

/// One filter made by RedisBloom.
pub struct Golden {
    pub key: String,
    /// The arguments of BF.RESERVE after the key; `None` if BF.MADD created the filter.
    pub reserve: Option<Vec<String>>,
    /// `item:0` to `item:offered-1` were added.
    pub offered: usize,
    /// How many of them were new.
    pub answered: i64,
    missing: Vec<usize>,
    false_positives: Vec<usize>,
    debug: Vec<String>,
    /// RedisBloom's own BF.INFO, if the data has it.
    info: Option<[Option<i64>; 5]>,
    /// The payload of DUMP.
    pub payload: Vec<u8>,
    /// The records of BF.SCANDUMP: iterators and data.
    pub chunks: Vec<Record>,
}

/// A file of the data, unpacked.
pub fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/redisbloom");
    let packed = folder.join(format!("{name}.gz"));
    if !packed.exists() {
        return fs::read(folder.join(name)).expect("a file of the data");
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(packed).expect("a packed file of the data");
    GzDecoder::new(file).read_to_end(&mut bytes).expect("a sound gzip file");
    bytes
}

/// The snapshot of a release.
pub fn snapshot(release: &str) -> Vec<u8> {
    file(&format!("redisbloom-{release}.rdb"))
}

/// All filters of a release, by key.
pub fn filters(release: &str) -> Vec<Golden> {
    let text = file(&format!("expected-{release}.json"));
    let expected: Value = serde_json::from_slice(&text).expect("JSON");
    expected.as_object().expect("an object").iter().map(|(key, entry)| read(release, key, entry)).collect()
}

/// One filter of a release.
pub fn filter(release: &str, key: &str) -> Golden {
    filters(release).into_iter().find(|golden| golden.key == key).expect("a key of the data")
}

fn read(release: &str, key: &str, entry: &Value) -> Golden {
    let numbers = |name: &str| -> Vec<usize> {
        let list = entry[name].as_array().expect("a list");
        list.iter().map(|number| number.as_u64().expect("a number") as usize).collect()
    };
    let strings = |list: &Value| -> Vec<String> {
        list.as_array().expect("a list").iter().map(|word| word.as_str().expect("a string").to_owned()).collect()
    };
    let info = entry.get("info").map(|info| {
        ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"]
            .map(|name| info[name].as_i64())
    });
    let mut debug = strings(&entry["debug"]);
    if release == "1.0.0" {
        // Early releases had only one hash and did not record it.
        for line in &mut debug {
            *line = line.replace(" capacity:", " hashwidth:32 capacity:");
        }
    }
    Golden {
        key: key.to_owned(),
        reserve: Some(&entry["reserve"]).filter(|words| !words.is_null()).map(strings),
        offered: entry["items_offered"].as_u64().expect("a number") as usize,
        answered: entry["answered_1"].as_i64().expect("a number"),
        missing: numbers("missing"),
        false_positives: numbers("absent_that_exist_below_20000"),
        debug,
        info,
        payload: payload(release, entry),
        chunks: chunks(entry),
    }
}

/// The filter of a release of [`OF_ENCODING_3`]. Its members are `item:0` to `item:59`. Also returns which of `absent:0` to `absent:1999`
/// the release reported present.
pub fn of_encoding_3(release: &str) -> (Golden, Vec<u64>) {
    let expected: Value = serde_json::from_slice(&file("encoding-3.json")).expect("JSON");
    let entry = &expected[release];
    let payload = payload(release, entry);
    let model = Model::of_payload(&payload).1;
    let golden = Golden {
        key: release.to_owned(),
        reserve: None,
        offered: 60,
        answered: 60,
        missing: Vec::new(),
        // The data has answers for fewer names; the others follow from the model.
        false_positives: Vec::new(),
        debug: model.debug(),
        info: None,
        payload,
        chunks: chunks(entry),
    };
    let present = entry["absent_that_exist_below_2000"].as_array().expect("a list");
    (golden, present.iter().map(|number| number.as_u64().expect("a number")).collect())
}

fn payload(release: &str, entry: &Value) -> Vec<u8> {
    if let Some(text) = entry.get("dump") {
        return BASE64_STANDARD.decode(text.as_str().expect("base64")).expect("base64");
    }
    let place = &entry["dump_in_snapshot"];
    let value = cut(&snapshot(release), &place[0], &place[1]);
    // A module's value, then the version of the format (10, as in Redis 7.0) and room for the checksum.
    with_fixed_checksum([&[7], value.as_slice(), &[10, 0], &[0; 8]].concat())
}

fn chunks(entry: &Value) -> Vec<Record> {
    if let Some(places) = entry.get("scandump_in_aof") {
        let file = file("redisbloom-2.6.28.aof");
        let places = places.as_array().expect("a list");
        return places.iter().map(|at| (at[0].as_i64().expect("a number"), cut(&file, &at[1], &at[2]))).collect();
    }
    let Some(pairs) = entry.get("scandump") else { return Vec::new() };
    let decoded = |data: &Value| BASE64_STANDARD.decode(data.as_str().expect("base64")).expect("base64");
    let pairs = pairs.as_array().expect("a list");
    pairs.iter().map(|pair| (pair[0].as_i64().expect("a number"), decoded(&pair[1]))).collect()
}

fn cut(bytes: &[u8], offset: &Value, length: &Value) -> Vec<u8> {
    let [offset, length] = [offset, length].map(|number| number.as_u64().expect("a number") as usize);
    bytes[offset..offset + length].to_vec()
}

/// `item:first` to `item:end-1`, the names of all members.
pub fn items(first: usize, end: usize) -> Vec<String> {
    (first..end).map(|number| format!("item:{number}")).collect()
}

impl Golden {
    /// Which of `absent:0` to `absent:19999` RedisBloom reports present.
    pub fn false_positives(&self) -> &[usize] {
        &self.false_positives
    }

    /// The false positives of this module, which looks items up under two hashes if the hash is not recorded.
    fn false_positives_here(&self) -> Vec<usize> {
        let model = self.model();
        let others = (0..STRANGERS).filter(|number| model.contains(format!("absent:{number}").as_bytes()));
        let here = if model.either_seeds { others.collect() } else { self.false_positives.clone() };
        assert!(self.false_positives.iter().all(|number| here.contains(number)), "{}", self.key);
        here
    }

    /// The lines of BF.DEBUG.
    pub fn debug(&self) -> &[String] {
        &self.debug
    }

    /// The same filter, decoded from its payload without the module.
    pub fn model(&self) -> Model {
        Model::of_payload(&self.payload).1
    }

    /// Checks a server's answers to all queries in the data.
    pub fn check(&self, server: &Server, at: &str) {
        for protocol in [2, 3] {
            let mut client = server.connect_speaking(protocol);
            assert_eq!(client.run(&format!("TYPE {at}")), simple("MBbloom--"));
            assert_eq!(client.run(&format!("BF.INFO {at}")), self.info_reply(protocol), "{at}");
            for (word, value) in ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "EXPANSION"].iter().zip(self.info()) {
                let reply = client.run(&format!("BF.INFO {at} {word}"));
                let value = value.map_or_else(|| testing::nil(protocol), integer);
                match reply {
                    Reply::Map(pairs) if protocol == 3 => assert_eq!(pairs[0].1, value, "{at} {word}"),
                    flat => assert_eq!(flat, array([value]), "{at} {word}"),
                }
            }
            assert_eq!(client.run(&format!("BF.CARD {at}")), integer(self.answered), "{at}");
            let debug = client.run(&format!("BF.DEBUG {at}"));
            let lines: Vec<String> = debug.elements().iter().map(Reply::text).collect();
            assert_eq!(lines, self.debug, "BF.DEBUG {at}");

            let present = client.batched(&[b"BF.MEXISTS", at.as_bytes()], &items(0, self.offered));
            let missing: Vec<usize> = (0..present.len()).filter(|&number| !present[number]).collect();
            assert_eq!(missing, self.missing, "{at}: items that are not in");
            let strangers: Vec<String> = (0..STRANGERS).map(|number| format!("absent:{number}")).collect();
            let present = client.batched(&[b"BF.MEXISTS", at.as_bytes()], &strangers);
            let wrong: Vec<usize> = (0..present.len()).filter(|&number| present[number]).collect();
            assert_eq!(wrong, self.false_positives_here(), "{at}: false positives");
        }
    }

    fn info(&self) -> [Option<i64>; 5] {
        self.info.unwrap_or_else(|| self.model().info())
    }

    fn info_reply(&self, protocol: u8) -> Reply {
        info_reply(self.info(), protocol)
    }
}

/// RedisBloom's BF.INFO.
pub fn info_reply(values: [Option<i64>; 5], protocol: u8) -> Reply {
    let names = ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"].map(simple);
    let values = values.map(|value| value.map_or_else(|| testing::nil(protocol), integer));
    if protocol == 3 {
        return Reply::Map(names.into_iter().zip(values).collect());
    }
    Reply::Array(names.into_iter().zip(values).flat_map(|(name, value)| [name, value]).collect())
}

/// RESTOREs a payload.
pub fn restore(server: &Server, key: &str, payload: &[u8]) {
    let words: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), b"0", payload, b"REPLACE"];
    assert_eq!(server.connect().call(&words), ok(), "RESTORE of {key}");
}

/// Sends the pairs of BF.SCANDUMP back.
pub fn load_chunks(server: &Server, key: &str, chunks: &[Record]) {
    load_records(&mut server.connect(), key, chunks);
}

/// All filters made by a release.
pub fn source(release: &'static str) -> Source {
    let filters = filters(release).into_iter().map(|filter| Box::new(filter) as Box<dyn golden::Golden>).collect();
    let append_only_files = if release == TODAY { vec![file("redisbloom-2.6.28.aof")] } else { Vec::new() };
    Source { name: release, snapshot: snapshot(release), append_only_files, filters }
}

/// The filter of a release of [`OF_ENCODING_3`].
pub fn source_of_encoding_3((release, _): (&'static str, Seeds)) -> Source {
    let golden = of_encoding_3(release).0;
    let snapshot = snapshot_of_value(release, &value_of(&golden.payload)[1..]);
    Source { name: release, snapshot, append_only_files: Vec::new(), filters: vec![Box::new(golden)] }
}

impl golden::Golden for Golden {
    fn key(&self) -> &str {
        &self.key
    }

    fn items(&self) -> Vec<String> {
        items(0, self.offered)
    }

    fn payloads(&self) -> Vec<Vec<u8>> {
        vec![self.payload.clone()]
    }

    fn commands(&self, key: &str) -> Vec<Vec<Vec<u8>>> {
        golden::as_commands(key, &self.chunks)
    }

    fn reservation(&self) -> Option<String> {
        self.reserve.as_ref().map(|words| format!("{} LAYOUT redisbloom", words.join(" ")))
    }

    fn check(&self, server: &Server, at: &str) {
        Self::check(self, server, at);
    }

    fn model(&self) -> Option<Box<dyn growth::Model>> {
        Some(Box::new(Self::model(self)))
    }

    fn sizes(&self) -> Option<[usize; 4]> {
        let model = self.model();
        let bytes = model.layers.iter().map(|layer| layer.bytes.len()).sum();
        Some([bytes, model.layers.len(), model.items as usize, model.info()[0]? as usize])
    }
}

// Filters created here in RedisBloom's layout are byte-identical to RedisBloom's.

const FOOTER: usize = 10;

/// The data was created with 100 items per call.
fn feed(client: &mut Connection, key: &str, count: usize) -> i64 {
    let mut added = 0;
    for batch in items(0, count).chunks(100) {
        let words: Vec<&str> = ["BF.MADD", key].into_iter().chain(batch.iter().map(String::as_str)).collect();
        let reply = client.call(&words);
        // A full filter ends the array with an error.
        added += reply.elements().iter().filter(|answer| !answer.is_error() && answer.truth()).count() as i64;
    }
    added
}

#[test]
fn equal_options_create_equal_bytes() {
    with_client(|server, client| {
        for golden in filters(TODAY) {
            match &golden.reserve {
                Some(words) => {
                    let line = format!("BF.RESERVE {} {} LAYOUT redisbloom", golden.key, words.join(" "));
                    assert_eq!(client.run(&line), ok());
                }
                None => assert_eq!(client.run("CONFIG SET bf.layout redisbloom"), ok()),
            }
            let added = feed(client, &golden.key, golden.offered);
            let ours = dump(client, &golden.key);
            if golden.key == "capped-rate" {
                // 2.6.28 used a rate of 0.9 unchanged; today's releases and this module replace it by 0.25.
                assert_eq!(Model::of_payload(&ours).1.layers[0].error, 0.125);
                continue;
            }
            assert_eq!(added, golden.answered, "{}", golden.key);
            let body = golden.payload.len() - FOOTER;
            assert!(ours.len() == golden.payload.len() && ours[..body] == golden.payload[..body], "{}", golden.key);
            golden.check(server, &golden.key);
        }
    });
}

#[test]
fn any_rate_and_capacity_is_sized_by_redisblooms_rule() {
    on_every_server(|program| {
        let server = Server::with(program).line("rdbcompression no").start();
        let mut client = server.connect();
        let rates = ["0.9999999", "0.3", "0.25", "0.1", "0.05", "0.01", "0.001", "1e-6", "1e-12", "1e-20", "1e-300"];
        for (number, rate) in rates.iter().enumerate() {
            for (capacity, growth, count) in [(1, 2, 20), (2, 1, 9), (3, 0, 3), (63, 4, 400), (1000, 3, 1500)] {
                let key = format!("k/{number}/{capacity}");
                let scaling = if growth == 0 { "NONSCALING".to_owned() } else { format!("EXPANSION {growth}") };
                let line = format!("BF.RESERVE {key} {rate} {capacity} {scaling} LAYOUT redisbloom");
                assert_eq!(client.run(&line), ok(), "{line}");
                let mut model = Model::reserve(rate.parse().unwrap(), capacity, growth);
                for item in items(0, count) {
                    let new = client.run(&format!("BF.ADD {key} {item}"));
                    match model.add(item.as_bytes()) {
                        Some(expected) => assert_eq!(new.truth(), expected, "{line}: {item}"),
                        None => assert_eq!(new.error_text(), "ERR non scaling filter is full", "{line}: {item}"),
                    }
                }
                let (encoding, saved) = Model::of_payload(&dump(&mut client, &key));
                assert_eq!(encoding, 4);
                // RedisBloom stores a growth factor for fixed filters, too, which has no effect.
                if growth == 0 {
                    model.growth = saved.growth;
                }
                assert_eq!(saved, model, "{line}");
                assert_eq!(client.run(&format!("BF.INFO {key}")), info_reply(model.info(), 2), "{line}");
            }
        }
    });
}

// RedisBloom's other types, which prevent a server from starting.

/// A snapshot with one key, `k`, of a module's type.
fn snapshot_of(type_name: &str) -> Vec<u8> {
    let mut model = Model::reserve(0.01, 100, 2);
    model.add(b"a");
    let encoding = if type_name == "MBbloom--" { 4 } else { 1 };
    snapshot_of_value("k", &encoded_value(type_name, encoding, &fields_of(&model, 4)))
}

#[test]
fn a_snapshot_with_redisblooms_other_types_stops_the_start_and_names_the_type() {
    on_every_server(|program| {
        let server = start_on_snapshot(program, &[], &snapshot_of("MBbloom--"));
        assert_eq!(server.connect().run("TYPE k"), simple("MBbloom--"));
        assert_eq!(server.connect().run("BF.EXISTS k a"), integer(1));
        for other in ["MBbloomCF", "CMSk-TYPE", "TopK-TYPE", "TDIS-TYPE"] {
            let folder = tempfile::tempdir().expect("a temporary directory");
            fs::write(folder.path().join("dump.rdb"), snapshot_of(other)).expect("the snapshot is written");
            let log = Server::with(program).line(&format!("dir {}", folder.path().display())).refuses_to_start();
            assert!(log.contains(other), "{other}: {log}");
        }
    });
}

// Payloads and headers of early RedisBloom releases, generated from the description of the format: encodings 0 to 4, both hashes, sizes
// that are powers of two, sizes that are not whole words, headers of 2018.

const ENTS_IS_BITS: u64 = 2;

/// How the early releases sized a layer.
#[derive(Clone, Copy)]
enum Size {
    /// `bits` is the product of entries and bits per entry, in the smallest number of bytes.
    Exact,
    /// A power of two; `bits` is saved as 0 or as that power.
    PowerOfTwo { saved_bits: bool },
    /// A power of two in an array twice as long.
    HalfUsed,
}

fn layer(entries: u64, error: f64, size: Size) -> Layer {
    let mut layer = Layer::sized(entries, error);
    let exact = (entries as f64 * layer.bits_per_entry) as u64;
    let power = exact.next_power_of_two();
    let (bits, bytes) = match size {
        Size::Exact => (exact, exact.div_ceil(8)),
        Size::PowerOfTwo { .. } => (power, power / 8),
        Size::HalfUsed => (power, power / 4),
    };
    layer.bytes = vec![0; bytes as usize];
    layer.log2_bits = if matches!(size, Size::Exact) { 0 } else { power.trailing_zeros() as u8 };
    layer.bits = if matches!(size, Size::PowerOfTwo { saved_bits: false }) { 0 } else { bits };
    layer
}

/// A filter with three full layers and a half-full one; with only the last if it does not scale.
fn early_filter(encoding: u64, options: u64, growth: u64, size: Size) -> Model {
    let either_seeds = encoding < 4 && options & FORCE_64 != 0;
    let mut model = Model { items: 0, options, growth, layers: Vec::new(), either_seeds };
    let layers = [(50, 0.02), (100, 0.005), (150, 0.001), (200, 0.000_25)];
    for &(entries, error) in &layers[if options & NO_SCALING == 0 { 0 } else { 3 }..] {
        model.layers.push(layer(entries, error, size));
        for number in 0..if entries == 200 { 100 } else { entries } {
            // If the width of the seeds is not recorded, both kinds of items are found.
            let seeds = if either_seeds && number % 2 == 0 { Seeds::Of32Bits } else { Seeds::Of64Bits };
            model.put_under(seeds, format!("question/{}", entries * 10 + number).as_bytes());
        }
    }
    model
}

const SIZES: [Size; 4] =
    [Size::Exact, Size::PowerOfTwo { saved_bits: false }, Size::PowerOfTwo { saved_bits: true }, Size::HalfUsed];

/// Every pair of encoding and filter that the description allows.
fn collection() -> Vec<(u64, Model)> {
    let mut all = vec![(0, early_filter(0, 0, 2, Size::Exact))];
    for size in SIZES {
        all.push((1, early_filter(1, 0, 2, size)));
        all.push((2, early_filter(2, 0, 2, size)));
        all.push((3, early_filter(3, ENTS_IS_BITS, 2, size)));
        all.push((3, early_filter(3, NO_SCALING, 2, size)));
        all.push((2, early_filter(2, FORCE_64, 2, size)));
        all.push((3, early_filter(3, FORCE_64, 2, size)));
        all.push((4, early_filter(4, FORCE_64, 2, size)));
        for growth in [1, 3] {
            all.push((4, early_filter(4, 0, growth, size)));
        }
        all.push((4, early_filter(4, NO_SCALING, 2, size)));
    }
    // Not in whole words, as created by 2.2.
    all.push((4, early_filter(4, FORCE_64 | 1, 5, Size::Exact)));
    all
}

#[test]
fn every_encoding_is_probed_grown_and_saved() {
    with_client(|server, client| {
        for (number, (encoding, mut model)) in collection().into_iter().enumerate() {
            let key = format!("{number}/encoding-{encoding}/options-{}/growth-{}", model.options, model.growth);
            restore(server, &key, &model.payload(encoding));
            assert_eq!(client.run(&format!("TYPE {key}")), simple("MBbloom--"));
            assert_as_the_model(client, &key, &model);
            let items: Vec<String> = (0..2500).map(|number| format!("more/{number}")).collect();
            add_to_both(client, &key, &mut model, &items);
            assert!(model.options & NO_SCALING != 0 || model.layers.len() > 4, "{key} did not grow");
            assert_as_the_model(client, &key, &model);
            client.run("DEBUG RELOAD");
            assert_as_the_model(client, &key, &model);
            client.run(&format!("DEL {key}"));
        }
    });
}

/// Positions modulo 2^n2 with the 32-bit hash: the sums wrap at 2^32, and two times 2^31 is nothing.
#[test]
fn large_powers_of_two_are_probed_in_32_bits() {
    with_client(|server, client| {
        for log2_bits in [3, 6, 16, 23] {
            let mut model = Model { items: 0, options: 0, growth: 2, layers: vec![], either_seeds: false };
            let mut layer = Layer::sized(1000, 1e-12);
            (layer.bits, layer.log2_bits, layer.bytes) = (0, log2_bits, vec![0; (1 << log2_bits) / 8]);
            model.layers.push(layer);
            for number in 0..if log2_bits < 8 { 1 } else { 500 } {
                model.put(format!("question/{number}").as_bytes());
            }
            let key = format!("two-to-the-{log2_bits}");
            restore(server, &key, &model.payload(1));
            assert_as_the_model(client, &key, &model);
        }
    });
}

/// RedisShake may write the header of any release for a filter of any other. A growth factor, or options of 2.2, imply seeds of 64 bits.
#[test]
fn headers_of_earlier_releases_load() {
    type Header = fn(&Model) -> Vec<u8>;
    let (of_2018, of_2_2_0): (Header, Header) = (Model::header_of_2018, Model::header_of_2_2_0);
    with_client(|server, client| {
        for (number, size) in SIZES.into_iter().enumerate() {
            for (encoding, options, growth, header) in [
                (3, 0, 2, of_2018),
                (3, NO_SCALING, 2, of_2018),
                (3, FORCE_64, 2, of_2018),
                (4, FORCE_64 | NO_ROUND, 2, of_2018),
                (4, FORCE_64 | NO_ROUND | NO_SCALING, 2, of_2018),
                (4, 0, 3, of_2_2_0),
                (4, FORCE_64, 3, of_2_2_0),
                (4, FORCE_64 | NO_ROUND, 3, of_2_2_0),
                (4, FORCE_64 | NO_ROUND | NO_SCALING, 3, of_2_2_0),
            ] {
                let mut model = early_filter(encoding, options, growth, size);
                let key = format!("{number}/{options}/{growth}");
                client.call(&["DEL", &key]);
                load_chunks(server, &key, &model.chunks(header(&model)));
                assert_as_the_model(client, &key, &model);
                let items: Vec<String> = (0..1500).map(|number| format!("more/{number}")).collect();
                add_to_both(client, &key, &mut model, &items);
                assert_as_the_model(client, &key, &model);
            }
        }
    });
}

/// Filters of old releases, with headers of their time and of today.
#[test]
fn old_data_loads_by_header_too() {
    on_every_server(|program| {
        let server = Server::start(program);
        for release in RELEASES {
            for golden in filters(release).into_iter().filter(|golden| golden.key != "large") {
                let model = golden.model();
                let key = format!("{release}/{}", golden.key);
                if release.starts_with('1') {
                    load_chunks(&server, &key, &model.chunks(model.header_of_2018()));
                } else {
                    load_chunks(&server, &key, &model.chunks(model.header()));
                }
                golden.check(&server, &key);
            }
        }
    });
}

#[test]
fn layers_of_a_few_bits_are_layers() {
    with_client(|server, client| {
        for bits in [1_u64, 2, 3, 7, 8, 9, 15, 63, 64, 65, 127] {
            for (hashes, options) in [(1, FORCE_64), (2, FORCE_64 | 1), (1, 0), (3, 0), (1100, FORCE_64)] {
                let mut layer = Layer::sized(3, 0.2);
                (layer.bits, layer.hashes, layer.bytes) = (bits, hashes, vec![0; bits.div_ceil(8) as usize]);
                let mut model = Model { items: 0, options, growth: 2, layers: vec![layer], either_seeds: false };
                model.put(b"question/1");
                let key = format!("{bits}/{hashes}/{options}");
                restore(server, &key, &model.payload(4));
                assert_as_the_model(client, &key, &model);
                let items: Vec<String> = (0..40).map(|number| format!("more/{number}")).collect();
                add_to_both(client, &key, &mut model, &items);
                assert_as_the_model(client, &key, &model);
            }
        }
    });
}

// Data of encoding 3, whose hash had seeds of 32 bits or of 64, depending on the release. The width is not recorded. Every member is found
// with either width, and today's RedisBloom finds newly added items.

/// Absent names with answers in the data.
fn strangers() -> Vec<String> {
    (0..2000).map(|number| format!("absent:{number}")).collect()
}

/// The indices of the names that are found.
fn numbers(found: impl IntoIterator<Item = bool>) -> Vec<u64> {
    (0..).zip(found).filter(|(_, found)| *found).map(|(number, _)| number).collect()
}

/// The absent names that are found under either hash. Under the release's own hash, they equal the names that it found.
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
    with_client(|server, client| {
        for (release, seeds) in OF_ENCODING_3 {
            let (golden, of_release) = of_encoding_3(release);
            let expected = expected(&golden, seeds, &of_release);
            restore(server, "restored", &golden.payload);
            load_chunks(server, "loaded", &golden.chunks);
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

/// Tests a filter that has grown here, with the members of the release and 500 more.
fn grown(server: &Server, release: &str) {
    let (golden, _) = of_encoding_3(release);
    restore(server, release, &golden.payload);
    let mut client = server.connect();
    client.batched(&[b"BF.MADD", release.as_bytes()], &more());
    let found = client.batched(&[b"BF.MEXISTS", release.as_bytes()], &[items(0, 60), more()].concat());
    assert!(!found.contains(&false), "{release}");
}

fn more() -> Vec<String> {
    (0..500).map(|number| format!("more:{number}")).collect()
}

/// Today's RedisBloom hashes with seeds of 64 bits.
#[test]
fn items_are_added_with_the_seeds_of_current_redisbloom() {
    on_every_server(|program| {
        let server = Server::start(program);
        for (release, seeds) in OF_ENCODING_3 {
            grown(&server, release);
            let model = Model::of_payload(&dump(&mut server.connect(), release)).1;
            let under = |seeds, names: &[String]| {
                names.iter().filter(|name| model.contains_under(seeds, name.as_bytes())).count()
            };
            // A few were found under the other hash, so they were not added.
            assert!(under(Seeds::Of64Bits, &more()) > 480, "{release}");
            assert!(under(Seeds::Of32Bits, &more()) < 20, "{release}");
            assert_eq!(under(seeds, &items(0, 60)), 60, "{release}");
        }
    });
}

#[test]
fn the_operator_sees_it() {
    with_client(|server, client| {
        for (release, _) in OF_ENCODING_3 {
            restore(server, release, &of_encoding_3(release).0.payload);
            for number in 0..46 {
                client.run(&format!("BF.ADD {release} fill:{number}"));
            }
            let stats = client.run(&format!("BF.STATS {release}"));
            assert_eq!(stats.field("Hash").text(), "murmur2-either-seed");
            // The rate over 50,000 absent names equals the estimate, to which each of the two hashes contributes half.
            let strangers: Vec<String> = (0..50_000).map(|number| format!("stranger:{number}")).collect();
            let found = client.batched(&[b"BF.MEXISTS", release.as_bytes()], &strangers);
            let measured = found.iter().filter(|found| **found).count() as f64 / 50_000.0;
            let rate: f64 = stats.field("Error rate now").text().parse().expect("a number");
            assert!((0.8..1.25).contains(&(measured / rate)), "{release}: {measured} of strangers, {rate} said");
            let model = Model::of_payload(&dump(client, release)).1;
            let under_one =
                strangers.iter().filter(|name| model.contains_under(Seeds::Of64Bits, name.as_bytes())).count();
            assert!((under_one as f64) < 0.7 * measured * 50_000.0, "{release}: {under_one} under one hash");
        }
        client.run("BF.RESERVE k 0.01 100 LAYOUT redisbloom");
        assert_eq!(client.run("BF.STATS k").field("Hash").text(), "murmur2");
    });
}
