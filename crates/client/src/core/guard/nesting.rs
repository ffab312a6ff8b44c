//! The rows whose loads enclose the running code. A load that reads its own row would wait for itself, and two loads that wait for
//! each other's rows would never end.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

thread_local! {
    /// The loads whose futures are being polled in this thread, the innermost last. A blocking load is one poll; the load of a task
    /// enters and leaves this list with each poll.
    static LOADS: RefCell<Vec<Arc<Load>>> = const { RefCell::new(Vec::new()) };
}

/// A load: its guard's number, and its rows.
struct Load {
    guard: usize,
    ids: Vec<Vec<u8>>,
}

/// A load that is being polled.
struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        LOADS.with_borrow_mut(Vec::pop);
    }
}

/// Runs a load of a guard's rows. Tasks that the load spawns do not count as inside it.
pub async fn inside<T>(guard: usize, ids: Vec<Vec<u8>>, load: impl Future<Output = T>) -> T {
    let (entry, mut load) = (Arc::new(Load { guard, ids }), pin!(load));
    poll_fn(|context| {
        LOADS.with_borrow_mut(|loads| loads.push(Arc::clone(&entry)));
        let _entered = Entered;
        load.as_mut().poll(context)
    })
    .await
}

/// Whether this code runs inside a load, of any guard.
pub fn is_inside() -> bool {
    LOADS.with_borrow(|loads| !loads.is_empty())
}

/// Whether this code runs inside a load of this row.
pub fn is_inside_load_of(guard: usize, id: &[u8]) -> bool {
    LOADS.with_borrow(|loads| loads.iter().any(|load| load.guard == guard && load.ids.iter().any(|other| other == id)))
}
