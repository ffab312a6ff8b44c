//! The time, for filters that forget. Callers supply it: this crate reads no clock.

/// A moment, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// A source of time. Most filters never ask for it. During one command it must always return the same time.
pub trait Clock {
    /// Returns the time.
    fn now(&self) -> Moment;
}

/// A clock that stands still.
impl Clock for Moment {
    fn now(&self) -> Self {
        *self
    }
}
