//! The server's descriptions of the commands that both modules have, which proxies, ACLs and completion in clients rely on.

use super::{Peer, Side, beside_releases};
use testing::{Connection, Reply, Server};

/// The known differences from release 8: the command, the field, our description and theirs.
///
/// Reads of a dump change nothing. CF.COMPACT writes; RedisBloom calls it a read and does not document it. CF.DEL may compact the filter, so
/// it is not fast. BF.INSERT without items creates a filter.
const KNOWN: [(&str, &str, &str, &str); 12] = [
    ("bf.info", "arguments", "key, [field]", "key, [single_value]"),
    (
        "bf.insert",
        "arguments",
        "key, [CAPACITY capacity], [ERROR error], [EXPANSION expansion], [NOCREATE], [NONSCALING], [ITEMS item...]",
        "key, [CAPACITY capacity], [ERROR error], [EXPANSION expansion], [NOCREATE], [NONSCALING], ITEMS item...",
    ),
    ("bf.scandump", "tips", "", "dont_cache"),
    ("bf.scandump", "key", "RO 1 0", "RW 1 0"),
    ("cf.compact", "arity", "2", "-1"),
    ("cf.compact", "flags", "module write", "fast module readonly"),
    ("cf.compact", "categories", "@cuckoo @write", "@cuckoo @read"),
    ("cf.compact", "since", "1.0.0", ""),
    ("cf.compact", "arguments", "key", ""),
    ("cf.del", "flags", "module write", "fast module write"),
    ("cf.scandump", "tips", "", "dont_cache"),
    ("cf.scandump", "key", "RO 1 0", "RW 1 0"),
];

fn words(reply: &Reply) -> String {
    let mut words: Vec<String> = reply.elements().iter().map(Reply::text).collect();
    words.sort();
    words.join(" ")
}

/// Returns a field of a description, if it has one.
fn field<'a>(description: &'a Reply, name: &str) -> Option<&'a Reply> {
    description.elements().chunks(2).find(|pair| pair[0].text() == name).map(|pair| &pair[1])
}

/// Returns the arguments as they are written: `[EXPANSION expansion]`, `ITEMS item...`. A token may be a field of an argument, or an argument.
fn arguments(list: &Reply) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    for argument in list.elements() {
        let text = |name| field(argument, name).map(Reply::text);
        let flags = field(argument, "flags").map(words).unwrap_or_default();
        let value = match text("type").unwrap().as_str() {
            "pure-token" => None,
            "block" => field(argument, "arguments").map(|inner| self::arguments(inner).join(" ")),
            _ => text("name"),
        };
        let words: Vec<String> = [text("token"), value].into_iter().flatten().collect();
        let words = format!("{}{}", words.join(" "), if flags.contains("multiple") { "..." } else { "" });
        match arguments.last_mut() {
            Some(token) if token == "ITEMS" => *token = format!("ITEMS {words}"),
            _ => arguments.push(if flags.contains("optional") { format!("[{words}]") } else { words }),
        }
    }
    arguments
}

/// Describes a command, field by field.
fn description(client: &mut Connection, name: &str) -> [(&'static str, String); 8] {
    let info = client.run(&format!("COMMAND INFO {name}"));
    let info = info.elements()[0].elements();
    let spec = &info[8].elements()[0];
    // Flags after the first one distinguish only how a key is written.
    let access = spec.field("flags").elements().iter().map(Reply::text).find(|flag| flag.len() == 2).unwrap();
    let index = spec.field("begin_search").field("spec").field("index").number();
    let last = spec.field("find_keys").field("spec").field("lastkey").number();
    let docs = client.run(&format!("COMMAND DOCS {name}"));
    let docs = &docs.elements()[1];
    [
        ("arity", info[1].number().to_string()),
        ("flags", words(&info[2])),
        ("keys", info[3..6].iter().map(|key| key.number().to_string()).collect::<Vec<_>>().join(" ")),
        ("categories", words(&info[6])),
        ("tips", words(&info[7])),
        ("key", format!("{access} {index} {last}")),
        ("since", field(docs, "since").map(Reply::text).unwrap_or_default()),
        ("arguments", field(docs, "arguments").map(arguments).unwrap_or_default().join(", ")),
    ]
}

fn compare(peer: &Peer) {
    let servers = Side::BOTH.map(|side| peer.start(side, &[]));
    let [mut ours, mut theirs] = servers.each_ref().map(Server::connect);
    let names = theirs.run("COMMAND LIST FILTERBY PATTERN [cb]f.*");
    let mut names: Vec<String> = names.elements().iter().map(Reply::text).collect();
    names.sort();
    let mut differences = Vec::new();
    for name in &names {
        let pairs = description(&mut ours, name).into_iter().zip(description(&mut theirs, name));
        for ((field, mut one), (_, other)) in pairs {
            if field == "arguments" {
                one = without_own_options(&one, &other);
            }
            if one != other {
                differences.push((name.clone(), field, one, other));
            }
        }
    }
    let differences: Vec<_> =
        differences.iter().map(|(name, field, one, other)| (&**name, *field, &**one, &**other)).collect();
    assert_eq!(differences, KNOWN);
}

/// Removes the options that the other module lacks.
fn without_own_options(ours: &str, theirs: &str) -> String {
    let token = |argument: &str| argument.trim_matches(['[', ']']).split(' ').next().unwrap().to_owned();
    let theirs: Vec<String> = theirs.split(", ").map(token).collect();
    let is_option = |argument: &str| argument.starts_with('[') && token(argument) == token(argument).to_uppercase();
    ours.split(", ")
        .filter(|argument| !is_option(argument) || theirs.contains(&token(argument)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Release 2.6 registers most commands without a description.
#[test]
#[ignore = "needs BLOOMGATE_PEERS"]
fn the_commands_of_release_8_are_described_alike() {
    beside_releases(|major| major >= 8, compare);
}
