//! Converts the values of rows in the log to the texts of SELECT (MariaDB's documentation, "Rows_event_v1" and "Table_map_event"; MySQL's
//! events are the same). The events contain the length of each value. The catalogue contains its meaning: whether an integer is unsigned, the
//! names of an enumeration.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;

use crate::template::Field;

/// The type of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `zeros`: the minimum number of digits, with ZEROFILL.
    Integer {
        is_unsigned: bool,
        zeros: usize,
    },
    Decimal,
    Year,
    Date,
    Time,
    DateTime,
    Timestamp,
    /// Text in UTF-8 or ASCII, or arbitrary bytes.
    Text,
    Latin1,
    /// BINARY with a length: the log omits zeros at its end.
    Binary(usize),
    Bit,
    Enum(Vec<String>),
    Set(Vec<String>),
    Inet6,
    Inet4,
    Uuid,
    /// A type that templates cannot contain.
    Other,
}

/// A column in the log: the number of its type, and two bytes that the type defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    type_code: u8,
    meta: [u8; 2],
}

/// The log's description of a table, which precedes its rows.
#[derive(Debug)]
pub struct Map {
    shapes: Vec<Shape>,
}

/// A row before and after a change.
pub type Change = (Option<Vec<Field>>, Option<Vec<Field>>);

const TRUNCATED: &str = "the log contains a malformed event";

/// Reads little-endian integers and texts from the front of a slice.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).context(TRUNCATED)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn number(&mut self, size: usize) -> Result<u64> {
        Ok(self.take(size)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    /// Returns a big-endian number.
    fn high_first(&mut self, size: usize) -> Result<u64> {
        Ok(self.take(size)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// Returns a name, which is preceded by its length and followed by a zero.
    pub fn name(&mut self) -> Result<&'a [u8]> {
        let length = self.byte()?;
        let name = self.take(length.into())?;
        self.byte()?;
        Ok(name)
    }

    pub fn length(&mut self, size: usize) -> Result<usize> {
        Ok(usize::try_from(self.number(size)?)?)
    }

    /// Returns an integer whose first byte determines its length.
    pub fn packed(&mut self) -> Result<usize> {
        let size = match self.byte()? {
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            first => return Ok(first.into()),
        };
        self.length(size)
    }
}

impl Map {
    /// Parses a table map event after the names.
    pub fn parse(input: &mut Input) -> Result<Self> {
        let count = input.packed()?;
        let types = input.take(count)?;
        let length = input.packed()?;
        let mut metas = Input(input.take(length)?);
        let shape = |type_code: &u8| {
            let meta = match type_code {
                4 | 5 | 17..=19 | 140 | 242 | 245 | 249..=252 | 255 => [metas.byte()?, 0],
                15 | 16 | 141 | 246..=248 | 253 | 254 => [metas.byte()?, metas.byte()?],
                0..=3 | 6..=14 => [0, 0],
                other => bail!("the log contains a column of the unknown type {other}"),
            };
            Ok(Shape { type_code: *type_code, meta })
        };
        let shapes = types.iter().map(shape).collect::<Result<_>>()?;
        Ok(Self { shapes })
    }

    /// Whether the number of columns is the same, and all types are compatible with the kinds.
    pub fn suits(&self, kinds: &[Kind]) -> bool {
        self.shapes.len() == kinds.len() && self.shapes.iter().zip(kinds).all(|(shape, kind)| shape.suits(kind))
    }

    /// Parses the rows of an event after its table id and flags. `needed`: the required columns; the others are NULL. Returns the reason if
    /// an image lacks one of them, or if a value does not match its type because the table was altered since.
    pub fn rows(
        &self,
        action: Action,
        input: &mut Input,
        data: impl FnOnce(&[u8]) -> Result<Vec<u8>>,
        kinds: &[Kind],
        needed: &[bool],
    ) -> Result<Result<Vec<Change>, &'static str>> {
        let count = input.packed()?;
        ensure!(count == self.shapes.len(), TRUNCATED);
        let bitmap = count.div_ceil(8);
        let first = input.take(bitmap)?;
        let second = if action == Action::Update { Some(input.take(bitmap)?) } else { None };
        let has_needed = |present: &[u8]| needed.iter().enumerate().all(|(at, needed)| !needed || has(present, at));
        if !has_needed(first) || !second.is_none_or(has_needed) {
            return Ok(Err("lack columns of the templates: a session has set binlog_row_image"));
        }
        let data = data(input.0)?;
        let (mut input, mut changes) = (Input(&data), Vec::new());
        while !input.0.is_empty() {
            let mut image = |present| self.image(&mut input, present, kinds, needed);
            let row = image(first)?;
            let (old, new) = match (action, second) {
                (Action::Insert, _) => (None, Some(row)),
                (Action::Delete, _) => (Some(row), None),
                (Action::Update, second) => (Some(row), Some(image(second.unwrap_or(first))?)),
            };
            let (Ok(old), Ok(new)) = (old.transpose(), new.transpose()) else {
                return Ok(Err("do not fit its definition"));
            };
            changes.push((old, new));
        }
        Ok(Ok(changes))
    }

    /// Reads the image of a row. The inner error is for a value that does not match its column's type.
    fn image(&self, input: &mut Input, present: &[u8], kinds: &[Kind], needed: &[bool]) -> Result<Result<Vec<Field>>> {
        let columns = || self.shapes.iter().enumerate().filter(|(at, _)| has(present, *at));
        let nulls = input.take(columns().count().div_ceil(8))?;
        let mut row = Ok(vec![Field::Null; self.shapes.len()]);
        for (place, (at, shape)) in columns().enumerate() {
            if has(nulls, place) {
                continue;
            }
            let bytes = shape.take(input)?;
            if let (Some(true), Some(kind), Ok(fields)) = (needed.get(at), kinds.get(at), &mut row) {
                match (shape.text(bytes, kind), fields.get_mut(at)) {
                    (Ok(text), Some(field)) => *field = Field::Text(text),
                    (Err(error), _) => row = Err(error),
                    (Ok(_), None) => {}
                }
            }
        }
        Ok(row)
    }
}

