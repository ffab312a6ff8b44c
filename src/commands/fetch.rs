//! `BF.FETCH filter item cachekey [LEASE milliseconds] [STALE milliseconds] [WAIT milliseconds]`

use bloomgate_filter::Value;
use bloomgate_filter::words::fetch::{self, Fetch};

use super::{FETCH_AGAIN, FETCH_UNBLOCKED};
use crate::args::{Arg, Args};
use crate::cache_key::CacheKey;
use crate::clock::CommandClock;
use crate::context::Context;
use crate::guard::{self, CacheKeyId, Standing};
use crate::key::ReadKey;
use crate::metrics::{self, Fetched};
use crate::reply::{self, Refusal};
use crate::role;

/// Asks the filter, then the cache, and gives one caller the lease to load what is in neither.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let request = fetch::parse(args.words())?;
    if let Found::Busy(key, lease) = look(context, args, request, false)? {
        let waits = request.wait > 0 && context.may_block();
        if !(waits && guard::wait(context, key, request.wait, FETCH_AGAIN, FETCH_UNBLOCKED)) {
            reply_wait(context, lease);
        }
    }
    Ok(())
}

/// What a client does that waited and was woken: it looks again, and does not wait any more.
pub fn again(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let left = guard::waiter_left(context);
    let turn = left.filter(|left| left.had_turn);
    let found = fetch::parse(args.words()).and_then(|request| look(context, args, request, turn.is_some()));
    if let Ok(Found::Busy(_, lease)) = found {
        reply_wait(context, lease);
    }
    if let Some(turn) = turn {
        match found {
            // Who has the lease now loads for all of them.
            Ok(Found::Loading | Found::Busy(..)) => {}
            Ok(Found::Known) | Err(_) => guard::wake_all(turn.key),
        }
    }
    found.map(drop)
}

/// What a client is told that somebody unblocked by hand.
pub fn unblocked(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let lease = guard::waiter_left(context).map_or(1, |left| guard::lease_left(left.key));
    _ = args;
    reply_wait(context, lease);
    Ok(())
}

/// What became of a look.
enum Found {
    /// The answer is known, and was given.
    Known,
    /// The caller has the lease, and was told so.
    Loading,
    /// Somebody else loads the value of the cache key, for so many milliseconds more. Nothing was replied.
    Busy(CacheKeyId, u64),
}

/// Looks, and replies where nobody else loads the value. `has_turn`: whether the caller has waited until it may load.
fn look(context: Context, args: Args<'_>, request: Fetch, has_turn: bool) -> Result<Found, Refusal> {
    let (item, name) = (args.arg(2)?, args.arg(3)?);
    if !role::is_primary() {
        return Err(Refusal::Replica);
    }
    let Some(filter) = ask_filter(context, args.arg(1)?, item)? else {
        reply_absent(context);
        return Ok(Found::Known);
    };
    let item = || guard::item_id(context, filter, item);
    let key_and_item = || (guard::key_id(context, name), item());
    let standing =
        if guard::is_idle() { Standing::Free } else { guard::standing(guard::key_id(context, name), item, has_turn) };
    if standing == Standing::NoRow {
        reply_absent(context);
        return Ok(Found::Known);
    }
    let cache = CacheKey::open(context, name);
    let is_stale = |cache: &CacheKey| cache.left_to_live().is_some_and(|left| left < request.stale);
    match (cache.value()?, standing) {
        (Some(value), Standing::Free) if request.stale > 0 && is_stale(&cache) => {
            reply::array(context, 3);
            reply::bytes(context, b"stale");
            reply::bytes(context, value);
            drop(cache);
            let (key, item) = key_and_item();
            reply_token(context, guard::lease(context, key, item, request.lease));
            metrics::fetched(Fetched::Stale);
            Ok(Found::Known)
        }
        (Some(value), _) => {
            reply::array(context, 2);
            reply::bytes(context, b"hit");
            reply::bytes(context, value);
            metrics::fetched(Fetched::Hit);
            Ok(Found::Known)
        }
        (None, Standing::Leased(left)) => Ok(Found::Busy(guard::key_id(context, name), left)),
        (None, _) => {
            drop(cache);
            let (key, item) = key_and_item();
            let token = guard::lease(context, key, item, request.lease);
            reply::array(context, 2);
            reply::bytes(context, b"load");
            reply_token(context, token);
            metrics::fetched(Fetched::Load);
            Ok(Found::Loading)
        }
    }
}

/// Asks the filter for an item; nothing where it is absent for certain, else the filter's instance. A filter that is not there,
/// or not as a whole, guards nothing: its instance is 0.
fn ask_filter(context: Context, name: Arg<'_>, item: Arg<'_>) -> Result<Option<u64>, Refusal> {
    let key = ReadKey::open(context, name);
    if let Some(stored) = key.stored()?
        && let Value::Filter(filter) = &stored.value
    {
        filter.guards()?;
        let may_be_in = filter.contains(item.bytes(), &CommandClock::default());
        metrics::items_looked_up(1, may_be_in.into());
        return Ok(may_be_in.then_some(stored.instance));
    }
    metrics::fetched(Fetched::Unguarded);
    guard::say_unguarded(context, name);
    Ok(Some(0))
}

fn reply_absent(context: Context) {
    reply::array(context, 1);
    reply::bytes(context, b"absent");
    metrics::fetched(Fetched::Absent);
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
