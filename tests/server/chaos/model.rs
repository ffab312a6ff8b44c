//! The model of the servers: every key and cached value, and the changes that a failover may lose.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use super::draw::{DEFAULTS, Family, Op, Payload, Shape, Words, key_name, words};
use super::replies::{
    ARRIVING, Conditions, Fault, Guarded, Heard, Known, Row, add_one, answers, expect, expect_error, expect_number,
    is_ok, wrong,
};
use testing::Reply;

/// The number of keys that hold filters.
pub const KEYS: usize = 24;

/// A dump of BF.SCANDUMP that is being loaded into another key.
#[derive(Clone)]
pub struct Arrival {
    pub records: Vec<(i64, Vec<u8>)>,
    /// The record to be sent next.
    pub next: usize,
    pub becomes: Filter,
}

/// The value of a key.
pub enum Slot {
    Missing,
    Filter(Filter),
    Arriving(Arrival),
    /// One of several values, after a command without a reply.
    Doubtful,
}

/// Reasons for which commands may currently be refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    None,
    /// The server is above maxmemory.
    Memory,
    /// `bf.max-filter-bytes` is below the size of filters.
    Bytes,
}

/// The values that a cache key may currently have.
type Cached = Vec<Option<u64>>;

/// The effect of a write that no replica has confirmed yet.
enum Unconfirmed {
    Item {
        key: usize,
        item: Item,
        before: State,
    },
    Cached {
        key: usize,
        item: Item,
        before: Cached,
    },
    Key(usize),
    /// The keys of WHILE and UNLESS.
    Conditions,
}

/// The model.
pub struct Model {
    pub slots: Vec<Slot>,
    pub shelf: Vec<Payload>,
    pub guard: Guarded,
    cached: BTreeMap<(usize, Item), Cached>,
    unconfirmed: Vec<Unconfirmed>,
    pub limit: Limit,
    /// The filter that BF.ADD creates on the current primary.
    pub default: &'static Shape,
}

impl Model {
    /// Creates the model of servers without keys.
    pub fn new() -> Self {
        Self {
            slots: (0..KEYS).map(|_| Slot::Missing).collect(),
            shelf: Vec::new(),
            guard: Guarded::default(),
            cached: BTreeMap::new(),
            unconfirmed: Vec::new(),
            limit: Limit::None,
            default: DEFAULTS[0],
        }
    }

    /// The values that an item's cache key may have.
    pub fn cached(&self, key: usize, item: Item) -> Cached {
        self.cached.get(&(key, item)).cloned().unwrap_or_else(|| vec![None])
    }

    /// Every cache key that was used.
    pub fn cache_keys(&self) -> impl Iterator<Item = (usize, Item)> {
        self.cached.keys().copied()
    }

    /// Records the value of a cache key.
    pub fn cache(&mut self, key: usize, item: Item, value: Option<u64>) {
        let before = self.cached(key, item);
        self.unconfirmed.push(Unconfirmed::Cached { key, item, before });
        self.cached.insert((key, item), vec![value]);
    }

    /// Records that the whole filter at a key is about to be changed or replaced.
    pub fn replace(&mut self, key: usize, slot: Slot) {
        self.unconfirmed.push(Unconfirmed::Key(key));
        self.slots[key] = slot;
        self.guard.replaced(key);
    }

    /// Records that all keys were deleted.
    pub fn flushed(&mut self) {
        (0..KEYS).for_each(|key| self.replace(key, Slot::Missing));
        let cached: Vec<(usize, Item)> = self.cached.keys().copied().collect();
        cached.into_iter().for_each(|(key, item)| self.cache(key, item, None));
        *self.conditions() = Conditions::default();
        self.guard.end_all();
    }

    /// Returns the keys of WHILE and UNLESS, to record a change to them.
    pub fn conditions(&mut self) -> &mut Conditions {
        self.unconfirmed.push(Unconfirmed::Conditions);
        &mut self.guard.conditions
    }

