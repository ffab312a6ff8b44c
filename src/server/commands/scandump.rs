//! `BF.SCANDUMP key iterator`

use crate::format::dump;
use crate::format::native::Value;
use crate::server::args::{self, Args};
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::reply::{self, Refusal};
use crate::server::stored::Stored;

/// Answers the record behind the one with the iterator, 0 for the first: its iterator and its data, which BF.LOADCHUNK
/// takes. At the end 0 and nothing.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let iterator = args::integer(args.word(2)?.bytes()).ok_or(Refusal::BadDumpIterator)?;
    let mut key = Key::read(context, args.word(1)?);
    let (filter, generation) = match key.stored()? {
        None => return Err(Refusal::NotFound),
        Some(Stored { value: Value::Arriving(_), .. }) => return Err(Refusal::StillLoading),
        Some(Stored { value: Value::Filter(filter), generation }) => (filter, *generation),
    };
    let record = match u64::try_from(iterator) {
        Ok(0) => Some(dump::first_record(filter, generation)),
        Ok(iterator) => dump::next_record(filter, generation, iterator).map_err(Refusal::Dump)?,
        Err(_) => None,
    };
    let (iterator, data) = record.unwrap_or_default();
    reply::array(context, 2);
    reply::integer(context, iterator);
    reply::bytes(context, &data);
    Ok(())
}
