//! `BF.MFETCH filter [LEASE milliseconds] [STALE milliseconds] [WHILE key] [UNLESS key] ITEMS item cachekey [item cachekey ...]`

use bloomgate_filter::words::fetch::{self, Fetch};
use bloomgate_filter::{BATCH, Mask, Value};

use super::fetch::{Look, Membership, look_behind, question, reply_wait, say_unguarded};
use crate::args::{Arg, Args};
use crate::clock::CommandClock;
use crate::context::Context;
use crate::guard::{Asker, Pause};
use crate::keys::conditions::{self, WritesInFlight};
use crate::keys::{Keyspace, ReadKey};
use crate::metrics::{self, Fetched};
use crate::reply::{self, Refusal};
use crate::server::role;

/// Does for each pair what BF.FETCH does, and replies to each, without waiting. The filter is asked for up to [`BATCH`] items at a
/// time.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let (options, first) = fetch::parse_many(args.words())?;
    let (filter, pairs) = (args.arg(1)?, args.rest(first)?);
    if !role::is_primary() {
        return Err(Refusal::Replica);
    }
    metrics::batch();
    let key = |index: Option<usize>| index.map(|index| args.arg(index)).transpose();
    let (while_key, unless_key) = (key(options.while_key)?, key(options.unless_key)?);
    let asked = Asked { filter, missing: while_key.filter(|name| !conditions::exists(keys, *name)), unless_key };

    let mut batches = pairs.chunks(2 * BATCH).peekable();
    // What is refused as a whole is refused before the array begins.
    let mut found = Some(batches.peek().map_or(Ok(Found::default()), |batch| asked.ask(context, keys, batch))?);
    reply::array(context, pairs.len() / 2);
    for batch in batches {
        let found = found.take().map_or_else(|| asked.ask(context, keys, batch), Ok);
        for (index, pair) in batch.chunks_exact(2).enumerate() {
            let &[item, cache_key] = pair else { continue };
            let look = found.and_then(|found| match found.membership(index) {
                None => Ok(Look::Paused(Pause::Held)),
                Some(membership) => {
                    let question = question(&args, options, [item, cache_key])?;
                    look_behind(context, keys, question, membership, Asker::Caller)
                }
            });
            match look {
                Ok(Look::Replied(_)) => {}
                Ok(Look::Paused(pause)) => reply_wait(context, pause),
                Err(refusal) => reply::error(context, refusal),
            }
        }
    }
    Ok(())
}

/// The options, and the positions of the cache keys: the second word of each pair.
pub fn key_positions(words: &[Arg<'_>]) -> (Option<Fetch>, impl Iterator<Item = usize>) {
    let parsed = fetch::parse_many(words).ok();
    let first = parsed.map_or(words.len(), |(_, first)| first + 1);
    (parsed.map(|(options, _)| options), (first..words.len()).step_by(2))
}

/// The keys that are asked for every pair.
struct Asked<'a> {
    filter: Arg<'a>,
    /// The key of WHILE, if it is missing.
    missing: Option<Arg<'a>>,
    unless_key: Option<Arg<'a>>,
}

/// What is known of a batch of pairs.
#[derive(Clone, Copy, Default)]
struct Found {
    /// The pairs whose cache keys have a write in flight.
    held: Mask,
    /// The items that may be in the filter.
    present: Mask,
    /// The filter's instance, if there is one.
    instance: Option<u64>,
    /// Whether an item that is not present has no row.
    denies: bool,
}

impl Found {
    /// The filter's answer about a pair; `None` if it has a write in flight.
    fn membership(&self, index: usize) -> Option<Membership> {
        match self.instance {
            _ if self.held.contains(index) => None,
            Some(instance) if self.denies && self.present.contains(index) => Some(Membership::Maybe(instance)),
            Some(_) if self.denies => Some(Membership::Absent),
            instance => Some(Membership::Unguarded(instance)),
        }
    }
}

impl Asked<'_> {
    /// Asks for the writes in flight, then the filter. Leaves no key open.
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
        (0..free.len()).for_each(|_| metrics::fetched(Fetched::Unguarded));
        if !free.is_empty() {
            say_unguarded(context, self.filter, self.missing);
        }
        Ok(found)
    }
}
