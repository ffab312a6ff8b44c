//! `BF.ADD key item`

use super::adding::{Adding, ReplyForm, add_items, usual_creation};
use crate::args::Args;
use crate::context::Context;
use crate::keys::Keyspace;
use crate::reply::Refusal;

/// Adds an item. Replies whether it was new.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let adding = Adding { items: args.rest(2)?, form: ReplyForm::One, is_sync: false, renews: false };
    add_items(context, &args, keys, adding, || usual_creation(context))
}
