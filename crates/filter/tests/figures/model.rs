//! The expected rate of a layer, by a Poisson model of its geometry, for sizes that no test could fill.

use bloomgate_filter::kinds::plan::{LOW_RATE, PlannedLayer};
use bloomgate_filter::{Policy, Spec};

/// The shape of a layer of blocks of 512 cells.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub groups: u64,
    pub blocks_per_group: u32,
    pub blocks_per_item: u32,
    pub hashes: u32,
    /// 64 with bits, 256 with counters.
    pub block_bytes: usize,
}

impl Geometry {
    /// Derives the shape of a layer from its size: a group has up to a page, and no group is larger than another.
    pub fn of(spec: &Spec, layer: PlannedLayer) -> Self {
        let block_bytes = if matches!(spec, Spec::Counting(_)) { 256 } else { 64 };
        let blocks = layer.size_bytes / block_bytes;
        let groups = blocks.div_ceil(4096 / block_bytes);
        let has_four = matches!(spec, Spec::Native(spec) if spec.policy != Policy::One && spec.rate < LOW_RATE);
        Self {
            groups,
            blocks_per_group: (blocks / groups) as u32,
            blocks_per_item: if has_four && blocks >= 4 { 4 } else { 2 },
            hashes: layer.hashes,
            block_bytes: block_bytes as usize,
        }
    }

    /// The shape of the first layer of a filter.
    pub fn of_first(spec: &Spec) -> Self {
        Self::of(spec, spec.plan(None).unwrap().layers[0])
    }

    pub fn blocks(&self) -> u64 {
        self.groups * u64::from(self.blocks_per_group)
    }

    /// Returns the number of an item's cells in one of its blocks, counted from 0.
    pub fn hashes_in(&self, block: u32) -> u32 {
        self.hashes / self.blocks_per_item + u32::from(block < self.hashes % self.blocks_per_item)
    }
}

/// A model of the layout that is independent of the code under test, except for the geometry. The numbers of items that share two blocks of
/// a group, and of the others in each block, are Poisson distributed, and their bits are uniform in a block. It is slightly too high for a
/// layer of few groups, because a group cannot get more items than exist. With four blocks per item, each group gets a random share of all
/// items, and each block a random share of the group's items.
pub struct Model {
    /// At [m][j]: the probability that j bits of an item are set in a block after m draws.
    all_set: Vec<[f64; Self::BITS + 1]>,
}

impl Model {
    /// The maximum number of cells of a native item in a block.
    const BITS: usize = 20;
    const THROWN: usize = 3000;

    pub fn new() -> Self {
        let mut all_set = Vec::new();
        // The probability that this many bits of the block are set.
        let mut set = vec![0.0; 513];
        set[0] = 1.0;
        for _ in 0..=Self::THROWN {
            let mut row = [0.0; Self::BITS + 1];
            for (n, probability) in set.iter().enumerate() {
                let fill = n as f64 / 512.0;
                row.iter_mut().fold(*probability, |power, sum| {
                    *sum += power;
                    power * fill
                });
            }
            all_set.push(row);
            for n in (1..=512).rev() {
                set[n] = set[n] * (n as f64 / 512.0) + set[n - 1] * ((513 - n) as f64 / 512.0);
            }
            set[0] = 0.0;
        }
        Self { all_set }
    }

    /// Returns the rate of a layer to which this many distinct items were added.
    pub fn rate_offered(&self, items: f64, geometry: Geometry) -> f64 {
        if geometry.blocks_per_item == 4 {
            return self.rate_in_four(items, geometry);
        }
        let (in_a, in_b) = (geometry.hashes.div_ceil(2) as usize, geometry.hashes as usize / 2);
        // Items with their first bits in one block and the others in another, and the other items of each block.
        let load = items / geometry.blocks() as f64;
        let common = load / f64::from(geometry.blocks_per_group - 1);
        let rest = poisson(load - common);
        let mut bits = vec![0.0; 2 * rest.len() * in_a];
        for (as_a, first) in rest.iter().enumerate() {
            for (as_b, second) in rest.iter().enumerate() {
                bits[as_a * in_a + as_b * in_b] += first * second;
            }
        }
        let all_set = |thrown: usize, asked: usize| -> f64 {
            let rows = self.all_set.iter().skip(thrown).chain(std::iter::repeat(&self.all_set[Self::THROWN]));
            bits.iter().zip(rows).map(|(probability, row)| probability * row[asked]).sum()
        };
        let common = poisson(common);
        let mut rate = 0.0;
        for (one_way, first) in common.iter().enumerate() {
            for (other_way, second) in common.iter().enumerate().filter(|(_, second)| first * **second > 1e-25) {
                let (in_first, in_second) = (one_way * in_a + other_way * in_b, one_way * in_b + other_way * in_a);
                rate += first * second * all_set(in_first, in_a) * all_set(in_second, in_b);
            }
        }
        rate
    }