    /// Records the effects of a command on the guard that do not depend on whether the filter accepts the items.
    pub fn announce(&mut self, op: &Op) {
        match op {
            Op::Add { key, items, .. } => items.iter().for_each(|&item| self.guard.overwritten((*key, item))),
            Op::Changed { key, items, .. } => {
                for &item in items {
                    self.cache(*key, item, None);
                    self.guard.end((*key, item));
                }
            }
            _ => {}
        }
    }

    /// Records that an item's state is about to change.
    pub fn touch(&mut self, key: usize, item: Item) {
        if let Slot::Filter(filter) = &self.slots[key] {
            self.unconfirmed.push(Unconfirmed::Item { key, item, before: filter.state(item) });
        }
    }

    /// Returns the filter at a key, for changes of single items.
    pub fn filter(&mut self, key: usize) -> &mut Filter {
        match &mut self.slots[key] {
            Slot::Filter(filter) => filter,
            _ => panic!("no filter at key {key}"),
        }
    }

    /// Records that a command was sent without a reply, so it may have been executed.
    pub fn doubt(&mut self, op: &Op, sent: Instant) {
        let now = Instant::now();
        for key in op.replaced() {
            // A record may be sent again, except the last one, which completes the filter.
            let may_repeat = matches!(&self.slots[key], Slot::Arriving(it) if it.next + 1 < it.records.len());
            if !(may_repeat && matches!(op, Op::LoadChunk { .. })) {
                self.replace(key, Slot::Doubtful);
            }
        }
        match op {
            Op::Add { key, items, .. } => match &mut self.slots[*key] {
                Slot::Missing => self.replace(*key, Slot::Doubtful),
                Slot::Filter(filter) => items.iter().for_each(|&item| filter.perhaps(item, true, sent, now)),
                _ => {}
            },
            Op::Remove { key, items, .. } => {
                if let Slot::Filter(filter) = &mut self.slots[*key] {
                    items.iter().for_each(|&item| filter.perhaps(item, false, sent, now));
                }
            }
            Op::Rotate { key } => {
                if let Slot::Filter(filter) = &mut self.slots[*key] {
                    filter.rotated();
                }
            }
            Op::Changed { key, items, .. } => {
                if let Slot::Filter(filter) = &mut self.slots[*key] {
                    items.iter().for_each(|&item| filter.perhaps(item, true, sent, now));
                }
                items.iter().for_each(|&item| self.doubt_cached(*key, item, vec![None]));
            }
            Op::Fill { row, filling, .. } => match filling {
                Filling::Value(value) => self.doubt_cached(row.0, row.1, vec![Some(*value)]),
                Filling::NoRow(_) => self.doubt_cached(row.0, row.1, vec![None]),
                Filling::GiveUp | Filling::BackOff(_) => {}
            },
            Op::Overwrite { row, value } => self.doubt_cached(row.0, row.1, vec![*value]),
            Op::Beat { .. } | Op::Write { .. } => self.guard.conditions.is_doubtful = true,
            _ => {}
        }
    }

    fn doubt_cached(&mut self, key: usize, item: Item, mut values: Cached) {
        values.extend(self.cached(key, item));
        self.cached.insert((key, item), values);
    }

    /// Records that a replica has everything that was written so far.
    pub fn confirmed(&mut self) {
        self.unconfirmed.clear();
    }

    /// Records that a replica takes over which may lack the latest writes.
    pub fn failed_over(&mut self) {
        for unconfirmed in std::mem::take(&mut self.unconfirmed) {
            match unconfirmed {
                Unconfirmed::Key(key) => self.slots[key] = Slot::Doubtful,
                Unconfirmed::Conditions => self.guard.conditions.is_doubtful = true,
                Unconfirmed::Cached { key, item, before } => self.doubt_cached(key, item, before),
                Unconfirmed::Item { key, item, before } => {
                    if let Slot::Filter(filter) = &mut self.slots[key] {
                        filter.doubt(item, before);
                    }
                }
            }
        }
    }

