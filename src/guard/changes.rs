//! What has changed since a token was handed out. Each change and each token gets the next number, its stamp. A token is safe for a
//! row as long as nothing that the row depends on has changed after it.
//!
//! The stamps of changes are in an array of buckets, which remember the last eight changes each: together some 260,000. Of two
//! things with one bucket and one tag, or if more has changed in a bucket since, a token is refused without need. None is accepted
//! without need.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Range;

use bloomgate_filter::Error;
use bloomgate_filter::cells::{BLOCK_BYTES, Blocks, Cells};

// The ids of keys and rows. Names and items are hashed under a key of this process: a record is small however long a name is, and
// a client cannot construct two names with one id.

/// What can change: a cache key, a filter, or an item of a filter. A hash.
pub type What = u64;

/// A key of the server, by the hash of its database and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub [u64; 2]);

impl KeyId {
    /// The key as a cache key. Half of the hash; the other half is for filters, so that a change of one is none of the other.
    pub const fn value(self) -> What {
        self.0[0]
    }

    /// The key as that of a filter, whichever filter it holds.
    pub const fn filter(self) -> What {
        self.0[1]
    }
}

/// A row, as the guard's commands name it: a cache key, and an item of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The cache key.
    pub key: KeyId,
    /// The filter's key.
    pub filter: What,
    /// The item of that filter.
    pub item: What,
    /// The instance of the filter at that key; 0 if there is none, or if its chunks are still arriving.
    pub instance: u64,
}

impl Row {
    /// The row of a cache key alone.
    pub const fn of(key: KeyId) -> Self {
        Self { key, filter: 0, item: 0, instance: 0 }
    }

    /// Whether there was no filter.
    pub const fn is_unguarded(&self) -> bool {
        self.instance == 0
    }
}

/// A hash table whose keys are hashes under a secret key already: they are not hashed again.
pub type ByHash<K, V> = HashMap<K, V, BuildHasherDefault<AsItIs>>;

/// Returns the number that it is given.
#[derive(Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(5) ^ number;
    }
}

impl Hash for KeyId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.value());
    }
}

/// The number of a change or of a token.
pub type Stamp = u64;

/// The number of buckets, each of a cache line, which are eight changes: 2 MiB. Pages that were never used take no memory.
const BUCKETS: u64 = 1 << 15;
/// A change is its stamp and, in the lowest bits, the tag of the thing that has changed. The stamps last for nine years at a million a
/// second.
const TAG_BITS: u32 = 16;
const LAST: Stamp = Stamp::MAX >> TAG_BITS;

/// The changes, and the last stamp.
pub struct Changes {
    last: Stamp,
    /// Tokens before this stamp are safe for nothing.
    floor: Stamp,
    /// Nothing before the first token.
    buckets: Option<Blocks>,
    /// How many there will be.
    size: u64,
    /// A bit for each filter for whose rows there are tokens. Others may share it. What has changed in other filters is of no
    /// interest.
    guarded: [u64; 64],
}

impl Default for Changes {
    fn default() -> Self {
        Self { last: 0, floor: 1, buckets: None, size: BUCKETS, guarded: [0; 64] }
    }
}

impl Changes {
    /// With a few buckets, for a model that makes very many.
    #[cfg(test)]
    pub fn small() -> Self {
        Self { size: 64, ..Self::default() }
    }

    /// Whether a token may be safe.
    pub const fn has_tokens(&self) -> bool {
        self.buckets.is_some()
    }

    /// The last stamp.
    pub const fn last(&self) -> Stamp {
        self.last
    }

    /// The stamp of a new token for a row.
    pub fn grant(&mut self, row: &Row) -> Result<Stamp, Error> {
        if self.buckets.is_none() {
            self.buckets = Some(Blocks::zeroed(self.size)?);
        }
        let (word, bit) = place(row.filter);
        if let Some(bits) = self.guarded.get_mut(word) {
            *bits |= bit;
        }
        Ok(self.next())
    }

