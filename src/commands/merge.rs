//! `BF.MERGE destination source [source ...]`

use bloomgate_filter::{BloomFilter, Error, Filter, Value};

use crate::args::{Arg, Args};
use crate::context::Context;
use crate::keys::{Keyspace, MergeKeys, ReadKey, Stored, Writer};
use crate::replicate;
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;

/// Stores the union of all filters, including the destination, at the destination.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let mut keys = MergeKeys::open(keys, args.arg(1)?, &source_names(&args)?)?;
    let (union, has_grown) = {
        let (destination, sources) = keys.values()?;
        let sources = filters_of(sources)?;
        match destination {
            Some(destination) => (None, merge(context, destination, &sources)?),
            None => (Some(BloomFilter::union_of(&sources, context.origin(), &ServerCeiling::of(context))?), false),
        }
    };
    let mut key = keys.into_destination();
    let is_new = union.is_some();
    if let Some(union) = union {
        key.install(Stored::boxed(Filter::from(union).into())?);
    }
    replicate::verbatim(context);
    key.close_changed(&[(is_new, c"bloom.reserve"), (has_grown, c"bloom.scale"), (true, c"bloom.merge")]);
    reply::ok(context);
    Ok(())
}

/// Returns the names of the sources in order, without duplicates.
///
/// # Errors
/// [`Refusal::Filter`] if there is no memory for the list.
fn source_names<'a>(args: &'a Args<'_>) -> Result<Vec<Arg<'a>>, Refusal> {
    let words = args.rest(2)?;
    let mut names = with_room(words.len())?;
    names.extend_from_slice(words);
    names.sort_unstable_by_key(|name| name.bytes());
    names.dedup_by_key(|name| name.bytes());
    Ok(names)
}

/// Returns the filters at the keys.
///
/// # Errors
/// [`Refusal::NotFound`], [`Refusal::WrongType`], [`Refusal::StillLoading`]; [`Refusal::Filter`] for a filter that cannot be
/// merged, and if there is no memory for the list.
fn filters_of<'a>(keys: &'a [ReadKey<'_>]) -> Result<Vec<&'a BloomFilter>, Refusal> {
    let mut filters = with_room(keys.len())?;
    for key in keys {
        filters.push(key.filter()?.ok_or(Refusal::NotFound)?.mergeable()?);
    }
    Ok(filters)
}

/// Merges into an existing destination. Returns whether it has more layers afterwards.
fn merge(context: Context, mut writer: Writer<'_>, sources: &[&BloomFilter]) -> Result<bool, Refusal> {
    let Value::Filter(filter) = &mut *writer else { return Err(Refusal::StillLoading) };
    let destination = filter.mergeable_mut()?;
    let layers = destination.layers().len();
    destination.merge(sources, context.origin(), &ServerCeiling::of(context))?;
    let has_grown = destination.layers().len() > layers;
    Ok(has_grown)
}

/// Returns an empty list with room for this many elements.
fn with_room<T>(elements: usize) -> Result<Vec<T>, Error> {
    let mut list = Vec::new();
    let asked_bytes = elements.saturating_mul(size_of::<T>()) as u64;
    list.try_reserve_exact(elements).map_err(|_| Error::OutOfMemory { asked_bytes })?;
    Ok(list)
}
