//! The commands and their arguments.

use std::rc::Rc;

use super::filter::{Filter, Item};
use super::guard::{Asking, Filling, UNLESS_KEY, WHILE_KEY};
use super::model::{Model, Slot};
use super::records::Row;
use super::shapes::{Layout, Shape};

/// The arguments of a command.
pub type Words = Vec<Vec<u8>>;

/// A DUMP payload and the filter it was made from.
pub type Payload = Rc<(Vec<u8>, Filter)>;

/// The command with which items are added.
#[derive(Clone, Copy)]
pub enum How {
    One,
    Many,
    /// BF.INSERT, which creates a missing filter of this shape.
    Insert(&'static Shape),
    /// BF.INSERT with SYNC, which never creates a filter.
    Sync,
}

/// A command. Keys are represented by numbers.
#[derive(Clone)]
pub enum Op {
    Add {
        key: usize,
        items: Vec<Item>,
        how: How,
    },
    Remove {
        key: usize,
        items: Vec<Item>,
        one: bool,
    },
    Ask {
        key: usize,
        items: Vec<Item>,
        one: bool,
    },
    Count {
        key: usize,
        item: Item,
    },
    /// BF.CARD, BF.INFO, BF.STATS or BF.DEBUG.
    Look {
        key: usize,
        command: &'static str,
    },
    Plan {
        shape: &'static Shape,
    },
    Reserve {
        key: usize,
        shape: &'static Shape,
        expires: bool,
    },
    Rotate {
        key: usize,
    },
    Clear {
        key: usize,
    },
    Merge {
        to: usize,
        from: Vec<usize>,
    },
    /// DEL or UNLINK.
    Delete {
        key: usize,
        command: &'static str,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Copy {
        from: usize,
        to: usize,
    },
    Persist {
        key: usize,
        expires: bool,
    },
    Dump {
        key: usize,
    },
    Restore {
        to: usize,
        payload: Payload,
    },
    LoadChunk {
        to: usize,
    },
    /// BF.CHANGED with `one`, or BF.MCHANGED.
    Changed {
        key: usize,
        items: Vec<Item>,
        one: bool,
    },
    /// BF.FETCH with `one`, or BF.MFETCH.
    Fetch {
        key: usize,
        items: Vec<Item>,
        one: bool,
        asking: Asking,
    },
    Fill {
        row: Row,
        token: String,
        filling: Filling,
    },
    /// SET or DEL of a cache key.
    Overwrite {
        row: Row,
        value: Option<u64>,
    },
    /// SET or DEL of the key of WHILE.
    Beat {
        begins: bool,
    },
    /// HSET or HDEL of a row, or of all rows, in the hash of UNLESS.
    Write {
        row: Option<Row>,
        begins: bool,
    },
}

/// Returns the name of a key. One is empty, one is not text.
pub fn key_name(key: usize) -> Vec<u8> {
    match key {
        0 => Vec::new(),
        1 => b"\0\xff\r\n".to_vec(),
        _ => format!("filter:{key}").into_bytes(),
    }
}

/// Returns the bytes of an item.
pub fn item_name(item: Item) -> Vec<u8> {
    format!("item:{item}").into_bytes()
}

/// Returns the cache key of an item.
pub fn cache_key(key: usize, item: Item) -> Vec<u8> {
    format!("cache:{key}:{item}").into_bytes()
}

/// Splits a text at spaces into arguments.
pub fn words(text: &str) -> Words {
    text.split(' ').filter(|word| !word.is_empty()).map(|word| word.as_bytes().to_vec()).collect()
}

fn of_key(command: &str, key: usize, rest: impl IntoIterator<Item = Vec<u8>>) -> Words {
    [command.as_bytes().to_vec(), key_name(key)].into_iter().chain(rest).collect()
}

/// Returns each item with its cache key.
fn pairs(key: usize, items: &[Item]) -> Words {
    items.iter().flat_map(|&item| [item_name(item), cache_key(key, item)]).collect()
}

impl Op {
    /// Returns the arguments.
    pub fn words(&self, model: &Model) -> Words {
        let names = |items: &[Item]| items.iter().map(|&item| item_name(item)).collect::<Vec<_>>();
        match self {
            Self::Add { key, items, how: How::One } => of_key("BF.ADD", *key, names(items)),
            Self::Add { key, items, how: How::Many } => of_key("BF.MADD", *key, names(items)),
            Self::Add { key, items, how: How::Insert(shape) } => {
                let options = format!("ERROR {} CAPACITY {} {} ITEMS", shape.rate, shape.capacity, shape.words);
                of_key("BF.INSERT", *key, words(&options).into_iter().chain(names(items)))
            }
            Self::Add { key, items, how: How::Sync } => {
                of_key("BF.INSERT", *key, words("NOCREATE SYNC ITEMS").into_iter().chain(names(items)))
            }
            Self::Remove { key, items, one } => of_key(if *one { "BF.DEL" } else { "BF.MDEL" }, *key, names(items)),
            Self::Ask { key, items, one } => of_key(if *one { "BF.EXISTS" } else { "BF.MEXISTS" }, *key, names(items)),
            Self::Count { key, item } => of_key("BF.COUNT", *key, [item_name(*item)]),
            Self::Look { key, command } | Self::Delete { key, command } => of_key(command, *key, []),
            Self::Plan { shape } => words(&format!("BF.PLAN {} {} {}", shape.rate, shape.capacity, shape.words)),
            Self::Reserve { key, shape, expires } => {
                let expires = if *expires { " EX 1000000" } else { "" };
                match shape.layout {
                    Layout::ValkeyBloom => {
                        let Shape { rate, capacity, words: rest, .. } = shape;
                        of_key("BF.INSERT", *key, words(&format!("ERROR {rate} CAPACITY {capacity} {rest}{expires}")))
                    }
                    _ => {
                        let options = format!("{} {} {}{expires}", shape.rate, shape.capacity, shape.words);
                        of_key("BF.RESERVE", *key, words(&options))
                    }
                }
            }
            Self::Rotate { key } => of_key("BF.ROTATE", *key, []),
            Self::Clear { key } => of_key("BF.CLEAR", *key, []),
            Self::Merge { to, from } => of_key("BF.MERGE", *to, from.iter().map(|&key| key_name(key))),
            Self::Rename { from, to } => of_key("RENAME", *from, [key_name(*to)]),
            Self::Copy { from, to } => of_key("COPY", *from, [key_name(*to), b"REPLACE".to_vec()]),
            Self::Persist { key, expires: false } => of_key("PERSIST", *key, []),
            Self::Persist { key, expires: true } => of_key("EXPIRE", *key, [b"1000000".to_vec()]),
            Self::Dump { key } => of_key("DUMP", *key, []),
            Self::Restore { to, payload } => {
                of_key("RESTORE", *to, [b"0".to_vec(), payload.0.clone(), b"REPLACE".to_vec()])
            }
            Self::LoadChunk { to } => match &model.slots[*to] {
                Slot::Arriving(arrival) => {
                    let (iterator, data) = &arrival.records[arrival.next];
                    of_key("BF.LOADCHUNK", *to, [iterator.to_string().into_bytes(), data.clone()])
                }
                _ => panic!("nothing arrives at key {to}"),
            },
            Self::Changed { key, items, one: true } => of_key("BF.CHANGED", *key, pairs(*key, items)),
            Self::Changed { key, items, one: false } => {
                of_key("BF.MCHANGED", *key, words("ITEMS").into_iter().chain(pairs(*key, items)))
            }
            Self::Fetch { key, items, one: true, asking } => {
                of_key("BF.FETCH", *key, pairs(*key, items).into_iter().chain(asking.words()))
            }
            Self::Fetch { key, items, one: false, asking } => {
                let options = asking.words().into_iter().chain(words("ITEMS"));
                of_key("BF.MFETCH", *key, options.chain(pairs(*key, items)))
            }
            Self::Fill { row: (key, item), token, filling } => {
                let rest = words(token).into_iter().chain(filling.words());
                of_key("BF.FILL", *key, pairs(*key, &[*item]).into_iter().chain(rest))
            }
            Self::Overwrite { row: (key, item), value } => {
                let line = value.map_or(words("DEL"), |_| words("SET"));
                let value = value.map(|value| value.to_string().into_bytes());
                line.into_iter().chain([cache_key(*key, *item)]).chain(value).collect()
            }
            Self::Beat { begins: true } => words(&format!("SET {WHILE_KEY} 1")),
            Self::Beat { begins: false } => words(&format!("DEL {WHILE_KEY}")),
            Self::Write { row, begins } => {
                let field = row.map_or(b"*".to_vec(), |(key, item)| cache_key(key, item));
                let value = begins.then(|| b"1".to_vec());
                let command = if *begins { "HSET" } else { "HDEL" };
                words(&format!("{command} {UNLESS_KEY}")).into_iter().chain([field]).chain(value).collect()
            }
        }
    }

    /// Returns the keys whose whole filter the command changes or replaces.
    pub fn replaced(&self) -> Vec<usize> {
        match self {
            Self::Reserve { key, .. } | Self::Clear { key } | Self::Delete { key, .. } => vec![*key],
            Self::Merge { to, .. } | Self::Copy { to, .. } | Self::Restore { to, .. } | Self::LoadChunk { to } => {
                vec![*to]
            }
            Self::Rename { from, to } => vec![*from, *to],
            _ => Vec::new(),
        }
    }

    /// Returns the keys that the command names.
    pub fn keys(&self) -> Vec<usize> {
        match self {
            Self::Add { key, .. }
            | Self::Remove { key, .. }
            | Self::Ask { key, .. }
            | Self::Count { key, .. }
            | Self::Look { key, .. }
            | Self::Rotate { key }
            | Self::Persist { key, .. }
            | Self::Dump { key }
            | Self::Changed { key, .. }
            | Self::Fetch { key, .. } => vec![*key],
            Self::Fill { row, .. } => vec![row.0],
            Self::Merge { to, from } => [&[*to], from.as_slice()].concat(),
            Self::Copy { from, to } => vec![*from, *to],
            _ => self.replaced(),
        }
    }
}
