//! The binary log of MariaDB and MySQL: its events, and the transactions that they form (MariaDB's documentation, "Replication protocol", and
//! MySQL's source documentation, "Replication Protocol"). An event of an unknown kind is an error, because it might be a change that would be
//! lost.

use std::collections::HashMap;
use std::io::Read;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::ZlibDecoder;
use mysql_async::binlog::events::{Event, GtidEvent};

use super::gtid::Gtid;
use super::rows::{Action, Input, Kind, Map, uuid};
use super::statements::{Statement, parse, skip_comments};
use crate::engine::events::Step;
use crate::engine::position::Place;
use crate::engine::store::IncompleteLog;
use crate::sql;
use crate::template::Field;

/// The bits of a [`Place`] below the number of the file. The last transaction of a file can make it arbitrarily large.
const OFFSET_BITS: u32 = 34;

/// Returns the place of an offset in a file of the log, whose name ends in its number.
pub fn place(file: &str, offset: u64) -> Result<Place> {
    let digits = file.rsplit('.').next().unwrap_or_default();
    let number: u64 = digits.parse().with_context(|| format!("`{file}` is not a file of the log"))?;
    ensure!(offset < 1 << OFFSET_BITS, "the file {file} of the log is larger than 16 GiB");
    Ok(Place(number << OFFSET_BITS | offset))
}

/// Returns a lower bound of the bytes between two places of the log: if they are in different files, only the bytes in the end's file are
/// counted.
pub fn bytes_between(begin: Place, end: Place) -> u64 {
    let [first, last] = [begin, end].map(|place| place.0 >> OFFSET_BITS);
    if first == last { end.0.saturating_sub(begin.0) } else { end.0 & ((1 << OFFSET_BITS) - 1) }
}

/// The parts of a followed table that are needed to read the log.
pub struct Columns {
    pub schema: String,
    pub name: String,
    pub kinds: Vec<Kind>,
    /// The columns of the templates.
    pub needed: Vec<bool>,
}

/// Converts a change of a row of a table.
pub type Render<'a> = &'a dyn Fn(usize, Option<&[Field]>, Option<&[Field]>) -> Result<Step>;

/// A transaction of the log.
#[derive(Debug, Default)]
pub struct Transaction {
    pub gtid: Gtid,
    /// Seconds since 1970, and a checksum of the rows of all tables, or of the statement. A replica's log has the same.
    pub time: u64,
    pub checksum: u32,
    /// The place after its last event.
    pub end: Place,
    /// The steps in order, each with the index of its table.
    pub steps: Vec<(usize, Step)>,
}

/// The meaning of an event that has arrived.
#[derive(Debug)]
pub enum Arrival {
    Transaction(Transaction),
    /// Everything up to a place has arrived. Not reported inside a transaction.
    Place(Place),
    Nothing,
}

/// The state of the log reader between two events.
#[derive(Default)]
pub struct Reader {
    pub tables: Vec<Columns>,
    /// The place after the last event, and the file's number.
    last: Place,
    /// The tables in row events, by their numbers. A followed table has its index, or several if it has several filters.
    maps: HashMap<u64, Option<(Vec<usize>, Map)>>,
    current: Option<Current>,
    /// Prepared XA transactions by name, with their changes.
    prepared: HashMap<String, Vec<(usize, Step)>>,
}

#[derive(Default)]
struct Current {
    transaction: Transaction,
    /// Whether the transaction is a single statement. For MySQL, its first statement determines this.
    is_alone: Option<bool>,
    hash: crc32fast::Hasher,
}

// The kinds of events.
const QUERY: u8 = 2;
const ROTATE: u8 = 4;
const FORMAT_DESCRIPTION: u8 = 15;
const XID: u8 = 16;
const EXECUTE_LOAD_QUERY: u8 = 18;
const TABLE_MAP: u8 = 19;
const INCIDENT: u8 = 26;
const HEARTBEAT: u8 = 27;
const MYSQL_GTID: u8 = 33;
const XA_PREPARE: u8 = 38;
const PARTIAL_UPDATE: u8 = 39;
const MYSQL_TAGGED_GTID: u8 = 42;
const GTID: u8 = 162;
const QUERY_COMPRESSED: u8 = 165;

