//! How long to leave the server alone after it was asked: nine times as long as that took, so that other clients have it for
//! nine tenths of the time.

use std::time::Duration;

/// The longest pause. Where an answer takes longer than a ninth of it, the network or other clients were waited for.
const PAUSE_MAX: Duration = Duration::from_millis(300);

/// How long to pause after an answer that took so long.
pub fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(9).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_nine_times_the_work_but_not_without_end() {
        assert_eq!(pause_after(Duration::from_millis(2)), Duration::from_millis(18));
        assert_eq!(pause_after(Duration::from_secs(60)), PAUSE_MAX);
    }
}
