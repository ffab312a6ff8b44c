//! `BF.ROTATE key [slot begin end capacity]`

use bloomgate_filter::kinds::Turn;
use bloomgate_filter::words::rotate;
use bloomgate_filter::{Clock as _, Value};

use super::adding::free_retired;
use crate::args::Args;
use crate::clock::CommandClock;
use crate::context::Context;
use crate::keys::{Keyspace, WriteKey};
use crate::replicate;
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;

/// Begins the next bucket of a ring, or the stated one. Replies how many items were dropped with the oldest.
///
/// A client that replays an AOF also states the bucket. If it is late, the ring may have begun that bucket by its own clock and added
/// items to it. Then nothing changes, and the reply is 0.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let stated = rotate::parse(args.words())?;
    let name = args.arg(1)?;
    let mut key = WriteKey::open(keys, name)?;
    let (turn, dropped) = {
        let mut writer = key.writer()?.ok_or(Refusal::NotFound)?;
        let Value::Filter(filter) = &mut *writer else { return Err(Refusal::StillLoading) };
        let windowed = filter.windowed_mut().ok_or(Refusal::HasNot("WINDOW"))?;
        let now = CommandClock::default().now();
        if let Some(turn) = stated.filter(|_| !context.must_obey()) {
            if !windowed.may_begin(turn, now) {
                return Err(Refusal::BadData);
            }
            if windowed.has_begun(turn) {
                reply::integer(context, 0);
                return Ok(());
            }
        }
        let turn: Turn = stated.unwrap_or_else(|| windowed.turn_now(now));
        let dropped = windowed.turn(turn, &ServerCeiling::of(context))?;
        free_retired(windowed);
        (turn, dropped)
    };
    replicate::rotated(context, name, turn);
    key.close_changed(&[(true, c"bloom.rotate")]);
    reply::integer(context, dropped);
    Ok(())
}
