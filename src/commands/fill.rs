//! `BF.FILL filter item cachekey token VALUE value [EX seconds | PX milliseconds]`, `... token NONE (EX seconds | PX
//! milliseconds)`, `... token GIVEUP [BACKOFF milliseconds]`

use bloomgate_filter::Value;
use bloomgate_filter::words::fill::{self, Fill};

use crate::args::{Arg, Args};
use crate::context::Context;
use crate::guard;
use crate::keys::cache_key::{self, CacheKey, Held};
use crate::keys::{Keyspace, ReadKey};
use crate::metrics;
use crate::reply::{self, Refusal};

/// Stores what the holder of a lease loaded, and ends the lease.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let (token, fill) = fill::parse(args.words())?;
    let (filter, name) = (args.arg(1)?, args.arg(3)?);
    let key = guard::key_id(context, name);
    let item = guard::item_id(context, filter, instance_of(keys, filter), args.arg(2)?);
    if !token.is_some_and(|token| guard::holds(context, key, item, token)) {
        metrics::fill_refused();
        reply::null(context);
        return Ok(());
    }
    match fill {
        Fill::GiveUp(0) => guard::end(context, key),
        Fill::GiveUp(time) => {
            guard::back_off(context, key, time);
            metrics::backed_off();
        }
        _ if CacheKey::peek(keys, name) == Held::Other => return Err(Refusal::WrongType),
        Fill::Value(value, lives) => {
            if !cache_key::store(keys, name, args.arg(value)?, lives) {
                return Ok(());
            }
            guard::end(context, key);
        }
        Fill::None(lives) => {
            cache_key::delete(keys, name, false)?;
            guard::note_no_row(context, key, item, lives);
        }
    }
    metrics::filled();
    reply::ok(context);
    Ok(())
}

/// The filter's instance, as BF.FETCH saw it: a filter whose chunks are still arriving counts as missing, and so does a key of
/// another type, for which no lease was granted.
fn instance_of(keys: &Keyspace, filter: Arg<'_>) -> Option<u64> {
    let key = ReadKey::open(keys, filter);
    let stored = key.stored().ok().flatten()?;
    matches!(stored.value, Value::Filter(_)).then_some(stored.instance)
}
