//! Checks the reply to each command and updates the model.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::draw::{Family, How, Layout, Op, Shape};
use super::model::{
    CLOCK_SLACK, Filling, Filter, Item, Limit, Model, Slot, beat, changed, fetch, fill, overwrite, write,
};
use testing::Reply;

/// Describes what is wrong with a reply.
pub type Fault = String;

const NOT_FOUND: &str = "ERR not found";
pub const ARRIVING: &str = "ERR filter is still being loaded";
const FULL: &str = "ERR non scaling filter is full";
const CANNOT_DELETE: &str = "ERR this filter cannot delete: it needs HASH siphash or COUNTING";
const NO_ROOM: &str = "ERR no room for more deleted items (";
const NO_MEMORY: &str = "ERR Insufficient memory to create filter";
const OUT_OF_MEMORY: &str = "OOM command not allowed";

pub fn wrong<T>(expected: &str) -> Result<T, Fault> {
    Err(format!("expected {expected}"))
}

pub fn expect(holds: bool, expected: &str) -> Result<(), Fault> {
    if holds { Ok(()) } else { wrong(expected) }
}

pub fn expect_error(reply: &Reply, text: &str) -> Result<(), Fault> {
    expect(matches!(reply, Reply::Error(found) if found.starts_with(text)), text)
}

pub fn expect_number(reply: &Reply, number: i64) -> Result<(), Fault> {
    expect(*reply == Reply::Integer(number), &number.to_string())
}

pub fn is_ok(reply: &Reply) -> bool {
    *reply == Reply::Simple("OK".to_owned())
}

/// The answers for one or several items.
pub fn answers(reply: &Reply) -> &[Reply] {
    match reply {
        Reply::Array(answers) => answers,
        one => std::slice::from_ref(one),
    }
}

/// A reply, with the times when the command was sent and answered.
pub struct Heard<'a> {
    pub reply: &'a Reply,
    pub sent: Instant,
    pub replied: Instant,
}

/// Checks a reply.
pub fn settle(model: &mut Model, op: &Op, reply: &Reply, sent: Instant) -> Result<(), Fault> {
    let heard = Heard { reply, sent, replied: Instant::now() };
    if !matches!(reply, Reply::Error(text) if text.starts_with(OUT_OF_MEMORY)) {
        model.announce(op);
    }
    if let Reply::Error(text) = reply
        && is_refused_by_limit(model.limit, op, text)
    {
        if let Op::Fill { row, token, .. } = op {
            model.guard.refuse_fill(*row, token);
        }
        return Ok(());
    }
    match op {
        Op::Add { key, items, how } => add(model, *key, items, *how, &heard),
        Op::Remove { key, items, .. } => remove(model, *key, items, &heard),
        Op::Ask { key, items, .. } => ask(model, *key, items, &heard),
        Op::Count { key, item } => count(model, *key, *item, &heard),
        Op::Look { key, command } => look(model, *key, command, reply),
        Op::Plan { .. } => expect(!reply.is_error(), "no error"),
        Op::Reserve { key, shape, .. } => reserve(model, *key, shape, reply),
        Op::Rotate { key } => rotate(model, *key, reply),
        Op::Clear { key } => clear(model, *key, reply),
        Op::Merge { to, from } => merge(model, *to, from, reply),
        Op::LoadChunk { to } => load_chunk(model, *to, reply),
        Op::Changed { key, items, .. } => changed(model, *key, items, &heard),
        Op::Fetch { key, items, one, asking } => fetch(model, *key, items, (*one, asking), &heard),
        Op::Fill { row, token, filling } => fill(model, *row, token, *filling, &heard),
        Op::Overwrite { row, value } => overwrite(model, *row, *value, reply),
        Op::Beat { begins } => beat(model, *begins, reply),
        Op::Write { row, begins } => write(model, *row, *begins, reply),
        Op::Delete { .. }
        | Op::Rename { .. }
        | Op::Copy { .. }
        | Op::Persist { .. }
        | Op::Dump { .. }
        | Op::Restore { .. } => whole(model, op, reply),
    }
}

