//! Payloads and headers of RedisBloom's early years, made up here after the description of the format: encodings 0 to
//! 4, both hashes, sizes that are powers of two, sizes that are no whole number of words, headers of 2018.

use super::golden::{RELEASES, filters, load_chunks, restore};
use super::model::{FORCE_64, Layer, Model, NO_ROUND, NO_SCALING, Seeds};
use crate::growth::{add_to_both, assert_as_the_model};
use testing::{Server, on_every_server, simple};

const ENTS_IS_BITS: u64 = 2;

/// How the early releases sized a layer.
#[derive(Clone, Copy)]
enum Size {
    /// `bits` is the product of entries and bits per entry, in as few bytes as hold it.
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

/// A filter of three full layers and a half-full one; of the last alone where it does not scale.
fn filter(encoding: u64, options: u64, growth: u64, size: Size) -> Model {
    let either_seeds = encoding < 4 && options & FORCE_64 != 0;
    let mut model = Model { items: 0, options, growth, layers: Vec::new(), either_seeds };
    let layers = [(50, 0.02), (100, 0.005), (150, 0.001), (200, 0.000_25)];
    for &(entries, error) in &layers[if options & NO_SCALING == 0 { 0 } else { 3 }..] {
        model.layers.push(layer(entries, error, size));
        for number in 0..if entries == 200 { 100 } else { entries } {
            // Where nothing says how wide the seeds are, both kinds of items are found.
            let seeds = if either_seeds && number % 2 == 0 { Seeds::Of32Bits } else { Seeds::Of64Bits };
            model.put_under(seeds, format!("question/{}", entries * 10 + number).as_bytes());
        }
    }
    model
}

const SIZES: [Size; 4] =
    [Size::Exact, Size::PowerOfTwo { saved_bits: false }, Size::PowerOfTwo { saved_bits: true }, Size::HalfUsed];

/// Encoding, filter: each pair that the description allows.
fn collection() -> Vec<(u64, Model)> {
    let mut all = vec![(0, filter(0, 0, 2, Size::Exact))];
    for size in SIZES {
        all.push((1, filter(1, 0, 2, size)));
        all.push((2, filter(2, 0, 2, size)));
        all.push((3, filter(3, ENTS_IS_BITS, 2, size)));
        all.push((3, filter(3, NO_SCALING, 2, size)));
        all.push((2, filter(2, FORCE_64, 2, size)));
        all.push((3, filter(3, FORCE_64, 2, size)));
        all.push((4, filter(4, FORCE_64, 2, size)));
        for growth in [1, 3] {
            all.push((4, filter(4, 0, growth, size)));
        }
        all.push((4, filter(4, NO_SCALING, 2, size)));
    }
    // Not in whole words, as 2.2 made them.
    all.push((4, filter(4, FORCE_64 | 1, 5, Size::Exact)));
    all
}

#[test]
fn every_encoding_is_probed_grown_and_saved() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (number, (encoding, mut model)) in collection().into_iter().enumerate() {
            let key = format!("{number}/encoding-{encoding}/options-{}/growth-{}", model.options, model.growth);
            restore(&server, &key, &model.payload(encoding));
            assert_eq!(client.run(&format!("TYPE {key}")), simple("MBbloom--"));
            assert_as_the_model(&mut client, &key, &model);
            let items: Vec<String> = (0..2500).map(|number| format!("more/{number}")).collect();
            add_to_both(&mut client, &key, &mut model, &items);
            assert!(model.options & NO_SCALING != 0 || model.layers.len() > 4, "{key} did not grow");
            assert_as_the_model(&mut client, &key, &model);
            client.run("DEBUG RELOAD");
            assert_as_the_model(&mut client, &key, &model);
            client.run(&format!("DEL {key}"));
        }
    });
}

/// Positions modulo 2^n2 with the 32-bit hash: the sums wrap at 2^32, and two times 2^31 is nothing.
#[test]
fn large_powers_of_two_are_probed_in_32_bits() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for log2_bits in [3, 6, 16, 23] {
            let mut model = Model { items: 0, options: 0, growth: 2, layers: vec![], either_seeds: false };
            let mut layer = Layer::sized(1000, 1e-12);
            (layer.bits, layer.log2_bits, layer.bytes) = (0, log2_bits, vec![0; (1 << log2_bits) / 8]);
            model.layers.push(layer);
            for number in 0..if log2_bits < 8 { 1 } else { 500 } {
                model.put(format!("question/{number}").as_bytes());
            }
            let key = format!("two-to-the-{log2_bits}");
            restore(&server, &key, &model.payload(1));
            assert_as_the_model(&mut client, &key, &model);
        }
    });
}

#[test]
fn headers_of_2018_load() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (number, size) in SIZES.into_iter().enumerate() {
            for options in [0, NO_SCALING, FORCE_64] {
                let mut model = filter(3, options, 2, size);
                let key = format!("{number}/{options}");
                load_chunks(&server, &key, &model.chunks(model.header_of_2018()));
                assert_as_the_model(&mut client, &key, &model);
                let items: Vec<String> = (0..1500).map(|number| format!("more/{number}")).collect();
                add_to_both(&mut client, &key, &mut model, &items);
                assert_as_the_model(&mut client, &key, &model);
            }
        }
    });
}

/// RedisShake writes the header of any release for a filter of any other. Growth, or options of 2.2, say that the seeds have 64
/// bits.
#[test]
fn headers_that_redisshake_writes_for_other_releases_load() {
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for (number, size) in SIZES.into_iter().enumerate() {
            for options in [0, FORCE_64, FORCE_64 | NO_ROUND, FORCE_64 | NO_ROUND | NO_SCALING] {
                let model = filter(4, options, 3, size);
                let key = format!("{number}/{options}/2.2.0");
                load_chunks(&server, &key, &model.chunks(model.header_of_2_2_0()));
                assert_as_the_model(&mut client, &key, &model);
                if options & NO_ROUND != 0 {
                    let key = format!("{number}/{options}/1.0.0");
                    let model = Model { growth: 2, ..model };
                    load_chunks(&server, &key, &model.chunks(model.header_of_2018()));
                    assert_as_the_model(&mut client, &key, &model);
                }
            }
        }
    });
}

/// What old releases saved, told in the headers of their time and of today.
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
    on_every_server(|program| {
        let server = Server::start(program);
        let mut client = server.connect();
        for bits in [1_u64, 2, 3, 7, 8, 9, 15, 63, 64, 65, 127] {
            for (hashes, options) in [(1, FORCE_64), (2, FORCE_64 | 1), (1, 0), (3, 0), (1100, FORCE_64)] {
                let mut layer = Layer::sized(3, 0.2);
                (layer.bits, layer.hashes, layer.bytes) = (bits, hashes, vec![0; bits.div_ceil(8) as usize]);
                let mut model = Model { items: 0, options, growth: 2, layers: vec![layer], either_seeds: false };
                model.put(b"question/1");
                let key = format!("{bits}/{hashes}/{options}");
                restore(&server, &key, &model.payload(4));
                assert_as_the_model(&mut client, &key, &model);
                let items: Vec<String> = (0..40).map(|number| format!("more/{number}")).collect();
                add_to_both(&mut client, &key, &mut model, &items);
                assert_as_the_model(&mut client, &key, &model);
            }
        }
    });
}
