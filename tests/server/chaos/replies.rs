//! Checks the reply to each command and updates the model.

use std::rc::Rc;
use std::time::Instant;

use super::draw::{Family, How, Layout, Op, Shape};
use super::model::{Filter, Item, Limit, Model, Slot};
use testing::Reply;

/// Describes what is wrong with a reply.
pub type Fault = String;

const NOT_FOUND: &str = "ERR not found";
const ARRIVING: &str = "ERR filter is still being loaded";
const CANNOT_GUARD: &str = "ERR a CUCKOO or COUNTING filter cannot guard";
const FULL: &str = "ERR non scaling filter is full";
const CANNOT_DELETE: &str = "ERR this filter cannot delete: it needs CUCKOO, HASH siphash or COUNTING";
const NO_ROOM: &str = "ERR no room for more deleted items (";
const NO_MEMORY: &str = "ERR Insufficient memory to create filter";
const OUT_OF_MEMORY: &str = "OOM command not allowed";

fn wrong<T>(expected: &str) -> Result<T, Fault> {
    Err(format!("expected {expected}"))
}

fn expect(holds: bool, expected: &str) -> Result<(), Fault> {
    if holds { Ok(()) } else { wrong(expected) }
}

fn expect_error(reply: &Reply, text: &str) -> Result<(), Fault> {
    expect(matches!(reply, Reply::Error(found) if found.starts_with(text)), text)
}

fn expect_number(reply: &Reply, number: i64) -> Result<(), Fault> {
    expect(*reply == Reply::Integer(number), &number.to_string())
}

fn is_ok(reply: &Reply) -> bool {
    *reply == Reply::Simple("OK".to_owned())
}

/// The answers for one or several items.
fn answers(reply: &Reply) -> &[Reply] {
    match reply {
        Reply::Array(answers) => answers,
        one => std::slice::from_ref(one),
    }
}

/// A reply, with the times when the command was sent and answered.
struct Heard<'a> {
    reply: &'a Reply,
    sent: Instant,
    replied: Instant,
}

/// Checks a reply.
pub fn settle(model: &mut Model, op: &Op, reply: &Reply, sent: Instant) -> Result<(), Fault> {
    let heard = Heard { reply, sent, replied: Instant::now() };
    if let Reply::Error(text) = reply
        && is_refused_by_limit(model.limit, op, text)
    {
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

/// Whether the whole command was refused because of insufficient memory. In that case nothing has changed.
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
fn add_one(
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

/// Checks the reply to BF.CHANGED or BF.MCHANGED.
fn changed(model: &mut Model, key: usize, items: &[Item], heard: &Heard<'_>) -> Result<(), Fault> {
    match &model.slots[key] {
        Slot::Arriving(_) => return expect_error(heard.reply, ARRIVING),
        Slot::Filter(filter) if filter.shape.family == Family::Counting => {
            return expect_error(heard.reply, CANNOT_GUARD);
        }
        _ => {}
    }
    let answers = answers(heard.reply);
    expect(answers.len() == items.len(), "an answer for each item")?;
    for (&item, answer) in items.iter().zip(answers) {
        if matches!(model.slots[key], Slot::Filter(_)) {
            add_one(model, key, item, answer, true, heard)?;
        } else {
            expect(*answer == Reply::NullBulk, "null: no such key")?;
        }
    }
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
            let most = if filter.shape.is_cuckoo() { i64::MAX } else { 15 };
            let Reply::Integer(counted @ 0..) = heard.reply else { return wrong("a number") };
            expect(*counted <= most, "0 to 15")?;
            expect(*counted > 0 || !filter.must_have(item, heard.replied), "1 or more")?;
            expect(*counted == 0 || !filter.must_lack(item, heard.sent), "0")
        }
        Slot::Filter(_) => expect_error(heard.reply, "ERR this filter has no CUCKOO or COUNTING"),
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