/// Whether the reply ends with an error for one of the items.
pub fn refuses_an_item(op: &Op, reply: &Reply) -> bool {
    let is_many =
        matches!(op, Op::Add { items, .. } | Op::Remove { items, .. } | Op::Changed { items, .. } if items.len() > 1);
    let refusals = [FULL, NO_ROOM, NO_MEMORY];
    is_many && matches!(reply, Reply::Error(text) if refusals.iter().any(|refusal| text.starts_with(refusal)))
}

/// Whether the whole command was refused because of insufficient memory. In that case nothing has changed, except that the lease of a fill
/// has ended.
fn is_refused_by_limit(limit: Limit, op: &Op, text: &str) -> bool {
    let makes_or_grows = matches!(
        op,
        Op::Add { .. }
            | Op::Reserve { .. }
            | Op::Rotate { .. }
            | Op::Merge { .. }
            | Op::Restore { .. }
            | Op::LoadChunk { .. }
            | Op::Copy { .. }
            | Op::Fill { filling: Filling::Value(_), .. }
            | Op::Overwrite { value: Some(_), .. }
            | Op::Beat { begins: true }
            | Op::Write { begins: true, .. }
    );
    match limit {
        Limit::None => false,
        Limit::Memory => makes_or_grows && text.starts_with(OUT_OF_MEMORY),
        Limit::Bytes => {
            (makes_or_grows || matches!(op, Op::Changed { .. } | Op::Remove { .. })) && text.starts_with(NO_MEMORY)
                || matches!(op, Op::Restore { .. }) && text.starts_with("ERR Bad data format")
                || matches!(op, Op::Copy { .. }) && text.starts_with("ERR module key failed to copy")
        }
    }
}

fn exists(slot: &Slot) -> bool {
    !matches!(slot, Slot::Missing)
}

/// Checks an error that ends the answers to an add.
fn check_refused_item(limit: Limit, filter: &Filter, text: &str) -> Result<(), Fault> {
    let allowed = text == FULL && filter.may_be_full() || limit != Limit::None && text.starts_with(NO_MEMORY);
    expect(allowed, "no error")
}

fn add(model: &mut Model, key: usize, items: &[Item], how: How, heard: &Heard<'_>) -> Result<(), Fault> {
    match &model.slots[key] {
        Slot::Missing => {
            let shape = match how {
                How::Insert(shape) => shape,
                How::Sync => return expect_error(heard.reply, NOT_FOUND),
                How::One | How::Many => model.default,
            };
            model.replace(key, Slot::Filter(Filter::new(shape)));
        }
        Slot::Arriving(_) => return expect_error(heard.reply, ARRIVING),
        _ => {}
    }
    let answers = answers(heard.reply);
    let whole = answers.len() == items.len() || answers.last().is_some_and(Reply::is_error);
    expect(whole && !answers.is_empty(), "an answer for each item")?;
    for (&item, answer) in items.iter().zip(answers) {
        add_one(model, key, item, answer, false, heard)?;
    }
    Ok(())
}

/// Records that a command added an item.
pub fn add_one(
    model: &mut Model,
    key: usize,
    item: Item,
    answer: &Reply,
    renews: bool,
    heard: &Heard<'_>,
) -> Result<(), Fault> {
    let limit = model.limit;
    model.touch(key, item);
    let filter = model.filter(key);
    let is_new = match answer {
        Reply::Error(text) => return check_refused_item(limit, filter, text),
        Reply::Integer(number @ 0..=1) => *number == 1,
        _ => return wrong("0 or 1"),
    };
    expect(!(is_new && filter.must_have(item, heard.replied)), "0: the item is in")?;
    expect(is_new || !filter.must_lack(item, heard.sent), "1: the item is not in")?;
    filter.added(item, is_new, renews, heard.sent, heard.replied);
    Ok(())
}

