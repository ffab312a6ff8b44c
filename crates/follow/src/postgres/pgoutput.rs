//! Parses the messages of PostgreSQL's output plugin `pgoutput`, protocol version 1: PostgreSQL's manual, "Logical Replication
//! Message Formats".

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, Bytes};

use crate::engine::position::Place;
use crate::template::Field;

/// A message of the stream.
#[derive(Debug, PartialEq)]
pub enum Message {
    /// `time`: the time of the commit.
    Begin {
        xid: u32,
        time: u64,
    },
    Commit {
        end: Place,
    },
    Relation(Relation),
    Insert {
        relation: u32,
        new: Vec<Field>,
    },
    /// `old`: the replica identity before the update, if it has changed or is the whole row.
    Update {
        relation: u32,
        old: Option<Vec<Field>>,
        new: Vec<Field>,
    },
    Delete {
        relation: u32,
        old: Vec<Field>,
    },
    Truncate {
        relations: Vec<u32>,
    },
    /// Origins, types, and messages of applications.
    Other,
}

/// The stream's description of a table, sent before its first row, and again after each change of its definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Relation {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    pub columns: Vec<Column>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    pub type_oid: u32,
    /// Whether it belongs to the replica identity.
    pub is_identity: bool,
}

pub fn parse(mut bytes: Bytes) -> Result<Message> {
    let input = &mut bytes;
    Ok(match byte(input)? {
        b'B' => {
            _ = long(input)?;
            Message::Begin { time: long(input)?, xid: int(input)? }
        }
        b'C' => {
            _ = (byte(input)?, long(input)?);
            Message::Commit { end: Place(long(input)?) }
        }
        b'R' => Message::Relation(relation(input)?),
        b'I' => {
            let relation = int(input)?;
            ensure!(byte(input)? == b'N', MALFORMED);
            Message::Insert { relation, new: row(input)? }
        }
        b'U' => {
            let relation = int(input)?;
            let (old, next) = match byte(input)? {
                b'K' | b'O' => (Some(row(input)?), byte(input)?),
                next => (None, next),
            };
            ensure!(next == b'N', MALFORMED);
            Message::Update { relation, old, new: row(input)? }
        }
        b'D' => {
            let relation = int(input)?;
            ensure!(matches!(byte(input)?, b'K' | b'O'), MALFORMED);
            Message::Delete { relation, old: row(input)? }
        }
        b'T' => {
            let count = int(input)?;
            _ = byte(input)?;
            let relations = (0..count).map(|_| int(input)).collect::<Result<_>>()?;
            Message::Truncate { relations }
        }
        b'O' | b'Y' | b'M' => Message::Other,
        other => bail!("PostgreSQL's stream contains a message of the unknown kind {:?}", char::from(other)),
    })
}

const MALFORMED: &str = "PostgreSQL's stream contains a malformed message";

fn relation(input: &mut Bytes) -> Result<Relation> {
    let (oid, schema, name) = (int(input)?, string(input)?, string(input)?);
    _ = byte(input)?;
    let columns = (0..short(input)?)
        .map(|_| {
            let is_identity = byte(input)? & 1 != 0;
            let (name, type_oid) = (string(input)?, int(input)?);
            _ = int(input)?;
            Ok(Column { name, type_oid, is_identity })
        })
        .collect::<Result<_>>()?;
    // The stream omits the schema of the system's own tables.
    let schema = if schema.is_empty() { "pg_catalog".to_owned() } else { schema };
    Ok(Relation { oid, schema, name, columns })
}

fn row(input: &mut Bytes) -> Result<Vec<Field>> {
    (0..short(input)?)
        .map(|_| match byte(input)? {
            b'n' => Ok(Field::Null),
            b'u' => Ok(Field::Unchanged),
            b't' => {
                let length = usize::try_from(int(input)?)?;
                ensure!(input.len() >= length, MALFORMED);
                Ok(Field::Text(input.split_to(length)))
            }
            _ => bail!(MALFORMED),
        })
        .collect()
}

fn byte(input: &mut Bytes) -> Result<u8> {
    input.try_get_u8().context(MALFORMED)
}

fn short(input: &mut Bytes) -> Result<u16> {
    input.try_get_u16().context(MALFORMED)
}

fn int(input: &mut Bytes) -> Result<u32> {
    input.try_get_u32().context(MALFORMED)
}

fn long(input: &mut Bytes) -> Result<u64> {
    input.try_get_u64().context(MALFORMED)
}

fn string(input: &mut Bytes) -> Result<String> {
    let end = input.iter().position(|byte| *byte == 0).context(MALFORMED)?;
    let text = input.split_to(end);
    input.advance(1);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from PostgreSQL 15 by `pg_logical_slot_get_binary_changes`.
    const RELATION: &[u8] =
        b"R\0\0\x40\x01public\0users\0d\0\x02\x01id\0\0\0\0\x17\xff\xff\xff\xff\0name\0\0\0\0\x19\xff\xff\xff\xff";

    #[test]
    fn a_table_is_described_with_its_replica_identity() {
        let Message::Relation(relation) = parse(Bytes::from_static(RELATION)).unwrap() else {
            panic!("another message")
        };
        assert_eq!((relation.oid, relation.schema.as_str(), relation.name.as_str()), (0x4001, "public", "users"));
        let columns: Vec<_> = relation.columns.iter().map(|c| (c.name.as_str(), c.type_oid, c.is_identity)).collect();
        assert_eq!(columns, [("id", 23, true), ("name", 25, false)]);
    }

    #[test]
    fn rows_have_texts_nulls_and_omitted_values() {
        let bytes = Bytes::from_static(b"U\0\0\0\x07K\0\x02t\0\0\0\x011nN\0\x02t\0\0\0\x012u");
        let text = |text: &'static str| Field::Text(Bytes::from_static(text.as_bytes()));
        let old = Some(vec![text("1"), Field::Null]);
        assert_eq!(parse(bytes).unwrap(), Message::Update { relation: 7, old, new: vec![text("2"), Field::Unchanged] });
    }

    #[test]
    fn every_truncated_message_is_refused() {
        let update: &[u8] = b"U\0\0\0\x07K\0\x02t\0\0\0\x011nN\0\x02t\0\0\0\x012u";
        for message in
            [RELATION, update, b"T\0\0\0\x01\0\0\0\0\x07", b"B\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x03"]
        {
            assert!(parse(Bytes::copy_from_slice(message)).is_ok());
            for length in 0..message.len() {
                assert!(parse(Bytes::copy_from_slice(&message[..length])).is_err(), "{length} bytes of {message:?}");
            }
        }
        assert!(parse(Bytes::from_static(b"?")).is_err());
    }
}