/// The flag of a MariaDB GTID whose transaction is one statement.
const STANDALONE: u8 = 1;
/// The table number in an event that only ends a statement.
const NO_TABLE: u64 = 0xff_ffff;

impl Reader {
    /// Discards the state of an earlier stream.
    pub fn restart(&mut self) {
        let tables = std::mem::take(&mut self.tables);
        *self = Self { tables, ..Self::default() };
    }

    /// Processes an event.
    pub fn take(&mut self, event: &Event, render: Render) -> Result<Arrival> {
        let (header, input) = (event.header(), &mut Input(event.data()));
        let kind = header.event_type_raw();
        if kind == ROTATE {
            return self.rotate(input);
        }
        // Until the next file exists, the server reports its place in the file that a ROTATE has ended.
        let file_of = |place: Place| place.0 >> OFFSET_BITS;
        if kind == HEARTBEAT && file_of(place(&String::from_utf8_lossy(event.data()), 0)?) != file_of(self.last) {
            return Ok(Arrival::Nothing);
        }
        // Artificial events, which the server generates for its replicas, have no place.
        if kind != FORMAT_DESCRIPTION && header.log_pos() > 0 {
            let (file, last) = (file_of(self.last), self.last.0 & ((1 << OFFSET_BITS) - 1));
            let offset = last & !0xffff_ffff | u64::from(header.log_pos());
            // The event contains only the low 32 bits.
            let offset = if offset + (1 << 31) < last { offset + (1 << 32) } else { offset };
            self.last = self.last.max(Place(file << OFFSET_BITS | offset));
        }
        let time = header.timestamp();
        match kind {
            // STOP, INTVAR, RAND, USER_VAR, HEARTBEAT, IGNORABLE, ROWS_QUERY, ANNOTATE_ROWS, BINLOG_CHECKPOINT, GTID_LIST,
            // START_ENCRYPTION. MySQL's: PREVIOUS_GTIDS, TRANSACTION_CONTEXT, VIEW_CHANGE, TRANSACTION_PAYLOAD, whose events follow.
            HEARTBEAT | 3 | 5 | 13 | 14 | 28 | 29 | 160 | 161 | 163 | 164 | 35 | 36 | 37 | 40 => {}
            // After a crash, the last transaction of the previous file may have no end.
            FORMAT_DESCRIPTION => self.current = None,
            GTID => {
                let (sequence, domain) = (input.number(8)?, u32::try_from(input.number(4)?)?);
                let is_alone = Some(input.byte()? & STANDALONE != 0);
                self.begin(Gtid::MariaDb { domain, server: header.server_id(), sequence }, is_alone)?;
            }
            MYSQL_GTID => {
                input.byte()?;
                let source = uuid(input.take(16)?);
                self.begin(Gtid::MySql { source, sequence: input.number(8)? }, None)?;
            }
            MYSQL_TAGGED_GTID => {
                let gtid: GtidEvent = event.read_event()?;
                let tag = gtid.tag().context("a tagged GTID without a tag")?;
                let source = format!("{}:{tag}", uuid(&gtid.sid()));
                self.begin(Gtid::MySql { source, sequence: gtid.gno() }, None)?;
            }
            QUERY => return self.statement(input, time, false),
            QUERY_COMPRESSED => return self.statement(input, time, true),
            XID => return Ok(self.commit()),
            XA_PREPARE => return self.prepare(input),
            TABLE_MAP => self.map(input)?,
            PARTIAL_UPDATE => self.partial_rows(input, time)?,
            // Each exists in two versions, and compressed.
            23..=25 | 166..=168 | 30..=32 | 169..=171 => self.rows(kind, input, time, render)?,
            INCIDENT => {
                return Err(
                    IncompleteLog("the log has a gap: the database could not write changes to it".to_owned()).into()
                );
            }
            // Loads of files in the format STATEMENT.
            6..=12 | 17 | 18 => {
                self.lose("a file that was loaded");
                if kind == EXECUTE_LOAD_QUERY
                    && self.current.as_ref().is_some_and(|current| current.is_alone == Some(true))
                {
                    return Ok(self.commit());
                }
            }
            other => bail!("the log contains an event of the unknown kind {other}"),
        }
        Ok(if self.current.is_none() { Arrival::Place(self.last) } else { Arrival::Nothing })
    }