    /// Returns the names of the keys whose values are unknown. The caller deletes them.
    pub fn take_doubtful(&mut self) -> Vec<Vec<u8>> {
        let doubtful: Vec<usize> = (0..KEYS).filter(|&key| matches!(self.slots[key], Slot::Doubtful)).collect();
        for &key in &doubtful {
            self.slots[key] = Slot::Missing;
        }
        let mut names: Vec<Vec<u8>> = doubtful.into_iter().map(key_name).collect();
        if self.guard.conditions.is_doubtful {
            self.guard.conditions = Conditions::default();
            names.extend([WHILE_KEY, UNLESS_KEY].map(|name| name.as_bytes().to_vec()));
        }
        names
    }
}

// The model of one filter: its required answers, as far as earlier replies determine them.

/// The number in an item's name.
pub type Item = u16;

/// The allowed difference in milliseconds between a server's clock and the test's.
pub const CLOCK_SLACK: Duration = Duration::from_millis(50);

/// When an item was added: the time, and the counts of its filter.
#[derive(Clone, Copy, PartialEq)]
pub struct Added {
    /// When the command was sent, and when its reply arrived.
    sent: Instant,
    replied: Instant,
    /// Counts of the filter at that time.
    rotations: u64,
    new_items: u64,
}

/// The model's knowledge of an item.
#[derive(Clone, Copy, PartialEq)]
pub enum State {
    /// Unknown state.
    Unknown,
    /// The filter does not find the item.
    Out,
    /// The filter finds the item, unless it has forgotten it since.
    In(Added),
    /// The item was added between `least` and `most` times more often than it was deleted.
    Counted { least: u32, most: u32 },
}

/// A counter of COUNTING that reaches 15 stays at 15.
const STUCK: u32 = 15;

impl State {
    /// Returns the state that covers two possible states of an item.
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::In(one), Self::In(other)) => Self::In(Added {
                sent: one.sent.min(other.sent),
                replied: one.replied.max(other.replied),
                rotations: one.rotations.min(other.rotations),
                new_items: one.new_items.min(other.new_items),
            }),
            (Self::Counted { least, most }, Self::Counted { least: other_least, most: other_most }) => {
                Self::Counted { least: least.min(other_least), most: most.max(other_most) }
            }
            (one, other) if one == other => one,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Out => f.write_str("not in"),
            Self::In(added) => {
                let Added { sent, replied, rotations, new_items } = added;
                let [sent, replied] = [sent, replied].map(|time| time.elapsed().as_millis());
                write!(f, "added {sent} to {replied} ms ago, after {new_items} new items and {rotations} rotations")
            }
            Self::Counted { least, most } => write!(f, "in {least} to {most} times"),
        }
    }
}

/// A filter.
#[derive(Clone)]
pub struct Filter {
    pub shape: &'static Shape,
    states: BTreeMap<Item, State>,
    /// The reply to BF.CARD, if it is certain.
    pub card: Option<i64>,
    /// The maximum number of items that can have been counted as new since the filter was empty.
    new_items: u64,
    /// The maximum number of buckets that clients can have begun.
    rotations: u64,
}

impl Filter {
    /// Creates an empty filter.
    pub fn new(shape: &'static Shape) -> Self {
        Self { shape, states: BTreeMap::new(), card: Some(0), new_items: 0, rotations: 0 }
    }

    /// Returns the state of an item.
    pub fn state(&self, item: Item) -> State {
        let untouched = match self.shape.family {
            Family::Counting => State::Counted { least: 0, most: 0 },
            _ if self.shape.is_exact() => State::Out,
            _ => State::Unknown,
        };
        self.states.get(&item).copied().unwrap_or(untouched)
    }