/// The kind of change of a row event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Insert,
    Update,
    Delete,
}

fn has(bitmap: &[u8], at: usize) -> bool {
    bitmap.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}

impl Shape {
    /// The length of CHAR, ENUM and SET is spread over both bytes, which also contain the type.
    const fn of_string(self) -> (u8, usize) {
        let [high, low] = self.meta;
        if high & 0x30 == 0x30 {
            (high, low as usize)
        } else {
            (high | 0x30, low as usize | ((high as usize & 0x30) ^ 0x30) << 4)
        }
    }

    fn suits(self, kind: &Kind) -> bool {
        match kind {
            Kind::Integer { .. } => matches!(self.type_code, 1 | 2 | 3 | 8 | 9),
            Kind::Decimal => self.type_code == 246,
            Kind::Year => self.type_code == 13,
            Kind::Date => matches!(self.type_code, 10 | 14),
            Kind::Time => self.type_code == 19,
            Kind::DateTime => self.type_code == 18,
            Kind::Timestamp => self.type_code == 17,
            Kind::Text | Kind::Latin1 => matches!(self.type_code, 15 | 249..=253) || self.of_string().0 == 254,
            Kind::Binary(_) | Kind::Inet6 | Kind::Inet4 | Kind::Uuid => self.type_code == 254,
            Kind::Bit => self.type_code == 16,
            Kind::Enum(_) => self.type_code == 254 && self.of_string().0 == 247,
            Kind::Set(_) => self.type_code == 254 && self.of_string().0 == 248,
            Kind::Other => true,
        }
    }

