//! The ring of buckets in time: which is the newest, which are live, when the next begins.

use std::collections::VecDeque;

use super::{BUCKETS_MAX, Forgets, WindowedSpec};
use crate::ceiling::Ceiling;
use crate::chain::{Contents, LAYERS_MAX};
use crate::clock::Moment;
use crate::error::Error;
use crate::kinds::native::BloomFilter;
use crate::memory::reserve;

/// Slots and times are at most this, so that whoever reads them as signed numbers has them, and the next ones, too.
pub(super) const NUMBER_MAX: u64 = 1 << 62;
/// As many layers as the buckets of a ring have together before none of them gets another: each may begin with one.
const RING_LAYERS_MAX: usize = LAYERS_MAX - BUCKETS_MAX as usize;

/// A bucket of the ring.
#[derive(Debug, PartialEq)]
pub struct Bucket {
    /// Its number on the grid of time; of a rolling ring how many began before it.
    pub slot: u64,
    /// When it began; 0 in a rolling ring.
    pub begin: Moment,
    /// When it ends; 0 in a rolling ring.
    pub end: Moment,
    /// What it took.
    pub filter: BloomFilter,
    /// The number of its items that a newer bucket also has: with SLIDING, an add of an item renews it there.
    pub(super) renewed: u64,
    /// Whether a dump omitted its records: it is dropped once the dump is complete.
    pub(in crate::kinds) is_left_out: bool,
}

impl Bucket {
    /// Counts its items, except those renewed in a newer bucket.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.filter.items().saturating_sub(self.renewed)
    }

    fn contents(&self) -> Contents {
        Contents { items: self.items(), ..self.filter.contents() }
    }
}

/// The beginning of a bucket, as it is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its number on the grid.
    pub slot: u64,
    /// When it begins.
    pub begin: Moment,
    /// When it ends.
    pub end: Moment,
    /// How many items it is made for, at least 1.
    pub capacity: u64,
}

/// The buckets, oldest first.
#[derive(Debug, PartialEq)]
pub struct Ring {
    pub(super) buckets: VecDeque<Bucket>,
}

impl Ring {
    /// A ring without a bucket, with room for as many as there can be.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn with_room(spec: &WindowedSpec) -> Result<Self, Error> {
        let room = spec.buckets as usize;
        let mut buckets = VecDeque::new();
        let asked_bytes = (room * size_of::<Bucket>()) as u64;
        buckets.try_reserve_exact(room).map_err(|_| Error::OutOfMemory { asked_bytes })?;
        Ok(Self { buckets })
    }

    /// The bucket that takes new items.
    pub(super) fn newest(&self) -> Option<&Bucket> {
        self.buckets.back()
    }

    /// The bucket that takes new items, to be changed, and the others.
    pub(super) fn newest_and_older(&mut self) -> Option<(&mut Bucket, &mut [Bucket])> {
        self.buckets.make_contiguous().split_last_mut()
    }

    /// What begins now; nothing while the newest bucket still takes items. The grid goes on: the next bucket's slot is the
    /// one that is now, in time.
    pub(super) fn turn_due(&self, spec: &WindowedSpec, now: Moment) -> Option<Turn> {
        let span = spec.span();
        let Some(newest) = self.newest() else { return Some(self.first_turn(spec, now)) };
        if spec.forgets == Forgets::Rolling || now < newest.end || span == 0 {
            return None;
        }
        let passed = (now.0 - newest.end.0) / span;
        let begin = Moment(newest.end.0.saturating_add(passed.saturating_mul(span)));
        Some(self.turn(spec, newest.slot.saturating_add(passed).saturating_add(1), begin, now))
    }

    /// What begins where somebody asks for it: the newest bucket ends now, and the grid goes on from now.
    pub(super) fn turn_now(&self, spec: &WindowedSpec, now: Moment) -> Turn {
        match self.newest() {
            None => self.first_turn(spec, now),
            Some(newest) => {
                let begin = if spec.forgets == Forgets::Rolling { Moment(0) } else { now.max(newest.begin) };
                self.turn(spec, newest.slot.saturating_add(1), begin, now)
            }
        }
    }

    fn first_turn(&self, spec: &WindowedSpec, now: Moment) -> Turn {
        let begin = if spec.forgets == Forgets::Rolling { Moment(0) } else { now };
        self.turn(spec, 0, begin, now)
    }

    fn turn(&self, spec: &WindowedSpec, slot: u64, begin: Moment, now: Moment) -> Turn {
        let most = match spec.forgets {
            Forgets::Rolling => 0,
            Forgets::After { .. } => self.live(spec, now).map(|bucket| bucket.filter.items_added()).max().unwrap_or(0),
        };
        let end = Moment(begin.0.saturating_add(spec.span()));
        Turn { slot, begin, end, capacity: spec.bucket_capacity().max(most).max(1) }
    }

    /// The buckets whose time is not past, oldest first.
    pub(super) fn live(&self, spec: &WindowedSpec, now: Moment) -> impl DoubleEndedIterator<Item = &Bucket> {
        let spec = *spec;
        self.buckets.iter().filter(move |bucket| !is_past(bucket, &spec, now))
    }

    /// Those of them that do not take new items.
    pub(super) fn live_older(&self, spec: &WindowedSpec, now: Moment) -> impl DoubleEndedIterator<Item = &Bucket> {
        let spec = *spec;
        let older = self.buckets.len().saturating_sub(1);
        self.buckets.range(..older).filter(move |bucket| !is_past(bucket, &spec, now))
    }

    /// Begins a bucket. Moves expired buckets, and the oldest if there are too many, to `retired`. Returns the number of items that
    /// only they had.
    ///
    /// # Errors
    /// [`Error::AboveCeiling`], [`Error::OutOfMemory`]; [`Error::Unsound`] for one that cannot come after the newest.
    /// Nothing has changed then.
    pub(super) fn begin(
        &mut self,
        spec: &WindowedSpec,
        turn: Turn,
        retired: &mut Vec<BloomFilter>,
        ceiling: &impl Ceiling,
    ) -> Result<u64, Error> {
        if !self.can_be_next(spec, turn) {
            return Err(Error::Unsound);
        }
        let gone = self.going(spec, turn);
        reserve(retired, gone)?;
        let beside = BesideBuckets { ceiling, others: || contents_of(self.buckets.range(gone..)) };
        let filter = BloomFilter::part(&spec.bucket(turn.capacity), &beside)?;
        if let Some(newest) = self.buckets.back_mut() {
            newest.end = newest.end.min(turn.begin);
        }
        let items = self.buckets.range(..gone).map(Bucket::items).sum();
        retired.extend(self.buckets.drain(..gone).map(|bucket| bucket.filter));
        let Turn { slot, begin, end, .. } = turn;
        self.buckets.push_back(Bucket { slot, begin, end, filter, renewed: 0, is_left_out: false });
        Ok(items)
    }

    /// Whether a bucket can come after the newest. What a server of ours carries always can.
    fn can_be_next(&self, spec: &WindowedSpec, turn: Turn) -> bool {
        let in_order = self.newest().is_none_or(|newest| newest.slot < turn.slot && newest.begin <= turn.begin);
        in_order && is_in_time(spec, turn.slot, turn.begin, turn.end)
    }

    /// How many of the oldest go when a bucket begins.
    fn going(&self, spec: &WindowedSpec, turn: Turn) -> usize {
        let past = self.buckets.iter().take_while(|bucket| is_past(bucket, spec, turn.begin)).count();
        past.max((self.buckets.len() + 1).saturating_sub(spec.buckets as usize))
    }
}