fn remove(model: &mut Model, key: usize, items: &[Item], heard: &Heard<'_>) -> Result<(), Fault> {
    let answers = answers(heard.reply);
    let filter = match &model.slots[key] {
        Slot::Arriving(_) => return expect_error(heard.reply, ARRIVING),
        Slot::Filter(filter) => filter,
        _ => return expect(answers.iter().all(|answer| *answer == Reply::Integer(0)), "0: no such key"),
    };
    if !filter.shape.deletes() {
        return expect_error(heard.reply, CANNOT_DELETE);
    }
    let whole = answers.len() == items.len() || answers.last().is_some_and(Reply::is_error);
    expect(whole && !answers.is_empty(), "an answer for each item")?;
    for (&item, answer) in items.iter().zip(answers) {
        model.touch(key, item);
        let filter = model.filter(key);
        let was_in = match answer {
            Reply::Error(text) => return expect(text.starts_with(NO_ROOM), "no error"),
            Reply::Integer(number @ 0..=1) => *number == 1,
            _ => return wrong("0 or 1"),
        };
        expect(was_in || !filter.must_have(item, heard.replied), "1: the item is in")?;
        expect(!(was_in && filter.must_lack(item, heard.sent)), "0: the item is not in")?;
        filter.deleted(item, was_in);
    }
    Ok(())
}

fn ask(model: &Model, key: usize, items: &[Item], heard: &Heard<'_>) -> Result<(), Fault> {
    let found = answers(heard.reply);
    match &model.slots[key] {
        Slot::Arriving(_) => expect_error(heard.reply, ARRIVING),
        Slot::Filter(filter) => {
            expect(found.len() == items.len(), "an answer for each item")?;
            items.iter().zip(found).try_for_each(|(&item, found)| check_found(filter, item, found, heard))
        }
        _ => expect(found.iter().all(|found| *found == Reply::Integer(0)), "0: no such key"),
    }
}

fn check_found(filter: &Filter, item: Item, found: &Reply, heard: &Heard<'_>) -> Result<(), Fault> {
    let state = || format!("{}, of {:?}", filter.state(item), filter.shape.words);
    match found {
        Reply::Integer(1) if filter.must_lack(item, heard.sent) => wrong(&format!("item:{item} absent: {}", state())),
        Reply::Integer(0) if filter.must_have(item, heard.replied) => {
            wrong(&format!("item:{item} present: {}", state()))
        }
        Reply::Integer(0..=1) => Ok(()),
        _ => wrong("0 or 1"),
    }
}

/// Checks the reply of BF.MEXISTS for items of a filter.
pub fn check_members(filter: &Filter, items: &[Item], reply: &Reply, sent: Instant) -> Result<(), Fault> {
    let heard = Heard { reply, sent, replied: Instant::now() };
    items.iter().zip(answers(reply)).try_for_each(|(&item, found)| check_found(filter, item, found, &heard))
}

fn count(model: &Model, key: usize, item: Item, heard: &Heard<'_>) -> Result<(), Fault> {
    match &model.slots[key] {
        Slot::Arriving(_) => expect_error(heard.reply, ARRIVING),
        Slot::Filter(filter) if filter.shape.family == Family::Counting => {
            let Reply::Integer(counted @ 0..=15) = heard.reply else { return wrong("0 to 15") };
            expect(*counted > 0 || !filter.must_have(item, heard.replied), "1 or more")?;
            expect(*counted == 0 || !filter.must_lack(item, heard.sent), "0")
        }
        Slot::Filter(_) => expect_error(heard.reply, "ERR this filter has no COUNTING"),
        _ => expect_number(heard.reply, 0),
    }
}

fn look(model: &Model, key: usize, command: &str, reply: &Reply) -> Result<(), Fault> {
    match (&model.slots[key], command) {
        (Slot::Arriving(_), _) => expect_error(reply, ARRIVING),
        (Slot::Filter(filter), "BF.CARD") if !filter.shape.forgets() => match filter.card {
            Some(card) => expect_number(reply, card.max(0)),
            None => expect(!reply.is_error(), "a number"),
        },
        (Slot::Filter(_), _) => expect(!reply.is_error(), "no error"),
        (_, "BF.CARD") => expect_number(reply, 0),
        _ => expect_error(reply, NOT_FOUND),
    }
}

