//! The model of a ring: buckets that keep their items, as the documentation describes.

use std::collections::{HashSet, VecDeque};

use bloomgate_filter::Scaling;
use bloomgate_filter::kinds::{Retention, WindowedSpec};

/// A bucket that keeps its items.
#[derive(Clone, Debug)]
pub struct Bucket {
    pub slot: u64,
    pub begin: u64,
    pub end: u64,
    pub capacity: u64,
    pub items: HashSet<u32>,
    /// Deleted items, which still count towards the capacity. Adding one again does not count.
    gone: HashSet<u32>,
}

impl Bucket {
    fn taken(&self) -> u64 {
        (self.items.len() + self.gone.len()) as u64
    }
}

/// A ring that keeps all buckets.
#[derive(Clone, Debug)]
pub struct Model {
    spec: WindowedSpec,
    pub buckets: VecDeque<Bucket>,
}

impl Model {
    pub fn new(spec: WindowedSpec) -> Self {
        let mut model = Self { spec, buckets: VecDeque::new() };
        if spec.forgets == Retention::Rolling {
            model.begin(0, 0, 0);
        }
        model
    }

    fn n(&self) -> u64 {
        self.spec.buckets.into()
    }

    /// The window divided by the number of buckets less one, rounded up; `None` for a rolling ring.
    pub fn span(&self) -> Option<u64> {
        match self.spec.forgets {
            Retention::After { seconds, .. } => Some((seconds * 1000).div_ceil(self.n() - 1)),
            Retention::Rolling => None,
        }
    }

    pub fn live(&self, now: u64) -> impl Iterator<Item = &Bucket> {
        let lives = self.span().map(|span| span * self.n());
        self.buckets.iter().filter(move |bucket| lives.is_none_or(|lives| now < bucket.begin + lives))
    }

    pub fn contains(&self, item: u32, now: u64) -> bool {
        self.live(now).any(|bucket| bucket.items.contains(&item))
    }

    /// Counts the items of these buckets; with SLIDING, only those that no newer bucket has.
    fn count<'a>(&'a self, buckets: impl Iterator<Item = (usize, &'a Bucket)>) -> u64 {
        let is_renewed = |index: usize, item: &u32| {
            self.is_sliding() && self.buckets.range(index + 1..).any(|newer| newer.items.contains(item))
        };
        buckets.map(|(index, bucket)| bucket.items.iter().filter(|item| !is_renewed(index, item)).count() as u64).sum()
    }

    pub fn live_items(&self, now: u64) -> u64 {
        let dead = self.buckets.len() - self.live(now).count();
        self.count(self.buckets.iter().enumerate().skip(dead))
    }

    fn is_sliding(&self) -> bool {
        matches!(self.spec.forgets, Retention::After { is_sliding: true, .. })
    }

    /// Begins a bucket. Returns the number of forgotten items.
    fn begin(&mut self, slot: u64, begin: u64, now: u64) -> u64 {
        let most = match self.span() {
            Some(_) => self.live(now).map(Bucket::taken).max().unwrap_or(0),
            None => 0,
        };
        let capacity = self.spec.capacity.div_ceil(self.n() - 1).max(most);
        let lives = self.span().map(|span| span * self.n());
        let mut gone = 0;
        while self.buckets.front().is_some_and(|oldest| {
            self.buckets.len() as u64 >= self.n() || lives.is_some_and(|lives| oldest.begin + lives <= begin)
        }) {
            gone += self.count(self.buckets.iter().enumerate().take(1));
            self.buckets.pop_front();
        }
        if let Some(newest) = self.buckets.back_mut() {
            newest.end = newest.end.min(begin);
        }
        let end = begin + self.span().unwrap_or(0);
        self.buckets.push_back(Bucket { slot, begin, end, capacity, items: HashSet::new(), gone: HashSet::new() });
        gone
    }

    /// Begins the bucket that a write at this time begins. Returns the number of forgotten items.
    pub fn begin_what_is_due(&mut self, now: u64) -> u64 {
        match (self.span(), self.buckets.back()) {
            (Some(_), None) => self.begin(0, now, now),
            (Some(span), Some(newest)) if now >= newest.end => {
                let passed = (now - newest.end) / span;
                let (slot, begin) = (newest.slot + passed + 1, newest.end + passed * span);
                self.begin(slot, begin, now)
            }
            _ => 0,
        }
    }

    /// BF.ROTATE.
    pub fn rotate(&mut self, now: u64) -> u64 {
        let (slot, newest) = self.buckets.back().map_or((0, 0), |newest| (newest.slot + 1, newest.begin));
        let begin = if self.span().is_some() { now.max(newest) } else { 0 };
        self.begin(slot, begin, now)
    }

    /// Returns the answers for a command's items, up to the first that is refused.
    pub fn add(&mut self, items: &[u32], now: u64) -> Vec<bool> {
        let mut answers = Vec::new();
        for &item in items {
            let newest = self.buckets.back().unwrap();
            // The newest bucket accepts items, whatever the time.
            let found = self.contains(item, now) || newest.items.contains(&item);
            if !newest.items.contains(&item) && (self.is_sliding() || !found) {
                let is_full = newest.taken() >= newest.capacity && !newest.gone.contains(&item);
                if self.spec.scaling == Scaling::Fixed && is_full {
                    if self.span().is_some() {
                        break;
                    }
                    self.begin(newest.slot + 1, 0, now);
                }
                let newest = self.buckets.back_mut().unwrap();
                newest.gone.remove(&item);
                newest.items.insert(item);
            }
            answers.push(!found);
        }
        answers
    }
    /// Deletes an item that is found from every bucket that has it, live or not. Returns whether it was found.
    pub fn delete(&mut self, item: u32, now: u64) -> bool {
        let found = self.contains(item, now);
        for bucket in self.buckets.iter_mut().filter(|bucket| found && bucket.items.contains(&item)) {
            bucket.items.remove(&item);
            bucket.gone.insert(item);
        }
        found
    }
}
