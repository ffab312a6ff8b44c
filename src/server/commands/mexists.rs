//! `BF.MEXISTS key item [item ...]`

use crate::bloom::BATCH;
use crate::server::args::Args;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::metrics;
use crate::server::reply::{self, Refusal};

/// Answers of each item whether it may be in; in a missing filter nothing is.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let items = args.rest(2)?;
    let mut key = Key::read(context, args.word(1)?);
    let filter = key.filter()?;
    reply::array(context, items.len());
    for batch in items.chunks(BATCH) {
        let present = filter.as_ref().map_or(0, |filter| filter.contains_batch(batch.iter().map(|item| item.bytes())));
        metrics::items_looked_up(batch.len(), present.count_ones());
        for index in 0..batch.len() {
            reply::boolean(context, present & (1 << index) != 0);
        }
    }
    Ok(())
}
