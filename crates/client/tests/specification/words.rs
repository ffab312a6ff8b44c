//! The JSON of the cases: items, the words of commands, and replies. clients/specification/README.md has the format.

use std::hash::{DefaultHasher, Hash, Hasher};

use bloomgate_client::Item as _;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::failure::Failure;

/// An item of a case, as a type that the crate has.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Item {
    Text(String),
    Integer(i64),
    Named(NamedItem),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedItem {
    Hex(String),
    Integer(String),
    /// A value that no Rust program can pass, because it does not compile.
    #[serde(rename = "boolean", alias = "float", alias = "null", alias = "surrogate")]
    Impossible(IgnoredAny),
}

impl Item {
    /// Returns the bytes of an item, by the implementation of its type.
    pub fn bytes(&self) -> Result<Vec<u8>, Failure> {
        Ok(match self {
            Self::Text(text) => text.item_bytes().into_owned(),
            Self::Integer(number) => number.item_bytes().into_owned(),
            Self::Named(NamedItem::Hex(digits)) => from_hex(digits)?.item_bytes().into_owned(),
            Self::Named(NamedItem::Integer(digits)) => {
                let number: i128 = digits.parse().map_err(|error| format!("{digits}: {error}"))?;
                number.item_bytes().into_owned()
            }
            Self::Named(NamedItem::Impossible(_)) => return Err(Failure::refused()),
        })
    }
}

/// Items. A case may give a string instead of a list, which this client refuses to compile.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Items {
    #[allow(dead_code, reason = "only its type is looked at")]
    Text(String),
    List(Vec<Item>),
    Inner {
        items: Box<Items>,
    },
    Numbers {
        numbers: [i64; 2],
    },
    Filled {
        filled: usize,
        times: usize,
    },
}

impl Items {
    pub fn list(&self) -> Result<Vec<Item>, Failure> {
        match self {
            Self::Text(_) => Err(Failure::refused()),
            Self::List(items) => Ok(items.clone()),
            Self::Inner { items } => items.list(),
            Self::Numbers { numbers: [first, end] } => Ok((*first..*end).map(Item::Integer).collect()),
            Self::Filled { filled, times } => Ok(vec![Item::Text("a".repeat(*filled)); *times]),
        }
    }

    pub fn bytes(&self) -> Result<Vec<Vec<u8>>, Failure> {
        self.list()?.iter().map(Item::bytes).collect()
    }
}

/// Returns 32 hexadecimal digits.
fn token(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("{:032x}", hasher.finish())
}

fn from_hex(digits: &str) -> Result<Vec<u8>, String> {
    let byte = |pair| u8::from_str_radix(pair, 16).map_err(|error| format!("{digits}: {error}"));
    (0..digits.len()).step_by(2).map(|at| byte(digits.get(at..at + 2).unwrap_or_default())).collect()
}

pub fn hex(bytes: &[u8]) -> Value {
    json!({"hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()})
}

/// Returns bytes as text, or in hexadecimal digits.
pub fn plain(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| hex(bytes), Value::from)
}

/// A word of an expected command, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Word {
    Text(String),
    Hex { hex: String },
    Token { token: String },
    Between { from: i64, to: i64 },
    Items { items: Items },
    Pairs { pairs: Items, prefix: String },
}

/// What a word of a command must be.
enum Wanted {
    Bytes(Vec<u8>),
    Between(i64, i64),
}

impl Word {
    /// Returns the words that this one stands for.
    fn expanded(&self) -> Result<Vec<Wanted>, Failure> {
        Ok(match self {
            Self::Text(text) => vec![Wanted::Bytes(text.clone().into_bytes())],
            Self::Hex { hex } => vec![Wanted::Bytes(from_hex(hex)?)],
            Self::Token { token: name } => vec![Wanted::Bytes(token(name).into_bytes())],
            Self::Between { from, to } => vec![Wanted::Between(*from, *to)],
            Self::Items { items } => items.bytes()?.into_iter().map(Wanted::Bytes).collect(),
            Self::Pairs { pairs, prefix } => {
                let pair = |item: Vec<u8>| [item.clone(), [prefix.as_bytes(), &item].concat()];
                pairs.bytes()?.into_iter().flat_map(pair).map(Wanted::Bytes).collect()
            }
        })
    }
}

