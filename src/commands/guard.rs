//! The guard in front of a database: BF.FETCH, BF.MFETCH, BF.FILL, BF.CHANGED and BF.MCHANGED.

use std::num::NonZeroUsize;

use bloomgate_filter::{BATCH, Error, Mask, Value};
use redis_module::raw;

use super::add::{Adding, ReplyForm, add_items};
use super::dispatch::handler;
use crate::args::{Arg, Args};
use crate::context::{CommandClock, Context};
use crate::guard::arguments::{self, Fetch, Fill};
use crate::guard::{self, Answer, Asker, Guarded, Pause, Question, RowState, Shared, Token, Trust};
use crate::keys::cache_key::{self, Cached, KeyContents, WritesInFlight};
use crate::keys::{Keyspace, ReadKey};
use crate::metrics;
use crate::reply::{self, Refusal};
use crate::server::role;

/// BF.FETCH, with the options of [`arguments::fetch`].
///
/// Queries the filter, then the cache. Grants one caller the lease to load a value that is not cached; others wait for it.
pub fn fetch(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let options = arguments::fetch(args.words())?;
    let question = question(&args, options, [args.arg(2)?, args.arg(3)?])?;
    if let Answer::NotYet(pause) = try_answer(context, keys, question, Asker::Caller)? {
        let waits = options.wait > 0 && context.may_block();
        if !(waits && guard::wait(context, question, pause, answer, FETCH_UNBLOCKED)) {
            reply_wait(context, pause);
        }
    }
    Ok(())
}

/// The question about an item and its cache key.
fn question<'a>(args: &'a Args<'_>, options: Fetch, [item, cache_key]: [Arg<'a>; 2]) -> Result<Question<'a>, Refusal> {
    let key = |index: Option<NonZeroUsize>| index.map(|index| args.arg(index.get())).transpose();
    let (while_key, unless_key) = (key(options.while_key)?, key(options.unless_key)?);
    Ok(Question { filter: args.arg(1)?, item, cache_key, while_key, unless_key, options })
}

/// Answers a waiter, reusing the answer to an equal question if there is one. Replies `wait` if its WAIT has expired without an answer.
fn answer(
    context: Context,
    keys: &mut Keyspace,
    question: Question<'_>,
    is_last: bool,
    known: Option<&Shared>,
) -> Answer {
    match known {
        Some(Shared::Absent) => return reply_absent(context),
        Some(Shared::Hit(value)) => return reply_hit(context, value),
        None => {}
    }
    match try_answer(context, keys, question, Asker::Waiter) {
        Ok(Answer::NotYet(pause)) if is_last => {
            reply_wait(context, pause);
            Answer::Given(None)
        }
        Ok(answer) => answer,
        Err(refusal) => {
            reply::error(context, refusal);
            Answer::Given(None)
        }
    }
}

/// Replies `wait` to a waiter that CLIENT UNBLOCK unblocks.
fn unblocked(context: Context, _: Args<'_>, _: &mut Keyspace) -> Result<(), Refusal> {
    reply_wait(context, guard::leave(context));
    Ok(())
}

/// The filter's answer about an item.
#[derive(Clone, Copy)]
enum Membership {
    /// The item is certainly absent.
    Absent,
    /// The item may be in the filter with this instance.
    Maybe(u64),
    /// Unknown: the filter is missing or still being loaded, or the key of WHILE is missing. If the filter exists, leases are granted for
    /// its instance, so that they end when it is replaced.
    Unguarded(Option<u64>, Trust),
}

/// Queries the filter, the guard and the cache, and replies unless the caller must wait.
///
/// A write in flight has precedence: until it has ended, the filter may lack the item and the cache may have an old value.
fn try_answer(context: Context, keys: &mut Keyspace, question: Question<'_>, asker: Asker) -> Result<Answer, Refusal> {
    if !role::is_primary() {
        return Err(Refusal::Replica);
    }
    if let Some(unless_key) = question.unless_key {
        let writes = WritesInFlight::open(keys, unless_key)?;
        if writes.has(question.cache_key) {
            return Ok(Answer::NotYet(if writes.has_all { Pause::AllHeld } else { Pause::Held }));
        }
    }
    let membership = ask_filter(context, keys, question, asker)?;
    ask_cache(context, keys, question, membership, asker)
}

