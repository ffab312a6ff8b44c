//! DUMP payloads of the type `MBbloom--`, read and written by the description of the format: the server's lengths and
//! module opcodes around RedisBloom's fields, in each of its encodings.

use super::model::{EITHER_SEEDS, FORCE_64, Layer, Model};
use testing::with_fixed_checksum;

/// A field of a module's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    Uint(u64),
    Double(f64),
    Text(Vec<u8>),
}

/// A payload of any fields under any module type's name.
pub fn payload_of(type_name: &str, encoding: u64, fields: &[Field]) -> Vec<u8> {
    payload_of_type(type_number(type_name, encoding), fields)
}

/// A payload of any fields under any module type's number.
pub fn payload_of_type(type_number: u64, fields: &[Field]) -> Vec<u8> {
    let mut value = Vec::new();
    write_value(&mut value, type_number, fields);
    payload_of_value(&value)
}

/// The payload of a value.
pub fn payload_of_value(value: &[u8]) -> Vec<u8> {
    // The version of the format is Redis 7.0's; newer servers take it too.
    with_fixed_checksum([&[7], value, &[10, 0], &[0; 8]].concat())
}

/// The value alone, as it stands in a snapshot after the kind and the key.
pub fn value_of(type_name: &str, encoding: u64, fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_value(&mut bytes, type_number(type_name, encoding), fields);
    bytes
}

/// A snapshot with one key, without a checksum, which zeros at its end say.
pub fn snapshot_of_value(key: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = b"REDIS0010".to_vec();
    bytes.extend([0xfe, 0, 7, key.len() as u8]);
    bytes.extend(key.bytes());
    bytes.extend(value);
    bytes.push(0xff);
    bytes.extend([0; 8]);
    bytes
}

fn type_number(type_name: &str, encoding: u64) -> u64 {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    assert_eq!(type_name.len(), 9);
    let sextet = |letter: u8| ALPHABET.iter().position(|&other| other == letter).expect("a letter") as u64;
    type_name.bytes().fold(0, |id, letter| (id << 6) | sextet(letter)) << 10 | encoding
}

fn write_value(bytes: &mut Vec<u8>, type_number: u64, fields: &[Field]) {
    write_length(bytes, type_number);
    for field in fields {
        match field {
            Field::Uint(number) => {
                bytes.push(2);
                write_length(bytes, *number);
            }
            Field::Double(number) => {
                bytes.push(4);
                bytes.extend(number.to_le_bytes());
            }
            Field::Text(text) => {
                bytes.push(5);
                write_length(bytes, text.len() as u64);
                bytes.extend(text);
            }
        }
    }
    bytes.push(0);
}

/// The fields of a filter in one of the encodings 0 to 4.
pub fn fields_of(model: &Model, encoding: u64) -> Vec<Field> {
    let mut fields = vec![Field::Uint(model.items), Field::Uint(model.layers.len() as u64)];
    if encoding >= 2 {
        fields.push(Field::Uint(model.options));
    }
    if encoding >= 4 {
        fields.push(Field::Uint(model.growth));
    }
    for layer in &model.layers {
        fields.extend([Field::Uint(layer.entries), Field::Double(layer.error)]);
        fields.extend([Field::Uint(layer.hashes), Field::Double(layer.bits_per_entry)]);
        if encoding >= 1 {
            fields.extend([Field::Uint(layer.bits), Field::Uint(u64::from(layer.log2_bits))]);
        }
        fields.extend([Field::Text(layer.bytes.clone()), Field::Uint(layer.items)]);
    }
    fields
}

pub fn write_payload(model: &Model, encoding: u64) -> Vec<u8> {
    payload_of("MBbloom--", encoding, &fields_of(model, encoding))
}

fn write_length(bytes: &mut Vec<u8>, number: u64) {
    match number {
        0..0x40 => bytes.push(number as u8),
        0x40..0x4000 => bytes.extend((number as u16 | 0x4000).to_be_bytes()),
        0x4000..0x1_0000_0000 => {
            bytes.push(0x80);
            bytes.extend((number as u32).to_be_bytes());
        }
        _ => {
            bytes.push(0x81);
            bytes.extend(number.to_be_bytes());
        }
    }
}

/// The filter in a payload, and the version of its encoding.
pub fn read_payload(payload: &[u8]) -> (u64, Model) {
    assert_eq!(payload[0], 7, "a module's value");
    let mut reader = Reader { rest: &payload[1..payload.len() - 10] };
    let encoding = reader.length() & 0x3ff;
    let items = reader.uint();
    let count = reader.uint();
    let options = if encoding >= 2 { reader.uint() } else { 0 };
    let growth = if encoding >= 4 { reader.uint() } else { 2 };
    let layers = (0..count).map(|_| reader.layer(encoding)).collect();
    assert_eq!(reader.rest, [0], "the mark at the end");
    let either_seeds = options & FORCE_64 != 0 && (encoding < 4 || options & EITHER_SEEDS != 0);
    (encoding, Model { items, options, growth, layers, either_seeds })
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }

    fn number(&mut self, count: usize) -> u64 {
        self.take(count).iter().fold(0, |number, &byte| (number << 8) | u64::from(byte))
    }

    fn length(&mut self) -> u64 {
        let first = self.number(1);
        match first >> 6 {
            0 => first,
            1 => (first & 0x3f) << 8 | self.number(1),
            _ if first == 0x80 => self.number(4),
            _ if first == 0x81 => self.number(8),
            _ => panic!("not a length: {first:#x}"),
        }
    }

    fn opcode(&mut self, expected: u64) {
        assert_eq!(self.length(), expected, "the kind of the next field");
    }

    fn uint(&mut self) -> u64 {
        self.opcode(2);
        self.length()
    }

    fn double(&mut self) -> f64 {
        self.opcode(4);
        f64::from_le_bytes(self.take(8).try_into().expect("eight bytes"))
    }

    fn text(&mut self) -> Vec<u8> {
        self.opcode(5);
        if self.rest[0] != 0xc3 {
            let length = self.length() as usize;
            return self.take(length).to_vec();
        }
        self.take(1);
        let packed = self.length() as usize;
        let length = self.length() as usize;
        let text = unpack(self.take(packed));
        assert_eq!(text.len(), length);
        text
    }

    fn layer(&mut self, encoding: u64) -> Layer {
        let (entries, error, hashes, bits_per_entry) = (self.uint(), self.double(), self.uint(), self.double());
        let (mut bits, mut log2_bits) = ((entries as f64 * bits_per_entry) as u64, 0);
        if encoding >= 1 {
            bits = self.uint();
            log2_bits = self.uint() as u8;
        }
        let bytes = self.text();
        Layer { entries, error, hashes, bits_per_entry, bits, log2_bits, bytes, items: self.uint() }
    }
}

/// LZF (Marc Lehmann), in which the servers save strings that shrink.
fn unpack(mut packed: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    while let [control, rest @ ..] = packed {
        let control = usize::from(*control);
        if control < 32 {
            text.extend(&rest[..=control]);
            packed = &rest[control + 1..];
            continue;
        }
        let (more, rest) = if control >> 5 == 7 { (usize::from(rest[0]), &rest[1..]) } else { (0, rest) };
        let begin = text.len() - ((control & 31) << 8) - usize::from(rest[0]) - 1;
        for place in begin..begin + (control >> 5) + more + 2 {
            text.push(text[place]);
        }
        packed = &rest[1..];
    }
    text
}