/// Whether a bucket can lie so in time. None takes items for longer than a span: it would be forgotten, and what it takes with
/// it, while it is the one that takes them.
pub(super) fn is_in_time(spec: &WindowedSpec, slot: u64, begin: Moment, end: Moment) -> bool {
    let longest = if spec.forgets == Forgets::Rolling { u64::MAX } else { spec.span() };
    begin <= end && end.0 - begin.0 <= longest && slot.max(end.0) <= NUMBER_MAX
}

/// Whether a bucket is forgotten: all of the ring's spans have passed since it began.
pub(super) fn is_past(bucket: &Bucket, spec: &WindowedSpec, now: Moment) -> bool {
    match spec.forgets {
        Forgets::Rolling => false,
        Forgets::After { .. } => {
            now.0 >= bucket.begin.0.saturating_add(spec.span().saturating_mul(spec.buckets.into()))
        }
    }
}

/// A ceiling for what comes beside other buckets, which are counted when it is asked.
pub(super) struct BesideBuckets<'a, C, F> {
    pub(super) ceiling: &'a C,
    pub(super) others: F,
}

impl<C: Ceiling, F: Fn() -> Contents> Ceiling for BesideBuckets<'_, C, F> {
    fn available_bytes(&self, filter_bytes: u64, asked_bytes: u64) -> u64 {
        self.ceiling.available_bytes((self.others)().size_bytes.saturating_add(filter_bytes), asked_bytes)
    }

    /// A lookup visits the layers of all buckets, and a dump numbers them: it is their sum that is bounded.
    fn layers_max(&self) -> usize {
        let others = usize::try_from((self.others)().layers).unwrap_or(usize::MAX);
        self.ceiling.layers_max().min(RING_LAYERS_MAX).saturating_sub(others).max(1)
    }

    fn pending_from_bytes(&self) -> Option<u64> {
        self.ceiling.pending_from_bytes()
    }
}

/// Adds up the contents of buckets.
pub(super) fn contents_of<'a>(buckets: impl IntoIterator<Item = &'a Bucket>) -> Contents {
    buckets.into_iter().fold(Contents::default(), |sum, bucket| sum.and(bucket.contents()))
}
