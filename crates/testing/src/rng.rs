//! Random numbers that are the same in every run.

/// A generator; equal seeds give equal numbers.
pub struct Rng(fastrand::Rng);

impl Rng {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// The next 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    /// Between 0 and `longest` random bytes.
    pub fn bytes(&mut self, longest: u64) -> Vec<u8> {
        let length = self.below(longest + 1);
        std::iter::repeat_with(|| self.0.u8(..)).take(length as usize).collect()
    }
}