    /// The log continues in another file. The first event is artificial; its name may end in a checksum.
    fn rotate(&mut self, input: &mut Input) -> Result<Arrival> {
        let offset = input.number(8)?;
        let digits = |name: &[u8]| name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        // The number in a file's name has at least six digits, but not ten.
        let without = input.0.get(..input.0.len().saturating_sub(4)).unwrap_or_default();
        let name = if digits(without) >= 6 { without } else { input.0 };
        self.last = place(&String::from_utf8_lossy(name), offset)?;
        self.maps.clear();
        Ok(Arrival::Nothing)
    }

    fn begin(&mut self, gtid: Gtid, is_alone: Option<bool>) -> Result<()> {
        ensure!(self.current.is_none(), "the log contains a transaction without an end");
        let transaction = Transaction { gtid, ..Transaction::default() };
        self.current = Some(Current { transaction, is_alone, ..Current::default() });
        Ok(())
    }

    fn statement(&mut self, input: &mut Input, time: u32, is_compressed: bool) -> Result<Arrival> {
        let (connection, _) = (input.number(4)?, input.number(4)?);
        let (schema, _) = (input.byte()?, input.number(2)?);
        let variables = input.length(2)?;
        input.take(variables)?;
        let schema = String::from_utf8_lossy(input.take(schema.into())?).into_owned();
        input.byte()?;
        let text = if is_compressed { decompress(input.0)? } else { input.0.to_vec() };
        let text = String::from_utf8_lossy(&text);
        let tokens = sql::tokens(&text);
        let statement = parse(&text, &tokens);
        let Some(current) = &mut self.current else {
            bail!("the log contains a statement outside of a transaction");
        };
        current.is_alone.get_or_insert(!matches!(statement, Statement::Begin));
        let transaction = &mut current.transaction;
        match statement {
            Statement::Nothing | Statement::Begin => {}
            Statement::Commit => return Ok(self.commit()),
            // Every earlier change of a table may be rolled back.
            Statement::Rollback => transaction.steps.iter_mut().for_each(|(_, step)| *step = Step::Altered),
            // An XA transaction that was prepared before this follower began is unknown.
            Statement::XaCommit(name) => transaction.steps.extend(match self.prepared.remove(&name.to_lowercase()) {
                Some(steps) => steps,
                None => (0..self.tables.len()).map(|index| (index, Step::Altered)).collect(),
            }),
            Statement::XaRollback(name) => drop(self.prepared.remove(&name.to_lowercase())),
            Statement::Database => {
                let tables = self.tables.iter().enumerate();
                let named = tables.filter(|(_, columns)| sql::names_database(&tokens, &schema, &columns.schema));
                transaction.steps.extend(named.map(|(index, _)| (index, Step::Altered)));
            }
            Statement::Truncate | Statement::Definition => {
                let is_named = |columns: &Columns| sql::names(&tokens, &schema, &columns.schema, &columns.name);
                let named = self.tables.iter().enumerate().filter(|(_, columns)| is_named(columns));
                transaction.steps.extend(named.map(|(index, columns)| {
                    let is_truncated = statement == Statement::Truncate
                        && sql::truncates(&tokens, &schema, &columns.schema, &columns.name);
                    (index, if is_truncated { Step::Truncate } else { Step::Altered })
                }));
            }
            Statement::Unknown => {
                let verb = skip_comments(&text).split_whitespace().next().unwrap_or_default();
                self.lose(&format!("{verb} by connection {connection} in the database {schema}"));
            }
        }
        if let Some(current) = &mut self.current {
            note_time(current, time);
            current.hash.update(text.as_bytes());
            if current.is_alone == Some(true) {
                return Ok(self.commit());
            }
            if statement == Statement::Rollback && text.trim().eq_ignore_ascii_case("ROLLBACK") {
                return Ok(self.commit());
            }
        }
        Ok(Arrival::Nothing)
    }