    /// Returns every item that was ever added or deleted.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        self.states.keys().copied()
    }

    /// Returns the number of remaining rotations that an item survives. It also scales the remaining time or number of items.
    fn buckets_left(&self, added: &Added, buckets: u64) -> u64 {
        (buckets - 1).saturating_sub(self.rotations - added.rotations)
    }

    /// Whether a reply that arrived at `replied` must report the item present.
    pub fn must_have(&self, item: Item, replied: Instant) -> bool {
        match (self.state(item), self.shape.family) {
            (State::Counted { least, .. }, _) => least > 0,
            (State::In(_), Family::Set) => true,
            (State::In(added), Family::Window { milliseconds, buckets, .. }) => {
                let left = self.buckets_left(&added, buckets) * milliseconds / (buckets - 1);
                replied + CLOCK_SLACK < added.sent + Duration::from_millis(left)
            }
            (State::In(added), Family::Rolling { capacity, buckets }) => {
                let left = self.buckets_left(&added, buckets) * capacity.div_ceil(buckets - 1);
                self.new_items - added.new_items < left
            }
            _ => false,
        }
    }

    /// Whether the reply to a command that was sent at `sent` must report the item absent.
    pub fn must_lack(&self, item: Item, sent: Instant) -> bool {
        match (self.state(item), self.shape.family) {
            (State::Out, _) => true,
            (State::Counted { most, .. }, _) => most == 0 && self.shape.is_exact(),
            (State::In(added), Family::Window { milliseconds, buckets, .. }) if self.shape.is_exact() => {
                let longest = Duration::from_millis(milliseconds * buckets / (buckets - 1) + 1000);
                sent > added.replied + longest + CLOCK_SLACK
            }
            _ => false,
        }
    }

    /// Whether the filter may refuse an item because it is full.
    pub fn may_be_full(&self) -> bool {
        self.shape.room().is_some_and(|room| self.new_items >= room)
    }

    /// Records the answer to an add: `is_new`. With `renews`, the item is in the newest bucket in any case.
    pub fn added(&mut self, item: Item, is_new: bool, renews: bool, sent: Instant, replied: Instant) {
        let before = self.state(item);
        let counts = is_new || self.shape.family == Family::Counting;
        self.new_items += u64::from(counts || renews);
        self.card = self.card.map(|card| card + i64::from(counts));
        let added = Added { sent, replied, rotations: self.rotations, new_items: self.new_items };
        let stays = match self.shape.family {
            Family::Set => matches!(before, State::In(_)),
            // A present item stays in its bucket. A false positive is in no bucket.
            Family::Window { sliding, .. } => !is_new && !sliding && !renews,
            Family::Rolling { .. } => !is_new && !renews,
            Family::Counting => false,
        };
        let after = match before {
            State::Counted { least, most } => {
                let most = most.saturating_add(1);
                State::Counted { least: least + 1, most: if most >= STUCK { u32::MAX } else { most } }
            }
            _ if stays => before,
            _ => State::In(added),
        };
        self.states.insert(item, after);
    }

    /// Records the answer to a delete: `was_in`.
    pub fn deleted(&mut self, item: Item, was_in: bool) {
        self.card = self.card.map(|card| card - i64::from(was_in));
        let after = match self.state(item) {
            State::Counted { least, most: u32::MAX } => {
                State::Counted { least: least.saturating_sub(1), most: u32::MAX }
            }
            State::Counted { least, most } => {
                State::Counted { least: least.saturating_sub(1), most: most.saturating_sub(1) }
            }
            // An item that was not found is not in the table of deleted items, and may be a false positive later.
            _ if self.shape.is_exact() || was_in && self.shape.family == Family::Set => State::Out,
            _ => State::Unknown,
        };
        self.states.insert(item, after);
    }

    /// Records that an add or a delete of this item was sent without a reply.
    pub fn perhaps(&mut self, item: Item, is_add: bool, sent: Instant, replied: Instant) {
        let before = self.state(item);
        if is_add {
            self.added(item, true, true, sent, replied);
        } else {
            self.deleted(item, true);
        }
        self.doubt(item, before);
    }

    /// Records that the item may also be in this state.
    pub fn doubt(&mut self, item: Item, state: State) {
        self.states.insert(item, self.state(item).or(state));
        self.card = None;
    }

    /// Records that a client began a bucket, or may have.
    pub fn rotated(&mut self) {
        self.rotations += 1;
        self.card = None;
    }

    /// Returns the contents of a dump that began with this filter and ended with `after`, if items were only added
    /// meanwhile.
    pub fn dumped_until(&self, after: &Self) -> Self {
        let mut dumped = after.clone();
        for (item, state) in &mut dumped.states {
            // An item that was added meanwhile may be in the dump. The table of deleted items is omitted if it changed.
            if !matches!(self.state(*item), State::In(_)) {
                *state = State::Unknown;
            }
        }
        dumped.card = None;
        dumped
    }

    /// Records that the filter received all items of another one.
    pub fn united_with(&mut self, other: &Self) {
        let items: Vec<Item> = self.items().chain(other.items()).collect();
        for item in items {
            let after = match (self.state(item), other.state(item)) {
                (State::In(added), _) | (_, State::In(added)) => State::In(added),
                (one, other) => one.or(other),
            };
            self.states.insert(item, after);
        }
        // The number of items in a union is unknown.
        self.card = None;
        self.new_items = self.new_items.max(self.shape.capacity);
    }
}

