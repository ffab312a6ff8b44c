//! Adding items: BF.ADD, BF.MADD, BF.INSERT, and for the guard's commands BF.CHANGED and BF.MCHANGED. Creating filters: BF.RESERVE, and
//! any of the first three if the key is missing.

use bloomgate_filter::arguments::insert::{self, Insert};
use bloomgate_filter::arguments::{Command, Creation, reserve};
use bloomgate_filter::kinds::{self, BucketStart, Outcome, WindowedFilter};
use bloomgate_filter::{BATCH, BloomFilter, Clock as _, Error, Filter, Spec, Value, try_box};

use super::dispatch::{redact_key, refuse, refuse_as_primary};
use crate::args::{Arg, Args};
use crate::context::{CommandClock, Context, LogLevel, Origin};
use crate::keys::{AddTarget, Keyspace, Place, Reserved, WriteKey};
use crate::replicate::{self, NewItems};
use crate::reply::{self, Refusal};
use crate::server::ceiling::{MACHINE_BYTES_MAX, ServerCeiling, machine_bytes};
use crate::server::freeing;
use crate::{config, guard, metrics};

/// The form of a reply.
#[derive(Clone, Copy, PartialEq)]
pub enum ReplyForm {
    /// A single result.
    One,
    /// An array with a result for each item.
    Many,
}

/// A new filter that is not stored at a key yet.
pub struct Created {
    /// The filter.
    pub filter: Filter,
    /// The start of the first bucket, which must be propagated.
    start: Option<BucketStart>,
    /// The expiry time of its key, in milliseconds since 1970.
    expires: Option<u64>,
}

impl Created {
    /// Whether its key expires.
    pub const fn expires(&self) -> bool {
        self.expires.is_some()
    }

    /// Propagates the creation, and the items that the same command added.
    pub fn propagate(&self, context: Context, name: Arg<'_>, items: &NewItems<'_>) {
        replicate::created(context, name, &self.filter.spec(), self.start, items);
        if let Some(expires) = self.expires {
            replicate::expires(context, name, expires);
        }
    }

    /// Stores the filter at a key, in memory that was reserved for it.
    pub fn install(self, key: &mut WriteKey<'_>, reserved: Reserved) {
        key.install(reserved.put(self.filter.into()));
        if let Some(expires) = self.expires {
            key.expire_at(expires);
        }
    }
}

/// Creates a filter.
pub fn create(context: Context, origin: Origin, creation: &Creation, clock: &CommandClock) -> Result<Created, Refusal> {
    let Creation { spec, asked_rate, scale_to, expires } = creation;
    let rate = spec.rate();
    if rate.to_bits() != asked_rate.to_bits() {
        context.log(
            LogLevel::Warning,
            format_args!("bloomgate: error rate {asked_rate:?} is out of range: using {rate:?}"),
        );
    }
    let ceiling = ServerCeiling::of(context, origin);
    if let Some(items) = scale_to.filter(|_| !origin.is_effect()) {
        let limit = spec.growth_limit(0, &ceiling);
        if limit.capacity < items {
            return Err(if limit.ends_by_rate { Refusal::ScaleToRate } else { Refusal::ScaleTo });
        }
    }
    if origin.is_effect() {
        return Ok(Created { filter: Filter::carried(spec, &ceiling)?, start: None, expires: None });
    }
    let mut filter = Filter::new(spec, &ceiling)?;
    let start = begin_bucket_if_due(context, origin, &mut filter, clock)?;
    config::renew_entropy(spec);
    let expires = expires.map(|milliseconds| clock.now().0.saturating_add(milliseconds));
    Ok(Created { filter, start, expires })
}

/// Begins the bucket that is due, before a client's command writes to a ring, and propagates the start before the command's own effect.
/// Returns whether a bucket began. If memory runs out, the filter is unchanged.
#[inline]
fn turn_and_propagate(
    context: Context,
    origin: Origin,
    name: Arg<'_>,
    filter: &mut Filter,
    clock: &CommandClock,
) -> Result<bool, Refusal> {
    if filter.windowed().is_none() {
        return Ok(false);
    }
    let start = begin_bucket_if_due(context, origin, filter, clock)?;
    if let Some(start) = start {
        replicate::rotated(context, name, start);
    }
    Ok(start.is_some())
}