    /// The log lacks the rows of a change.
    fn lose(&mut self, what: &str) {
        eprintln!(
            "bloomgate: the log has a statement without its rows, which may be in any table: {what}; set binlog_format = ROW"
        );
        if let Some(current) = &mut self.current {
            let all = (0..self.tables.len()).map(|index| (index, Step::Altered));
            current.transaction.steps.extend(all);
        }
    }

    fn map(&mut self, input: &mut Input) -> Result<()> {
        let id = input.number(6)?;
        input.take(2)?;
        let (schema, name) = (input.name()?, input.name()?);
        let is_this = |columns: &Columns| columns.schema.as_bytes() == schema && columns.name.as_bytes() == name;
        let tables = self.tables.iter().enumerate();
        let indexes: Vec<_> = tables.filter(|(_, table)| is_this(table)).map(|(index, _)| index).collect();
        let map = if indexes.is_empty() { None } else { Some((indexes, Map::parse(input)?)) };
        self.maps.insert(id, map);
        Ok(())
    }

    fn rows(&mut self, kind: u8, input: &mut Input, time: u32, render: Render) -> Result<()> {
        let id = input.number(6)?;
        input.take(2)?;
        let (action, is_compressed) = match kind {
            23 | 30 => (Action::Insert, false),
            24 | 31 => (Action::Update, false),
            25 | 32 => (Action::Delete, false),
            166 | 169 => (Action::Insert, true),
            167 | 170 => (Action::Update, true),
            _ => (Action::Delete, true),
        };
        if matches!(kind, 30..=32 | 169..=171) {
            let extra = input.length(2)?;
            input.take(extra.saturating_sub(2))?;
        }
        let current = self.current.as_mut().context("the log contains rows outside of a transaction")?;
        note_time(current, time);
        current.hash.update(input.0);
        let known = self.maps.get(&id);
        ensure!(known.is_some() || id == NO_TABLE, "the log contains rows of a table that it has not described");
        let Some((indexes, map)) = known.and_then(Option::as_ref) else { return Ok(()) };
        let steps = &mut current.transaction.steps;
        for index in indexes {
            let columns = self.tables.get(*index).context("a table")?;
            if !map.suits(&columns.kinds) {
                // The table was altered.
                steps.push((*index, Step::Altered));
                continue;
            }
            let data = |data: &[u8]| if is_compressed { decompress(data) } else { Ok(data.to_vec()) };
            match map.rows(action, &mut Input(input.0), data, &columns.kinds, &columns.needed)? {
                Ok(changes) => {
                    for (old, new) in changes {
                        steps.push((*index, render(*index, old.as_deref(), new.as_deref())?));
                    }
                }
                Err(reason) => {
                    eprintln!("bloomgate: the log has rows of {}.{} that {reason}", columns.schema, columns.name);
                    steps.push((*index, Step::Altered));
                }
            }
        }
        Ok(())
    }

    /// Changes of parts of JSON values, which a session has enabled. They are not decoded.
    fn partial_rows(&mut self, input: &mut Input, time: u32) -> Result<()> {
        let id = input.number(6)?;
        let current = self.current.as_mut().context("the log contains rows outside of a transaction")?;
        note_time(current, time);
        current.hash.update(input.0);
        if let Some(Some((indexes, _))) = self.maps.get(&id) {
            eprintln!("bloomgate: the log has parts of JSON values: a session has set binlog_row_value_options");
            current.transaction.steps.extend(indexes.iter().map(|index| (*index, Step::Altered)));
        }
        Ok(())
    }

