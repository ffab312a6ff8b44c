//! What the server holds for a key of our type: the value, and the generation that tells it from another one that takes
//! its place.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU16, Ordering};

use super::context::Context;
use super::metrics;
use super::reply::Refusal;
use crate::bloom::{Error, Filter, try_box};
use crate::format::dump::GENERATIONS;
use crate::format::{Arrival, Value};

/// A value of ours in the server's hands.
pub struct Stored {
    /// The value. It is changed in place.
    pub value: Value,
    /// Not saved, not compared: of every value that comes another one, until they begin anew. A filter that arrives in
    /// chunks has the one that its dump has.
    pub generation: u16,
}

static NEXT_GENERATION: AtomicU16 = AtomicU16::new(0);

/// Generations begin anywhere: a dump that goes on after the server has been started anew is noticed.
pub fn begin_generations(context: Context) {
    let [low, high, ..] = context.random_seed().to_le_bytes();
    NEXT_GENERATION.store(u16::from_le_bytes([low, high]), Ordering::Relaxed);
}

impl Stored {
    /// Takes a value into the server's books.
    fn new(value: Value) -> Self {
        let arriving = match &value {
            Value::Arriving(arrival) => match &**arrival {
                Arrival::Native(arrival) => Some(arrival.generation()),
                Arrival::RedisBloom(_) => None,
            },
            Value::Filter(_) => None,
        };
        let next = || NEXT_GENERATION.fetch_add(1, Ordering::Relaxed) % GENERATIONS;
        let stored = Self { value, generation: arriving.unwrap_or_else(next) };
        metrics::filter_came(stored.value.contents());
        stored
    }

    /// Takes a value into the server's books, in the box that the server holds.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn boxed(value: Value) -> Result<Box<Self>, Error> {
        Ok(Self::room()?.put(value))
    }

    /// Room for a value that is not there yet.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn room() -> Result<Room, Error> {
        try_box(MaybeUninit::uninit()).map(Room)
    }

    /// Bytes that were asked of the allocator. Visits every layer.
    pub fn allocated_bytes(&self) -> u64 {
        let own = (size_of::<Self>() - size_of::<Value>()) as u64;
        self.value.allocated_bytes().saturating_add(own)
    }

    /// The filter.
    ///
    /// # Errors
    /// [`Refusal::StillLoading`].
    #[inline]
    pub fn filter(&mut self) -> Result<&mut Filter, Refusal> {
        match &mut self.value {
            Value::Filter(filter) => Ok(filter),
            Value::Arriving(_) => Err(Refusal::StillLoading),
        }
    }

    /// Takes the filter out, of an arriving one when its last chunk has come. What is left holds nothing.
    pub fn take_filter(&mut self) -> Filter {
        self.change(Value::take_filter)
    }

    /// Puts a value in the place of what is there.
    pub fn replace(&mut self, value: Value) {
        self.change(|own| *own = value);
    }

    /// Changes what there is to count of the value, in the server's books too.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut Value) -> T) -> T {
        metrics::filter_goes(self.value.contents());
        let result = change(&mut self.value);
        metrics::filter_came(self.value.contents());
        result
    }
}

/// Room for a value in the server's hands, asked for before anything is changed.
pub struct Room(Box<MaybeUninit<Stored>>);

impl Room {
    /// Takes a value into the server's books.
    pub fn put(self, value: Value) -> Box<Stored> {
        Box::write(self.0, Stored::new(value))
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        metrics::filter_goes(self.value.contents());
    }
}
