//! Takes samples of a server's filters. Each sample scans a limited number of keys, queries filters by BF.INFO, and the visible
//! ones by BF.STATS, which reads up to 1 MiB of each layer.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use bloomgate_client::{Info, Stats};
use redis::Value;
use serde_json::{Value as Json, json};

use crate::keys::Walk;
use crate::names::escaped;
use crate::server::Server;
use crate::stats::{Info as ServerInfo, Rank, cells_in_all, per_second, total};

/// Filters queried in one batch.
const FILTERS_AT_ONCE: usize = 500;
/// SCAN commands per sample and node: ten thousand keys.
const SCANS_A_SAMPLE: usize = 20;
/// Filters queried by BF.INFO per sample. If there are more, each sample queries the next ones.
const FILTERS_A_SAMPLE: usize = 1000;
/// The pause between walks over all keys.
const PASS_PAUSE: Duration = Duration::from_secs(10);

/// The fields of `INFO bf` whose totals over all nodes are shown.
const COUNTERS: [&str; 5] =
    ["bf_bloom_num_objects", "bf_bloom_total_memory_bytes", "bf_bloom_adds", "bf_bloom_lookups", "bf_bloom_positives"];

/// The module's totals over the whole server, or their changes per second: filters, bytes, adds, lookups, and positive lookups.
pub(super) type Counts<T> = [T; COUNTERS.len()];

pub(super) struct Sample {
    /// The server's name.
    pub server: String,
    /// Databases that have keys and are not searched.
    pub other_databases: Vec<u32>,
    /// `None` if the server lacks the counters.
    pub counts: Option<Counts<u64>>,
    /// The changes per second since the last sample.
    pub speeds: Option<Counts<f64>>,
    pub known: usize,
    /// The visible filters, in order.
    pub filters: Vec<Filter>,
}

pub(super) struct Sampler {
    server: Server,
    pattern: Option<String>,
    filters: BTreeMap<Vec<u8>, Filter>,
    walk: Walk,
    /// The last filter that was queried by BF.INFO.
    last_asked: Vec<u8>,
    counted: Option<(Instant, Counts<u64>)>,
    other_databases: BTreeSet<u32>,
    /// Whether the module was found on the server.
    has_module: bool,
}

impl Sampler {
    pub fn new(server: Server, pattern: Option<String>) -> Self {
        Self {
            server,
            pattern,
            filters: BTreeMap::new(),
            walk: Walk::new(),
            last_asked: Vec::new(),
            counted: None,
            other_databases: BTreeSet::new(),
            has_module: false,
        }
    }

    /// Returns the server's name.
    pub fn server(&self) -> &str {
        self.server.name()
    }

    /// Takes a sample with the first `top` filters. With `whole` it covers all keys and all filters.
    pub fn sample(&mut self, whole: bool, order: Order, top: usize) -> Result<Sample> {
        if !self.has_module {
            self.server.require_command("BF.INFO")?;
            self.has_module = true;
        }
        let counts = self.count()?;
        let speeds = counts.and_then(|counts| self.speeds(counts));
        self.find(whole, counts)?;
        self.ask(if whole { usize::MAX } else { FILTERS_A_SAMPLE })?;
        let mut sample = Sample {
            server: self.server.name().to_owned(),
            other_databases: self.other_databases.iter().copied().collect(),
            counts,
            speeds,
            known: self.filters.len(),
            filters: Vec::new(),
        };
        // Sorts references and clones only the visible filters.
        let mut shown: Vec<&Filter> = self.filters.values().collect();
        shown.sort_by(|one, other| order.compare(one, other));
        sample.filters = shown.into_iter().take(top).cloned().collect();
        self.look_into(&mut sample.filters)?;
        Ok(sample)
    }

    /// Reconnects to a lost server. Known filters are kept until the next sample queries them.
    pub fn reconnect(&mut self) -> Result<()> {
        self.server.reconnect(Duration::ZERO)?;
        // A restarted server counts from 0 and may have other keys or no module.
        (self.walk, self.counted) = (Walk::new(), None);
        self.has_module = false;
        Ok(())
    }