    /// Removes and returns the bytes of a value.
    fn take<'a>(self, input: &mut Input<'a>) -> Result<&'a [u8]> {
        let [first, second] = self.meta;
        let fraction = |whole: usize| whole + usize::from(first.div_ceil(2));
        let short = |limit: usize| if limit > 255 { 2 } else { 1 };
        let length = match self.type_code {
            6 => 0,
            1 | 13 => 1,
            2 => 2,
            9 | 10 | 14 => 3,
            3 | 4 => 4,
            5 | 8 => 8,
            17 => fraction(4),
            18 => fraction(5),
            19 => fraction(3),
            16 => usize::from(second) + usize::from(first > 0),
            246 => {
                let (precision, scale) = (usize::from(first), usize::from(second));
                decimal_size(precision.saturating_sub(scale)) + decimal_size(scale)
            }
            15 | 141 | 253 => input.length(short(usize::from(u16::from_le_bytes(self.meta))))?,
            254 => match self.of_string() {
                (247 | 248, size) => size,
                (_, limit) => input.length(short(limit))?,
            },
            140 | 242 | 245 | 249..=252 | 255 => input.length(first.into())?,
            7 | 11 | 12 => bail!(
                "a column has a temporal type in the format of MySQL 5.5 and MariaDB 5.3: convert it with ALTER TABLE ... FORCE"
            ),
            other => bail!("a column has the unknown type {other}"),
        };
        input.take(length)
    }

    /// Returns the text of a value.
    fn text(self, bytes: &[u8], kind: &Kind) -> Result<Bytes> {
        let input = &mut Input(bytes);
        Ok(match kind {
            Kind::Integer { is_unsigned, zeros } => integer(input, *is_unsigned, *zeros)?.into(),
            Kind::Decimal => decimal(bytes, self.meta)?.into(),
            Kind::Year => match input.byte()? {
                0 => "0000".into(),
                year => (1900 + u16::from(year)).to_string().into(),
            },
            Kind::Date => {
                let date = input.number(3)?;
                format!("{:04}-{:02}-{:02}", date >> 9, date >> 5 & 15, date & 31).into()
            }
            Kind::Time => time(input, self.meta[0])?.into(),
            Kind::DateTime => {
                let packed = input.high_first(5)?.checked_sub(1 << 39).context(TRUNCATED)?;
                let (day, clock) = (packed >> 17, packed & 0x1_ffff);
                let (year, month) = ((day >> 5) / 13, (day >> 5) % 13);
                let date = format!("{year:04}-{month:02}-{:02}", day & 31);
                format!("{date} {}{}", hours(clock), fraction(input, self.meta[0])?).into()
            }
            Kind::Timestamp => {
                let seconds = input.high_first(4)?;
                format!("{}{}", utc(seconds), fraction(input, self.meta[0])?).into()
            }
            Kind::Text | Kind::Bit => Bytes::copy_from_slice(bytes),
            Kind::Latin1 => bytes.iter().map(|byte| latin1(*byte)).collect::<String>().into(),
            Kind::Binary(length) => {
                let mut padded = bytes.to_vec();
                padded.resize(*length, 0);
                padded.into()
            }
            Kind::Enum(names) => match usize::try_from(input.number(bytes.len())?)? {
                0 => Bytes::new(),
                place => Bytes::copy_from_slice(names.get(place - 1).context(TRUNCATED)?.as_bytes()),
            },
            Kind::Set(names) => {
                let bits = input.number(bytes.len())?;
                let chosen = names.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                chosen.map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(",").into()
            }
            Kind::Inet6 => inet6(array(bytes)).into(),
            Kind::Inet4 => Ipv4Addr::from(array::<4>(bytes)).to_string().into(),
            Kind::Uuid => uuid(&array::<16>(bytes)).into(),
            Kind::Other => bail!("a template contains a column of a type that has no text"),
        })
    }
}

/// The log omits zeros at the end.
fn array<const SIZE: usize>(bytes: &[u8]) -> [u8; SIZE] {
    let mut all = [0; SIZE];
    all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    all
}

fn integer(input: &mut Input, is_unsigned: bool, zeros: usize) -> Result<String> {
    let bits = 64 - 8 * u32::try_from(input.0.len())?;
    let value = input.number(input.0.len())?;
    let signed = (value << bits).cast_signed() >> bits;
    Ok(if is_unsigned { format!("{value:0zeros$}") } else { signed.to_string() })
}

/// The bytes for each number of digits below nine. Nine digits have four.
const DECIMAL_SIZES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

fn decimal_size(digits: usize) -> usize {
    digits / 9 * 4 + DECIMAL_SIZES.get(digits % 9).copied().unwrap_or_default()
}