fn reserve(model: &mut Model, key: usize, shape: &'static Shape, reply: &Reply) -> Result<(), Fault> {
    let inserts = shape.layout == Layout::ValkeyBloom;
    match &model.slots[key] {
        Slot::Arriving(_) if inserts => expect_error(reply, ARRIVING),
        Slot::Filter(_) if inserts => expect(*reply == Reply::Array(Vec::new()), "an empty array"),
        Slot::Arriving(_) | Slot::Filter(_) => expect_error(reply, "ERR "),
        _ => {
            expect(is_ok(reply) || inserts && *reply == Reply::Array(Vec::new()), "OK")?;
            model.replace(key, Slot::Filter(Filter::new(shape)));
            Ok(())
        }
    }
}

fn rotate(model: &mut Model, key: usize, reply: &Reply) -> Result<(), Fault> {
    match &mut model.slots[key] {
        Slot::Arriving(_) => expect_error(reply, ARRIVING),
        Slot::Filter(filter) if filter.shape.forgets() => {
            filter.rotated();
            expect(matches!(reply, Reply::Integer(0..)), "a number")
        }
        Slot::Filter(_) => expect_error(reply, "ERR this filter has no WINDOW"),
        _ => expect_error(reply, NOT_FOUND),
    }
}

fn clear(model: &mut Model, key: usize, reply: &Reply) -> Result<(), Fault> {
    match &model.slots[key] {
        Slot::Arriving(_) => expect_error(reply, ARRIVING),
        Slot::Filter(filter) => {
            let empty = Filter::new(filter.shape);
            model.replace(key, Slot::Filter(empty));
            expect(is_ok(reply), "OK")
        }
        _ => expect_error(reply, NOT_FOUND),
    }
}

fn merge(model: &mut Model, to: usize, from: &[usize], reply: &Reply) -> Result<(), Fault> {
    let sources: Option<Vec<Filter>> = from
        .iter()
        .map(|&key| match &model.slots[key] {
            Slot::Filter(filter) => Some(filter.clone()),
            _ => None,
        })
        .collect();
    let shape = match (&model.slots[to], &sources) {
        (Slot::Filter(filter), Some(_)) => filter.shape,
        (Slot::Missing, Some(sources)) => sources[0].shape,
        _ => return expect_error(reply, "ERR "),
    };
    let sources = sources.unwrap_or_default();
    let unites = shape.family == Family::Set && shape.layout == Layout::Native;
    let is_possible = unites && sources.iter().all(|source| std::ptr::eq(source.shape, shape));
    // Without a given seed, only copies of the same filter have equal seeds.
    let first = if exists(&model.slots[to]) { to } else { from[0] };
    let is_one = from.iter().all(|&key| key == first);
    if let Reply::Error(text) = reply {
        let is_too_large = text.starts_with("ERR the union would hold about ") && !is_one;
        let is_certain = is_possible && (shape.merges() || is_one);
        return expect(is_too_large || !is_certain && text.starts_with("ERR "), "OK");
    }
    expect(is_ok(reply) && is_possible, "an error: the filters differ")?;
    let mut union = match &model.slots[to] {
        Slot::Filter(filter) => filter.clone(),
        _ => Filter::new(shape),
    };
    sources.iter().for_each(|source| union.united_with(source));
    model.guard.merged(to);
    model.replace(to, Slot::Filter(union));
    Ok(())
}

fn load_chunk(model: &mut Model, to: usize, reply: &Reply) -> Result<(), Fault> {
    let Slot::Arriving(arrival) = &model.slots[to] else { return wrong("a dump that arrives") };
    expect(is_ok(reply), "OK")?;
    let mut arrival = arrival.clone();
    arrival.next += 1;
    let is_whole = arrival.next == arrival.records.len();
    model.replace(to, if is_whole { Slot::Filter(arrival.becomes) } else { Slot::Arriving(arrival) });
    Ok(())
}