/// Queries the cache and the guard after the filter, and replies unless the caller must wait. A value that needs no refresh is returned
/// without the guard, because a cache key with a value has no NONE.
fn ask_cache(
    context: Context,
    keys: &mut Keyspace,
    question: Question<'_>,
    membership: Membership,
    asker: Asker,
) -> Result<Answer, Refusal> {
    let Question { filter, item, cache_key, while_key, options, .. } = question;
    if while_key.is_some_and(|name| cache_key::belongs_to(cache_key.bytes(), name.bytes())) {
        return Err(Refusal::BelongsToWhile);
    }
    let (instance, trust) = match membership {
        Membership::Absent => return Ok(reply_absent(context)),
        Membership::Maybe(instance) => (Some(instance), Trust::All),
        Membership::Unguarded(instance, trust) => (instance, trust),
    };
    let value = match asker {
        Asker::Caller => Cached::open(keys, cache_key)?,
        Asker::Waiter => Cached::get(keys, cache_key, options.stale > 0)?,
    };
    let is_stale = |value: &Cached<'_>| {
        let expires = options.stale > 0 || options.renew > 0;
        let is_due = |left: u64| left < options.stale || guard::renews(context, instance, options, left);
        expires && value.remaining_ttl().is_some_and(is_due)
    };
    if let Some(value) = &value
        && !options.replaces
        && trust != Trust::Fresh
        && !is_stale(value)
    {
        return Ok(reply_value(context, value));
    }
    let row = Guarded::new(context, filter, instance, [item, cache_key]);
    let state = row.row_state(asker, trust);
    let value = value.filter(|_| trust != Trust::Fresh || state == RowState::Loaded);
    match (state, &value) {
        (RowState::NoRow, _) => return Ok(reply_absent(context)),
        (RowState::Loaded, Some(value)) if !options.replaces => return Ok(reply_value(context, value)),
        (RowState::Free | RowState::Loaded, _) if !options.peeks => {}
        (_, Some(value)) if !options.replaces => return Ok(reply_value(context, value)),
        (RowState::Leased(left), _) => return Ok(Answer::NotYet(Pause::Leased(left))),
        (RowState::BackedOff(left), _) => {
            reply_back_off(context, left, options.tells_failures);
            return Ok(Answer::Given(None));
        }
        (RowState::Free | RowState::Loaded, _) => return Ok(Answer::NotYet(Pause::Leased(1))),
    }
    let fresh = Some(options.fresh).filter(|_| trust == Trust::Fresh);
    let Some(cached) = value else {
        drop(value);
        let is_followed = |while_key| cache_key::is_followed(keys, while_key, item.bytes(), cache_key.bytes());
        if !while_key.is_none_or(is_followed) {
            return Err(Refusal::NotFollowed);
        }
        let (token, stamp) = row.grant(options.lease, fresh);
        reply::array(context, 2);
        reply::bytes(context, b"load");
        reply_token(context, token);
        metrics::FETCHES_LOAD.count(1);
        return Ok(Answer::Given(Some(stamp)));
    };
    reply::array(context, 3);
    reply::bytes(context, b"stale");
    reply::bytes(context, cached.bytes());
    drop(cached);
    let (token, stamp) = row.grant(options.lease, fresh);
    reply_token(context, token);
    metrics::FETCHES_STALE.count(1);
    Ok(Answer::Given(Some(stamp)))
}

/// Looks an item up in the filter. INFO counts one lookup per command, even if a waiter is served several times.
fn ask_filter(
    context: Context,
    keys: &mut Keyspace,
    question: Question<'_>,
    asker: Asker,
) -> Result<Membership, Refusal> {
    let missing = question.while_key.filter(|name| cache_key::contents_of(keys, *name) == KeyContents::Nothing);
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
        metrics::FETCHES_UNGUARDED.count(1);
        guard::warn_unguarded(context, question.filter, missing);
    }
    Ok(Membership::Unguarded(instance, trust_without(missing, question.options)))
}

/// Returns which answers the caller accepts without a filter, or without the key of WHILE if that is `missing`.
fn trust_without(missing: Option<Arg<'_>>, options: Fetch) -> Trust {
    if missing.is_some() && options.fresh > 0 { Trust::Fresh } else { Trust::Values }
}

fn reply_absent(context: Context) -> Answer {
    reply::array(context, 1);
    reply::bytes(context, b"absent");
    metrics::FETCHES_ABSENT.count(1);
    Answer::Shared(Shared::Absent)
}

