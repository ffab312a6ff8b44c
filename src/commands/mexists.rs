//! `BF.MEXISTS key item [item ...]`

use bloomgate_filter::{BATCH, Mask};

use crate::args::Args;
use crate::clock::CommandClock;
use crate::context::Context;
use crate::keys::{Keyspace, ReadKey};
use crate::metrics;
use crate::reply::{self, Refusal};

/// Replies for each item whether a filter may contain it. A missing filter contains nothing.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let items = args.rest(2)?;
    let key = ReadKey::open(keys, args.arg(1)?);
    let filter = key.filter()?;
    let clock = CommandClock::default();
    reply::array(context, items.len());
    for batch in items.chunks(BATCH) {
        let items = batch.iter().map(|item| item.bytes());
        let present = filter.map_or(Mask::NONE, |filter| filter.contains_batch(items, &clock));
        metrics::items_looked_up(batch.len(), present.len());
        present.each(batch.len()).for_each(|is_present| reply::boolean(context, is_present));
    }
    Ok(())
}