// The guard's commands and the checks of their replies. A cached value is never outdated, `absent` is never wrong, a row has one lease at a
// time, a void token is never accepted, and a valid token always is.

/// The key of WHILE, and the hash of UNLESS.
pub const WHILE_KEY: &str = "feed:beats";
pub const UNLESS_KEY: &str = "feed:writes";

const CANNOT_GUARD: &str = "ERR a COUNTING filter cannot guard";
/// The time to live in seconds of values with odd numbers. The others do not expire.
const EXPIRES: u64 = 1_000_000;

/// The options of BF.FETCH and BF.MFETCH.
#[derive(Clone, Copy)]
pub struct Asking {
    pub lease: u64,
    /// Whether all values with a time to live count as stale.
    pub refreshes: bool,
    /// 0 for no WAIT.
    pub wait: u64,
    pub has_while: bool,
    pub has_unless: bool,
    /// The index of the first option.
    pub first: usize,
}

impl Asking {
    /// Returns the options.
    pub fn words(&self) -> Words {
        let mut options = vec![
            format!("LEASE {}", self.lease),
            format!("STALE {}", if self.refreshes { 2000 * EXPIRES } else { 1000 }),
        ];
        options.extend((self.wait > 0).then(|| format!("WAIT {}", self.wait)));
        options.extend(self.has_while.then(|| format!("WHILE {WHILE_KEY}")));
        options.extend(self.has_unless.then(|| format!("UNLESS {UNLESS_KEY}")));
        let first = self.first % options.len();
        options.rotate_left(first);
        words(&options.join(" "))
    }
}

/// The outcome that BF.FILL reports.
#[derive(Clone, Copy)]
pub enum Filling {
    Value(u64),
    /// For this number of milliseconds.
    NoRow(u64),
    GiveUp,
    /// For this number of milliseconds.
    BackOff(u64),
}

impl Filling {
    /// Returns the arguments after the token.
    pub fn words(self) -> Words {
        words(&match self {
            Self::Value(value) if expires(value) => format!("VALUE {value} EX {EXPIRES}"),
            Self::Value(value) => format!("VALUE {value}"),
            Self::NoRow(time) => format!("NONE PX {time}"),
            Self::GiveUp => "GIVEUP".to_owned(),
            Self::BackOff(time) => format!("GIVEUP BACKOFF {time}"),
        })
    }
}

const fn expires(value: u64) -> bool {
    value % 2 == 1
}

