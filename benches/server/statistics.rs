//! Statistics of a repeated measurement: its median and its spread. There is deliberately no mean: one disturbed round changes
//! a mean, but not a median.

/// The rounds of one measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// No rounds yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a round. A value that is not a number (a division by zero) is ignored.
    pub fn push(&mut self, value: f64) {
        if value.is_finite() {
            self.0.push(value);
        }
    }

    /// The number of rounds.
    pub const fn rounds(&self) -> usize {
        self.0.len()
    }

    /// The median: the middle round, or the mean of the two in the middle; `None` without rounds.
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let upper = *sorted.get(sorted.len() / 2)?;
        if sorted.len() % 2 == 1 {
            return Some(upper);
        }
        sorted.get(sorted.len() / 2 - 1).map(|lower| f64::midpoint(*lower, upper))
    }

    /// The minimum and the maximum.
    pub fn spread(&self) -> Option<(f64, f64)> {
        let smallest = self.0.iter().copied().reduce(f64::min)?;
        Some((smallest, self.0.iter().copied().reduce(f64::max)?))
    }

    /// The median divided by another's.
    pub fn ratio_to(&self, other: &Self) -> Option<f64> {
        let ratio = self.median()? / other.median()?;
        ratio.is_finite().then_some(ratio)
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut samples = Self::new();
        values.into_iter().for_each(|value| samples.push(value));
        samples
    }
}

/// Returns the share of positive answers, and its standard error by the binomial distribution.
pub fn part_of(hits: u64, questions: u64) -> (f64, f64) {
    if questions == 0 {
        return (f64::NAN, f64::NAN);
    }
    let part = hits as f64 / questions as f64;
    (part, (part * (1.0 - part) / questions as f64).sqrt())
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        values.iter().copied().collect()
    }

    #[test]
    fn the_median_is_the_middle_of_the_sorted_rounds() {
        assert_eq!(samples(&[]).median(), None);
        assert_eq!(samples(&[7.0]).median(), Some(7.0));
        assert_eq!(samples(&[9.0, 1.0, 5.0]).median(), Some(5.0));
        assert_eq!(samples(&[9.0, 1.0, 5.0, 7.0]).median(), Some(6.0));
    }

    #[test]
    fn one_disturbed_round_moves_the_spread_and_not_the_median() {
        let rounds = samples(&[2.0, 2.1, 2.2, 2.3, 90.0]);
        assert_eq!(rounds.median(), Some(2.2));
        assert_eq!(rounds.spread(), Some((2.0, 90.0)));
    }

    #[test]
    fn a_round_that_is_not_a_number_is_ignored() {
        let rounds = samples(&[f64::NAN, f64::INFINITY, 3.0]);
        assert_eq!((rounds.rounds(), rounds.median()), (1, Some(3.0)));
        assert_eq!(samples(&[f64::NAN]).spread(), None);
    }

    #[test]
    fn a_ratio_needs_both_values_and_a_nonzero_divisor() {
        assert_eq!(samples(&[6.0]).ratio_to(&samples(&[4.0])), Some(1.5));
        assert_eq!(samples(&[6.0]).ratio_to(&samples(&[0.0])), None);
        assert_eq!(samples(&[6.0]).ratio_to(&Samples::new()), None);
    }

    #[test]
    fn the_error_of_a_share_is_binomial() {
        let (part, error) = part_of(100, 10_000);
        assert!((part - 0.01).abs() < 1e-12);
        assert!((error - 0.000_995).abs() < 1e-6);
        assert!(part_of(0, 0).0.is_nan());
    }
}
