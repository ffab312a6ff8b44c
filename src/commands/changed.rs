//! `BF.CHANGED filter item cachekey`

use super::adding::{Adding, ReplyForm, add_items};
use crate::args::{Arg, Args};
use crate::context::Context;
use crate::guard;
use crate::keys::cache_key::Held;
use crate::keys::{Keyspace, cache_key};
use crate::reply::{self, Refusal};

/// Deletes the cached value of a row that is about to be written, or was, voids its tokens and its NONE, and announces its item to the
/// filter. The first two are done even if the filter refuses the item.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let (items, name) = (args.words().get(2..3).ok_or(Refusal::Arity)?, args.arg(3)?);
    // If no DEL was propagated, the item is, so that a WAIT after this command has something to wait for.
    let is_sync = !void(context, keys, name)?;
    let adding = Adding { items, form: ReplyForm::One, is_sync, renews: true };
    match add_items(context, &args, keys, adding, || Ok(None)) {
        Err(Refusal::NotFound) => {
            reply::null(context);
            Ok(())
        }
        done => done,
    }
}

/// Deletes the value of a cache key, and voids its tokens and its NONE. Wakes everyone who waits for the cache key, with a lease or
/// without. Returns whether a DEL was propagated: it is not if the key holds a value of another type, which stays.
///
/// # Errors
/// [`Refusal::NotWritable`]. Nothing has changed then.
pub fn void(context: Context, keys: &mut Keyspace, name: Arg<'_>) -> Result<bool, Refusal> {
    let held = cache_key::delete(keys, name, true)?;
    guard::changed(context, name);
    Ok(held != Held::Other)
}
