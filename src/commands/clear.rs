//! `BF.CLEAR key`

use bloomgate_filter::kinds::Turn;
use bloomgate_filter::{Clock as _, Filter, Unlimited, Value, try_box};

use crate::args::Args;
use crate::clock::CommandClock;
use crate::context::Context;
use crate::keys::{Keyspace, WriteKey};
use crate::replicate;
use crate::reply::{self, Refusal};
use crate::server::freeing;

/// Empties a filter. It keeps the properties that it was created with, and the key keeps its time to live.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let name = args.arg(1)?;
    let mut key = WriteKey::open(keys, name)?;
    let turn = {
        let mut writer = key.writer()?.ok_or(Refusal::NotFound)?;
        let Value::Filter(filter) = &*writer else { return Err(Refusal::StillLoading) };
        let bytes = filter.size_bytes();
        let mut empty = filter.emptied()?;
        let turn = begin_bucket(context, &mut empty)?;
        let mut value = try_box(Value::from(empty))?;
        writer.swap(&mut value);
        freeing::free(value, bytes);
        turn
    };
    replicate::verbatim(context);
    if let Some(turn) = turn {
        replicate::rotated(context, name, turn);
    }
    key.close_changed(&[(true, c"bloom.clear")]);
    reply::ok(context);
    Ok(())
}

/// Begins the first bucket of a ring with a window. Returns the turn, which must be propagated. Needs no ceiling: the memory of the
/// former contents, which is freed, is larger.
fn begin_bucket(context: Context, empty: &mut Filter) -> Result<Option<Turn>, Refusal> {
    let Some(windowed) = empty.windowed_mut().filter(|_| !context.must_obey()) else { return Ok(None) };
    let Some(turn) = windowed.turn_due(CommandClock::default().now()) else { return Ok(None) };
    windowed.turn(turn, &Unlimited)?;
    Ok(Some(turn))
}
