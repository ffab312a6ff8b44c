//! Checks the replies to the guard's commands: a cached value is never outdated, and a void token is never accepted.

use super::filter::Item;
use super::model::{Model, Slot, Token};
use super::replies::{ARRIVING, Fault, Heard, add_one, expect, expect_error, is_ok, wrong};
use super::shapes::Family;
use crate::harness::Reply;

pub fn changed(model: &mut Model, key: usize, item: Item, heard: &Heard<'_>) -> Result<(), Fault> {
    model.cache(key, item, None);
    if let Some(token) = model.tokens.get_mut(&(key, item)) {
        (token.is_void, token.is_good) = (true, false);
    }
    match &model.slots[key] {
        Slot::Arriving(_) => expect_error(heard.reply, ARRIVING),
        Slot::Filter(filter) if filter.shape.family == Family::Counting => {
            expect_error(heard.reply, "ERR a COUNTING filter cannot guard")
        }
        Slot::Filter(_) => add_one(model, key, item, heard.reply, true, heard),
        _ => expect(*heard.reply == Reply::NullBulk, "null"),
    }
}

pub fn fetch(model: &mut Model, key: usize, item: Item, heard: &Heard<'_>) -> Result<(), Fault> {
    let (guards, must_have) = match &model.slots[key] {
        Slot::Filter(filter) if filter.shape.family == Family::Counting => {
            return expect_error(heard.reply, "ERR a COUNTING filter cannot guard");
        }
        Slot::Filter(filter) => (true, filter.must_have(item, heard.replied)),
        _ => (false, true),
    };
    let Reply::Array(parts) = heard.reply else { return wrong("an array") };
    let values = model.cached(key, item);
    match parts.as_slice() {
        [word] if word.text() == "absent" => expect(!must_have, "another word: the item is in"),
        [word, value] if word.text() == "hit" => {
            let value = value.text().parse::<u64>().ok();
            expect(value.is_some() && values.contains(&value), &format!("one of {values:?}"))
        }
        [word, token] if word.text() == "load" => {
            expect(values.contains(&None), &format!("one of {values:?}"))?;
            let (text, is_good) = (token.text(), guards);
            model.tokens.insert((key, item), Token { text, is_void: false, is_good, same_filter: guards });
            Ok(())
        }
        [word, Reply::Integer(1..)] if word.text() == "wait" => expect(values.contains(&None), &format!("{values:?}")),
        _ => wrong("absent, hit, load or wait"),
    }
}

pub fn fill(model: &mut Model, of: (usize, Item), text: &str, value: u64, reply: &Reply) -> Result<(), Fault> {
    let Some(token) = model.tokens.remove(&of).filter(|token| token.text == text) else {
        return expect(*reply == Reply::NullBulk, "null: an earlier command used the token");
    };
    if *reply == Reply::NullBulk {
        return expect(!token.is_good, "OK: the token is good");
    }
    expect(is_ok(reply) && !token.is_void, "null: the token is void")?;
    model.cache(of.0, of.1, Some(value));
    Ok(())
}
