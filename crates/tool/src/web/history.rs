//! Histories with a bounded number of points. A series covers a whole run and becomes coarser the longer it runs.

/// The maximum number of points. When it is reached, every second point is dropped.
const POINTS_MAX: usize = 480;

/// A value over time.
#[derive(Clone, Debug)]
pub struct Series<P> {
    points: Vec<P>,
    /// One of this many samples is kept.
    stride: u64,
}

impl<P> Default for Series<P> {
    fn default() -> Self {
        Self { points: Vec::new(), stride: 1 }
    }
}

impl<P: Copy> Series<P> {
    /// Adds the value of sample number `tick`, unless that sample is skipped.
    pub fn push(&mut self, tick: u64, point: P) {
        if !tick.is_multiple_of(self.stride) {
            return;
        }
        if self.points.len() >= POINTS_MAX {
            let mut index = 0u64;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride = self.stride.saturating_mul(2);
            if !tick.is_multiple_of(self.stride) {
                return;
            }
        }
        self.points.push(point);
    }

    /// Returns the points, oldest first.
    pub fn points(&self) -> &[P] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_covers_the_whole_run_with_a_bounded_number_of_points() {
        let mut series = Series::default();
        for tick in 0..100_000u64 {
            series.push(tick, tick);
            assert!(series.points().len() <= POINTS_MAX);
        }
        let points = series.points();
        assert_eq!(points[0], 0);
        assert!(points.len() >= POINTS_MAX / 2 && *points.last().unwrap() > 99_000, "{}", points.len());
        let step = points[1] - points[0];
        assert!(points.windows(2).all(|pair| pair[1] - pair[0] == step));
    }
}
