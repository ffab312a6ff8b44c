//! `BF.FETCH filter item cachekey [LEASE milliseconds] [STALE milliseconds] [WAIT milliseconds] [WHILE key] [UNLESS key]`

use bloomgate_filter::Value;
use bloomgate_filter::words::fetch::{self, Fetch};

use super::table::FETCH_UNBLOCKED;
use crate::args::{Arg, Args};
use crate::clock::CommandClock;
use crate::context::Context;
use crate::guard::{self, Answer, Asker, Guarded, Pause, Question, Standing, Token};
use crate::keys::cache_key::Cached;
use crate::keys::conditions::{self, WritesInFlight};
use crate::keys::{Keyspace, ReadKey};
use crate::metrics::{self, Fetched};
use crate::reply::{self, Refusal};
use crate::server::role;

/// Asks the filter, then the cache. Grants one caller the lease to load what is in neither; the others wait for it.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let options = fetch::parse(args.words())?;
    let question = question(&args, options, [args.arg(2)?, args.arg(3)?])?;
    if let Look::Paused(pause) = look(context, keys, question, Asker::Caller)? {
        let waits = options.wait > 0 && context.may_block();
        if !(waits && guard::wait(context, question, pause, answer, FETCH_UNBLOCKED)) {
            reply_wait(context, pause);
        }
    }
    Ok(())
}

/// The question about an item and its cache key.
pub fn question<'a>(
    args: &'a Args<'_>,
    options: Fetch,
    [item, cache_key]: [Arg<'a>; 2],
) -> Result<Question<'a>, Refusal> {
    let key = |index: Option<usize>| index.map(|index| args.arg(index)).transpose();
    let (while_key, unless_key) = (key(options.while_key)?, key(options.unless_key)?);
    Ok(Question { filter: args.arg(1)?, item, cache_key, while_key, unless_key, options })
}

