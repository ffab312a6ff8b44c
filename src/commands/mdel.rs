//! `BF.MDEL key item [item ...]`

use super::adding::ReplyForm;
use super::deleting::delete_items;
use crate::args::Args;
use crate::context::Context;
use crate::keys::Keyspace;
use crate::reply::Refusal;

/// Deletes items. Replies for each whether the filter found it.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    delete_items(context, &args, keys, ReplyForm::Many)
}
