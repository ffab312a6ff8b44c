//! Cuckoo filters of RedisBloom's layout: the CF.* commands. Replies, error texts and the order of checks are RedisBloom's.
//!
//! Adds, deletes and compactions depend on nothing but the filter and the items, so replicas and the AOF get the items that were stored or
//! deleted, and have the same bytes afterwards. The number of sub-filters from which on a filter refuses adds is a setting, which a replica
//! does not apply to its primary's adds.

use bloomgate_filter::arguments::cuckoo::{self, CuckooInsert};
use bloomgate_filter::format::{self, Arrival, Progress};
use bloomgate_filter::kinds::chunked::{self, HEADER};
use bloomgate_filter::kinds::redisbloom_cuckoo::dump::HEADER_BYTES;
use bloomgate_filter::kinds::{ChunkArrival, RedisBloomCuckooFilter, RedisBloomCuckooSpec};
use bloomgate_filter::{Error, Value};

use super::dispatch::{refuse, refuse_as_primary};
use crate::args::{Arg, Args};
use crate::context::{Context, Origin, Text};
use crate::keys::{Keyspace, Place, ReadKey, Reserved, WriteKey};
use crate::replicate::{self, NewItems};
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;
use crate::{config, metrics};

/// `CF.RESERVE key capacity [BUCKETSIZE size] [MAXITERATIONS iterations] [EXPANSION expansion]`
///
/// Creates an empty filter.
pub fn reserve(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let spec = cuckoo::reserve(args.words(), &config::cuckoo_defaults(), origin.is_effect())?;
    let name = args.arg(1)?;
    let mut key = WriteKey::open(keys, name)?;
    if key.cuckoo_writer()?.is_some() {
        refuse_as_primary(context, origin, Refusal::Exists);
        return Ok(());
    }
    let filter = RedisBloomCuckooFilter::with_spec(&spec, &ServerCeiling::of(context, origin))?;
    key.install(Place::for_value(Value::Cuckoo(filter))?);
    replicate::cuckoo_created(context, name, &spec);
    key.close_changed(&[(true, c"cuckoo.reserve")]);
    reply::ok(context);
    Ok(())
}

/// The form of the reply to an add.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Of CF.ADD and CF.ADDNX: a boolean.
    One,
    /// Of CF.INSERT: an array, in RESP3 of booleans.
    Booleans,
    /// Of CF.INSERTNX: an array of integers, in RESP3, too.
    Integers,
}

/// The items of a command that adds.
#[derive(Clone, Copy)]
struct Adding<'a> {
    origin: Origin,
    items: &'a [Arg<'a>],
    form: Form,
    /// Whether an item that is found is not added again.
    only_absent: bool,
}

/// `CF.ADD key item`
///
/// Adds an item, also if the filter has it. Replies 1.
pub fn add(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    add_items(
        context,
        keys,
        args.arg(1)?,
        Some(config::cuckoo_defaults()),
        Adding { origin, items: args.rest(2)?, form: Form::One, only_absent: false },
    )
}

/// `CF.ADDNX key item`
///
/// Adds an item unless the filter finds it. Replies whether it was added.
pub fn addnx(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let adding = Adding { origin, items: args.rest(2)?, form: Form::One, only_absent: true };
    add_items(context, keys, args.arg(1)?, Some(config::cuckoo_defaults()), adding)
}

/// `CF.INSERT key [CAPACITY capacity] [NOCREATE] ITEMS item [item ...]`
///
/// Adds items. Replies for each whether the filter had room.
pub fn insert(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    insert_items(context, origin, &args, keys, Form::Booleans)
}

/// `CF.INSERTNX key [CAPACITY capacity] [NOCREATE] ITEMS item [item ...]`
///
/// Adds the items that the filter does not find. Replies 1 for an added item, 0 for one that was found, -1 if there was no room.
pub fn insertnx(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    insert_items(context, origin, &args, keys, Form::Integers)
}

fn insert_items(
    context: Context,
    origin: Origin,
    args: &Args<'_>,
    keys: &mut Keyspace,
    form: Form,
) -> Result<(), Refusal> {
    let CuckooInsert { creation, items } =
        cuckoo::insert(args.words(), &config::cuckoo_defaults(), origin.is_effect())?;
    let adding = Adding { origin, items: args.last(items), form, only_absent: form == Form::Integers };
    add_items(context, keys, args.arg(1)?, creation, adding)
}

