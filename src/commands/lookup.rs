//! Looking up items: BF.EXISTS, BF.MEXISTS and BF.COUNT.

use bloomgate_filter::{BATCH, Mask};

use crate::args::Args;
use crate::context::{CommandClock, Context};
use crate::keys::{Keyspace, ReadKey};
use crate::metrics;
use crate::reply::{self, Refusal};

/// `BF.EXISTS key item`
///
/// Replies whether a filter may contain an item. A missing filter contains nothing.
pub fn exists(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let item = args.arg(2)?;
    let key = ReadKey::open(keys, args.arg(1)?);
    let exists = key.contains(item.bytes())?;
    metrics::items_looked_up(1, exists.into());
    reply::boolean(context, exists);
    Ok(())
}

/// `BF.MEXISTS key item [item ...]`
///
/// Replies for each item whether a filter may contain it. A missing filter contains nothing.
pub fn mexists(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
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

/// `BF.COUNT key item`
///
/// Replies how often a counting filter or a cuckoo filter contains an item. A missing filter contains nothing.
pub fn count(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let item = args.arg(2)?;
    let key = ReadKey::open(keys, args.arg(1)?);
    let count = match key.filter()? {
        None => 0,
        Some(filter) => filter.count(item.bytes()).ok_or(Refusal::HasNot("CUCKOO or COUNTING"))?,
    };
    reply::integer(context, count);
    Ok(())
}