    fn commit(&mut self) -> Arrival {
        let Some(Current { mut transaction, hash, .. }) = self.current.take() else { return Arrival::Place(self.last) };
        (transaction.end, transaction.checksum) = (self.last, hash.finalize());
        Arrival::Transaction(transaction)
    }

    /// The changes of an XA transaction have no effect until it is committed. Its name is converted here to the form in XA COMMIT.
    fn prepare(&mut self, input: &mut Input) -> Result<Arrival> {
        let is_committed = input.byte()? != 0;
        let (format, lengths) = (input.number(4)?, [input.length(4)?, input.length(4)?]);
        let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let name = format!("x'{}',x'{}',{format}", hex(input.take(lengths[0])?), hex(input.take(lengths[1])?));
        if let Some(Current { transaction, .. }) = self.current.as_mut().filter(|_| !is_committed) {
            self.prepared.insert(name, std::mem::take(&mut transaction.steps));
        }
        Ok(self.commit())
    }
}

/// The time of a transaction is the time of its first event with a row or a statement, which replicas keep.
fn note_time(current: &mut Current, time: u32) {
    if current.transaction.time == 0 {
        current.transaction.time = time.into();
    }
}

/// Decompresses an event that `log_bin_compress` has compressed: the length in up to four bytes, big-endian, followed by zlib data.
fn decompress(bytes: &[u8]) -> Result<Vec<u8>> {
    let (head, rest) = bytes.split_first().context("an empty compressed event")?;
    ensure!(head & 0x70 == 0, "the log is compressed by an unknown algorithm");
    let (length, data) = rest.split_at_checked(usize::from(head & 7)).context("a malformed compressed event")?;
    let length = length.iter().fold(0_u64, |length, byte| length << 8 | u64::from(*byte));
    let mut output = Vec::new();
    ZlibDecoder::new(data).take(length).read_to_end(&mut output)?;
    ensure!(output.len() as u64 == length, "a malformed compressed event");
    Ok(output)
}

#[cfg(test)]
mod tests {
    use mysql_async::binlog::BinlogVersion;
    use mysql_async::binlog::events::FormatDescriptionEvent;

    use super::*;

    fn event(kind: u8, end: u32, body: &[u8]) -> Event {
        let length = u32::try_from(19 + body.len()).unwrap();
        let header = [&[1, 0, 0, 0, kind, 7, 0, 0, 0], &length.to_le_bytes()[..], &end.to_le_bytes(), &[0, 0]].concat();
        Event::read(&FormatDescriptionEvent::new(BinlogVersion::Version4), &*[&header, body].concat()).unwrap()
    }

    fn take(reader: &mut Reader, event: &Event) -> Result<Arrival> {
        reader.take(event, &|_, _, _| Ok(Step::Truncate))
    }

    #[test]
    fn only_known_events_are_read() {
        for kind in 0..=255 {
            let known = [2..=19, 23..=33, 35..=40, 42..=42, 160..=171].iter().any(|kinds| kinds.contains(&kind));
            if !known {
                let error = take(&mut Reader::default(), &event(kind, 100, b"")).unwrap_err().to_string();
                assert!(error.contains(&format!("unknown kind {kind}")), "{error}");
            }
        }
        for kind in [34, 42] {
            assert!(take(&mut Reader::default(), &event(kind, 100, b"")).is_err(), "a GTID that is not read: {kind}");
        }
    }

    #[test]
    fn a_gap_is_a_log_that_lacks_changes() {
        let error = take(&mut Reader::default(), &event(INCIDENT, 100, b"\x01\0\0")).unwrap_err();
        assert!(error.is::<IncompleteLog>(), "{error}");
    }