/// Begins the bucket that is due. Returns the start, which must be propagated. If memory runs out, the filter is unchanged.
#[cold]
fn begin_bucket_if_due(
    context: Context,
    origin: Origin,
    filter: &mut Filter,
    clock: &CommandClock,
) -> Result<Option<BucketStart>, Refusal> {
    let Some(windowed) = filter.windowed_mut().filter(|_| !origin.is_effect()) else { return Ok(None) };
    let Some(start) = windowed.bucket_due(clock.now()) else { return Ok(None) };
    windowed.begin_bucket(start, &ServerCeiling::of(context, origin))?;
    free_retired(windowed);
    Ok(Some(start))
}

/// Frees the dropped buckets of a ring in the background.
pub fn free_retired(windowed: &mut WindowedFilter) {
    let retired = windowed.take_retired();
    if retired.is_empty() {
        return;
    }
    let bytes = retired.iter().map(BloomFilter::size_bytes).sum();
    if let Ok(retired) = try_box(retired) {
        freeing::free(retired, bytes);
    }
}

/// Returns the filter that BF.ADD and BF.MADD create if the key is missing; `None` if they may not create one.
pub fn default_creation(context: Context, origin: Origin) -> Result<Option<Creation>, Refusal> {
    if !config::auto_creates() && !origin.is_effect() {
        return Ok(None);
    }
    Creation::by_default(&config::defaults(context, origin)).map(Some)
}

/// The items of a command, and the form of its reply.
#[derive(Clone, Copy)]
pub struct Adding<'a> {
    /// The origin of the command.
    pub origin: Origin,
    /// The items.
    pub items: &'a [Arg<'a>],
    /// The form of its reply.
    pub form: ReplyForm,
    /// Whether to also propagate items that were not new.
    pub is_sync: bool,
    /// Whether the items are announced: see [`Filter::announce`]. An array then has a result for every item, even after a refused one,
    /// because each item belongs to a different row.
    pub renews: bool,
}

impl<'a> Adding<'a> {
    /// The item of a client's BF.ADD.
    fn only_item(&self) -> Option<Arg<'a>> {
        match *self {
            Self { origin: Origin::Client, form: ReplyForm::One, items: [item], renews: false, .. } => Some(*item),
            _ => None,
        }
    }
}

/// Adds items to the filter at the key of a command, replies, and propagates the effect. Calls `creation` if the key is missing. A refused
/// command changes nothing. A refused item is an error inside the reply.
pub fn add_items(
    context: Context,
    args: &Args<'_>,
    keys: &mut Keyspace,
    adding: Adding<'_>,
    creation: impl Fn() -> Result<Option<Creation>, Refusal>,
) -> Result<(), Refusal> {
    if adding.is_sync && adding.origin.is_effect() {
        // The primary already had the items. It propagated the command for clients that WAIT.
        replicate::verbatim(context);
        reply::array(context, 0);
        return Ok(());
    }
    loop {
        match add_to_key(context, args, keys, adding, &creation) {
            // Only RedisBloom adds items to a filter whose chunks have not all arrived.
            Err(Refusal::StillLoading) if adding.origin.is_effect() => {
                WriteKey::open(keys, args.arg(1)?)?.put_into_use()?;
            }
            // Memory ran out for the new filter, for a bucket, or for the command itself.
            Err(Refusal::Filter(error)) if error.is_out_of_memory() => {
                metrics::REFUSED.count(adding.items.len() as u64);
                return Err(error.into());
            }
            done => return done,
        }
    }
}