    fn count(&mut self) -> Result<Option<Counts<u64>>> {
        let mut infos = Vec::new();
        for node in self.server.nodes() {
            infos.push(ServerInfo::of_node(&mut self.server, &node, &["bf", "keyspace"])?);
        }
        self.other_databases = infos.iter().flat_map(ServerInfo::databases).collect();
        self.other_databases.remove(&self.server.database());
        let is_counted = COUNTERS.iter().any(|field| infos.iter().any(|info| info.number(field).is_some()));
        Ok(is_counted.then(|| COUNTERS.map(|field| total(&infos, field))))
    }

    /// Compares the totals with the last sample.
    fn speeds(&mut self, counts: Counts<u64>) -> Option<Counts<f64>> {
        let now = Instant::now();
        let (then, before) = self.counted.replace((now, counts))?;
        let mut before = before.into_iter();
        // Counters restart from 0 after a restart of the server or CONFIG RESETSTAT.
        Some(counts.map(|count| per_second(count.saturating_sub(before.next().unwrap_or(count)), now - then)))
    }

    /// Continues the walk, unless every filter of the server is known.
    fn find(&mut self, whole: bool, counts: Option<Counts<u64>>) -> Result<()> {
        let all = counts.map(|[filters, ..]| filters);
        if !whole && self.pattern.is_none() && all == u64::try_from(self.filters.len()).ok() {
            if !self.walk.is_at_begin() {
                self.walk = Walk::new();
            }
            return Ok(());
        }
        if self.walk.is_at_begin() && Instant::now() < self.walk.due() {
            return Ok(());
        }
        let mut steps = 0;
        loop {
            let is_known = |key: &[u8]| self.filters.contains_key(key);
            for key in self.walk.step(&mut self.server, self.pattern.as_deref(), is_known)? {
                self.filters.entry(key).or_insert_with_key(|key| Filter::new(key.clone()));
            }
            steps += 1;
            if self.walk.is_at_begin() {
                self.walk.pause(PASS_PAUSE);
                return Ok(());
            }
            if !whole && steps >= SCANS_A_SAMPLE * self.walk.nodes_left() {
                return Ok(());
            }
        }
    }

    /// Queries up to `most` filters by BF.INFO, starting after the last queried one. Deleted filters are removed.
    fn ask(&mut self, most: usize) -> Result<()> {
        let after = self.filters.range((Bound::Excluded(self.last_asked.clone()), Bound::Unbounded));
        let keys: Vec<_> = after
            .chain(self.filters.range(..=self.last_asked.clone()))
            .map(|(key, _)| key.clone())
            .take(most)
            .collect();
        self.last_asked = keys.last().cloned().unwrap_or_default();
        for keys in keys.chunks(FILTERS_AT_ONCE) {
            let replies = self.server.replies_of_each(&["BF.INFO"], keys)?;
            let now = Instant::now();
            for (key, reply) in keys.iter().zip(replies) {
                match (reply, self.filters.get_mut(key)) {
                    (Value::ServerError(error), _) => {
                        let details = error.details().unwrap_or_default();
                        if details.starts_with("unknown command") || error.code() == "NOPERM" {
                            return Err(self.server.describe(&error, key));
                        }
                        self.filters.remove(key);
                    }
                    (reply, Some(filter)) => filter.take_info(reply, now)?,
                    (_, None) => {}
                }
            }
        }
        Ok(())
    }

    /// Queries the visible filters by BF.STATS. If the server lacks the command, their fields stay empty.
    fn look_into(&mut self, filters: &mut [Filter]) -> Result<()> {
        let keys: Vec<_> = filters.iter().map(|filter| filter.key.clone()).collect();
        let replies = self.server.replies_of_each(&["BF.STATS"], &keys)?;
        for (filter, reply) in filters.iter_mut().zip(replies) {
            filter.stats = match reply {
                Value::ServerError(_) => None,
                reply => Some((&reply).try_into()?),
            };
        }
        Ok(())
    }
}

