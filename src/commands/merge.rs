//! Merging filters: BF.MERGE.

use bloomgate_filter::{BloomFilter, Error, Filter, Value, try_box};

use crate::args::Args;
use crate::context::{Context, Origin};
use crate::guard;
use crate::keys::{Keyspace, Place, ReadKey, WriteKey};
use crate::replicate;
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;
use crate::server::freeing;

/// `BF.MERGE destination source [source ...]`
///
/// Stores the union of all filters, including the destination, at the destination.
///
/// The union is built separately and then replaces the destination, so an error changes nothing.
pub fn merge(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let name = args.arg(1)?;
    let exists = WriteKey::open(keys, name)?.exists()?;
    let (union, has_grown) = {
        let destination = exists.then(|| ReadKey::open(keys, name));
        let sources = open_sources(&args, keys, exists)?;
        let mut filters = with_room(sources.len() + 1)?;
        for key in sources.iter().chain(&destination) {
            filters.push(key.filter()?.ok_or(Refusal::NotFound)?.mergeable()?);
        }
        // The union has the definition of its first filter.
        filters.rotate_right(usize::from(exists));
        let union = BloomFilter::union_of(&filters, origin.into(), &ServerCeiling::of(context, origin))?;
        let has_grown = exists && filters.first().is_some_and(|before| union.layers().len() > before.layers().len());
        (Filter::from(union), has_grown)
    };
    let mut key = WriteKey::open(keys, name)?;
    if exists {
        let mut value = try_box(Value::from(union))?;
        let mut writer = key.writer()?.ok_or(Refusal::NotFound)?;
        let bytes = writer.contents().size_bytes;
        writer.swap(&mut value);
        freeing::free(value, bytes);
    } else {
        key.install(Place::for_value(union.into())?);
    }
    replicate::verbatim(context);
    guard::filter_replaced(context, name);
    key.close_changed(&[(!exists, c"bloom.reserve"), (has_grown, c"bloom.scale"), (true, c"bloom.merge")]);
    reply::ok(context);
    Ok(())
}

/// Opens the sources, each once, in the order of their names. Skips the destination if it is among them.
fn open_sources<'a>(
    args: &Args<'_>,
    keys: &'a Keyspace,
    without_destination: bool,
) -> Result<Vec<ReadKey<'a>>, Refusal> {
    let (destination, words) = (args.arg(1)?, args.rest(2)?);
    let mut names = with_room(words.len())?;
    names.extend_from_slice(words);
    names.sort_unstable_by_key(|name| name.bytes());
    names.dedup_by_key(|name| name.bytes());
    names.retain(|name| !without_destination || name.bytes() != destination.bytes());
    let mut sources = with_room(names.len())?;
    sources.extend(names.into_iter().map(|name| ReadKey::open(keys, name)));
    Ok(sources)
}

/// Returns an empty list with room for this many elements.
fn with_room<T>(elements: usize) -> Result<Vec<T>, Error> {
    let mut list = Vec::new();
    let asked_bytes = elements.saturating_mul(size_of::<T>()) as u64;
    list.try_reserve_exact(elements).map_err(|_| Error::OutOfMemory { asked_bytes })?;
    Ok(list)
}