    fn rate_in_four(&self, items: f64, geometry: Geometry) -> f64 {
        let in_block = 4.0 / f64::from(geometry.blocks_per_group);
        let (some, part) = (geometry.hashes / 4, f64::from(geometry.hashes % 4) / 4.0);
        // At [m]: the chances that `some` bits, and one more, are set in a block with m items.
        let mut all_set: Vec<[f64; 2]> = Vec::new();
        let mut chances = |items: usize| {
            while all_set.len() <= items {
                let items = all_set.len();
                let more = binomial(items, part);
                let thrown = |more: usize| &self.all_set[(items * some as usize + more).min(Self::THROWN)];
                let mean = |asked: u32| more.iter().map(|(more, chance)| chance * thrown(*more)[asked as usize]).sum();
                all_set.push([some, some + 1].map(mean));
            }
            all_set[items]
        };
        let mut rate = 0.0;
        for (in_group, probability) in binomial(items.round() as usize, 1.0 / geometry.groups as f64) {
            let mut set = [0.0; 2];
            for (items, chance) in binomial(in_group, in_block) {
                set.iter_mut().zip(chances(items)).for_each(|(sum, set)| *sum += chance * set);
            }
            rate += (0..4).fold(probability, |all, block| all * set[(geometry.hashes_in(block) - some) as usize]);
        }
        rate
    }

    /// Returns the rate of a layer that counts this many items. Items mistaken for members are not counted.
    pub fn rate(&self, items: u64, geometry: Geometry) -> f64 {
        const STEPS: u32 = 8;
        let (mut offered, step) = (0.0, items as f64 / f64::from(STEPS));
        if self.rate_offered(items as f64, geometry) < 1e-3 {
            return self.rate_offered(items as f64, geometry);
        }
        for _ in 0..STEPS {
            offered += step / (1.0 - self.rate_offered(offered + step / 2.0, geometry));
        }
        self.rate_offered(offered, geometry)
    }
}

/// Returns the numbers of successes in this many trials whose probability is not negligible, each with its probability.
fn binomial(trials: usize, chance: f64) -> Vec<(usize, f64)> {
    let (mean, deviation) = (trials as f64 * chance, (trials as f64 * chance * (1.0 - chance)).sqrt());
    if deviation == 0.0 {
        return vec![(mean as usize, 1.0)];
    }
    let middle = mean as usize;
    let odds = chance / (1.0 - chance);
    // From the middle outwards, relative to it.
    let up = |number: usize| (trials - number) as f64 / (number + 1) as f64 * odds;
    let far = (10.0 * deviation) as usize + 10;
    let mut found = vec![(middle, 1.0)];
    let mut relative = 1.0;
    for number in middle..trials.min(middle + far) {
        relative *= up(number);
        found.push((number + 1, relative));
    }
    relative = 1.0;
    for number in (middle.saturating_sub(far)..middle).rev() {
        relative /= up(number);
        found.push((number, relative));
    }
    let sum: f64 = found.iter().map(|(_, relative)| relative).sum();
    found.into_iter().map(|(number, relative)| (number, relative / sum)).collect()
}

/// Returns the probabilities of 0, 1, 2 ..., until they are negligible.
pub fn poisson(mean: f64) -> Vec<f64> {
    let mut log = -mean;
    let mut probabilities = vec![log.exp()];
    for n in 1..(mean + 12.0 * mean.sqrt() + 40.0) as u32 {
        log += (mean / f64::from(n)).ln();
        probabilities.push(log.exp());
    }
    probabilities
}