fn add_to_key(
    context: Context,
    args: &Args<'_>,
    keys: &mut Keyspace,
    adding: Adding<'_>,
    creation: impl Fn() -> Result<Option<Creation>, Refusal>,
) -> Result<(), Refusal> {
    let name = args.arg(1)?;
    let mut key = WriteKey::open(keys, name)?;
    let clock = CommandClock::default();
    let mut lists = Lists::with_room(adding)?;
    guard::items_added(context, name, adding.items);
    let (created, has_turned, done);
    if let Some(target) = key.writer_or_add(adding.only_item())? {
        (has_turned, done) = match target {
            AddTarget::Added(is_new) => {
                let item = adding.items.first().ok_or(Refusal::NotFound)?;
                lists.push(*item, is_new, adding.is_sync);
                reply::boolean(context, is_new);
                metrics::items_added(1, is_new.into());
                (false, Done::default())
            }
            AddTarget::Value(mut writer) => {
                let Value::Filter(filter) = &mut *writer else { return Err(Refusal::StillLoading) };
                if adding.renews && adding.form == ReplyForm::Many {
                    filter.guards()?;
                }
                let has_turned = turn_and_propagate(context, adding.origin, name, filter, &clock)?;
                (has_turned, add_and_reply(context, filter, adding, &clock, &mut lists, false))
            }
        };
        let Lists { effects, known } = &lists;
        if known.len() > 0 {
            replicate::known(context, name, known);
        }
        created = (false, false);
        // A command that consists of a name, a key and items is its own effect if all items were new.
        let is_effect = args.count() == adding.items.len() + 2 && effects.len() == adding.items.len();
        match effects.len() {
            0 => {}
            _ if is_effect => replicate::verbatim(context),
            _ if done.has_renewed => replicate::renewed(context, name, effects),
            _ => replicate::added(context, name, effects),
        }
    } else {
        let creation = creation()?.ok_or(Refusal::NotFound)?;
        done = create_and_add(context, &mut key, name, adding, &creation, &clock, &mut lists)?;
        created = (true, creation.expires.is_some());
        has_turned = false;
        guard::filter_replaced(context, name);
    }
    if lists.effects.len() == 0 && !created.0 && !has_turned {
        if done.is_full {
            key.close_unchanged(&[(true, c"bloom.full")]);
        }
        return Ok(());
    }
    key.close_changed(&[
        (created.0, c"bloom.reserve"),
        (created.1, c"expire"),
        (has_turned || done.has_rotated, c"bloom.rotate"),
        (done.has_grown, c"bloom.scale"),
        (lists.effects.len() > 0, c"bloom.add"),
        (done.is_full, c"bloom.full"),
    ]);
    Ok(())
}

/// Creates the missing filter, adds the items and replies.
#[cold]
fn create_and_add<'a>(
    context: Context,
    key: &mut WriteKey<'_>,
    name: Arg<'_>,
    adding: Adding<'a>,
    creation: &Creation,
    clock: &CommandClock,
    lists: &mut Lists<'a>,
) -> Result<Done, Refusal> {
    if let Creation { spec: Spec::Native(spec), asked_rate, scale_to: None, expires: None } = creation
        && asked_rate.to_bits() == spec.rate.to_bits()
        && adding.origin == Origin::Client
    {
        let mut done = Done::default();
        let ceiling = ServerCeiling::of(context, adding.origin);
        let place = Place::like_last(spec, &ceiling, |filter| {
            done = add_and_reply(context, filter, adding, clock, lists, true);
        })?;
        if let Some(place) = place {
            config::renew_entropy(&creation.spec);
            replicate::created(context, name, &creation.spec, None, &lists.effects);
            key.install(place);
            return Ok(done);
        }
    }
    let mut created = create(context, adding.origin, creation, clock)?;
    let reserved = Reserved::of(&created.filter, adding.items.len())?;
    let done = add_and_reply(context, &mut created.filter, adding, clock, lists, true);
    created.propagate(context, name, &lists.effects);
    created.install(key, reserved);
    Ok(done)
}

/// The items of a command that are propagated.
struct Lists<'a> {
    /// The items that changed the filter.
    effects: NewItems<'a>,
    /// The others, with SYNC.
    known: NewItems<'a>,
}

impl<'a> Lists<'a> {
    #[inline]
    fn with_room(adding: Adding<'a>) -> Result<Self, Error> {
        let effects = NewItems::with_room(adding.items.len())?;
        let known = if adding.is_sync { NewItems::with_room(adding.items.len())? } else { NewItems::none() };
        Ok(Self { effects, known })
    }

    #[inline]
    fn push(&mut self, item: Arg<'a>, is_effect: bool, is_sync: bool) {
        if is_effect {
            self.effects.push(item);
        } else if is_sync {
            self.known.push(item);
        }
    }
}

/// The outcome of an add, for the keyspace events.
#[derive(Clone, Copy, Default)]
struct Done {
    has_grown: bool,
    /// Whether a bucket began.
    has_rotated: bool,
    /// Whether a fixed filter refused an item.
    is_full: bool,
    /// Whether an item of an older bucket was added to the newest, because the command renews.
    has_renewed: bool,
}