impl Sample {
    pub fn sort(&mut self, order: Order) {
        self.filters.sort_by(|one, other| order.compare(one, other));
    }

    pub fn json(&self) -> Json {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let [filters, size_bytes, adds, lookups, positives] =
            self.counts.map_or([None; COUNTERS.len()], |counts| counts.map(Some));
        let speeds = self.speeds.map(|[_, _, adds, lookups, _]| (adds, lookups));
        json!({
            "time": time,
            "server": self.server,
            "other_databases": self.other_databases,
            "filters_known": self.known,
            "filters_of_server": filters,
            "size_bytes": size_bytes,
            "adds": adds,
            "lookups": lookups,
            "positives": positives,
            "adds_a_second": speeds.map(|(adds, _)| adds),
            "lookups_a_second": speeds.map(|(_, lookups)| lookups),
            "filters": self.filters.iter().map(Filter::json).collect::<Vec<_>>(),
        })
    }
}

// A filter with the replies to BF.INFO and BF.STATS, and the order of filters on the screen.

/// A filter as of its last sample.
#[derive(Clone, Default)]
pub(super) struct Filter {
    pub key: Vec<u8>,
    /// The reply to BF.STATS; `None` if it was not requested, or if the server lacks the command.
    pub stats: Option<Stats>,
    pub items: u64,
    pub capacity: u64,
    pub size_bytes: u64,
    pub layers: u64,
    rank: Rank,
    /// New items per second since the previous sample.
    pub new_a_second: Option<f64>,
    asked_at: Option<Instant>,
}

impl Filter {
    pub fn new(key: Vec<u8>) -> Self {
        Self { key, ..Self::default() }
    }

    /// Stores a reply to BF.INFO that was received at `now`.
    pub fn take_info(&mut self, reply: Value, now: Instant) -> Result<()> {
        let info = Info::try_from(&reply)?;
        let Info { capacity, layers, items, size_bytes, .. } = info;
        (self.capacity, self.layers, self.size_bytes, self.rank) = (capacity, layers, size_bytes, Rank::of_info(&info));
        self.new_a_second = self.asked_at.map(|then| per_second(items.saturating_sub(self.items), now - then));
        self.items = items;
        self.asked_at = Some(now);
        Ok(())
    }

    /// Items divided by capacity.
    pub fn full(&self) -> f64 {
        self.items as f64 / self.capacity.max(1) as f64
    }

    /// The share of set cells in all layers.
    pub fn cells(&self) -> Option<f64> {
        self.stats.as_ref().and_then(cells_in_all)
    }

    pub fn json(&self) -> Json {
        let stats = self.stats.as_ref();
        json!({
            "key": escaped(&self.key),
            "kind": stats.map(|stats| &stats.kind),
            "items": self.items,
            "capacity": self.capacity,
            "size_bytes": self.size_bytes,
            "layers": self.layers,
            "fill": self.cells(),
            "rate": stats.map(|stats| stats.error_rate),
            "rate_now": stats.map(|stats| stats.error_rate_now),
            "new_a_second": self.new_a_second,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Order {
    /// The largest filters first
    Memory,
    /// The filters with the most new items per second first
    Activity,
    /// The fixed filters that are nearly full first
    Full,
}

impl Order {
    /// Compares two filters; the lesser one is shown first.
    pub(super) fn compare(self, one: &Filter, other: &Filter) -> Ordering {
        let activity = |filter: &Filter| filter.new_a_second.unwrap_or(0.0);
        let ordering = match self {
            Self::Memory => Ordering::Equal,
            Self::Activity => activity(other).total_cmp(&activity(one)),
            Self::Full => other.rank.cmp(&one.rank),
        };
        ordering.then(other.size_bytes.cmp(&one.size_bytes)).then_with(|| one.key.cmp(&other.key))
    }
}