/// Runs a command that writes. RedisBloom uses a filter from its header on, and release 2.6 propagates no cells: so a primary's write to a
/// filter that is arriving puts it into use.
fn write(
    keys: &mut Keyspace,
    name: Arg<'_>,
    origin: Origin,
    command: impl Fn(WriteKey<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let done = command(WriteKey::open(keys, name)?);
    if done == Err(Refusal::StillLoading) && origin.is_effect() {
        WriteKey::open(keys, name)?.put_into_use()?;
        return command(WriteKey::open(keys, name)?);
    }
    done
}

/// Adds items to the filter of a key, which is created as defined if it is missing. A command that is refused as a whole changes nothing.
fn add_items(
    context: Context,
    keys: &mut Keyspace,
    name: Arg<'_>,
    creation: Option<RedisBloomCuckooSpec>,
    adding: Adding<'_>,
) -> Result<(), Refusal> {
    write(keys, name, adding.origin, |mut key| {
        let mut stored = NewItems::with_room(adding.items.len())?;
        let existing = match key.cuckoo_writer()? {
            Some(mut writer) => {
                let Value::Cuckoo(filter) = &mut *writer else { return Err(Refusal::StillLoading) };
                check_expansions(adding.origin, filter.layer_count())?;
                add_and_reply(context, filter, adding, &mut stored);
                true
            }
            None => false,
        };
        if !existing {
            let spec = creation.ok_or(Refusal::NotFound)?;
            check_expansions(adding.origin, 1)?;
            let ceiling = ServerCeiling::of(context, adding.origin);
            let mut filter = RedisBloomCuckooFilter::with_spec(&spec, &ceiling)?;
            let reserved = Reserved::full()?;
            add_and_reply(context, &mut filter, adding, &mut stored);
            replicate::cuckoo_created(context, name, &spec);
            key.install(reserved.put(Value::Cuckoo(filter)));
        }
        match stored.len() {
            0 => {}
            // A command that stored all of its items in an existing filter is its own effect.
            all if existing && !adding.only_absent && all == adding.items.len() => replicate::verbatim(context),
            _ => replicate::cuckoo_added(context, name, &stored),
        }
        if stored.len() > 0 || !existing {
            key.close_changed(&[(!existing, c"cuckoo.reserve"), (stored.len() > 0, c"cuckoo.add")]);
        }
        Ok(())
    })
}

/// Refuses adds of clients to a filter with this many sub-filters, whatever room is left, as RedisBloom does.
fn check_expansions(origin: Origin, layers: usize) -> Result<(), Refusal> {
    let is_allowed = origin.is_effect() || (layers as u64) < config::cuckoo_expansions();
    if is_allowed { Ok(()) } else { Err(cuckoo::MAX_EXPANSIONS) }
}

/// Adds items and replies to each. An item that a full filter refuses does not end the command; a lack of memory does.
fn add_and_reply<'a>(
    context: Context,
    filter: &mut RedisBloomCuckooFilter,
    adding: Adding<'a>,
    stored: &mut NewItems<'a>,
) {
    let Adding { origin, items, form, only_absent } = adding;
    let ceiling = ServerCeiling::of(context, origin);
    if form != Form::One {
        reply::open_array(context);
    }
    let mut replies = 0;
    for item in items {
        replies += 1;
        if only_absent && filter.contains(item.bytes()) {
            reply_added(context, form, Some(false));
            continue;
        }
        match filter.add(item.bytes(), &ceiling) {
            Ok(()) => {
                stored.push(*item);
                reply_added(context, form, Some(true));
            }
            Err(error) => {
                if !origin.is_effect() {
                    metrics::REFUSED.count(1);
                }
                match error {
                    Error::Full if form == Form::One => refuse_as_primary(context, origin, cuckoo::FULL),
                    Error::Full => reply_added(context, form, None),
                    Error::TooManyLayers => refuse(context, origin, cuckoo::MAX_EXPANSIONS),
                    error => refuse(context, origin, error.into()),
                }
                if error != Error::Full {
                    break;
                }
            }
        }
    }
    metrics::items_added(items.len(), stored.len());
    if form != Form::One {
        reply::end_array(context, replies);
    }
}