/// Adds items and replies to each, up to the first refused one. Inlined, so that BF.ADD is specialized for one item.
#[inline(always)]
fn add_and_reply<'a>(
    context: Context,
    filter: &mut Filter,
    adding: Adding<'a>,
    clock: &CommandClock,
    lists: &mut Lists<'a>,
    is_new: bool,
) -> Done {
    let Adding { origin, items, form, is_sync, renews } = adding;
    // A forked child does not share the pages of a new filter.
    let ceiling = if is_new { ServerCeiling::of(context, origin) } else { ServerCeiling::for_adding(context, origin) };
    let layers = filter.layer_count();
    let newest = filter.windowed().map(newest_slot);
    let mut refused = None;
    let mut new = 0;
    if let (ReplyForm::One, [item]) = (form, items) {
        let outcome = if renews {
            filter.announce(item.bytes(), origin.into(), clock, &ceiling)
        } else {
            filter.add(item.bytes(), origin.into(), clock, &ceiling)
        };
        match outcome {
            Ok(outcome) => {
                lists.push(*item, outcome != Outcome::Known, is_sync);
                new += usize::from(outcome == Outcome::New);
                reply::boolean(context, outcome == Outcome::New);
            }
            Err(error) => refused = Some(error),
        }
        if let Some(error) = refused {
            refuse_items(context, origin, filter, error, 1);
        }
    } else {
        (new, refused) = add_batches_and_reply(context, filter, adding, clock, &ceiling, lists);
    }
    metrics::items_added(items.len(), new);
    let has_rotated = newest.is_some_and(|newest| settle_ring(filter, newest));
    let has_grown = !has_rotated && filter.layer_count() > layers;
    // An effect is inserted without a lookup, so every item of it is new.
    let has_renewed = renews && (lists.effects.len() > new || origin.is_effect());
    Done { has_grown, has_rotated, is_full: refused == Some(Error::Full), has_renewed }
}

/// [`add_and_reply`] for an array, in batches. Returns the number of new items, and the error of a refused item. Not inlined, to keep
/// single adds fast.
#[inline(never)]
fn add_batches_and_reply<'a>(
    context: Context,
    filter: &mut Filter,
    adding: Adding<'a>,
    clock: &CommandClock,
    ceiling: &ServerCeiling,
    lists: &mut Lists<'a>,
) -> (usize, Option<Error>) {
    let Adding { items, is_sync, renews, .. } = adding;
    let origin = kinds::Origin::from(adding.origin);
    let (mut new, mut refused) = (0, None);
    // The array's length is known if every item has a result, or if the items cannot fill the layer.
    let known_length = renews || filter.remaining_capacity() >= items.len() as u64;
    if known_length {
        reply::array(context, items.len());
    } else {
        reply::open_array(context);
    }
    let mut answered = 0;
    while let Some(left) = items.get(answered..).filter(|left| !left.is_empty()) {
        let batch = left.get(..BATCH).unwrap_or(left);
        let words = batch.iter().map(|item| item.bytes());
        let added = if renews {
            filter.announce_batch(words, origin, clock, ceiling)
        } else {
            filter.add_batch(words, origin, clock, ceiling)
        };
        for (index, item) in batch.iter().enumerate().take(added.done) {
            let is_new = added.new.contains(index);
            lists.push(*item, added.effect.contains(index), is_sync);
            new += usize::from(is_new);
            reply::boolean(context, is_new);
        }
        answered += added.done;
        if let Some(error) = added.error {
            refused = Some(error);
            refuse_items(
                context,
                adding.origin,
                filter,
                error,
                if renews { 1 } else { items.len().saturating_sub(answered) },
            );
            answered += 1;
            if !renews {
                break;
            }
        }
    }
    if !known_length {
        reply::end_array(context, answered);
    }
    (new, refused)
}

/// The slot of the newest bucket. Adds to a rolling ring may begin another one.
fn newest_slot(windowed: &WindowedFilter) -> Option<u64> {
    windowed.buckets().next_back().map(|bucket| bucket.slot)
}

/// Frees the buckets that a rolling ring dropped during an add. Returns whether a bucket began.
#[cold]
fn settle_ring(filter: &mut Filter, newest: Option<u64>) -> bool {
    let Some(windowed) = filter.windowed_mut() else { return false };
    free_retired(windowed);
    newest_slot(windowed) != newest
}

/// Replies with the error of a refused item, and counts the `items` that a client's command does not add for that reason. RedisBloom and
/// valkey-bloom also propagate items that their filters refused because the filter is full, or because its next layer is impossible or
/// larger than the memory of any machine. After any other error of a propagated item, the replica exits.
#[cold]
fn refuse_items(context: Context, origin: Origin, filter: &Filter, error: Error, items: usize) {
    if error != Error::CannotGuard && !origin.is_effect() {
        metrics::REFUSED.count(items as u64);
    }
    let refusal = Refusal::from(error);
    let is_beyond_machines = error.asked_bytes().is_some_and(|asked_bytes| asked_bytes > MACHINE_BYTES_MAX);
    let is_ours = error.is_out_of_memory() && !is_beyond_machines || error == Error::TooManyLayers;
    if is_ours || !filter.spec().is_foreign() {
        return refuse(context, origin, refusal);
    }
    if is_beyond_machines && origin.is_effect() {
        let line = format_args!("bloomgate: an item needs a layer larger than any machine's memory: {refusal}");
        context.log(LogLevel::Warning, line);
    }
    refuse_as_primary(context, origin, refusal);
}

