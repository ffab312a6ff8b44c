//! The states of values when their dumps began, where a dump needs them. Few values are being dumped, so the marks are in a list of
//! their own rather than in each value.

use std::sync::{Mutex, PoisonError};

use bloomgate_filter::Error;
use bloomgate_filter::format::records::DumpMark;

/// The most marks. Of more dumps at once, the ones that paused longest must start again.
const MOST: usize = 1024;

/// The marks with the instances of their values, the latest last. A value that is gone leaves its mark, whose instance never returns.
static MARKS: Mutex<Vec<(u64, DumpMark)>> = Mutex::new(Vec::new());

/// Removes the mark of a value from the list and returns it: an empty one if there is none.
pub fn take(instance: u64) -> DumpMark {
    let mut marks = MARKS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = marks.iter().rposition(|(of, _)| *of == instance);
    place.map_or_else(DumpMark::default, |place| marks.remove(place).1)
}

/// Stores the mark of a value, unless it is empty.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn put(instance: u64, mark: DumpMark) -> Result<(), Error> {
    if mark.is_empty() {
        return Ok(());
    }
    let mut marks = MARKS.lock().unwrap_or_else(PoisonError::into_inner);
    if marks.len() >= MOST {
        marks.remove(0);
    }
    let asked_bytes = size_of::<(u64, DumpMark)>() as u64;
    marks.try_reserve(1).map_err(|_| Error::OutOfMemory { asked_bytes })?;
    marks.push((instance, mark));
    Ok(())
}

#[cfg(test)]
mod tests {
    use bloomgate_filter::hash::Hasher;
    use bloomgate_filter::kinds::NativeSpec;
    use bloomgate_filter::{Filter, Scaling, Spec, Unlimited};

    use super::*;

    #[test]
    fn the_latest_marks_remain() {
        let hasher = Hasher::SipHash { key: [7; 16] };
        let spec = Spec::Native(NativeSpec::new(0.01, 100, Scaling::Fixed, hasher));
        let filter = Filter::new(&spec, &Unlimited).unwrap();
        let mut mark = DumpMark::default();
        filter.next_record(1, 0, &mut mark).unwrap();
        assert!(!mark.is_empty());
        let instances = 0..=MOST as u64;
        for instance in instances.clone() {
            put(instance, mark.clone()).unwrap();
            put(instance, DumpMark::default()).unwrap();
        }
        let remaining: Vec<u64> = instances.filter(|instance| !take(*instance).is_empty()).collect();
        assert_eq!(remaining, (1..=MOST as u64).collect::<Vec<_>>());
        assert!(take(1).is_empty(), "taken before");
    }
}