/// Whether a command is the expected one.
pub fn command_matches(expected: &[Word], words: &[Vec<u8>]) -> Result<bool, String> {
    let mut all = Vec::new();
    for word in expected {
        all.extend(word.expanded().map_err(|failure| format!("{failure:?}"))?);
    }
    let (Some(Wanted::Bytes(name)), Some(sent)) = (all.first(), words.first()) else { return Ok(false) };
    let matches = |(wanted, word): (&Wanted, &Vec<u8>)| match wanted {
        Wanted::Bytes(bytes) => bytes == word,
        Wanted::Between(least, most) => {
            let number: Option<i64> = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
            number.is_some_and(|number| (*least..=*most).contains(&number))
        }
    };
    Ok(all.len() == words.len() && name.eq_ignore_ascii_case(sent) && all.iter().zip(words).skip(1).all(matches))
}

/// A reply of the scripted server.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Reply {
    Null,
    Bool(bool),
    Integer(i64),
    Text(String),
    List(Vec<Reply>),
    Repeat { repeat: Box<Reply>, times: usize },
    Named(NamedReply),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedReply {
    Hex(String),
    Token(String),
    Ok(String),
    Error(String),
    Wire(String),
    /// The server closes the connection.
    Close(IgnoredAny),
}

impl Reply {
    /// Returns the bytes of a reply on a connection that speaks the protocol; nothing closes it.
    pub fn encode(&self, protocol: u8) -> Result<Option<Vec<u8>>, String> {
        let bulk = |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        Ok(Some(match (self, protocol) {
            (Self::Null, 2) => b"$-1\r\n".to_vec(),
            (Self::Null, _) => b"_\r\n".to_vec(),
            (Self::Bool(value), 2) => format!(":{}\r\n", u8::from(*value)).into_bytes(),
            (Self::Bool(value), _) => format!("#{}\r\n", if *value { 't' } else { 'f' }).into_bytes(),
            (Self::Integer(number), _) => format!(":{number}\r\n").into_bytes(),
            (Self::Text(text), _) => bulk(text.as_bytes()),
            (Self::List(list), _) => {
                let mut bytes = format!("*{}\r\n", list.len()).into_bytes();
                for one in list {
                    bytes.extend(one.encode(protocol)?.unwrap_or_default());
                }
                bytes
            }
            (Self::Repeat { repeat, times }, _) => {
                return Self::List(vec![Self::clone(repeat); *times]).encode(protocol);
            }
            (Self::Named(named), _) => match named {
                NamedReply::Hex(digits) => bulk(&from_hex(digits)?),
                NamedReply::Token(name) => bulk(token(name).as_bytes()),
                NamedReply::Ok(text) => format!("+{text}\r\n").into_bytes(),
                NamedReply::Error(text) => format!("-{text}\r\n").into_bytes(),
                NamedReply::Wire(text) => text.chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect(),
                NamedReply::Close(_) => return Ok(None),
            },
        }))
    }
}

/// Compares a result with the one that a case expects. Floating-point numbers are compared with a tolerance.
pub fn equal(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Object(members), Value::Array(elements)) => {
            let (repeat, times) = (members.get("repeat"), members.get("times").and_then(Value::as_u64));
            times == Some(elements.len() as u64)
                && repeat.is_some_and(|one| elements.iter().all(|element| equal(one, element)))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let same = |(name, value)| right.get(name).is_some_and(|found| equal(value, found));
            left.len() == right.len() && left.iter().all(same)
        }
        (Value::Number(left), Value::Number(right)) if left.is_f64() || right.is_f64() => {
            let (left, right) = (left.as_f64().unwrap(), right.as_f64().unwrap());
            (left - right).abs() <= 1e-9 * left.abs().max(right.abs())
        }
        _ => expected == found,
    }
}