/// Replies whether an item was added; `None`: it was refused. In RESP3 RedisBloom answers CF.INSERT with false then.
fn reply_added(context: Context, form: Form, is_added: Option<bool>) {
    match (form, is_added) {
        (Form::Integers, Some(is_added)) => reply::integer(context, is_added.into()),
        (Form::Booleans, None) if context.speaks_resp3() => reply::boolean(context, false),
        (_, Some(is_added)) => reply::boolean(context, is_added),
        (_, None) => reply::minus_one(context),
    }
}

/// `CF.EXISTS key item`
///
/// Replies whether a filter may contain an item. A missing filter contains nothing.
pub fn exists(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let item = args.arg(2)?;
    let key = ReadKey::open(keys, args.arg(1)?);
    let exists = key.cuckoo()?.is_some_and(|filter| filter.contains(item.bytes()));
    metrics::items_looked_up(1, exists.into());
    reply::boolean(context, exists);
    Ok(())
}

/// `CF.MEXISTS key item [item ...]`
///
/// Replies for each item whether a filter may contain it.
pub fn mexists(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let items = args.rest(2)?;
    let key = ReadKey::open(keys, args.arg(1)?);
    let filter = key.cuckoo()?;
    reply::array(context, items.len());
    let mut positive = 0;
    for item in items {
        let exists = filter.is_some_and(|filter| filter.contains(item.bytes()));
        positive += u32::from(exists);
        reply::boolean(context, exists);
    }
    metrics::items_looked_up(items.len(), positive);
    Ok(())
}

/// `CF.COUNT key item`
///
/// Replies with the number of slots that match an item, which is never below its adds less its deletes.
pub fn count(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let item = args.arg(2)?;
    let key = ReadKey::open(keys, args.arg(1)?);
    reply::integer(context, key.cuckoo()?.map_or(0, |filter| filter.count(item.bytes())));
    Ok(())
}

/// `CF.DEL key item`
///
/// Deletes an item once. Replies whether the filter found it.
pub fn del(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let item = args.arg(2)?;
    write(keys, args.arg(1)?, origin, |mut key| {
        let is_found = match &mut *key.cuckoo_writer()?.ok_or(cuckoo::NOT_FOUND)? {
            Value::Cuckoo(filter) => filter.delete(item.bytes()),
            _ => return Err(Refusal::StillLoading),
        };
        if is_found {
            replicate::verbatim(context);
            key.close_changed(&[(true, c"cuckoo.del")]);
        }
        reply::boolean(context, is_found);
        Ok(())
    })
}

/// `CF.COMPACT key`
///
/// Moves items to older sub-filters where there is room, and frees the newest ones that are empty then.
pub fn compact(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    write(keys, args.arg(1)?, origin, |mut key| {
        let has_changed = match &mut *key.cuckoo_writer()?.ok_or(cuckoo::NO_FILTER)? {
            Value::Cuckoo(filter) => filter.compact(),
            _ => return Err(Refusal::StillLoading),
        };
        if has_changed {
            replicate::verbatim(context);
            key.close_changed(&[]);
        }
        reply::ok(context);
        Ok(())
    })
}

/// `CF.INFO key`
///
/// Replies with eight numbers and their names.
pub fn info(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let key = ReadKey::open(keys, args.arg(1)?);
    let filter = key.cuckoo()?.ok_or(Refusal::NotFound)?;
    let spec = filter.spec();
    let fields = [
        (c"Size", filter.size_bytes()),
        (c"Number of buckets", filter.buckets()),
        (c"Number of filters", filter.layer_count() as u64),
        (c"Number of items inserted", filter.items()),
        (c"Number of items deleted", filter.deletes()),
        (c"Bucket size", spec.bucket_size),
        (c"Expansion rate", spec.expansion),
        (c"Max iterations", spec.iterations),
    ];
    reply::map(context, fields.len());
    for (name, number) in fields {
        reply::simple_string(context, name);
        reply::integer(context, number);
    }
    Ok(())
}