/// Checks the reply to BF.CHANGED or BF.MCHANGED. The model already contains its effects on the cache.
pub fn changed(model: &mut Model, key: usize, items: &[Item], heard: &Heard<'_>) -> Result<(), Fault> {
    match &model.slots[key] {
        Slot::Arriving(_) => return expect_error(heard.reply, ARRIVING),
        Slot::Filter(filter) if filter.shape.family == Family::Counting => {
            return expect_error(heard.reply, CANNOT_GUARD);
        }
        _ => {}
    }
    let answers = answers(heard.reply);
    expect(answers.len() == items.len(), "an answer for each item")?;
    for (&item, answer) in items.iter().zip(answers) {
        if matches!(model.slots[key], Slot::Filter(_)) {
            add_one(model, key, item, answer, true, heard)?;
        } else {
            expect(*answer == Reply::NullBulk, "null: no such key")?;
        }
    }
    Ok(())
}

/// Checks the reply to BF.FETCH, with `one`, or BF.MFETCH.
pub fn fetch(
    model: &mut Model,
    key: usize,
    items: &[Item],
    (one, asking): (bool, &Asking),
    heard: &Heard<'_>,
) -> Result<(), Fault> {
    // BF.FETCH does not query the filter if the row has a write in flight.
    let is_held = one && asking.has_unless && model.guard.conditions.hold((key, items[0]));
    if let Slot::Filter(filter) = &model.slots[key]
        && filter.shape.family == Family::Counting
        && !is_held
    {
        return expect_error(heard.reply, CANNOT_GUARD);
    }
    let answers = if one { std::slice::from_ref(heard.reply) } else { answers(heard.reply) };
    expect(answers.len() == items.len(), "an answer for each item")?;
    for (&item, answer) in items.iter().zip(answers) {
        let Reply::Array(parts) = answer else { return wrong("an array") };
        let row = (key, item);
        if let Some(token) = fetched(model, row, asking, parts, heard)? {
            let is_new = model.guard.grant(row, &token, asking.lease, heard);
            expect(is_new, &format!("another token than {token}"))?;
        }
    }
    Ok(())
}

/// Checks the answer about one row. Returns the token that it grants.
fn fetched(
    model: &mut Model,
    row: Row,
    asking: &Asking,
    parts: &[Reply],
    heard: &Heard<'_>,
) -> Result<Option<String>, Fault> {
    let (key, item) = row;
    let conditions = &model.guard.conditions;
    if asking.has_unless && conditions.hold(row) {
        model.guard.saw("held");
        let holds = matches!(parts, [word, Reply::Integer(1)] if word.text() == "wait");
        return expect(holds, &format!("wait 1: item:{item} has a write in flight")).map(|()| None);
    }
    // Whether the filter may answer `absent`.
    let denies = !asking.has_while || conditions.beats;
    let (must_have, must_lack) = match &model.slots[key] {
        Slot::Filter(filter) if denies => (filter.must_have(item, heard.replied), filter.must_lack(item, heard.sent)),
        _ => (true, false),
    };
    let denies = denies && matches!(model.slots[key], Slot::Filter(_));
    let record = model.guard.record(row, heard);
    let must = record.is_some_and(|record| record.must(heard));
    let (no_row, busy) = record.map_or((false, false), |record| (!record.is_busy() && denies, record.is_busy()));
    let longest = record.map_or(0, |record| record.milliseconds);

    let values = model.cached(key, item);
    let is_cached = |value: &Reply| {
        let value = value.text().parse::<u64>().ok();
        expect(value.is_some() && values.contains(&value), &format!("one of {values:?}"))?;
        Ok::<_, Fault>(value.is_some_and(expires) && asking.refreshes)
    };
    let is_free = || expect(!(must && busy), "no token: there is a lease or a back-off");
    let is_missing = || expect(values.contains(&None), &format!("one of {values:?}"));
    let word = parts.first().map(Reply::text).unwrap_or_default();
    let (seen, token) = match (word.as_str(), &parts[1..]) {
        ("absent", []) => {
            expect(!must_have || no_row, &format!("another word: item:{item} may have a row"))?;
            (if must_have { "absent by a NONE" } else { "absent" }, None)
        }
        _ if must_lack || no_row && must => return wrong(&format!("absent: item:{item}")),
        ("hit", [value]) => {
            let is_stale = is_cached(value)?;
            expect(!is_stale || busy, "stale: no lease exists")?;
            ("hit", None)
        }
        ("stale", [value, token]) => {
            expect(is_cached(value)?, "hit: it does not expire")?;
            is_free()?;
            ("stale", Some(token.text()))
        }
        ("load", [token]) => {
            is_missing()?;
            is_free()?;
            ("load", Some(token.text()))
        }
        ("wait", [Reply::Integer(left)]) => {
            is_missing()?;
            expect(busy, "a token: there is no lease and no back-off")?;
            expect((1..=longest.cast_signed()).contains(left), &format!("1 to {longest} ms"))?;
            ("wait", None)
        }
        _ => return wrong("absent, hit, stale, load or wait"),
    };
    model.guard.saw(seen);
    Ok(token)
}

