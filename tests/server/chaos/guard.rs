//! The guard's commands and the checks of their replies. A cached value is never outdated, `absent` is never wrong, a row has
//! one lease at a time, a void token is never accepted, and a good one always is.

use super::commands::{Words, words};
use super::filter::Item;
use super::model::{Model, Slot};
use super::records::{Known, Row};
use super::replies::{ARRIVING, Fault, Heard, add_one, answers, expect, expect_error, expect_number, is_ok, wrong};
use super::shapes::Family;
use testing::Reply;

/// The key of WHILE, and the hash of UNLESS.
pub const WHILE_KEY: &str = "feed:beats";
pub const UNLESS_KEY: &str = "feed:writes";

const CANNOT_GUARD: &str = "ERR a COUNTING filter cannot guard";
/// The time to live in seconds of values with odd numbers. The others do not expire.
const EXPIRES: u64 = 1_000_000;

/// The options of BF.FETCH and BF.MFETCH.
#[derive(Clone, Copy)]
pub struct Asking {
    pub lease: u64,
    /// Whether values that expire at all are stale.
    pub refreshes: bool,
    /// 0 for no WAIT.
    pub wait: u64,
    pub has_while: bool,
    pub has_unless: bool,
    /// Which option comes first.
    pub first: usize,
}

impl Asking {
    /// Returns the options.
    pub fn words(&self) -> Words {
        let mut options = vec![
            format!("LEASE {}", self.lease),
            format!("STALE {}", if self.refreshes { 2000 * EXPIRES } else { 1000 }),
        ];
        options.extend((self.wait > 0).then(|| format!("WAIT {}", self.wait)));
        options.extend(self.has_while.then(|| format!("WHILE {WHILE_KEY}")));
        options.extend(self.has_unless.then(|| format!("UNLESS {UNLESS_KEY}")));
        let first = self.first % options.len();
        options.rotate_left(first);
        words(&options.join(" "))
    }
}

/// What BF.FILL reports.
#[derive(Clone, Copy)]
pub enum Filling {
    Value(u64),
    /// For this number of milliseconds.
    NoRow(u64),
    GiveUp,
    /// For this number of milliseconds.
    BackOff(u64),
}

impl Filling {
    /// Returns the arguments after the token.
    pub fn words(self) -> Words {
        words(&match self {
            Self::Value(value) if expires(value) => format!("VALUE {value} EX {EXPIRES}"),
            Self::Value(value) => format!("VALUE {value}"),
            Self::NoRow(time) => format!("NONE PX {time}"),
            Self::GiveUp => "GIVEUP".to_owned(),
            Self::BackOff(time) => format!("GIVEUP BACKOFF {time}"),
        })
    }
}

const fn expires(value: u64) -> bool {
    value % 2 == 1
}

