//! Random numbers that are the same in every run: splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
//! generators", 2014).

/// A generator; equal seeds give equal numbers.
pub struct Rng(u64);

impl Rng {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, near enough to uniform.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// Between 0 and `longest` random bytes.
    pub fn bytes(&mut self, longest: u64) -> Vec<u8> {
        let length = self.below(longest + 1);
        (0..length).map(|_| self.number() as u8).collect()
    }
}
