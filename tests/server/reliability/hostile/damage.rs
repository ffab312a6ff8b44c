//! Damages payloads: changes their bytes, or sets numbers in their fields to extreme values while the format stays valid. The
//! checksum is corrected.

use super::values::{FOOTER, Seed, Value};
use crate::redisbloom::payload::Field;
use testing::{Rng, with_fixed_checksum};

/// Extreme numbers.
pub const EDGES: [u64; 22] = [
    0,
    1,
    2,
    3,
    7,
    63,
    64,
    65,
    255,
    1100,
    1101,
    4096,
    4097,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 53,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

const FRACTIONS: [f64; 14] = [
    0.0,
    -0.0,
    5e-324,
    f64::MIN_POSITIVE,
    1e-300,
    1e-12,
    0.01,
    0.5,
    0.999_999_999_999_999_9,
    1.0,
    -1.0,
    f64::MAX,
    f64::INFINITY,
    f64::NAN,
];

/// Returns a random element of a list.
pub fn pick<'a, T>(rng: &mut Rng, list: &'a [T]) -> &'a T {
    &list[rng.below(list.len() as u64) as usize]
}

/// Returns a damaged payload with a valid checksum.
pub fn damaged(rng: &mut Rng, seeds: &[Seed]) -> Vec<u8> {
    let seed = pick(rng, seeds);
    match &seed.value {
        Some(value) if rng.below(2) == 0 => {
            let mut value = value.clone();
            for _ in 0..=rng.below(2) {
                damage_fields(rng, &mut value, seeds);
            }
            value.payload()
        }
        _ => {
            // The first byte says that it is a module's value.
            let (body, footer) = seed.payload.split_at(seed.payload.len() - FOOTER);
            let mut body = body[1..].to_vec();
            let other = pick(rng, seeds);
            damage_bytes(rng, &mut body, &other.payload[1..other.payload.len() - FOOTER]);
            with_fixed_checksum([&[7], &body[..], footer].concat())
        }
    }
}

fn damage_fields(rng: &mut Rng, value: &mut Value, seeds: &[Seed]) {
    let fields = &mut value.fields;
    if fields.is_empty() {
        return;
    }
    let place = rng.below(fields.len() as u64) as usize;
    let other = pick(rng, seeds).value.as_ref();
    match rng.below(12) {
        0 => drop(fields.remove(place)),
        1 => {
            let end = place + rng.below((fields.len() - place) as u64 + 1) as usize;
            let again = fields[place..end].to_vec();
            fields.splice(end..end, again);
        }
        2 => fields.truncate(place),
        3 => {
            if let Some(other) = other.filter(|other| !other.fields.is_empty()) {
                let from = rng.below(other.fields.len() as u64) as usize;
                fields.splice(place.., other.fields[from..].iter().cloned());
            }
        }
        4 => {
            if let Some(other) = other {
                value.type_number =
                    if rng.below(2) == 0 { other.type_number } else { value.type_number ^ 1 << rng.below(10) };
            }
        }
        5 => {
            fields[place] = match rng.below(3) {
                0 => Field::Uint(*pick(rng, &EDGES)),
                1 => Field::Double(*pick(rng, &FRACTIONS)),
                _ => Field::Text(rng.bytes(64)),
            }
        }
        _ => damage_field(rng, &mut fields[place]),
    }
}

fn damage_field(rng: &mut Rng, field: &mut Field) {
    match field {
        Field::Uint(number) => match rng.below(3) {
            0 => *number = *pick(rng, &EDGES),
            1 => *number = number.wrapping_add_signed(rng.below(7) as i64 - 3),
            _ => *number ^= 1 << rng.below(64),
        },
        Field::Double(number) => match rng.below(2) {
            0 => *number = *pick(rng, &FRACTIONS),
            _ => *number = f64::from_bits(number.to_bits() ^ 1 << rng.below(64)),
        },
        Field::Text(text) => damage_bytes(rng, text, &[0; 64]),
    }
}

/// Changes bytes at one to three positions.
pub fn damage_bytes(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=rng.below(3) {
        let place = rng.below(bytes.len() as u64 + 1) as usize;
        let length = rng.below((bytes.len() - place) as u64 + 1) as usize;
        match rng.below(9) {
            0 => bytes.truncate(place),
            1 => drop(bytes.drain(place..place + length.min(8))),
            2 => bytes.insert(place, rng.number() as u8),
            3 => {
                let again = bytes[place..place + length].to_vec();
                bytes.splice(place..place, again);
            }
            4 => {
                let from = rng.below(other.len() as u64 + 1) as usize;
                bytes.splice(place.., other[from..].iter().copied());
            }
            // A length in the server's own encoding.
            5 => {
                let edge = *pick(rng, &EDGES);
                let spelled = if rng.below(2) == 0 {
                    [&[0x80][..], &(edge as u32).to_be_bytes()].concat()
                } else {
                    [&[0x81][..], &edge.to_be_bytes()].concat()
                };
                let end = (place + spelled.len() * rng.below(2) as usize).min(bytes.len());
                bytes.splice(place..end, spelled);
            }
            6 if place < bytes.len() => bytes[place] = *pick(rng, &[0, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xc3, 0xff]),
            _ if place < bytes.len() => bytes[place] ^= 1 << rng.below(8),
            _ => {}
        }
    }
}