/// Checks the reply to BF.CHANGED or BF.MCHANGED, whose effects on the cache the model has already.
pub fn changed(model: &mut Model, key: usize, items: &[Item], heard: &Heard<'_>) -> Result<(), Fault> {
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

/// Checks the reply to BF.FETCH, with `one`, or BF.MFETCH.
pub fn fetch(
    model: &mut Model,
    key: usize,
    items: &[Item],
    (one, asking): (bool, &Asking),
    heard: &Heard<'_>,
) -> Result<(), Fault> {
    // BF.FETCH does not look at the filter of a row that has a write in flight.
    let is_held = one && asking.has_unless && model.guard.conditions.hold((key, items[0]));
    if let Slot::Filter(filter) = &model.slots[key]
        && filter.shape.family == Family::Counting
        && !is_held
    {
        return expect_error(heard.reply, CANNOT_GUARD);
    }
    let answers = if one { std::slice::from_ref(heard.reply) } else { answers(heard.reply) };
    expect(answers.len() == items.len(), "an answer for each item")?;
    for (&item, answer) in items.iter().zip(answers) {
        let Reply::Array(parts) = answer else { return wrong("an array") };
        let row = (key, item);
        if let Some(token) = fetched(model, row, asking, parts, heard)? {
            let is_new = model.guard.grant(row, &token, asking.lease, heard);
            expect(is_new, &format!("another token than {token}"))?;
        }
    }
    Ok(())
}

/// Checks the answer about one row. Returns the token that it grants.
fn fetched(
    model: &mut Model,
    row: Row,
    asking: &Asking,
    parts: &[Reply],
    heard: &Heard<'_>,
) -> Result<Option<String>, Fault> {
    let (key, item) = row;
    let conditions = &model.guard.conditions;
    if asking.has_unless && conditions.hold(row) {
        model.guard.saw("held");
        let holds = matches!(parts, [word, Reply::Integer(1)] if word.text() == "wait");
        return expect(holds, &format!("wait 1: item:{item} has a write in flight")).map(|()| None);
    }
    // Whether the filter decides what is absent.
    let denies = !asking.has_while || conditions.beats;
    let (must_have, must_lack) = match &model.slots[key] {
        Slot::Filter(filter) if denies => (filter.must_have(item, heard.replied), filter.must_lack(item, heard.sent)),
        _ => (true, false),
    };
    let denies = denies && matches!(model.slots[key], Slot::Filter(_));
    let record = model.guard.record(row, heard);
    let must = record.is_some_and(|record| record.must(heard));
    let (no_row, busy) = record.map_or((false, false), |record| (!record.is_busy() && denies, record.is_busy()));
    let longest = record.map_or(0, |record| record.milliseconds);

    let values = model.cached(key, item);
    let is_cached = |value: &Reply| {
        let value = value.text().parse::<u64>().ok();
        expect(value.is_some() && values.contains(&value), &format!("one of {values:?}"))?;
        Ok::<_, Fault>(value.is_some_and(expires) && asking.refreshes)
    };
    let is_free = || expect(!(must && busy), "no token: there is a lease or a back-off");
    let is_missing = || expect(values.contains(&None), &format!("one of {values:?}"));
    let word = parts.first().map(Reply::text).unwrap_or_default();
    let (seen, token) = match (word.as_str(), &parts[1..]) {
        ("absent", []) => {
            expect(!must_have || no_row, &format!("another word: item:{item} may have a row"))?;
            (if must_have { "absent by a NONE" } else { "absent" }, None)
        }
        _ if must_lack || no_row && must => return wrong(&format!("absent: item:{item}")),
        ("hit", [value]) => {
            let is_stale = is_cached(value)?;
            expect(!is_stale || busy, "stale: nobody refreshes it")?;
            ("hit", None)
        }
        ("stale", [value, token]) => {
            expect(is_cached(value)?, "hit: it does not expire")?;
            is_free()?;
            ("stale", Some(token.text()))
        }
        ("load", [token]) => {
            is_missing()?;
            is_free()?;
            ("load", Some(token.text()))
        }
        ("wait", [Reply::Integer(left)]) => {
            is_missing()?;
            expect(busy, "a token: there is no lease and no back-off")?;
            expect((1..=longest.cast_signed()).contains(left), &format!("1 to {longest} ms"))?;
            ("wait", None)
        }
        _ => return wrong("absent, hit, stale, load or wait"),
    };
    model.guard.saw(seen);
    Ok(token)
}

/// Checks the reply to BF.FILL.
pub fn fill(model: &mut Model, row: Row, token: &str, filling: Filling, heard: &Heard<'_>) -> Result<(), Fault> {
    let of_token = model.guard.token(row, token);
    let (mut may, mut must) =
        of_token.map_or((false, false), |token| (!token.is_void, !token.is_void && token.is_of_filter));
    if let Filling::GiveUp = filling {
        let record = model.guard.record(row, heard).filter(|record| record.known == Known::Lease(token.to_owned()));
        may &= record.is_some();
        must &= record.is_some_and(|record| record.must(heard));
    }
    if *heard.reply == Reply::NullBulk {
        model.guard.saw("refused");
        return expect(!must, "OK: the token is good");
    }
    expect(is_ok(heard.reply) && may, "null: the token is void, or has no lease")?;
    let seen = match filling {
        Filling::Value(value) => {
            model.guard.end(row);
            model.cache(row.0, row.1, Some(value));
            "filled"
        }
        Filling::NoRow(time) => {
            model.guard.end(row);
            model.cache(row.0, row.1, None);
            // Without a filter nothing is absent, so the guard records nothing.
            if matches!(model.slots[row.0], Slot::Filter(_)) {
                model.guard.note(row, Known::NoRow, time, heard);
            }
            "NONE"
        }
        Filling::GiveUp => {
            model.guard.end_record(row);
            "GIVEUP"
        }
        Filling::BackOff(time) => {
            model.guard.note(row, Known::BackOff, time, heard);
            "BACKOFF"
        }
    };
    model.guard.saw(seen);
    Ok(())
}

/// Checks the reply to a client that sets or deletes a cache key by the server's own commands.
pub fn overwrite(model: &mut Model, row: Row, value: Option<u64>, reply: &Reply) -> Result<(), Fault> {
    let values = model.cached(row.0, row.1);
    match (value, reply) {
        (Some(_), reply) => expect(is_ok(reply), "OK")?,
        (None, Reply::Integer(1)) => expect(values.iter().any(Option::is_some), "0: it has no value")?,
        // A DEL that deletes nothing changes nothing.
        (None, _) => return expect(*reply == Reply::Integer(0) && values.contains(&None), "1: it has a value"),
    }
    model.cache(row.0, row.1, value);
    model.guard.overwritten(row);
    Ok(())
}

/// Checks the reply to SET or DEL of the key of WHILE.
pub fn beat(model: &mut Model, begins: bool, reply: &Reply) -> Result<(), Fault> {
    let conditions = model.conditions();
    let did = std::mem::replace(&mut conditions.beats, begins);
    if begins { expect(is_ok(reply), "OK") } else { expect_number(reply, did.into()) }
}

/// Checks the reply to HSET or HDEL of the hash of UNLESS.
pub fn write(model: &mut Model, row: Option<Row>, begins: bool, reply: &Reply) -> Result<(), Fault> {
    let in_flight = &mut model.conditions().in_flight;
    let has_changed = if begins { in_flight.insert(row) } else { in_flight.remove(&row) };
    expect_number(reply, has_changed.into())
}