/// Checks the replies to the server's own commands on whole keys.
fn whole(model: &mut Model, op: &Op, reply: &Reply) -> Result<(), Fault> {
    let copy = |slot: &Slot| match slot {
        Slot::Filter(filter) => Slot::Filter(filter.clone()),
        Slot::Arriving(arrival) => Slot::Arriving(arrival.clone()),
        Slot::Missing | Slot::Doubtful => Slot::Missing,
    };
    match op {
        Op::Delete { key, .. } => {
            expect_number(reply, i64::from(exists(&model.slots[*key])))?;
            model.replace(*key, Slot::Missing);
        }
        Op::Rename { from, to } if exists(&model.slots[*from]) => {
            expect(is_ok(reply), "OK")?;
            let slot = copy(&model.slots[*from]);
            model.replace(*to, slot);
            model.replace(*from, Slot::Missing);
        }
        Op::Rename { .. } => return expect_error(reply, "ERR no such key"),
        Op::Copy { from, to } => {
            expect_number(reply, i64::from(exists(&model.slots[*from])))?;
            if exists(&model.slots[*from]) {
                let slot = copy(&model.slots[*from]);
                model.replace(*to, slot);
            }
        }
        Op::Dump { key } => match (&model.slots[*key], reply) {
            (Slot::Missing, reply) => return expect(*reply == Reply::NullBulk, "null"),
            (Slot::Filter(filter), Reply::Bulk(payload)) => {
                let payload = Rc::new((payload.clone(), filter.clone()));
                model.shelf.truncate(3);
                model.shelf.insert(0, payload);
            }
            (_, reply) => return expect(!reply.is_error(), "a payload"),
        },
        Op::Restore { to, payload } => {
            expect(is_ok(reply), "OK")?;
            model.replace(*to, Slot::Filter(payload.1.clone()));
        }
        _ => return expect(matches!(reply, Reply::Integer(0..=1)), "0 or 1"),
    }
    Ok(())
}

// The model of the guard: tokens, leases, NONEs and back-offs, and the keys that WHILE and UNLESS name.

/// The key of a filter and an item, which together have one cache key.
pub type Row = (usize, Item);

/// The number of tokens that are kept.
const TOKENS: usize = 200;

/// A token that was granted. It outlives its lease.
pub struct Token {
    row: Row,
    text: String,
    /// Whether BF.FILL must refuse it.
    pub is_void: bool,
    /// Whether the key of the filter has held the same value, or no value, since the token was granted. Otherwise the token may be void.
    pub is_of_filter: bool,
}

/// The kind of a record.
#[derive(PartialEq)]
pub enum Known {
    /// The lease of this token.
    Lease(String),
    NoRow,
    BackOff,
}

/// The guard's record of a cache key.
pub struct Record {
    pub known: Known,
    /// Its time to live when it was made.
    pub milliseconds: u64,
    /// It has not expired before this time.
    surely_until: Instant,
    /// It has expired after this time.
    perhaps_until: Instant,
    /// Whether the key of the filter has held the same value, or no value, since the record was made.
    is_of_filter: bool,
}

impl Record {
    /// Whether the record may have applied to a command.
    pub fn may(&self, heard: &Heard<'_>) -> bool {
        heard.sent < self.perhaps_until
    }

    /// Whether the record must have applied to a command. A back-off does not depend on the filter.
    pub fn must(&self, heard: &Heard<'_>) -> bool {
        (self.is_of_filter || self.known == Known::BackOff) && heard.replied < self.surely_until
    }

    /// Whether the record prevents other callers from loading.
    pub fn is_busy(&self) -> bool {
        self.known != Known::NoRow
    }
}

/// The keys that BF.FETCH names in WHILE and UNLESS.
#[derive(Default)]
pub struct Conditions {
    /// Whether the key of WHILE exists.
    pub beats: bool,
    /// The fields of the hash of UNLESS: rows with a write in flight, or `None` for all rows.
    pub in_flight: BTreeSet<Option<Row>>,
    /// Whether a failover may have lost the latest change. The driver deletes both keys then.
    pub is_doubtful: bool,
}

impl Conditions {
    /// Whether a row has a write in flight.
    pub fn hold(&self, row: Row) -> bool {
        self.in_flight.contains(&None) || self.in_flight.contains(&Some(row))
    }
}

/// The state of the guard.
#[derive(Default)]
pub struct Guarded {
    records: BTreeMap<Row, Record>,
    /// Every token that was granted.
    granted: BTreeSet<String>,
    /// The latest of them.
    tokens: VecDeque<Token>,
    pub conditions: Conditions,
    /// How often each reply and effect occurred.
    pub seen: BTreeMap<&'static str, usize>,
}

