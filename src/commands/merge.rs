//! `BF.MERGE destination source [source ...]`

use bloomgate_filter::{BloomFilter, Error, Filter, Value};

use crate::args::{Arg, Args};
use crate::ceiling::ServerCeiling;
use crate::context::Context;
use crate::guard;
use crate::key::{ReadKey, WriteKey};
use crate::replicate;
use crate::reply::{self, Refusal};
use crate::stored::Stored;

/// Puts the union of all filters, the destination's own items included, under the destination.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let name = args.arg(1)?;
    let mut key = WriteKey::open(context, name);
    let is_new = !key.exists()?;
    let has_grown = {
        let keys = open_sources(context, args, (!is_new).then_some(name))?;
        let sources = filters_of(&keys)?;
        if is_new {
            create(context, &mut key, &sources)?;
            false
        } else {
            merge(context, &mut key, &sources)?
        }
    };
    replicate::verbatim(context);
    key.close_changed(&[(is_new, c"bloom.reserve"), (has_grown, c"bloom.scale"), (true, c"bloom.merge")]);
    reply::ok(context);
    Ok(())
}

/// Opens each source once, but the destination, whose items are in it.
///
/// # Errors
/// [`Refusal::Filter`] where there is no memory for the list.
fn open_sources(context: Context, args: Args<'_>, destination: Option<Arg<'_>>) -> Result<Vec<ReadKey>, Refusal> {
    let words = args.rest(2)?;
    let mut names: Vec<Arg<'_>> = with_room(words.len())?;
    let is_destination = |name: &Arg<'_>| destination.is_some_and(|destination| destination.bytes() == name.bytes());
    names.extend(words.iter().copied().filter(|name| !is_destination(name)));
    names.sort_unstable_by_key(|name| name.bytes());
    names.dedup_by_key(|name| name.bytes());

    let mut keys = with_room(names.len())?;
    keys.extend(names.into_iter().map(|name| ReadKey::open(context, name)));
    Ok(keys)
}

/// The filters under the keys.
///
/// # Errors
/// [`Refusal::NotFound`], [`Refusal::WrongType`], [`Refusal::StillLoading`]; [`Refusal::Filter`] for a filter that cannot be
/// merged, and where there is no memory for the list.
fn filters_of(keys: &[ReadKey]) -> Result<Vec<&BloomFilter>, Refusal> {
    let mut filters = with_room(keys.len())?;
    for key in keys {
        filters.push(key.filter()?.ok_or(Refusal::NotFound)?.mergeable()?);
    }
    Ok(filters)
}

/// Creates the destination that is missing.
fn create(context: Context, key: &mut WriteKey<'_>, sources: &[&BloomFilter]) -> Result<(), Refusal> {
    let union = BloomFilter::union_of(sources, context.origin(), &ServerCeiling::of(context))?;
    let reserved = Stored::reserve()?;
    key.install(reserved.put(Filter::from(union).into()));
    Ok(())
}

/// Merges into the destination that is there; answers whether it has more layers then.
fn merge(context: Context, key: &mut WriteKey<'_>, sources: &[&BloomFilter]) -> Result<bool, Refusal> {
    let mut writer = key.writer()?.ok_or(Refusal::NotFound)?;
    let Value::Filter(filter) = &mut *writer else { return Err(Refusal::StillLoading) };
    let destination = filter.mergeable_mut()?;
    let layers = destination.layers().len();
    destination.merge(sources, context.origin(), &ServerCeiling::of(context))?;
    let has_grown = destination.layers().len() > layers;
    guard::end_nones_of(writer.instance());
    Ok(has_grown)
}

/// An empty list with room for so many elements.
fn with_room<T>(elements: usize) -> Result<Vec<T>, Error> {
    let mut list = Vec::new();
    let asked_bytes = elements.saturating_mul(size_of::<T>()) as u64;
    list.try_reserve_exact(elements).map_err(|_| Error::OutOfMemory { asked_bytes })?;
    Ok(list)
}
