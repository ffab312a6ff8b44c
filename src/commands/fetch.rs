//! `BF.FETCH filter item cachekey [LEASE milliseconds] [STALE milliseconds] [WAIT milliseconds]`

use bloomgate_filter::Value;
use bloomgate_filter::words::fetch;

use super::table::FETCH_UNBLOCKED;
use crate::args::Args;
use crate::clock::CommandClock;
use crate::context::Context;
use crate::guard::{self, Answer, Asker, Question, Standing};
use crate::keys::cache_key::CacheKey;
use crate::keys::{Keyspace, ReadKey};
use crate::metrics::{self, Fetched};
use crate::reply::{self, Refusal};
use crate::server::role;

/// Asks the filter, then the cache. Grants one caller the lease to load what is in neither; the others wait for it.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let options = fetch::parse(args.words())?;
    let question = Question { filter: args.arg(1)?, item: args.arg(2)?, cache_key: args.arg(3)?, options };
    if let Look::Leased(left) = look(context, keys, question, Asker::Caller)? {
        let waits = options.wait > 0 && context.may_block();
        if !(waits && guard::wait(context, question, answer, FETCH_UNBLOCKED)) {
            reply_wait(context, left);
        }
    }
    Ok(())
}

/// Looks again on behalf of a waiter. If its WAIT has expired and there is no answer, it gets `wait`.
fn answer(context: Context, keys: &mut Keyspace, question: Question<'_>, is_last: bool) -> Answer {
    match look(context, keys, question, Asker::Waiter) {
        Ok(Look::Replied(token)) => Answer::Given(token),
        Ok(Look::Leased(left)) if is_last => {
            reply_wait(context, left);
            Answer::Given(None)
        }
        Ok(Look::Leased(_)) => Answer::NotYet,
        Err(refusal) => {
            reply::error(context, refusal);
            Answer::Given(None)
        }
    }
}

/// Replies `wait` to a waiter that CLIENT UNBLOCK unblocks.
pub fn unblocked(context: Context, _: Args<'_>, _: &mut Keyspace) -> Result<(), Refusal> {
    reply_wait(context, guard::leave(context));
    Ok(())
}

/// The result of a look.
enum Look {
    /// The reply is written. It grants a lease if there is a token.
    Replied(Option<u64>),
    /// Another caller loads the value, for this many milliseconds more. Nothing was replied.
    Leased(u64),
}

/// The filter's answer about an item.
enum Membership {
    /// It is absent for certain.
    Absent,
    /// It may be in the filter with this instance.
    Maybe(u64),
    /// There is no filter, or its chunks are still arriving: it guards nothing.
    Unguarded,
}

/// Asks the filter, the guard and the cache, and replies unless another caller loads the value.
fn look(context: Context, keys: &mut Keyspace, question: Question<'_>, asker: Asker) -> Result<Look, Refusal> {
    if !role::is_primary() {
        return Err(Refusal::Replica);
    }
    let instance = match ask_filter(context, keys, question, asker)? {
        Membership::Absent => return Ok(reply_absent(context)),
        Membership::Maybe(instance) => Some(instance),
        Membership::Unguarded => None,
    };
    let key = || guard::key_id(context, question.cache_key);
    let item = || guard::item_id(context, question.filter, instance, question.item);
    let standing = if guard::is_idle() { Standing::Free } else { guard::standing(context, key(), item, asker) };
    if standing == Standing::NoRow {
        return Ok(reply_absent(context));
    }
    let grant = || guard::grant(context, key(), item(), question.options.lease);
    let cache = CacheKey::open(keys, question.cache_key);
    let is_stale = || cache.left_to_live().is_some_and(|left| left < question.options.stale);
    let Some(value) = cache.value()? else {
        drop(cache);
        return Ok(match standing {
            Standing::Leased(left) => Look::Leased(left),
            Standing::Free | Standing::NoRow => reply_load(context, grant()),
        });
    };
    if standing == Standing::Free && question.options.stale > 0 && is_stale() {
        reply::array(context, 3);
        reply::bytes(context, b"stale");
        reply::bytes(context, value);
        drop(cache);
        let token = grant();
        reply_token(context, token);
        metrics::fetched(Fetched::Stale);
        return Ok(Look::Replied(Some(token)));
    }
    reply::array(context, 2);
    reply::bytes(context, b"hit");
    reply::bytes(context, value);
    metrics::fetched(Fetched::Hit);
    Ok(Look::Replied(None))
}

/// Asks the filter for an item. INFO counts one lookup for each command, however often a waiter is served.
fn ask_filter(context: Context, keys: &Keyspace, question: Question<'_>, asker: Asker) -> Result<Membership, Refusal> {
    let key = ReadKey::open(keys, question.filter);
    let is_new = asker == Asker::Caller;
    if let Some(stored) = key.stored()?
        && let Value::Filter(filter) = &stored.value
    {
        filter.guards()?;
        let may_be_in = filter.contains(question.item.bytes(), &CommandClock::default());
        if is_new {
            metrics::items_looked_up(1, may_be_in.into());
        }
        return Ok(if may_be_in { Membership::Maybe(stored.instance) } else { Membership::Absent });
    }
    if is_new {
        metrics::fetched(Fetched::Unguarded);
        guard::say_unguarded(context, question.filter);
    }
    Ok(Membership::Unguarded)
}

fn reply_absent(context: Context) -> Look {
    reply::array(context, 1);
    reply::bytes(context, b"absent");
    metrics::fetched(Fetched::Absent);
    Look::Replied(None)
}

fn reply_load(context: Context, token: u64) -> Look {
    reply::array(context, 2);
    reply::bytes(context, b"load");
    reply_token(context, token);
    metrics::fetched(Fetched::Load);
    Look::Replied(Some(token))
}

fn reply_wait(context: Context, milliseconds: u64) {
    reply::array(context, 2);
    reply::bytes(context, b"wait");
    reply::integer(context, milliseconds);
    metrics::fetched(Fetched::Wait);
}

fn reply_token(context: Context, token: u64) {
    reply::text(context, format_args!("{token:016x}"));
}