/// Replies with a value. A waiter's value is copied for waiters with equal questions; if memory runs out, each reads it separately.
fn reply_value(context: Context, value: &Cached<'_>) -> Answer {
    let answer = reply_hit(context, value.bytes());
    let mut copy = Vec::new();
    if matches!(value, Cached::Open(_)) || copy.try_reserve_exact(value.bytes().len()).is_err() {
        return answer;
    }
    copy.extend_from_slice(value.bytes());
    Answer::Shared(Shared::Hit(copy))
}

fn reply_hit(context: Context, value: &[u8]) -> Answer {
    reply::array(context, 2);
    reply::bytes(context, b"hit");
    reply::bytes(context, value);
    metrics::FETCHES_HIT.count(1);
    Answer::Given(None)
}

/// Replies `wait` with the remaining time, or 1 for a write in flight, whose end is unknown.
fn reply_wait(context: Context, pause: Pause) {
    let milliseconds = match pause {
        Pause::Leased(left) => left,
        Pause::Held | Pause::AllHeld => {
            metrics::FETCHES_WAITING.count(1);
            1
        }
    };
    reply::array(context, 2);
    reply::bytes(context, b"wait");
    reply::integer(context, milliseconds);
    metrics::FETCHES_WAIT.count(1);
}

/// Replies with the remaining time of a back-off: `failed`, or `wait` to a client that does not support `failed`.
fn reply_back_off(context: Context, left: u64, tells_failures: bool) {
    if !tells_failures {
        return reply_wait(context, Pause::Leased(left));
    }
    reply::array(context, 2);
    reply::bytes(context, b"failed");
    reply::integer(context, left);
    metrics::FETCHES_FAILED.count(1);
}

/// Replies a token as 32 hexadecimal digits. A formatter executes six times the instructions.
fn reply_token(context: Context, token: Token) {
    let mut text = [[0; 2]; size_of::<Token>()];
    for (digits, byte) in text.iter_mut().zip(token.to_be_bytes()) {
        *digits = [byte >> 4, byte & 15].map(|digit| if digit < 10 { b'0' + digit } else { b'a' - 10 + digit });
    }
    reply::bytes(context, text.as_flattened());
}

/// BF.MFETCH, with the options of [`arguments::mfetch`].
///
/// Performs BF.FETCH for each pair, and replies to each, without waiting. Looks up to [`BATCH`] items up at a time.
pub fn mfetch(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let (options, first) = arguments::mfetch(args.words())?;
    let pairs = args.rest(first)?;
    if !role::is_primary() {
        return Err(Refusal::Replica);
    }
    metrics::BATCHES.count(1);
    let of_first = question(&args, options, [args.arg(first)?, args.arg(first + 1)?])?;
    let missing = of_first.while_key.filter(|name| cache_key::contents_of(keys, *name) == KeyContents::Nothing);
    let asked = BatchKeys { filter: of_first.filter, missing, unless_key: of_first.unless_key };
    let trust = trust_without(missing, options);

    let mut batches = pairs.chunks(2 * BATCH).peekable();
    // Errors for the whole command must precede the array reply.
    let mut found = Some(batches.peek().map_or(Ok(Found::default()), |batch| asked.ask(context, keys, batch))?);
    reply::array(context, pairs.len() / 2);
    for batch in batches {
        let found = found.take().map_or_else(|| asked.ask(context, keys, batch), Ok);
        for (index, pair) in batch.chunks_exact(2).enumerate() {
            let &[item, cache_key] = pair else { continue };
            let answer = found.and_then(|found| match found.membership(index, trust) {
                None => Ok(Answer::NotYet(Pause::Held)),
                Some(membership) => {
                    let question = Question { item, cache_key, ..of_first };
                    ask_cache(context, keys, question, membership, Asker::Caller)
                }
            });
            match answer {
                Ok(Answer::Given(_) | Answer::Shared(_)) => {}
                Ok(Answer::NotYet(pause)) => reply_wait(context, pause),
                Err(refusal) => reply::error(context, refusal),
            }
        }
    }
    Ok(())
}

/// The keys that are read for every pair.
struct BatchKeys<'a> {
    filter: Arg<'a>,
    /// The key of WHILE, if it is missing.
    missing: Option<Arg<'a>>,
    unless_key: Option<Arg<'a>>,
}

