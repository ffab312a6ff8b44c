//! `BF.FILL filter item cachekey token VALUE value [EX seconds | PX milliseconds]`, `... token NONE (EX seconds | PX
//! milliseconds)`, `... token GIVEUP`

use bloomgate_filter::words::fill::{self, Fill};

use crate::args::Args;
use crate::cache_key::{self, CacheKey, Held};
use crate::context::Context;
use crate::guard;
use crate::key::ReadKey;
use crate::metrics;
use crate::reply::{self, Refusal};

/// Takes what the caller loaded that holds the lease, for which the token stands, and ends the lease.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let (token, fill) = fill::parse(args.words())?;
    let name = args.arg(3)?;
    // Whatever else is at the filter's key, no lease was given for that.
    let filter = ReadKey::open(context, args.arg(1)?).stored().ok().flatten().map_or(0, |stored| stored.instance);
    let (key, item) = (guard::key_id(context, name), guard::item_id(context, filter, args.arg(2)?));
    if !token.is_some_and(|token| guard::holds(key, item, token)) {
        metrics::fill_refused();
        reply::null(context);
        return Ok(());
    }
    match fill {
        Fill::GiveUp => guard::void(key),
        _ if CacheKey::peek(context, name) == Held::Other => return Err(Refusal::WrongType),
        Fill::Value(value, lives) => {
            if !cache_key::store(context, name, args.arg(value)?, lives) {
                return Ok(());
            }
            guard::filled(key);
        }
        Fill::None(lives) => {
            cache_key::delete(context, name, false);
            guard::note_no_row(key, item, lives);
        }
    }
    metrics::filled();
    reply::ok(context);
    Ok(())
}