/// `CF.DEBUG key`
///
/// Replies with a line of the same numbers.
pub fn debug(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let key = ReadKey::open(keys, args.arg(1)?);
    let filter = key.cuckoo()?.ok_or(Refusal::NotFound)?;
    let RedisBloomCuckooSpec { bucket_size, iterations, expansion, .. } = filter.spec();
    let (buckets, items, deletes, layers) = (filter.buckets(), filter.items(), filter.deletes(), filter.layer_count());
    let line = Text::of(format_args!(
        "bktsize:{bucket_size} buckets:{buckets} items:{items} deletes:{deletes} filters:{layers} \
         max_iterations:{iterations} expansion:{expansion}"
    ));
    reply::bytes(context, line.bytes());
    Ok(())
}

/// `CF.SCANDUMP key iterator`
///
/// Replies with the record after the one with this iterator, for CF.LOADCHUNK, and with 0 and null at the end. As in RedisBloom, an empty
/// filter has no records.
pub fn scandump(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let iterator = cuckoo::scandump(args.words())?;
    let key = ReadKey::open(keys, args.arg(1)?);
    let filter = key.cuckoo()?.ok_or(Refusal::NotFound)?;
    let is_empty = iterator == 0 && filter.items() == 0;
    let next = if is_empty { None } else { chunked::next_record(filter, iterator).map_err(Refusal::Dump)? };
    reply::array(context, 2);
    match next {
        Some((iterator, data)) => {
            reply::integer(context, iterator);
            reply::bytes(context, &data);
        }
        None => {
            reply::integer(context, 0);
            reply::null(context);
        }
    }
    Ok(())
}

/// `CF.LOADCHUNK key iterator data`
///
/// Applies a record of a dump: the header creates the key, the last chunk completes the filter. A repeated record changes nothing. Chunks
/// from clients must be in order; chunks from a primary are accepted in any order, and overwrite cells.
pub fn loadchunk(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let (iterator, data) = cuckoo::loadchunk(args.words())?;
    let mut key = WriteKey::open(keys, args.arg(1)?)?;
    let progress = match resume(&mut key, origin, iterator, data)? {
        Some(progress) => progress,
        None if iterator != HEADER => return Err(Refusal::NotFound),
        None if data.len() != HEADER_BYTES => return Err(cuckoo::BAD_HEADER),
        None => {
            let begun = ChunkArrival::begin(data, &ServerCeiling::of(context, origin));
            let arrival = begun.map_err(|error| refused_record(error, cuckoo::NOT_CREATED))?;
            key.install(Place::for_value(Value::arriving(Arrival::RedisBloomCuckoo(arrival))?)?);
            Progress::Stored
        }
    };
    if progress != Progress::Known {
        replicate::verbatim(context);
        key.close_changed(&[]);
    }
    reply::ok(context);
    Ok(())
}

/// Applies a record to the filter of a key; `None` if the key is missing.
fn resume(key: &mut WriteKey<'_>, origin: Origin, iterator: u64, data: &[u8]) -> Result<Option<Progress>, Refusal> {
    let (progress, reserved) = {
        let Some(mut writer) = key.cuckoo_writer()? else { return Ok(None) };
        // The last chunk needs memory for another value, which must be reserved before any change.
        let reserved = if let Value::Arriving(_) = *writer { Some(Reserved::full()?) } else { None };
        if reserved.is_none() && iterator == HEADER {
            return Err(Refusal::Exists);
        }
        let progress = if origin.is_effect() {
            writer.accept_replicated(0, iterator, data)
        } else {
            writer.accept(0, iterator, data, &bloomgate_filter::Unlimited)
        };
        let refusal = if iterator == HEADER { Refusal::Exists } else { cuckoo::NOT_LOADED };
        (progress.map_err(|error| refused_record(error, refusal))?, reserved)
    };
    if let (Progress::Complete, Some(reserved)) = (progress, reserved) {
        key.complete(reserved)?;
    }
    Ok(Some(progress))
}

/// Returns the refusal of a record: RedisBloom's, unless it was for lack of memory.
fn refused_record(error: format::Error, refusal: Refusal) -> Refusal {
    match error {
        format::Error::Filter(error) if error.is_out_of_memory() => error.into(),
        _ => refusal,
    }
}