/// `BF.ADD key item`
///
/// Adds an item. Replies whether it was new.
pub fn add(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let adding = Adding { origin, items: args.rest(2)?, form: ReplyForm::One, is_sync: false, renews: false };
    add_items(context, &args, keys, adding, || default_creation(context, origin))
}

/// `BF.MADD key item [item ...]`
///
/// Adds items. Replies for each whether it was new.
pub fn madd(context: Context, origin: Origin, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let adding = Adding { origin, items: args.rest(2)?, form: ReplyForm::Many, is_sync: false, renews: false };
    add_items(context, &args, keys, adding, || default_creation(context, origin))
}

/// `BF.INSERT key [option ...] [ITEMS item [item ...]]`
///
/// Adds items to a filter, which is created with the given options if it is missing. Replies for each item whether it was new.
///
/// An effect of a primary creates the filter even if clients of this server may not create one.
pub fn insert(context: Context, origin: Origin, mut args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let defaults = config::defaults(context, origin);
    // The items are the last arguments.
    let parsed = insert::parse(args.words(), &defaults)
        .map(|Insert { creation, items, is_sync, renews }| (creation, items.len(), is_sync, renews));
    redact_key(context, origin, &mut args, Command::Insert);
    let (creation, items, is_sync, renews) = parsed?;
    if is_sync && origin.is_effect() {
        // The primary propagates present items only for clients that WAIT.
        reply::ok(context);
        return Ok(());
    }
    let creation = || match creation {
        None if origin.is_effect() => Creation::by_default(&defaults).map(Some),
        creation => Ok(creation),
    };
    let items = args.last(items);
    add_items(context, &args, keys, Adding { origin, items, form: ReplyForm::Many, is_sync, renews }, creation)
}

/// `BF.RESERVE key error_rate capacity [option ...]`
///
/// Creates an empty filter.
pub fn reserve(context: Context, origin: Origin, mut args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let clock = CommandClock::default();
    let parsed = reserve::parse(args.words(), &config::defaults(context, origin));
    redact_key(context, origin, &mut args, Command::Reserve);
    let reserve = parsed?;
    let creation = &reserve.creation;
    let name = args.arg(1)?;
    let mut key = WriteKey::open(keys, name)?;
    if let Some(writer) = key.writer()? {
        let accepted = match &*writer {
            Value::Filter(filter) => reserve.accept(&filter.spec()),
            Value::Arriving(_) if reserve.exist_ok => Err(Refusal::StillLoading),
            Value::Arriving(_) | Value::Cuckoo(_) => Err(Refusal::Exists),
        };
        // An existing key is not fatal on a replica: two RedisBloom clients may have reserved the same filter.
        accepted.map_or_else(|refusal| refuse_as_primary(context, origin, refusal), |()| reply::ok(context));
        return Ok(());
    }
    let created = match create(context, origin, creation, &clock) {
        Err(refusal) if origin.is_effect() && is_beyond_this_machine(context, creation, refusal) => {
            let line = format_args!("bloomgate: ignoring a reservation larger than this machine's memory: {refusal}");
            context.log(LogLevel::Warning, line);
            refuse_as_primary(context, origin, refusal);
            return Ok(());
        }
        created => created?,
    };
    let reserved = Reserved::of(&created.filter, 0)?;
    created.propagate(context, name, &NewItems::none());
    let expires = created.expires();
    created.install(&mut key, reserved);
    guard::filter_replaced(context, name);
    key.close_changed(&[(true, c"bloom.reserve"), (expires, c"expire")]);
    reply::ok(context);
    Ok(())
}

/// Whether a filter of RedisBloom's layout cannot be created because it is larger than this machine's memory. RedisBloom 2.6 propagates
/// reservations that it refused, so a replica ignores this one. If the primary did create the filter, no item is lost: the next add finds
/// no key and creates a filter.
fn is_beyond_this_machine(context: Context, creation: &Creation, refusal: Refusal) -> bool {
    let asked_bytes = if let Refusal::Filter(error) = refusal { error.asked_bytes() } else { None };
    matches!(creation.spec, Spec::RedisBloom(_)) && asked_bytes.is_some_and(|asked| asked > machine_bytes(context))
}
