//! How long to leave the server alone, so that other clients have it for nine tenths of the time.

use std::time::Duration;

/// The longest pause. An answer that took longer than a ninth of it waited for the network or for other clients.
const PAUSE_MAX: Duration = Duration::from_millis(300);
/// The longest rest after a walk that was shorter.
const REST_MAX: Duration = Duration::from_secs(60);

/// Returns the pause after an answer that took `took`: nine times as long, up to a limit.
pub fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(9).min(PAUSE_MAX)
}

/// Returns the rest after a walk over all keys that took `took`: five times as long up to a limit, and never less than `took`.
pub fn rest_after(took: Duration) -> Duration {
    took.saturating_mul(5).min(REST_MAX).max(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_nine_times_the_work_up_to_a_limit() {
        assert_eq!(pause_after(Duration::from_millis(2)), Duration::from_millis(18));
        assert_eq!(pause_after(Duration::from_secs(60)), PAUSE_MAX);
    }

    #[test]
    fn a_rest_is_five_walks_up_to_a_limit_and_at_least_one() {
        for (took, rest) in [(2, 10), (20, 60), (100, 100)] {
            assert_eq!(rest_after(Duration::from_secs(took)), Duration::from_secs(rest));
        }
    }
}
