//! The time, for filters that forget. It comes from outside: there is no clock here.

/// A moment, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// Tells the time. Most filters never ask, so it is read when it is asked for; one command gets one answer.
pub trait Clock {
    /// The time.
    fn now(&self) -> Moment;
}

/// Time stands still.
impl Clock for Moment {
    fn now(&self) -> Self {
        *self
    }
}
