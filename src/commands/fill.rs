//! `BF.FILL filter item cachekey token VALUE value [EX seconds | PX milliseconds]`, `... token NONE (EX seconds | PX
//! milliseconds)`, `... token GIVEUP [BACKOFF milliseconds]`

use bloomgate_filter::Value;
use bloomgate_filter::words::fill::{self, Fill};

use crate::args::{Arg, Args};
use crate::context::Context;
use crate::guard::Guarded;
use crate::keys::cache_key::{self, CacheKey, Held};
use crate::keys::{Keyspace, ReadKey};
use crate::metrics;
use crate::reply::{self, Refusal};

/// Stores what the caller loaded if its token is safe, whether it still has the lease or not, and ends the lease.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let (token, fill) = fill::parse(args.words())?;
    let (filter, name) = (args.arg(1)?, args.arg(3)?);
    let row = Guarded::new(context, filter, instance_of(keys, filter), [args.arg(2)?, name]);
    let accepted = token.filter(|token| row.accepts(*token));
    let done = match (accepted, fill) {
        (None, _) => false,
        // Another caller may have the lease by now.
        (Some(token), Fill::GiveUp(0)) => row.give_up(token),
        (Some(_), Fill::GiveUp(time)) => {
            row.back_off(time);
            metrics::backed_off();
            true
        }
        _ if CacheKey::peek(keys, name) == Held::Other => return Err(Refusal::WrongType),
        (Some(_), Fill::Value(value, lives)) => {
            if !cache_key::store(keys, name, args.arg(value)?, lives) {
                return Ok(());
            }
            row.filled();
            true
        }
        (Some(_), Fill::None(lives)) => {
            cache_key::delete(keys, name, false)?;
            row.note_no_row(lives);
            true
        }
    };
    if done {
        metrics::filled();
        reply::ok(context);
    } else {
        metrics::fill_refused();
        reply::null(context);
    }
    Ok(())
}

/// The filter's instance, as BF.FETCH saw it: a filter whose chunks are still arriving counts as missing, and so does a key of
/// another type, for which no lease was granted.
fn instance_of(keys: &Keyspace, filter: Arg<'_>) -> Option<u64> {
    let key = ReadKey::open(keys, filter);
    let stored = key.stored().ok().flatten()?;
    matches!(stored.value, Value::Filter(_)).then_some(stored.instance)
}
