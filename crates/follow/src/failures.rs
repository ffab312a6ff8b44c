//! Logs failures after which the follower restarts, which it does every second while a server is unreachable.

/// Prints a repeated failure only once, until another failure occurs or the follower has started.
#[derive(Default)]
pub struct FailureLog(Option<String>);

impl FailureLog {
    /// Prints a failure unless it equals the previous one.
    pub fn print(&mut self, failure: String) {
        if self.is_new(failure) {
            eprintln!("bloomgate: {}; trying again", self.0.as_deref().unwrap_or_default());
        }
    }

    fn is_new(&mut self, failure: String) -> bool {
        let is_new = self.0.as_ref() != Some(&failure);
        self.0 = Some(failure);
        is_new
    }

    /// Records that the follower has started, so that the next failure is printed even if it is the same.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_failure_is_printed_again_after_another_one_or_a_start() {
        let mut log = FailureLog::default();
        let printed = ["a", "a", "b", "b", "a", "a"].map(|failure| log.is_new(failure.to_owned()));
        assert_eq!(printed, [true, false, true, false, true, false]);
        log.clear();
        assert!(log.is_new("a".to_owned()));
    }
}