    /// Whether there are tokens for rows of a filter.
    pub fn is_guarded(&self, filter: What) -> bool {
        let (word, bit) = place(filter);
        self.guarded.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Whether nothing that a row depends on has changed since a stamp.
    pub fn is_safe(&self, row: &Row, stamp: Stamp) -> bool {
        self.is_known(stamp)
            && [row.key.value(), row.item, row.filter].iter().all(|what| self.is_unchanged(*what, stamp))
    }

    /// Whether changes since a stamp are remembered.
    pub const fn is_known(&self, stamp: Stamp) -> bool {
        self.floor <= stamp && stamp <= self.last
    }

    /// Records that something has changed.
    pub fn change(&mut self, what: What) {
        let change = self.next() << TAG_BITS | tag(what);
        let range = self.range(what);
        let bucket = self.buckets.as_mut().and_then(|buckets| buckets.bytes_mut().get_mut(range));
        let bucket = bucket.unwrap_or_default().as_chunks_mut::<8>().0;
        let changes = || bucket.iter().map(|change| u64::from_le_bytes(*change)).enumerate();
        let earlier = changes().find(|(_, change)| is_of(*change, what));
        let place = earlier.or_else(|| changes().min_by_key(|(_, change)| *change)).map(|(place, _)| place);
        if let Some(place) = place.and_then(|place| bucket.get_mut(place)) {
            *place = change.to_le_bytes();
        }
    }

    /// Records that anything may have changed: every token is void.
    pub fn change_all(&mut self) {
        let stamp = self.next();
        // After the last stamp, `next` has raised the floor for good.
        self.floor = self.floor.max(stamp);
    }

    /// Frees the memory. Every token is void.
    pub fn forget(&mut self) {
        self.change_all();
        (self.buckets, self.guarded) = (None, [0; 64]);
    }

    /// Whether something has not changed since a stamp. If its bucket does not remember it, it may have changed when the oldest change
    /// did that the bucket remembers.
    fn is_unchanged(&self, what: What, stamp: Stamp) -> bool {
        let bucket = self.buckets.as_ref().and_then(|buckets| buckets.bytes().get(self.range(what)));
        let bucket = bucket.unwrap_or_default().as_chunks::<8>().0;
        let changes = || bucket.iter().map(|change| u64::from_le_bytes(*change));
        let is_before = |change: u64| change >> TAG_BITS <= stamp;
        // Mostly nothing in the bucket has changed. Without branches, because four records are looked at for each lease.
        changes().fold(true, |all, change| all & is_before(change))
            || changes().find(|change| is_of(*change, what)).or_else(|| changes().min()).is_none_or(is_before)
    }

    /// The bytes of the bucket of something.
    fn range(&self, what: What) -> Range<usize> {
        let start = usize::try_from(what % self.size).map_or(usize::MAX, |bucket| bucket * BLOCK_BYTES);
        start..start.saturating_add(BLOCK_BYTES)
    }

    /// The next stamp. After the last one every token is void, and so are all later ones.
    const fn next(&mut self) -> Stamp {
        if self.last < LAST {
            self.last += 1;
        } else {
            self.floor = Stamp::MAX;
        }
        self.last
    }
}

/// The word and the bit of a filter in [`Changes::guarded`].
fn place(filter: What) -> (usize, u64) {
    (usize::try_from(filter >> 6 & 63).unwrap_or(0), 1 << (filter & 63))
}

/// The tag of something: never 0, which marks an unused place.
const fn tag(what: What) -> u64 {
    what >> (u64::BITS - TAG_BITS) | 1
}

const fn is_of(change: u64, what: What) -> bool {
    change & ((1 << TAG_BITS) - 1) == tag(what)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn row(rng: &mut fastrand::Rng) -> Row {
        let mut hash = || rng.u64(..);
        Row { key: KeyId([hash(), hash()]), filter: hash(), item: hash(), instance: 1 }
    }

    #[test]
    fn a_token_is_safe_until_something_of_its_row_changes() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (row, other) = (row(&mut rng), row(&mut rng));
        for what in [row.key.value(), row.item, row.filter] {
            let mut changes = Changes::default();
            assert!(!changes.has_tokens() && !changes.is_guarded(row.filter));
            assert!(!changes.is_safe(&row, 0) && !changes.is_safe(&row, 1));
            let before = changes.grant(&other).unwrap();
            changes.change(what);
            let stamp = changes.grant(&row).unwrap();
            assert!(changes.is_guarded(row.filter));
            [other.key.value(), other.item, other.filter].iter().for_each(|what| changes.change(*what));
            assert!(changes.is_safe(&row, stamp) && !changes.is_safe(&row, before));
            changes.change(what);
            assert!(!changes.is_safe(&row, stamp));
            let stamp = changes.grant(&row).unwrap();
            assert!(changes.is_safe(&row, stamp) && !changes.is_safe(&row, stamp + 1), "no token has that stamp");
            changes.change_all();
            assert!(!changes.is_safe(&row, stamp));
            let stamp = changes.grant(&row).unwrap();
            changes.forget();
            assert!(!changes.has_tokens() && !changes.is_safe(&row, stamp) && !changes.is_guarded(row.filter));
        }
    }

