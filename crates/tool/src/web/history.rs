//! What was measured over time, in a bounded number of points: a series covers all of a run, the coarser the longer that is.

/// Points of a series at most. Then every second one goes.
const POINTS_MAX: usize = 480;

/// A value over time.
#[derive(Clone, Debug)]
pub struct Series<P> {
    points: Vec<P>,
    /// Of so many samples one is kept.
    stride: u64,
}

impl<P> Default for Series<P> {
    fn default() -> Self {
        Self { points: Vec::new(), stride: 1 }
    }
}

impl<P: Copy> Series<P> {
    /// Adds what was measured at sample number `tick`, where that is one that is kept.
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

    /// The points, oldest first.
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