    #[test]
    fn a_file_has_a_number_whether_or_not_a_checksum_follows() {
        for name in [&b"bin.log.000042"[..], b"bin.log.000042\xff\0.1", b"bin.log.0000421234"] {
            let mut reader = Reader::default();
            take(&mut reader, &event(ROTATE, 0, &[&[4, 0, 0, 0, 0, 0, 0, 0], name].concat())).unwrap();
            assert_eq!(reader.last, place("x.42", 4).unwrap());
        }
        assert!(place("binlog.index", 4).is_err() && place("x.1", 1 << 34).is_err());
        assert!(place("x.2", 4).unwrap() > place("x.1", (1 << 34) - 1).unwrap());
    }

    #[test]
    fn a_file_may_be_larger_than_32_bit_offsets() {
        let mut reader = Reader { last: place("x.1", 4).unwrap(), ..Reader::default() };
        for (end, offset) in
            [(0xffff_fff0, 0xffff_fff0), (0x20, 0x1_0000_0020), (0x10, 0x1_0000_0020), (0x40, 0x1_0000_0040)]
        {
            let arrival = take(&mut reader, &event(HEARTBEAT, end, b"x.1")).unwrap();
            assert!(matches!(arrival, Arrival::Place(at) if at == place("x.1", offset).unwrap()), "{arrival:?}");
        }
    }

    #[test]
    fn old_log_offset_is_not_applied_to_next_file() {
        let mut reader = Reader { last: place("x.000001", 4000).unwrap(), ..Reader::default() };
        take(&mut reader, &event(ROTATE, 5000, &[&[4, 0, 0, 0, 0, 0, 0, 0], &b"x.000002"[..]].concat())).unwrap();
        let arrival = take(&mut reader, &event(HEARTBEAT, 5000, b"x.000001")).unwrap();
        assert!(matches!(arrival, Arrival::Nothing), "{arrival:?}");
        let arrival = take(&mut reader, &event(HEARTBEAT, 300, b"x.000002")).unwrap();
        assert!(matches!(arrival, Arrival::Place(at) if at == place("x.000002", 300).unwrap()), "{arrival:?}");
    }

    #[test]
    fn malformed_events_are_errors() {
        let begin = [&9_u64.to_le_bytes()[..], &0_u32.to_le_bytes(), &[0; 7]].concat();
        let map = b"\x05\0\0\0\0\0\0\0\x01s\0\x01t\0\x01\x03\0\0";
        let rows = b"\x05\0\0\0\0\0\0\0\x01\xff\0\x07\0\0\0";
        let columns = || Columns {
            schema: "s".to_owned(),
            name: "t".to_owned(),
            kinds: vec![Kind::Integer { is_unsigned: false, zeros: 0 }],
            needed: vec![true],
        };
        let read = |map: &[u8], rows: &[u8]| {
            let mut reader = Reader { tables: vec![columns()], ..Reader::default() };
            take(&mut reader, &event(GTID, 100, &begin))?;
            take(&mut reader, &event(TABLE_MAP, 200, map))?;
            take(&mut reader, &event(23, 300, rows))?;
            take(&mut reader, &event(XID, 400, &[0; 8]))
        };
        let Arrival::Transaction(transaction) = read(map, rows).unwrap() else { panic!("no transaction") };
        assert!(matches!(transaction.steps.as_slice(), [(0, Step::Truncate)]));
        for length in 0..rows.len() - 4 {
            assert!(read(map, &rows[..length]).is_err() || length == 10, "{length} bytes of the rows");
        }
        for length in 0..map.len() - 2 {
            assert!(read(&map[..length], rows).is_err(), "{length} bytes of the map");
        }
        let mut reader = Reader::default();
        assert!(take(&mut reader, &event(23, 300, rows)).is_err(), "outside of a transaction");
        take(&mut reader, &event(GTID, 100, &begin)).unwrap();
        assert!(take(&mut reader, &event(23, 300, rows)).is_err(), "without a map");
        assert!(take(&mut reader, &event(GTID, 400, &begin)).is_err(), "a transaction without an end");
        for bytes in [&b""[..], b"\x84\0\0", b"\x81\x05abc", b"\x91\x01a"] {
            assert!(decompress(bytes).is_err(), "{bytes:?}");
        }
    }
}