    #[test]
    fn no_token_is_accepted_after_a_change_however_many_there_were() {
        let mut rng = fastrand::Rng::with_seed(2);
        let (mut changes, mut changed) = (Changes::small(), HashMap::new());
        let rows: Vec<Row> = (0..2000).map(|_| row(&mut rng)).collect();
        let (mut accepted, mut refused) = (0, 0);
        for _ in 0..100 {
            let granted: Vec<_> = (0..100).map(|_| rng.choice(&rows).unwrap()).collect();
            let granted: Vec<_> = granted.into_iter().map(|row| (row, changes.grant(row).unwrap())).collect();
            for _ in 0..rng.usize(..1000) {
                let row = rng.choice(&rows).unwrap();
                let what = *rng.choice(&[row.key.value(), row.item, row.filter]).unwrap();
                changes.change(what);
                changed.insert(what, changes.last());
            }
            for (row, stamp) in granted {
                let whats = [row.key.value(), row.item, row.filter];
                let is_safe = whats.iter().all(|what| changed.get(what).is_none_or(|change| *change <= stamp));
                assert!(is_safe || !changes.is_safe(row, stamp));
                *(if changes.is_safe(row, stamp) { &mut accepted } else { &mut refused }) += 1;
            }
        }
        assert!(accepted > 500 && refused > 500, "{accepted}, {refused}");
    }

    #[test]
    fn when_the_stamps_are_used_up_every_token_is_void() {
        let row = row(&mut fastrand::Rng::with_seed(3));
        let mut changes = Changes { last: LAST - 1, ..Changes::default() };
        let stamp = changes.grant(&row).unwrap();
        assert!(changes.is_safe(&row, stamp));
        changes.change(row.item);
        let mut is_good = || changes.grant(&row).is_ok_and(|stamp| changes.is_safe(&row, stamp));
        assert!(!is_good() && !is_good());
        let mut changes = Changes { last: LAST - 1, ..Changes::default() };
        let stamp = changes.grant(&row).unwrap();
        changes.change_all();
        assert!(!changes.is_safe(&row, stamp));
    }

    /// Prints the share of fills that are refused although their rows have not changed, by the changes of other rows per second and
    /// the time that a load takes. BF.CHANGED is two changes: of the cache key, and of the item.
    #[test]
    fn few_fills_are_refused_without_need() {
        const TOKENS: usize = 20_000;
        let mut rng = fastrand::Rng::with_seed(4);
        for (each_second, milliseconds, most) in
            [(1000, 5, 0), (1000, 500, 0), (10_000, 5, 0), (10_000, 500, 0), (100_000, 5, 0), (100_000, 500, 3000)]
        {
            let mut changes = Changes::default();
            let between = each_second * milliseconds / 1000;
            let mut tokens = std::collections::VecDeque::new();
            let mut refused = 0;
            for number in 0..TOKENS + between {
                if let Some((row, stamp)) = tokens.pop_front_if(|_| number >= between) {
                    refused += usize::from(!changes.is_safe(&row, stamp));
                }
                if number < TOKENS {
                    let row = row(&mut rng);
                    tokens.push_back((row, changes.grant(&row).unwrap()));
                }
                (0..2).for_each(|_| changes.change(rng.u64(..)));
            }
            let share = 100.0 * refused as f64 / TOKENS as f64;
            println!("{each_second} changes a second, loads of {milliseconds} ms: {share:.2}% refused");
            assert!(refused <= most, "{refused}");
        }
    }
}