/// DECIMAL: groups of nine digits from the point on, big-endian, with the highest bit inverted, and every bit of a negative number.
fn decimal(bytes: &[u8], [precision, scale]: [u8; 2]) -> Result<String> {
    let is_negative = bytes.first().context(TRUNCATED)? & 0x80 == 0;
    let mut bytes: Vec<_> = bytes.iter().map(|byte| if is_negative { !byte } else { *byte }).collect();
    if let Some(first) = bytes.first_mut() {
        *first ^= 0x80;
    }
    let input = &mut Input(&bytes);
    let mut group = |text: &mut String, digits: usize| -> Result<()> {
        let number = input.high_first(decimal_size(digits))?;
        if digits > 0 {
            write!(text, "{number:0digits$}")?;
        }
        Ok(())
    };
    let (whole, scale) = (usize::from(precision.saturating_sub(scale)), usize::from(scale));
    let mut digits = String::new();
    group(&mut digits, whole % 9)?;
    (0..whole / 9).try_for_each(|_| group(&mut digits, 9))?;
    let mut after = String::new();
    (0..scale / 9).try_for_each(|_| group(&mut after, 9))?;
    group(&mut after, scale % 9)?;
    let before = digits.trim_start_matches('0');
    let before = if before.is_empty() { "0" } else { before };
    let sign = if is_negative { "-" } else { "" };
    let point = if scale > 0 { "." } else { "" };
    Ok(format!("{sign}{before}{point}{after}"))
}

/// Returns the decimal point and the digits after it.
fn fraction(input: &mut Input, digits: u8) -> Result<String> {
    let (digits, size) = (usize::from(digits), usize::from(digits.div_ceil(2)));
    let number = input.high_first(size)?;
    Ok(fraction_text(number, digits))
}

fn fraction_text(number: u64, digits: usize) -> String {
    // Each byte has two digits.
    let stored = digits.next_multiple_of(2);
    let text = format!("{number:0stored$}");
    if digits == 0 { String::new() } else { format!(".{}", text.get(..digits).unwrap_or(&text)) }
}

fn hours(clock: u64) -> String {
    format!("{:02}:{:02}:{:02}", clock >> 12, clock >> 6 & 63, clock & 63)
}

/// TIME: three bytes and a fraction, as one number with an offset, so that negative times come first.
fn time(input: &mut Input, digits: u8) -> Result<String> {
    let size = usize::from(digits.div_ceil(2));
    let bits = 8 * size;
    let (all, zero) = (input.high_first(3 + size)?, 1_u64 << (23 + bits));
    let (sign, distance) = if all < zero { ("-", zero - all) } else { ("", all - zero) };
    let fraction = fraction_text(distance & ((1 << bits) - 1), digits.into());
    Ok(format!("{sign}{}{fraction}", hours(distance >> bits)))
}

/// Returns the date and the time of day of a number of seconds since 1970, in UTC.
fn utc(seconds: u64) -> String {
    if seconds == 0 {
        return "0000-00-00 00:00:00".to_owned();
    }
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// MariaDB's latin1 is Windows-1252, with control characters in its unassigned positions.
fn latin1(byte: u8) -> char {
    const HIGH: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘',
        '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
    ];
    byte.checked_sub(0x80).and_then(|at| HIGH.get(usize::from(at)).copied()).unwrap_or(char::from(byte))
}

/// Returns MariaDB's text of an address. It replaces the first of the longest runs of zeros by `::`, even a single zero, and writes the
/// last four bytes in IPv4 notation after six groups of zeros, or after five and `ffff`.
fn inet6(bytes: [u8; 16]) -> String {
    let groups = Ipv6Addr::from(bytes).segments();
    let zeros = |start: usize| groups.iter().skip(start).take_while(|group| **group == 0).count();
    let (start, length) =
        (0..8).map(|start| (start, zeros(start))).rev().max_by_key(|(_, length)| *length).unwrap_or_default();
    let [.., a, b, c, d] = bytes;
    match (start, length, groups) {
        (0, 6, _) => format!("::{}", Ipv4Addr::new(a, b, c, d)),
        (0, 5, [.., 0xffff, _, _]) => format!("::ffff:{}", Ipv4Addr::new(a, b, c, d)),
        _ => {
            let text = |groups: &mut dyn Iterator<Item = &u16>| {
                groups.map(|group| format!("{group:x}")).collect::<Vec<_>>().join(":")
            };
            let (before, after) = (text(&mut groups.iter().take(start)), text(&mut groups.iter().skip(start + length)));
            if length == 0 { after } else { format!("{before}::{after}") }
        }
    }
}

/// Returns the text of a UUID with these 16 bytes.
pub fn uuid(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        text += if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
        text += &format!("{byte:02x}");
    }
    text
}