/// The results of UNLESS and of the filter for a batch of pairs.
#[derive(Clone, Copy, Default)]
struct Found {
    /// The pairs whose cache keys have a write in flight.
    held: Mask,
    /// The items that may be in the filter.
    present: Mask,
    /// The filter's instance, if there is one.
    instance: Option<u64>,
    /// Whether an item that is not in the filter certainly has no row.
    denies: bool,
}

impl Found {
    /// The filter's answer about a pair; `None` if it has a write in flight. `trust` applies if the filter cannot answer.
    fn membership(&self, index: usize, trust: Trust) -> Option<Membership> {
        match self.instance {
            _ if self.held.contains(index) => None,
            Some(instance) if self.denies && self.present.contains(index) => Some(Membership::Maybe(instance)),
            Some(_) if self.denies => Some(Membership::Absent),
            instance => Some(Membership::Unguarded(instance, trust)),
        }
    }
}

impl BatchKeys<'_> {
    /// Looks up the writes in flight, then the items in the filter. Closes both keys.
    fn ask(&self, context: Context, keys: &mut Keyspace, pairs: &[Arg<'_>]) -> Result<Found, Refusal> {
        let mut found = Found::default();
        if let Some(unless_key) = self.unless_key {
            let writes = WritesInFlight::open(keys, unless_key)?;
            let cache_keys = pairs.iter().skip(1).step_by(2);
            cache_keys.enumerate().for_each(|(index, name)| found.held.insert_if(index, writes.has(*name)));
        }
        let free = Mask::first(pairs.len() / 2) - found.held;
        let key = ReadKey::open(keys, self.filter);
        if let Some(stored) = key.stored()?
            && let Value::Filter(filter) = &stored.value
        {
            filter.guards()?;
            found.instance = Some(stored.instance);
            if self.missing.is_none() {
                let items = pairs.iter().step_by(2).map(|item| item.bytes());
                found.present = filter.contains_batch(items, &CommandClock::default());
                found.denies = true;
                metrics::items_looked_up(free.len() as usize, (found.present - found.held).len());
                return Ok(found);
            }
        }
        metrics::FETCHES_UNGUARDED.count(free.len().into());
        if !free.is_empty() {
            guard::warn_unguarded(context, self.filter, self.missing);
        }
        Ok(found)
    }
}

/// `BF.FILL filter item cachekey token VALUE value [EX seconds | PX milliseconds]`, `... token NONE (EX seconds | PX
/// milliseconds)`, `... token GIVEUP [BACKOFF [milliseconds]]`
///
/// Stores the loaded value if its token is safe, even if the lease has expired, and ends the lease. A refused fill also ends the lease, so
/// that the next caller need not wait for it to expire.
pub fn fill(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let (token, fill) = arguments::fill(args.words())?;
    let (filter, name) = (args.arg(1)?, args.arg(3)?);
    let row = Guarded::new(context, filter, instance_of(keys, filter), [args.arg(2)?, name]);
    let accepted = token.filter(|token| row.accepts(*token));
    let done = match (accepted, fill) {
        (_, Err(refusal)) => Err(refusal),
        (None, Ok(_)) => Ok(Some(false)),
        // Another caller may hold the lease by now.
        (Some(token), Ok(Fill::GiveUp)) => Ok(Some(row.give_up(token))),
        (Some(_), Ok(Fill::BackOff(time))) => {
            row.back_off(time);
            metrics::BACKOFFS.count(1);
            Ok(Some(true))
        }
        (Some(token), Ok(Fill::Value(value, lives))) => {
            store(keys, &row, token, (name, args.arg(value)?, lives)).map(|is_stored| is_stored.then_some(true))
        }
        (Some(token), Ok(Fill::None(lives))) => note_no_row(keys, &row, token, (name, lives)).map(|()| Some(true)),
    };
    if let Some(token) = accepted.filter(|_| !matches!(done, Ok(Some(_)))) {
        row.give_up(token);
    }
    match done? {
        Some(true) => {
            metrics::FILLS.count(1);
            reply::ok(context);
        }
        Some(false) => {
            metrics::FILLS_REFUSED.count(1);
            reply::null(context);
        }
        // The server's error was already sent.
        None => {}
    }
    Ok(())
}

