//! A filter of another program's layout keeps growing by that program's rules, however it was created or loaded, in the encoding of any
//! release. Models of the two layouts, written from the descriptions of their formats and without code of the module, predicted what each
//! filter becomes; `tests/data/predicted/filters.json.gz` has their predictions, and `tests/data/predicted/README.md` describes them.

use std::fs::File;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::golden::sources;
use testing::{Connection, Reply, Server, crc64, digest, dump, ok, on_every_server, records, restore, value_of};

/// One filter.
struct Case {
    name: String,
    /// The commands that create it at `k`, or the golden filter that is restored there.
    commands: Vec<Vec<Vec<u8>>>,
    golden: Option<String>,
    /// The number of added items.
    adds: usize,
    /// The prediction: see [`facts`].
    expected: Value,
}

fn cases() -> Vec<Case> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/predicted/filters.json.gz");
    let file = GzDecoder::new(File::open(file).expect("a file of the data"));
    let list: Value = serde_json::from_reader(file).expect("JSON");
    let word = |word: &Value| BASE64_STANDARD.decode(word.as_str().expect("a string")).expect("base64");
    let command = |words: &Value| words.as_array().expect("words").iter().map(word).collect();
    let case = |case: &Value| Case {
        name: case["name"].as_str().expect("a name").to_owned(),
        commands: case["commands"].as_array().into_iter().flatten().map(command).collect(),
        golden: case["golden"].as_str().map(str::to_owned),
        adds: case["adds"].as_u64().expect("a number") as usize,
        expected: case["expected"].clone(),
    };
    list.as_array().expect("a list").iter().map(case).collect()
}

/// An item to add: short and often repeated, the name of a member of the golden filters, or new.
pub fn item(number: usize) -> Vec<u8> {
    match number % 5 {
        0 => (number as u32 / 5 % 300).to_le_bytes()[..number / 5 % 3].to_vec(),
        1 => format!("item:{number}").into_bytes(),
        _ => format!("more/{number}").into_bytes(),
    }
}

/// Adds the items to `k` one by one, in MADD and in INSERT. Returns the answers: 0, 1, or 2 for a full filter, which ends the answers of a
/// command.
pub fn add(client: &mut Connection, adds: usize) -> Vec<u8> {
    let items: Vec<Vec<u8>> = (0..adds).map(item).collect();
    let answer = |reply: &Reply| match reply {
        Reply::Error(text) => {
            assert_eq!(text, "ERR non scaling filter is full");
            2
        }
        reply => u8::from(reply.truth()),
    };
    let mut answers = Vec::new();
    for (round, batch) in items.chunks(97).enumerate() {
        let head: &[&[u8]] = match round % 3 {
            0 => {
                answers.extend(batch.iter().map(|item| answer(&client.call(&[b"BF.ADD".as_slice(), b"k", item]))));
                continue;
            }
            1 => &[b"BF.MADD", b"k"],
            _ => &[b"BF.INSERT", b"k", b"NOCREATE", b"ITEMS"],
        };
        let words: Vec<&[u8]> = head.iter().copied().chain(batch.iter().map(Vec::as_slice)).collect();
        answers.extend(client.call(&words).elements().iter().map(answer));
    }
    answers
}

/// The items that are looked up: items of the golden and of the early filters, added items, and absent ones.
pub fn questions() -> Vec<String> {
    ["item:", "question/", "more/", "absent:"]
        .iter()
        .flat_map(|prefix| (0..2000).step_by(4).map(move |number| format!("{prefix}{number}")))
        .collect()
}

/// The facts about the filter at `k` that are predicted. A checksum is CRC-64, in hexadecimal.
pub fn facts(client: &mut Connection, adds: &[u8]) -> Value {
    let sum = |bytes: &[u8]| format!("{:016x}", crc64(bytes));
    let found: Vec<u8> = client.batched(&[b"BF.MEXISTS", b"k"], &questions()).into_iter().map(u8::from).collect();
    let mut facts = serde_json::json!({
        "digest": digest(client, "k").elements()[0].text(),
        "payload": sum(value_of(&dump(client, "k"))),
        "adds": sum(adds),
        "lookups": sum(&found),
    });
    if client.run("TYPE k").text() == "MBbloom--" {
        let lines: Vec<String> = client.run("BF.DEBUG k").elements().iter().map(Reply::text).collect();
        facts["debug"] = sum(lines.join("\n").as_bytes()).into();
        let records = records(client, "k").into_iter();
        let records: Vec<u8> =
            records.flat_map(|(iterator, data)| [iterator.to_le_bytes().to_vec(), data].concat()).collect();
        facts["records"] = sum(&records).into();
    }
    facts
}

#[test]
fn filters_become_what_the_models_of_their_layouts_predicted() {
    on_every_server(|program| {
        let server = Server::with(program).line("rdbcompression no").start();
        let mut client = server.connect();
        for case in cases() {
            client.run("DEL k");
            for command in &case.commands {
                assert!(!client.call(command).is_error(), "{}", case.name);
            }
            if let Some(name) = &case.golden {
                let (source, key) = name.split_once('/').expect("a source and a key");
                let source = sources().iter().find(|other| other.name == source).expect("a source");
                let golden = source.filters.iter().find(|golden| golden.key() == key).expect("a key");
                assert_eq!(restore(&mut client, "k", &golden.payloads()[0]), ok(), "{name}");
            }
            let answers = add(&mut client, case.adds);
            assert_eq!(facts(&mut client, &answers), case.expected, "{}", case.name);
        }
    });
}
