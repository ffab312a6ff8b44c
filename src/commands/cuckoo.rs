//! Cuckoo filters of either layout: the CF.* commands. Replies, error texts and the order of checks are RedisBloom's.
//!
//! Adds, deletes and compactions depend on nothing but the filter and the items, so replicas and the AOF get the items that were stored or
//! deleted, and have the same bytes afterwards. The number of sub-filters from which on a filter refuses adds is a setting, which a replica
//! does not apply to its primary's adds.

use bloomgate_filter::arguments::Command;
use bloomgate_filter::arguments::cuckoo::{self, CuckooCreation, CuckooInsert};
use bloomgate_filter::format::{self, Arrival, Progress, records};
use bloomgate_filter::kinds::chunked::{self, HEADER};
use bloomgate_filter::kinds::redisbloom_cuckoo::dump::HEADER_BYTES;
use bloomgate_filter::kinds::{
    Added, ChunkArrival, CuckooFilter, Outcome, RedisBloomCuckooFilter, RedisBloomCuckooSpec,
};
use bloomgate_filter::{BATCH, Ceiling, Error, Filter, Mask, Value};

use super::add::{self, Created};
use super::dispatch::{redact_key, refuse, refuse_as_primary};
use super::dump;
use crate::args::{Arg, Args};
use crate::context::{CommandClock, Context, Origin, Text};
use crate::keys::{Keyspace, Place, ReadKey, Reserved, WriteKey};
use crate::replicate::{self, NewItems};
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;
use crate::{config, metrics};

/// A cuckoo filter of either layout.
enum Cuckoo<'a> {
    Own(&'a Filter),
    RedisBloom(&'a RedisBloomCuckooFilter),
}

impl<'a> Cuckoo<'a> {
    /// Returns the filter of a key; `None` if the key is missing.
    fn of(key: &'a ReadKey<'_>) -> Result<Option<Self>, Refusal> {
        match key.cuckoo()? {
            None => Ok(None),
            Some(Value::Filter(filter)) => Ok(Some(Self::Own(filter))),
            Some(Value::Cuckoo(filter)) => Ok(Some(Self::RedisBloom(filter))),
            Some(Value::Arriving(_)) => Err(Refusal::StillLoading),
        }
    }

    fn contains(&self, item: Arg<'_>) -> bool {
        match self {
            Self::Own(filter) => filter.contains(item.bytes(), &CommandClock::default()),
            Self::RedisBloom(filter) => filter.contains(item.bytes()),
        }
    }

    /// Looks up the items of a batch.
    fn contains_batch(&self, items: &[Arg<'_>]) -> Mask {
        let items = items.iter().map(|item| item.bytes());
        match self {
            Self::Own(filter) => filter.contains_batch(items, &CommandClock::default()),
            Self::RedisBloom(filter) => items.enumerate().fold(Mask::NONE, |mut found, (index, item)| {
                found.insert_if(index, filter.contains(item));
                found
            }),
        }
    }

    /// Returns the numbers of CF.INFO, in its order. Our own layout counts no deletes, which show as 0. Its maximum of iterations is the
    /// number of buckets of a group.
    fn figures(&self) -> [u64; 8] {
        match self {
            Self::Own(filter) => {
                let (buckets, iterations) = filter.cuckoo().map_or((0, 0), CuckooFilter::buckets);
                let expansion = filter.scaling().expansion().into();
                let layers = filter.layer_count() as u64;
                [filter.size_bytes(), buckets, layers, filter.items(), 0, BUCKET_SLOTS, expansion, iterations]
            }
            Self::RedisBloom(filter) => {
                let RedisBloomCuckooSpec { bucket_size, iterations, expansion, .. } = filter.spec();
                let layers = filter.layer_count() as u64;
                let (size, buckets, items) = (filter.size_bytes(), filter.buckets(), filter.items());
                [size, buckets, layers, items, filter.deletes(), bucket_size, expansion, iterations]
            }
        }
    }
}

/// `CF.RESERVE key capacity [option ...]`
///
/// Creates an empty filter.
pub fn reserve(context: Context, origin: Origin, mut args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let parsed = cuckoo::reserve(args.words(), &config::cuckoo_defaults(context, origin));
    // Its options begin where the options of BF.INSERT do.
    redact_key(context, origin, &mut args, Command::Insert);
    let creation = parsed?;
    let name = args.arg(1)?;
    let mut key = WriteKey::open(keys, name)?;
    if key.cuckoo_writer()?.is_some() {
        refuse_as_primary(context, origin, Refusal::Exists);
        return Ok(());
    }
    let created = create(context, origin, &creation)?;
    created.propagate(context, name, &NewItems::none());
    created.install(&mut key, Reserved::full()?);
    key.close_changed(&[(true, c"cuckoo.reserve")]);
    reply::ok(context);
    Ok(())
}

/// A new filter that is not stored at a key yet.
enum CreatedCuckoo {
    Own(Created),
    RedisBloom(RedisBloomCuckooFilter, RedisBloomCuckooSpec),
}

/// Creates a filter.
fn create(context: Context, origin: Origin, creation: &CuckooCreation) -> Result<CreatedCuckoo, Refusal> {
    match creation {
        CuckooCreation::Own(creation) => {
            add::create(context, origin, creation, &CommandClock::default()).map(CreatedCuckoo::Own)
        }
        CuckooCreation::RedisBloom(spec) => {
            let ceiling = ServerCeiling::of(context, origin);
            Ok(CreatedCuckoo::RedisBloom(RedisBloomCuckooFilter::with_spec(spec, &ceiling)?, *spec))
        }
    }
}

impl CreatedCuckoo {
    /// Returns the filter, for adds.
    fn target(&mut self) -> Target<'_> {
        match self {
            Self::Own(created) => Target::Own(&mut created.filter),
            Self::RedisBloom(filter, _) => Target::RedisBloom(filter),
        }
    }

    /// Propagates the creation, and the items that the same command stored.
    fn propagate(&self, context: Context, name: Arg<'_>, items: &NewItems<'_>) {
        match self {
            Self::Own(created) => created.propagate(context, name, items),
            Self::RedisBloom(_, spec) => {
                replicate::cuckoo_created(context, name, spec);
                if items.len() > 0 {
                    replicate::cuckoo_added(context, name, items);
                }
            }
        }
    }

    /// Stores the filter at a key.
    fn install(self, key: &mut WriteKey<'_>, reserved: Reserved) {
        match self {
            Self::Own(created) => created.install(key, reserved),
            Self::RedisBloom(filter, _) => key.install(reserved.put(Value::Cuckoo(filter))),
        }
    }
}

/// The slots of a bucket of our own layout.
const BUCKET_SLOTS: u64 = 4;

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
        || config::cuckoo_defaults(context, origin).by_default().map(Some),
        Adding { origin, items: args.rest(2)?, form: Form::One, only_absent: false },
    )
}