/// Looks again on behalf of a waiter. If its WAIT has expired and there is no answer, it gets `wait`.
fn answer(context: Context, keys: &mut Keyspace, question: Question<'_>, is_last: bool) -> Answer {
    match look(context, keys, question, Asker::Waiter) {
        Ok(Look::Replied(stamp)) => Answer::Given(stamp),
        Ok(Look::Paused(pause)) if is_last => {
            reply_wait(context, pause);
            Answer::Given(None)
        }
        Ok(Look::Paused(pause)) => Answer::NotYet(pause),
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
pub enum Look {
    /// The reply is written. It grants a lease if there is a stamp.
    Replied(Option<u64>),
    /// There is no answer yet. Nothing was replied.
    Paused(Pause),
}

/// The filter's answer about an item.
#[derive(Clone, Copy)]
pub enum Membership {
    /// It is absent for certain.
    Absent,
    /// It may be in the filter with this instance.
    Maybe(u64),
    /// Nothing is certain: there is no filter, its chunks are still arriving, or the key of WHILE is missing. The instance is
    /// that of a filter that exists. Leases are granted for it, so that they end when the filter is replaced.
    Unguarded(Option<u64>),
}

/// Asks the filter, the guard and the cache, and replies unless the caller has to wait.
///
/// A write in flight comes first: until it has ended, the filter may lack the item and the cache may have an old value.
fn look(context: Context, keys: &mut Keyspace, question: Question<'_>, asker: Asker) -> Result<Look, Refusal> {
    if !role::is_primary() {
        return Err(Refusal::Replica);
    }
    if let Some(unless_key) = question.unless_key
        && WritesInFlight::open(keys, unless_key)?.has(question.cache_key)
    {
        return Ok(Look::Paused(Pause::Held));
    }
    let membership = ask_filter(context, keys, question, asker)?;
    look_behind(context, keys, question, membership, asker)
}

/// Asks the cache and the guard about an item for which the filter has answered, and replies unless the caller has to wait. A value
/// that is not to be refreshed needs no guard: there is no NONE beside it.
pub fn look_behind(
    context: Context,
    keys: &mut Keyspace,
    question: Question<'_>,
    membership: Membership,
    asker: Asker,
) -> Result<Look, Refusal> {
    let (instance, denies) = match membership {
        Membership::Absent => return Ok(reply_absent(context)),
        Membership::Maybe(instance) => (Some(instance), true),
        Membership::Unguarded(instance) => (instance, false),
    };
    let Question { filter, item, cache_key, options, .. } = question;
    let value = match asker {
        Asker::Caller => Cached::open(keys, cache_key)?,
        Asker::Waiter => Cached::get(keys, cache_key, options.stale > 0)?,
    };
    if let Some(value) = &value
        && !(options.stale > 0 && value.left_to_live().is_some_and(|left| left < options.stale))
    {
        return Ok(reply_hit(context, value.bytes()));
    }
    let row = Guarded::new(context, filter, instance, [item, cache_key]);
    match (row.standing(asker, denies), value) {
        (Standing::NoRow, _) => Ok(reply_absent(context)),
        (Standing::Free, None) => {
            let (token, stamp) = row.grant(options.lease);
            reply::array(context, 2);
            reply::bytes(context, b"load");
            reply_token(context, token);
            metrics::fetched(Fetched::Load);
            Ok(Look::Replied(Some(stamp)))
        }
        (Standing::Free, Some(value)) => {
            reply::array(context, 3);
            reply::bytes(context, b"stale");
            reply::bytes(context, value.bytes());
            drop(value);
            let (token, stamp) = row.grant(options.lease);
            reply_token(context, token);
            metrics::fetched(Fetched::Stale);
            Ok(Look::Replied(Some(stamp)))
        }
        (Standing::Leased(_) | Standing::BackedOff(_), Some(value)) => Ok(reply_hit(context, value.bytes())),
        (Standing::Leased(left), None) => Ok(Look::Paused(Pause::Leased(left))),
        (Standing::BackedOff(left), None) => {
            reply_wait(context, Pause::Leased(left));
            Ok(Look::Replied(None))
        }
    }
}

/// Asks the filter for an item. INFO counts one lookup for each command, however often a waiter is served.
fn ask_filter(
    context: Context,
    keys: &mut Keyspace,
    question: Question<'_>,
    asker: Asker,
) -> Result<Membership, Refusal> {
    let missing = question.while_key.filter(|name| !conditions::exists(keys, *name));
    let key = ReadKey::open(keys, question.filter);
    let is_new = asker == Asker::Caller;
    let mut instance = None;
    if let Some(stored) = key.stored()?
        && let Value::Filter(filter) = &stored.value
    {
        filter.guards()?;
        if missing.is_none() {
            let may_be_in = filter.contains(question.item.bytes(), &CommandClock::default());
            if is_new {
                metrics::items_looked_up(1, may_be_in.into());
            }
            return Ok(if may_be_in { Membership::Maybe(stored.instance) } else { Membership::Absent });
        }
        instance = Some(stored.instance);
    }
    if is_new {
        metrics::fetched(Fetched::Unguarded);
        say_unguarded(context, question.filter, missing);
    }
    Ok(Membership::Unguarded(instance))
}

/// Reports in the log what is `missing`: the key of WHILE, or else the filter.
pub fn say_unguarded(context: Context, filter: Arg<'_>, missing: Option<Arg<'_>>) {
    match missing {
        Some(name) => guard::say_unguarded(context, "key of WHILE", name),
        None => guard::say_unguarded(context, "filter", filter),
    }
}

fn reply_absent(context: Context) -> Look {
    reply::array(context, 1);
    reply::bytes(context, b"absent");
    metrics::fetched(Fetched::Absent);
    Look::Replied(None)
}

fn reply_hit(context: Context, value: &[u8]) -> Look {
    reply::array(context, 2);
    reply::bytes(context, b"hit");
    reply::bytes(context, value);
    metrics::fetched(Fetched::Hit);
    Look::Replied(None)
}

/// Replies `wait` with the time that is left. The end of a write in flight is not known: its time is 1.
pub fn reply_wait(context: Context, pause: Pause) {
    let milliseconds = match pause {
        Pause::Leased(left) => left,
        Pause::Held => {
            metrics::fetched(Fetched::Held);
            1
        }
    };
    reply::array(context, 2);
    reply::bytes(context, b"wait");
    reply::integer(context, milliseconds);
    metrics::fetched(Fetched::Wait);
}

fn reply_token(context: Context, token: Token) {
    reply::text(context, format_args!("{token:032x}"));
}