/// Checks the reply to BF.FILL.
pub fn fill(model: &mut Model, row: Row, token: &str, filling: Filling, heard: &Heard<'_>) -> Result<(), Fault> {
    let of_token = model.guard.token(row, token);
    let (mut may, mut must) =
        of_token.map_or((false, false), |token| (!token.is_void, !token.is_void && token.is_of_filter));
    if let Filling::GiveUp = filling {
        let record = model.guard.record(row, heard).filter(|record| record.known == Known::Lease(token.to_owned()));
        may &= record.is_some();
        must &= record.is_some_and(|record| record.must(heard));
    }
    if *heard.reply == Reply::NullBulk {
        model.guard.saw("refused");
        return expect(!must, "OK: the token is good");
    }
    expect(is_ok(heard.reply) && may, "null: the token is void, or has no lease")?;
    let seen = match filling {
        Filling::Value(value) => {
            model.guard.end(row);
            model.cache(row.0, row.1, Some(value));
            "filled"
        }
        Filling::NoRow(time) => {
            model.guard.end(row);
            model.cache(row.0, row.1, None);
            // Without a filter nothing is absent, so the guard records nothing.
            if matches!(model.slots[row.0], Slot::Filter(_)) {
                model.guard.note(row, Known::NoRow, time, heard);
            }
            "NONE"
        }
        Filling::GiveUp => {
            model.guard.end_record(row);
            "GIVEUP"
        }
        Filling::BackOff(time) => {
            model.guard.note(row, Known::BackOff, time, heard);
            "BACKOFF"
        }
    };
    model.guard.saw(seen);
    Ok(())
}

/// Checks the reply to a client that sets or deletes a cache key by the server's own commands.
pub fn overwrite(model: &mut Model, row: Row, value: Option<u64>, reply: &Reply) -> Result<(), Fault> {
    let values = model.cached(row.0, row.1);
    match (value, reply) {
        (Some(_), reply) => expect(is_ok(reply), "OK")?,
        (None, Reply::Integer(1)) => expect(values.iter().any(Option::is_some), "0: it has no value")?,
        // A DEL of a missing key changes nothing.
        (None, _) => return expect(*reply == Reply::Integer(0) && values.contains(&None), "1: it has a value"),
    }
    model.cache(row.0, row.1, value);
    model.guard.overwritten(row);
    Ok(())
}

/// Checks the reply to SET or DEL of the key of WHILE.
pub fn beat(model: &mut Model, begins: bool, reply: &Reply) -> Result<(), Fault> {
    let conditions = model.conditions();
    let did = std::mem::replace(&mut conditions.beats, begins);
    if begins { expect(is_ok(reply), "OK") } else { expect_number(reply, did.into()) }
}

/// Checks the reply to HSET or HDEL of the hash of UNLESS.
pub fn write(model: &mut Model, row: Option<Row>, begins: bool, reply: &Reply) -> Result<(), Fault> {
    let in_flight = &mut model.conditions().in_flight;
    let has_changed = if begins { in_flight.insert(row) } else { in_flight.remove(&row) };
    expect_number(reply, has_changed.into())
}
