//! The JSON of the cases: items, the words of commands, and replies.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::json::Json;

/// An item of a case, as a type that the crate has.
#[derive(Clone, Debug)]
pub enum Item {
    Bytes(Vec<u8>),
    Text(String),
    Integer(i128),
    /// A value that no Rust program can pass, because it does not compile.
    Impossible,
}

const MEMBERS: [&str; 9] = ["name", "servers", "needs", "client", "filter", "guard", "sharded", "setup", "steps"];
const NEEDS: [&str; 8] = ["cancel", "turns", "timeout", "pool", "share", "pause", "resp2", "resp3"];
const SERVERS: [&str; 3] = ["scripted", "real", "cluster"];

/// Fails if a name is not allowed.
pub fn known<'a>(what: &str, names: impl IntoIterator<Item = &'a str>, allowed: &[&str]) -> Result<(), String> {
    match names.into_iter().find(|name| !allowed.contains(name)) {
        Some(name) => Err(format!("{what}: unknown: {name}")),
        None => Ok(()),
    }
}

/// Returns the texts of a list.
pub fn texts(list: Option<&Json>) -> Vec<&str> {
    list.and_then(Json::list).unwrap_or_default().iter().filter_map(Json::text).collect()
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/specification")
}

/// Reads the cases of a file.
pub fn read_cases(file: &str) -> Result<Vec<Json>, String> {
    let text = fs::read_to_string(folder().join(file)).map_err(|error| format!("{file}: {error}"))?;
    // No text of Rust has an unpaired surrogate, so it cannot be passed as an item. serde_json refuses it.
    let text = text.replace(r#""\ud800""#, r#"{"surrogate": true}"#);
    let content: Json = serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
    known(file, content.names(), &["about", "cases"])?;
    let cases = content.get("cases").and_then(Json::list).ok_or("no cases")?;
    for case in cases {
        let name = case.get("name").and_then(Json::text).ok_or("a case without a name")?;
        known(name, case.names(), &MEMBERS)?;
        known(name, texts(case.get("needs")), &NEEDS)?;
        known(name, texts(case.get("servers")), &SERVERS)?;
    }
    Ok(cases.to_vec())
}

/// Returns 32 hexadecimal digits.
fn token(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("{:032x}", hasher.finish())
}

fn from_hex(digits: &str) -> Result<Vec<u8>, String> {
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| {
            let pair = std::str::from_utf8(pair).map_err(|error| error.to_string())?;
            u8::from_str_radix(pair, 16).map_err(|error| format!("{digits}: {error}"))
        })
        .collect()
}

pub fn hex(bytes: &[u8]) -> Json {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Json::object([("hex", Json::Text(digits))])
}

/// Returns bytes as text, or in hexadecimal digits.
pub fn plain(bytes: &[u8]) -> Json {
    std::str::from_utf8(bytes).map_or_else(|_| hex(bytes), Json::from)
}

/// Returns an item or an id.
pub fn item(json: &Json) -> Result<Item, String> {
    match json {
        Json::Text(text) => Ok(Item::Text(text.clone())),
        Json::Integer(number) => Ok(Item::Integer(i128::from(*number))),
        Json::Object(members) => match members.as_slice() {
            [(name, Json::Text(digits))] if name == "hex" => from_hex(digits).map(Item::Bytes),
            [(name, Json::Text(digits))] if name == "integer" => {
                digits.parse().map(Item::Integer).map_err(|error| format!("{digits}: {error}"))
            }
            [(name, _)] if ["boolean", "float", "null", "surrogate"].contains(&name.as_str()) => Ok(Item::Impossible),
            _ => Err(format!("unknown item {json:?}")),
        },
        _ => Err(format!("unknown item {json:?}")),
    }
}

/// Returns items. A text in their place is no list, which the compiler refuses.
pub fn items(json: &Json) -> Result<Vec<Item>, String> {
    match json {
        Json::Text(_) => Ok(vec![Item::Impossible]),
        Json::List(list) => list.iter().map(item).collect(),
        Json::Object(members) => match members.as_slice() {
            [(name, items)] if name == "items" => generated(items),
            _ => Err(format!("unknown items {json:?}")),
        },
        _ => Err(format!("unknown items {json:?}")),
    }
}

/// Returns items that a case describes.
fn generated(json: &Json) -> Result<Vec<Item>, String> {
    if let (["numbers"], Some([Json::Integer(first), Json::Integer(end)])) =
        (json.names().as_slice(), json.get("numbers").and_then(Json::list))
    {
        return Ok((*first..*end).map(|number| Item::Integer(i128::from(number))).collect());
    }
    let (size, times) = (json.get("filled").and_then(Json::integer), json.get("times").and_then(Json::integer));
    if let (["filled", "times"], Some(size), Some(times)) = (json.names().as_slice(), size, times) {
        let text = "a".repeat(usize::try_from(size).map_err(|error| error.to_string())?);
        return Ok((0..times).map(|_| Item::Text(text.clone())).collect());
    }
    items(json)
}

