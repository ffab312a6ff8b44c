//! `BF.INSERT key [option ...] [ITEMS item [item ...]]`

use bloomgate_filter::words::insert::{self, Insert};
use bloomgate_filter::words::{Command, Creation};

use super::adding::{Adding, ReplyForm, add_items};
use crate::args::Args;
use crate::config;
use crate::context::Context;
use crate::keys::Keyspace;
use crate::reply::{self, Refusal};

/// Adds items to a filter, which is created with the given options if it is missing. Replies for each item whether it was new.
///
/// A primary propagates what it has done: so its filter exists, even if clients of this server may not create one.
pub fn run(context: Context, mut args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let defaults = config::defaults(context);
    // The items are the last arguments.
    let parsed = insert::parse(args.words(), &defaults)
        .map(|Insert { creation, items, is_sync, renews }| (creation, items.len(), is_sync, renews));
    super::redact_key(context, &mut args, Command::Insert);
    let (creation, items, is_sync, renews) = parsed?;
    if is_sync && defaults.must_obey {
        // The primary propagates items that are present only for clients that WAIT.
        reply::ok(context);
        return Ok(());
    }
    let creation = || match creation {
        None if defaults.must_obey => Creation::by_default(&defaults).map(Some),
        creation => Ok(creation),
    };
    let items = args.last(items);
    add_items(context, &args, keys, Adding { items, form: ReplyForm::Many, is_sync, renews }, creation)
}
