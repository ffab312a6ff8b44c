//! When buckets begin, end and expire.

use super::{BesideBuckets, Bucket, BucketOf, Forgets, Ring, RingRules, Turn, contents_of};
use crate::ceiling::Ceiling;
use crate::chain::Chain;
use crate::clock::Moment;
use crate::error::Error;
use crate::memory::reserve;

/// The largest slot and time, so that they and the next ones also fit a signed number.
const NUMBER_MAX: u64 = 1 << 62;

/// What follows from the schedule of a ring.
pub(crate) trait Schedule: RingRules {
    /// Whether a bucket can have this place in time. No bucket takes items for longer than a span: it would expire while it
    /// still takes them.
    fn allows(&self, slot: u64, begin: Moment, end: Moment) -> bool {
        let longest = if self.forgets() == Forgets::Rolling { u64::MAX } else { self.span() };
        begin <= end && end.0 - begin.0 <= longest && slot.max(end.0) <= NUMBER_MAX
    }

    /// Whether a bucket with this beginning has expired: as many spans have passed as the ring has buckets.
    fn is_past(&self, begin: Moment, now: Moment) -> bool {
        self.forgets() != Forgets::Rolling
            && now.0 >= begin.0.saturating_add(self.span().saturating_mul(self.buckets().into()))
    }
}

impl<S: RingRules> Schedule for S {}

impl<S: RingRules> Ring<S> {
    /// Returns the bucket that must begin before an add; none while the newest one takes items. It keeps to the grid of the
    /// buckets before it, however much time has passed.
    #[must_use]
    pub fn turn_due(&self, now: Moment) -> Option<Turn> {
        let Some(newest) = self.buckets.back() else { return Some(self.turn_now(now)) };
        let span = self.spec.span();
        if now < newest.end || span == 0 {
            return None;
        }
        let passed = (now.0 - newest.end.0) / span;
        let begin = newest.end.0.saturating_add(passed.saturating_mul(span));
        Some(self.turn_at(newest.slot.saturating_add(passed).saturating_add(1), Moment(begin), now))
    }

    /// Returns the bucket that begins on request: the newest one ends now, and the grid restarts here.
    #[must_use]
    pub fn turn_now(&self, now: Moment) -> Turn {
        let newest = self.buckets.back();
        let slot = newest.map_or(0, |newest| newest.slot.saturating_add(1));
        let begin = newest.map_or(now, |newest| now.max(newest.begin));
        self.turn_at(slot, if self.spec.forgets() == Forgets::Rolling { Moment(0) } else { begin }, now)
    }

    /// A bucket takes at least as many items as the fullest live one took.
    fn turn_at(&self, slot: u64, begin: Moment, now: Moment) -> Turn {
        let most = match self.spec.forgets() {
            Forgets::Rolling => None,
            Forgets::After { .. } => self.live(now).map(|bucket| bucket.filter.items_added()).max(),
        };
        let end = Moment(begin.0.saturating_add(self.spec.span()));
        Turn { slot, begin, end, capacity: self.spec.bucket_capacity().max(most.unwrap_or(0)).max(1) }
    }

    /// Begins a bucket. Drops expired buckets, and the oldest one if there are too many. Returns the number of items that were
    /// forgotten with them.
    ///
    /// The bucket replaces empty ones that have its slot or belong after it: when a client replays the creation of a ring, or
    /// BF.CLEAR, this server begins one by its own clock.
    ///
    /// # Errors
    /// [`Error::AboveCeiling`], [`Error::OutOfMemory`]; [`Error::Unsound`] for a bucket that cannot follow the newest one.
    /// Nothing has changed then.
    pub fn turn(&mut self, turn: Turn, ceiling: &impl Ceiling) -> Result<u64, Error> {
        let Turn { slot, begin, end, capacity } = turn;
        let kept = self.buckets.len() - self.replaced_by(turn);
        let newest = kept.checked_sub(1).and_then(|last| self.buckets.get(last));
        let in_order = newest.is_none_or(|newest| newest.slot < slot && newest.begin <= begin);
        if !in_order || !self.spec.allows(slot, begin, end) {
            return Err(Error::Unsound);
        }
        let past = self.buckets.iter().take(kept).take_while(|bucket| self.spec.is_past(bucket.begin, begin)).count();
        let dropped = past.max((kept + 1).saturating_sub(self.spec.buckets() as usize));
        reserve(&mut self.retired, self.buckets.len() - kept + dropped)?;
        let beside = BesideBuckets { ceiling, others: || contents_of(self.buckets.range(dropped..kept)), pends: false };
        let filter = Chain::part(&self.spec.bucket(capacity), &beside)?;
        let items = self.buckets.range(..dropped).map(Bucket::items).sum();
        self.retired.extend(self.buckets.drain(kept..).map(|bucket| bucket.filter));
        if let Some(newest) = self.buckets.back_mut() {
            newest.end = newest.end.min(begin);
        }
        self.retired.extend(self.buckets.drain(..dropped).map(|bucket| bucket.filter));
        self.push_bucket(Bucket { slot, begin, end, filter, renewed: 0, is_omitted: false });
        Ok(items)
    }

    /// Returns how many buckets, from the newest back, this one would replace.
    fn replaced_by(&self, turn: Turn) -> usize {
        let is_after = |bucket: &BucketOf<S>| bucket.slot >= turn.slot || bucket.begin > turn.begin;
        self.buckets.iter().rev().take_while(|bucket| is_after(bucket) && bucket.filter.items_added() == 0).count()
    }

    /// Whether the ring has begun this bucket or a later one and added items to it.
    #[must_use]
    pub fn has_begun(&self, turn: Turn) -> bool {
        let newest = self.buckets.iter().rev().nth(self.replaced_by(turn));
        newest.is_some_and(|newest| newest.slot >= turn.slot)
    }

    /// Whether a client may begin this bucket. It must be due within a span, because the ring begins no other until it ends, and
    /// must leave slots for later ones.
    #[must_use]
    pub fn may_begin(&self, turn: Turn, now: Moment) -> bool {
        turn.begin.0 <= now.0.saturating_add(self.spec.span()) && turn.slot <= NUMBER_MAX / 2
    }
}