/// Returns the bytes of an item, as a server gets them.
pub fn sent(item: &Item) -> Result<Vec<u8>, String> {
    match item {
        Item::Bytes(bytes) => Ok(bytes.clone()),
        Item::Text(text) => Ok(text.clone().into_bytes()),
        Item::Integer(number) => Ok(number.to_string().into_bytes()),
        Item::Impossible => Err("an expected command has a word that is no item".to_owned()),
    }
}

/// A word of an expected command.
enum Word {
    Bytes(Vec<u8>),
    Between(i64, i64),
}

impl Word {
    fn matches(&self, word: &[u8]) -> bool {
        match self {
            Self::Bytes(bytes) => bytes == word,
            Self::Between(least, most) => {
                let number: Option<i64> = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
                number.is_some_and(|number| (*least..=*most).contains(&number))
            }
        }
    }
}

/// Appends the words that a word of an expected command stands for.
fn expand(json: &Json, words: &mut Vec<Word>) -> Result<(), String> {
    let unknown = || format!("unknown word {json:?}");
    if let Json::Text(text) = json {
        words.push(Word::Bytes(text.clone().into_bytes()));
        return Ok(());
    }
    match json.names().as_slice() {
        ["hex"] => words.push(Word::Bytes(from_hex(json.get("hex").and_then(Json::text).ok_or_else(unknown)?)?)),
        ["token"] => {
            words.push(Word::Bytes(token(json.get("token").and_then(Json::text).ok_or_else(unknown)?).into_bytes()));
        }
        ["from", "to"] => {
            let ends = (json.get("from").and_then(Json::integer), json.get("to").and_then(Json::integer));
            let (Some(least), Some(most)) = ends else { return Err(unknown()) };
            words.push(Word::Between(least, most));
        }
        ["items"] => {
            for item in items(json)? {
                words.push(Word::Bytes(sent(&item)?));
            }
        }
        ["pairs", "prefix"] => {
            let prefix = json.get("prefix").and_then(Json::text).ok_or_else(unknown)?;
            for item in generated(json.get("pairs").ok_or_else(unknown)?)? {
                let item = sent(&item)?;
                words.push(Word::Bytes(item.clone()));
                words.push(Word::Bytes([prefix.as_bytes(), &item].concat()));
            }
        }
        _ => return Err(unknown()),
    }
    Ok(())
}

/// Whether a command is the expected one.
pub fn command_matches(expected: &Json, words: &[Vec<u8>]) -> Result<bool, String> {
    let mut all = Vec::new();
    for word in expected.list().ok_or_else(|| format!("unknown command {expected:?}"))? {
        expand(word, &mut all)?;
    }
    let (Some(Word::Bytes(name)), Some(sent)) = (all.first(), words.first()) else { return Ok(false) };
    let rest = || all.iter().zip(words).skip(1).all(|(expected, word)| expected.matches(word));
    Ok(all.len() == words.len() && name.eq_ignore_ascii_case(sent) && rest())
}

/// Returns the bytes of a reply on a connection that speaks the protocol.
pub fn encode(reply: &Json, protocol: u8) -> Result<Vec<u8>, String> {
    let bulk = |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    Ok(match (reply, protocol) {
        (Json::Null, 2) => b"$-1\r\n".to_vec(),
        (Json::Null, _) => b"_\r\n".to_vec(),
        (Json::Bool(value), 2) => format!(":{}\r\n", u8::from(*value)).into_bytes(),
        (Json::Bool(value), _) => format!("#{}\r\n", if *value { 't' } else { 'f' }).into_bytes(),
        (Json::Integer(number), _) => format!(":{number}\r\n").into_bytes(),
        (Json::Text(text), _) => bulk(text.as_bytes()),
        (Json::List(list), _) => {
            let mut bytes = format!("*{}\r\n", list.len()).into_bytes();
            for one in list {
                bytes.extend(encode(one, protocol)?);
            }
            bytes
        }
        (Json::Object(members), _) => match members.as_slice() {
            [(name, Json::Text(text))] => match name.as_str() {
                "hex" => bulk(&from_hex(text)?),
                "token" => bulk(token(text).as_bytes()),
                "ok" => format!("+{text}\r\n").into_bytes(),
                "error" => format!("-{text}\r\n").into_bytes(),
                "wire" => text.chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect(),
                _ => return Err(format!("unknown reply {reply:?}")),
            },
            [(name, one), (times, Json::Integer(count))] if name == "repeat" && times == "times" => {
                encode(&Json::List((0..*count).map(|_| one.clone()).collect()), protocol)?
            }
            _ => return Err(format!("unknown reply {reply:?}")),
        },
        (Json::Float(_), _) => return Err(format!("unknown reply {reply:?}")),
    })
}
