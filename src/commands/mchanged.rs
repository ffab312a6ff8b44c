//! `BF.MCHANGED filter ITEMS item cachekey [item cachekey ...]`

use bloomgate_filter::Error;
use bloomgate_filter::words::pairs;

use super::adding::{Adding, ReplyForm, add_items};
use super::changed::void;
use crate::args::{Arg, Args};
use crate::context::Context;
use crate::keys::Keyspace;
use crate::metrics;
use crate::reply::{self, Refusal};

/// Does for each pair what BF.CHANGED does, and replies to each. The items are announced to the filter as one batch, after all
/// cached values were deleted.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let pairs = args.rest(pairs::parse(args.words())?)?;
    let mut items: Vec<Arg<'_>> = Vec::new();
    let asked_bytes = size_of_val(pairs) as u64 / 2;
    items.try_reserve_exact(pairs.len() / 2).map_err(|_| Error::OutOfMemory { asked_bytes })?;
    metrics::batch();
    let mut has_propagated = false;
    for pair in pairs.chunks_exact(2) {
        if let [item, name] = pair {
            items.push(*item);
            has_propagated |= void(context, keys, *name)?;
        }
    }
    let adding = Adding { items: &items, form: ReplyForm::Many, is_sync: !has_propagated, renews: true };
    match add_items(context, &args, keys, adding, || Ok(None)) {
        Err(Refusal::NotFound) => {
            reply::array(context, items.len());
            items.iter().for_each(|_| reply::null(context));
            Ok(())
        }
        done => done,
    }
}

/// The positions of the keys: the filter and the second word of each pair.
pub fn key_positions(words: &[Arg<'_>]) -> impl Iterator<Item = usize> {
    [1].into_iter().chain((FIRST_CACHE_KEY..words.len()).step_by(2))
}

/// The position of the first cache key.
pub const FIRST_CACHE_KEY: usize = 4;