/// Stores a value that the holder of a token has loaded. Returns whether it is stored; if not, the error was sent to the client.
fn store(
    keys: &mut Keyspace,
    row: &Guarded,
    token: Token,
    (name, value, lives): (Arg<'_>, Arg<'_>, Option<u64>),
) -> Result<bool, Refusal> {
    if cache_key::contents_of(keys, name) == KeyContents::Other {
        return Err(Refusal::WrongType);
    }
    let fresh_until = row.fresh_until(token);
    let is_stored = cache_key::store(keys, name, value, lives);
    if is_stored {
        row.loaded(token);
        row.filled(fresh_until);
    }
    Ok(is_stored)
}

/// Records a NONE in place of a value, because the holder of a token has found no row.
fn note_no_row(keys: &mut Keyspace, row: &Guarded, token: Token, (name, lives): (Arg<'_>, u64)) -> Result<(), Refusal> {
    let fresh_until = row.fresh_until(token);
    if cache_key::delete(keys, name, false)? == KeyContents::Other {
        return Err(Refusal::WrongType);
    }
    row.loaded(token);
    row.note_no_row(lives, fresh_until);
    Ok(())
}

/// Returns the filter's instance by the rules of BF.FETCH: a filter whose chunks are still arriving counts as missing, and so does a
/// key of another type, for which no lease was granted.
fn instance_of(keys: &Keyspace, filter: Arg<'_>) -> Option<u64> {
    let key = ReadKey::open(keys, filter);
    let stored = key.stored().ok().flatten()?;
    matches!(stored.value, Value::Filter(_)).then_some(stored.instance)
}

/// `BF.CHANGED filter item cachekey`
///
/// Deletes a row's cached value, voids its tokens and its NONE, and announces its item to the filter. Called before and after a write. If
/// the filter refuses the item, the value is still deleted and the tokens are void.
pub fn changed(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let (items, name) = (args.words().get(2..3).ok_or(Refusal::Arity)?, args.arg(3)?);
    // If no DEL was propagated, the item is propagated even if it is present, so that a WAIT after this command has an effect to wait
    // for.
    let is_sync = !void(context, keys, name)?;
    let adding = Adding { origin: role::origin(context), items, form: ReplyForm::One, is_sync, renews: true };
    match add_items(context, &args, keys, adding, || Ok(None)) {
        Err(Refusal::NotFound) => {
            reply::null(context);
            Ok(())
        }
        done => done,
    }
}

/// Deletes the value of a cache key, and voids its tokens and its NONE. Wakes all clients that wait for the cache key, with a lease or
/// without. Returns whether a DEL was propagated. A value of another type is kept, without a DEL. If the key is not writable, nothing
/// changes.
pub fn void(context: Context, keys: &mut Keyspace, name: Arg<'_>) -> Result<bool, Refusal> {
    let contents = cache_key::delete(keys, name, true)?;
    guard::changed(context, name);
    Ok(contents != KeyContents::Other)
}

/// `BF.MCHANGED filter ITEMS item cachekey [item cachekey ...]`
///
/// Performs BF.CHANGED for each pair, and replies to each. The items are announced to the filter as one batch, after all cached values
/// were deleted.
pub fn mchanged(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let pairs = args.rest(arguments::mchanged(args.words())?)?;
    let mut items: Vec<Arg<'_>> = Vec::new();
    let asked_bytes = size_of_val(pairs) as u64 / 2;
    items.try_reserve_exact(pairs.len() / 2).map_err(|_| Error::OutOfMemory { asked_bytes })?;
    metrics::BATCHES.count(1);
    let mut has_propagated = false;
    for pair in pairs.chunks_exact(2) {
        if let [item, name] = pair {
            items.push(*item);
            has_propagated |= void(context, keys, *name)?;
        }
    }
    let adding = Adding {
        origin: role::origin(context),
        items: &items,
        form: ReplyForm::Many,
        is_sync: !has_propagated,
        renews: true,
    };
    match add_items(context, &args, keys, adding, || Ok(None)) {
        Err(Refusal::NotFound) => {
            reply::array(context, items.len());
            items.iter().for_each(|_| reply::null(context));
            Ok(())
        }
        done => done,
    }
}

/// The function that the server calls when CLIENT UNBLOCK ends a client's wait in BF.FETCH.
const FETCH_UNBLOCKED: raw::RedisModuleCmdFunc = handler!(unblocked);