/// `CF.ADDNX key item`
///
/// Adds an item unless the filter finds it. Replies whether it was added.
pub fn addnx(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let adding = Adding { origin, items: args.rest(2)?, form: Form::One, only_absent: true };
    let creation = || config::cuckoo_defaults(context, origin).by_default().map(Some);
    add_items(context, keys, args.arg(1)?, creation, adding)
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
    let CuckooInsert { creation, items } = cuckoo::insert(args.words(), &config::cuckoo_defaults(context, origin))?;
    let adding = Adding { origin, items: args.last(items), form, only_absent: form == Form::Integers };
    add_items(context, keys, args.arg(1)?, || Ok(creation), adding)
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

/// Adds items to the filter of a key. Calls `creation` if it is missing. A command that is refused as a whole changes nothing.
fn add_items(
    context: Context,
    keys: &mut Keyspace,
    name: Arg<'_>,
    creation: impl Fn() -> Result<Option<CuckooCreation>, Refusal>,
    adding: Adding<'_>,
) -> Result<(), Refusal> {
    write(keys, name, adding.origin, |mut key| {
        let mut stored = NewItems::with_room(adding.items.len())?;
        let existing = match key.cuckoo_writer()? {
            Some(mut writer) => {
                let mut target = Target::of(&mut writer)?;
                target.check_expansions(adding.origin)?;
                add_and_reply(context, &mut target, adding, &mut stored);
                true
            }
            None => false,
        };
        if existing {
            match stored.len() {
                0 => {}
                // A command that stored all of its items is its own effect.
                all if !adding.only_absent && all == adding.items.len() => replicate::verbatim(context),
                _ => replicate::cuckoo_added(context, name, &stored),
            }
        } else {
            let mut created = create(context, adding.origin, &creation()?.ok_or(Refusal::NotFound)?)?;
            created.target().check_expansions(adding.origin)?;
            let reserved = Reserved::full()?;
            add_and_reply(context, &mut created.target(), adding, &mut stored);
            created.propagate(context, name, &stored);
            created.install(&mut key, reserved);
        }
        if stored.len() > 0 || !existing {
            key.close_changed(&[(!existing, c"cuckoo.reserve"), (stored.len() > 0, c"cuckoo.add")]);
        }
        Ok(())
    })
}

/// A filter of either layout, open for writing.
enum Target<'a> {
    Own(&'a mut Filter),
    RedisBloom(&'a mut RedisBloomCuckooFilter),
}

impl<'a> Target<'a> {
    fn of(value: &'a mut Value) -> Result<Self, Refusal> {
        match value {
            Value::Filter(filter) => Ok(Self::Own(filter)),
            Value::Cuckoo(filter) => Ok(Self::RedisBloom(filter)),
            Value::Arriving(_) => Err(Refusal::StillLoading),
        }
    }

    fn contains(&self, item: Arg<'_>) -> bool {
        match self {
            Self::Own(filter) => filter.contains(item.bytes(), &CommandClock::default()),
            Self::RedisBloom(filter) => filter.contains(item.bytes()),
        }
    }

    /// Adds the first items: a batch to our own layout, one item to RedisBloom's. [`Added::effect`] has the stored ones.
    fn add(&mut self, items: &[Arg<'_>], origin: Origin, ceiling: &impl Ceiling) -> Added {
        let one = |stored: Result<bool, Error>| {
            let effect = Mask::first(usize::from(stored == Ok(true)));
            Added { new: effect, effect, done: usize::from(stored.is_ok()), error: stored.err() }
        };
        match (self, items) {
            (Self::Own(filter), [item]) => {
                let added = filter.add(item.bytes(), origin.into(), &CommandClock::default(), ceiling);
                one(added.map(|outcome| outcome != Outcome::Known))
            }
            (Self::Own(filter), items) => {
                let items = items.iter().take(BATCH).map(|item| item.bytes());
                filter.add_batch(items, origin.into(), &CommandClock::default(), ceiling)
            }
            (Self::RedisBloom(filter), [item, ..]) => one(filter.add(item.bytes(), ceiling).map(|()| true)),
            (Self::RedisBloom(_), []) => one(Ok(false)),
        }
    }

    fn delete(&mut self, item: Arg<'_>, origin: Origin, ceiling: &impl Ceiling) -> bool {
        match self {
            Self::Own(filter) => {
                let removed = filter.remove_batch([item.bytes()], origin.into(), &CommandClock::default(), ceiling);
                removed.found.contains(0)
            }
            Self::RedisBloom(filter) => filter.delete(item.bytes()),
        }
    }

    /// Refuses adds of clients to a filter of RedisBloom's layout with this many sub-filters, whatever room is left, as RedisBloom does.
    fn check_expansions(&self, origin: Origin) -> Result<(), Refusal> {
        match self {
            Self::RedisBloom(filter)
                if !origin.is_effect() && filter.layer_count() as u64 >= config::cuckoo_expansions() =>
            {
                Err(cuckoo::MAX_EXPANSIONS)
            }
            _ => Ok(()),
        }
    }
}

/// Adds items and replies to each. An item that a full filter refuses does not end the command; a lack of memory does. An add that changes
/// nothing, because the filter has four copies already, is answered like the others.
fn add_and_reply<'a>(context: Context, filter: &mut Target<'_>, adding: Adding<'a>, stored: &mut NewItems<'a>) {
    let Adding { origin, items, form, only_absent } = adding;
    let ceiling = ServerCeiling::of(context, origin);
    if form != Form::One {
        reply::open_array(context);
    }
    let (mut rest, mut replies) = (items, 0);
    while let [first, others @ ..] = rest {
        if only_absent && filter.contains(*first) {
            replies += 1;
            reply_added(context, form, Some(false));
            rest = others;
            continue;
        }
        let added = filter.add(if only_absent { std::slice::from_ref(first) } else { rest }, origin, &ceiling);
        for (index, item) in rest.iter().enumerate().take(added.done) {
            if added.effect.contains(index) {
                stored.push(*item);
            }
            replies += 1;
            reply_added(context, form, Some(true));
        }
        rest = rest.get(added.done..).unwrap_or_default();
        let Some(error) = added.error else { continue };
        replies += 1;
        rest = rest.get(1..).unwrap_or_default();
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
    let exists = Cuckoo::of(&key)?.is_some_and(|filter| filter.contains(item));
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
    let filter = Cuckoo::of(&key)?;
    reply::array(context, items.len());
    let mut positive = 0;
    for batch in items.chunks(BATCH) {
        let found = filter.as_ref().map_or(Mask::NONE, |filter| filter.contains_batch(batch));
        positive += found.len();
        found.each(batch.len()).for_each(|exists| reply::boolean(context, exists));
    }
    metrics::items_looked_up(items.len(), positive);
    Ok(())
}

/// `CF.COUNT key item`
///
/// Replies with the number of slots that match an item, which is never below its adds less its deletes. Our own layout stores up to four
/// copies in a layer, so from four on the number may be higher.
pub fn count(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let item = args.arg(2)?.bytes();
    let key = ReadKey::open(keys, args.arg(1)?);
    let count = match Cuckoo::of(&key)? {
        None => 0,
        Some(Cuckoo::Own(filter)) => filter.count(item).unwrap_or_default(),
        Some(Cuckoo::RedisBloom(filter)) => filter.count(item),
    };
    reply::integer(context, count);
    Ok(())
}

/// `CF.DEL key item`
///
/// Deletes an item once. Replies whether the filter found it.
pub fn del(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let item = args.arg(2)?;
    write(keys, args.arg(1)?, origin, |mut key| {
        let is_found = {
            let mut writer = key.cuckoo_writer()?.ok_or(cuckoo::NOT_FOUND)?;
            Target::of(&mut writer)?.delete(item, origin, &ServerCeiling::of(context, origin))
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
/// Moves items to older sub-filters where there is room, and frees the newest ones that are empty then. A filter of our own layout frees
/// its layers as they become empty, and moves nothing: a slot does not determine a position in another layer.
pub fn compact(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    write(keys, args.arg(1)?, origin, |mut key| {
        let has_changed = match Target::of(&mut *key.cuckoo_writer()?.ok_or(cuckoo::NO_FILTER)?)? {
            Target::Own(_) => false,
            Target::RedisBloom(filter) => filter.compact(),
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
    let figures = Cuckoo::of(&key)?.ok_or(Refusal::NotFound)?.figures();
    let names = [
        c"Size",
        c"Number of buckets",
        c"Number of filters",
        c"Number of items inserted",
        c"Number of items deleted",
        c"Bucket size",
        c"Expansion rate",
        c"Max iterations",
    ];
    reply::map(context, names.len());
    for (name, number) in names.into_iter().zip(figures) {
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
    let figures = Cuckoo::of(&key)?.ok_or(Refusal::NotFound)?.figures();
    let [_, buckets, layers, items, deletes, bucket_size, expansion, iterations] = figures;
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
/// filter has no records. A filter of our own layout has the records of BF.SCANDUMP.
pub fn scandump(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let iterator = cuckoo::scandump(args.words())?;
    let key = ReadKey::open(keys, args.arg(1)?);
    let next = match key.cuckoo()?.ok_or(Refusal::NotFound)? {
        Value::Filter(filter) if iterator == 0 && filter.items() == 0 => None,
        Value::Filter(filter) => dump::next_record(key.stored()?.ok_or(Refusal::NotFound)?, filter, iterator)?,
        Value::Cuckoo(filter) if iterator == 0 && filter.items() == 0 => None,
        Value::Cuckoo(filter) => chunked::next_record(filter, iterator).map_err(Refusal::Dump)?,
        Value::Arriving(_) => return Err(Refusal::StillLoading),
    };
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
    let is_theirs = key.cuckoo_writer()?.map(|writer| writer.is_redisbloom_cuckoo());
    // A header of RedisBloom's dump.
    if is_theirs == Some(false) && iterator == HEADER {
        return Err(Refusal::Exists);
    }
    if !is_theirs.unwrap_or(!records::is_header(data)) {
        drop(key);
        return dump::loadchunk(context, origin, args, keys);
    }
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