impl Guarded {
    /// Returns the record of a row, if it may have applied to a command.
    pub fn record(&self, row: Row, heard: &Heard<'_>) -> Option<&Record> {
        self.records.get(&row).filter(|record| record.may(heard))
    }

    /// Returns the void tokens of a filter's rows, or the tokens that may be valid.
    pub fn tokens(&self, key: usize, is_void: bool) -> Vec<(Row, &str)> {
        let tokens = self.tokens.iter().filter(|token| token.row.0 == key && token.is_void == is_void);
        tokens.map(|token| (token.row, token.text.as_str())).collect()
    }

    /// Returns a token of a row.
    pub fn token(&self, row: Row, text: &str) -> Option<&Token> {
        self.tokens.iter().find(|token| token.row == row && token.text == text)
    }

    /// Records a grant. Returns whether the token is new.
    pub fn grant(&mut self, row: Row, token: &str, milliseconds: u64, heard: &Heard<'_>) -> bool {
        self.note(row, Known::Lease(token.to_owned()), milliseconds, heard);
        self.tokens.push_back(Token { row, text: token.to_owned(), is_void: false, is_of_filter: true });
        if self.tokens.len() > TOKENS {
            self.tokens.pop_front();
        }
        self.granted.insert(token.to_owned())
    }

    /// Records a lease, NONE or back-off with its time, in place of the row's earlier record.
    pub fn note(&mut self, row: Row, known: Known, milliseconds: u64, heard: &Heard<'_>) {
        let lives = Duration::from_millis(milliseconds);
        let record = Record {
            known,
            milliseconds,
            surely_until: heard.sent + lives.saturating_sub(CLOCK_SLACK),
            perhaps_until: heard.replied + lives + CLOCK_SLACK,
            is_of_filter: true,
        };
        self.records.insert(row, record);
    }

    /// Ends the record of a row, and leaves its tokens as they are.
    pub fn end_record(&mut self, row: Row) {
        self.records.remove(&row);
    }

    /// A fill was refused: the lease of its token ends, if the token is valid.
    pub fn refuse_fill(&mut self, row: Row, token: &str) {
        let is_good = self.token(row, token).is_some_and(|token| !token.is_void && token.is_of_filter);
        let Some(record) = self.records.get_mut(&row) else { return };
        if record.known == Known::Lease(token.to_owned()) {
            record.is_of_filter = false;
            if is_good {
                self.end_record(row);
            }
        }
    }

    /// Voids the tokens of a row, and ends its record.
    pub fn end(&mut self, row: Row) {
        self.end_record(row);
        self.tokens.iter_mut().filter(|token| token.row == row).for_each(|token| token.is_void = true);
    }

    /// Voids the tokens of a row whose cached value a client changed, or whose item was added to the filter. A back-off stays.
    pub fn overwritten(&mut self, row: Row) {
        let back_off = self.records.remove(&row).filter(|record| record.known == Known::BackOff);
        self.end(row);
        self.records.extend(back_off.map(|record| (row, record)));
    }

    /// Voids the tokens of a filter into which another was merged.
    pub fn merged(&mut self, key: usize) {
        let mut rows: Vec<Row> =
            self.tokens.iter().map(|token| token.row).chain(self.records.keys().copied()).collect();
        rows.retain(|row| row.0 == key);
        rows.into_iter().for_each(|row| self.overwritten(row));
    }

    /// Records that another filter may be at a key. RENAME may bring the former one back.
    pub fn replaced(&mut self, key: usize) {
        for (row, record) in &mut self.records {
            record.is_of_filter &= row.0 != key;
        }
        for token in &mut self.tokens {
            token.is_of_filter &= token.row.0 != key;
        }
    }

    /// Ends all records, and voids all tokens.
    pub fn end_all(&mut self) {
        self.records.clear();
        self.tokens.iter_mut().for_each(|token| token.is_void = true);
    }

    /// Counts a reply or an effect.
    pub fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }
}
