//! DUMP payloads of any module's value, read and written as fields according to the description of the server's format: its lengths and
//! opcodes around the module's numbers and strings.

use testing::{FOOTER, with_fixed_checksum};

use Field::{Double, Text, Uint};

/// A field of a module's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    Uint(u64),
    Double(f64),
    Text(Vec<u8>),
}

/// A payload of any fields under any module type's number.
pub fn payload_of_type(type_number: u64, fields: &[Field]) -> Vec<u8> {
    let mut value = Vec::new();
    write_value(&mut value, type_number, fields);
    payload_of_value(&value)
}

/// The payload of a value.
pub fn payload_of_value(value: &[u8]) -> Vec<u8> {
    // The version of the format is Redis 7.0's; newer servers accept it, too.
    with_fixed_checksum([&[7], value, &[10, 0], &[0; 8]].concat())
}

/// A snapshot with one key, without a checksum, as the zeros at its end state.
pub fn snapshot_of_value(key: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = b"REDIS0010".to_vec();
    bytes.extend([0xfe, 0, 7, key.len() as u8]);
    bytes.extend(key.bytes());
    bytes.extend(value);
    bytes.push(0xff);
    bytes.extend([0; 8]);
    bytes
}

/// The number of a module's type, with the version of its encoding.
pub fn type_number(type_name: &str, encoding: u64) -> u64 {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    assert_eq!(type_name.len(), 9);
    let sextet = |letter: u8| ALPHABET.iter().position(|&other| other == letter).expect("a letter") as u64;
    type_name.bytes().fold(0, |id, letter| (id << 6) | sextet(letter)) << 10 | encoding
}

fn write_value(bytes: &mut Vec<u8>, type_number: u64, fields: &[Field]) {
    write_length(bytes, type_number);
    for field in fields {
        match field {
            Uint(number) => {
                bytes.push(2);
                write_length(bytes, *number);
            }
            Double(number) => {
                bytes.push(4);
                bytes.extend(number.to_le_bytes());
            }
            Text(text) => {
                bytes.push(5);
                write_length(bytes, text.len() as u64);
                bytes.extend(text);
            }
        }
    }
    bytes.push(0);
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

/// The number of a module's type, with the version of its encoding, and the fields of a payload; `None` if they are incomplete.
pub fn fields_of_payload(payload: &[u8]) -> Option<(u64, Vec<Field>)> {
    let mut rest = payload.get(1..payload.len().checked_sub(FOOTER)?)?;
    let type_number = read_length(&mut rest)?;
    let mut fields = Vec::new();
    loop {
        fields.push(match read_length(&mut rest)? {
            0 => return rest.is_empty().then_some((type_number, fields)),
            2 => Uint(read_length(&mut rest)?),
            4 => Double(f64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?)),
            5 if rest.first() == Some(&0xc3) => {
                take(&mut rest, 1)?;
                let (packed, length) = (read_length(&mut rest)?, read_length(&mut rest)?);
                let text = unpack(take(&mut rest, usize::try_from(packed).ok()?)?)?;
                if text.len() as u64 != length {
                    return None;
                }
                Text(text)
            }
            5 => {
                let length = usize::try_from(read_length(&mut rest)?).ok()?;
                Text(take(&mut rest, length)?.to_vec())
            }
            _ => return None,
        });
    }
}

/// Removes and returns the next bytes.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn read_length(rest: &mut &[u8]) -> Option<u64> {
    let mut number = |count| Some(take(rest, count)?.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)));
    let first = number(1)?;
    match first {
        0..0x40 => Some(first),
        0x40..0x80 => Some((first & 0x3f) << 8 | number(1)?),
        0x80 => number(4),
        0x81 => number(8),
        _ => None,
    }
}

/// LZF (Marc Lehmann), with which the servers compress strings.
fn unpack(mut packed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    while let [control, rest @ ..] = packed {
        let control = usize::from(*control);
        if control < 32 {
            text.extend(rest.get(..=control)?);
            packed = &rest[control + 1..];
            continue;
        }
        let (more, rest) = if control >> 5 == 7 { (usize::from(*rest.first()?), &rest[1..]) } else { (0, rest) };
        let begin = text.len().checked_sub(((control & 31) << 8) + usize::from(*rest.first()?) + 1)?;
        for place in begin..begin + (control >> 5) + more + 2 {
            text.push(text[place]);
        }
        packed = &rest[1..];
    }
    Some(text)
}
