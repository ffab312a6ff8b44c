//! What the server holds for a key of our type: the value, and the generation that tells it from another one that replaces
//! it.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use bloomgate_filter::format::records::{DumpMark, GENERATIONS};
use bloomgate_filter::kinds::{Contents, Value};
use bloomgate_filter::{Error, try_box};

use super::context::Context;
use super::metrics;
use super::pending::{self, Listed};

/// A value of ours in the server's hands.
pub struct Stored {
    /// The value. It is changed in place, by a [`Writer`].
    pub value: Value,
    /// Not saved and not compared. Each value that comes gets the next one, until they begin again; a filter that arrives in
    /// chunks has that of its dump.
    pub generation: u16,
    /// Tells it from every other value that there was since the server began: not saved, not compared, never 0.
    pub instance: u64,
    /// What it was when its dump began, where that matters. Not saved and not compared.
    pub mark: Cell<Option<Box<DumpMark>>>,
    /// Whether INFO's totals have it.
    is_counted: bool,
    /// Where it is among the values in which adds pend.
    pub(super) listed: Listed,
}

static LAST_INSTANCE: AtomicU64 = AtomicU64::new(0);

fn next_instance() -> u64 {
    LAST_INSTANCE.fetch_add(1, Ordering::Relaxed) + 1
}

static NEXT_GENERATION: AtomicU16 = AtomicU16::new(0);

/// Generations begin anywhere: a dump that goes on after the server was restarted is noticed.
pub fn begin_generations(context: Context) {
    NEXT_GENERATION.store(u16::from_le_bytes(context.random_bytes()), Ordering::Relaxed);
}

/// From 1 on: an iterator of a dump is never a small number, as somebody would try.
fn next_generation() -> u16 {
    NEXT_GENERATION.fetch_add(1, Ordering::Relaxed) % (GENERATIONS - 1) + 1
}

impl Stored {
    /// Takes a value over, and counts it in INFO's totals.
    fn new(value: Value) -> Self {
        let arriving = match &value {
            Value::Arriving(arrival) => arrival.generation(),
            Value::Filter(_) => None,
        };
        metrics::filter_came(value.contents());
        Self {
            value,
            generation: arriving.unwrap_or_else(next_generation),
            instance: next_instance(),
            mark: Cell::new(None),
            is_counted: true,
            listed: Listed::none(),
        }
    }

    /// Takes a value over, in the box that the server holds.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn boxed(value: Value) -> Result<Box<Self>, Error> {
        Ok(Self::reserve()?.put(value))
    }

    /// Memory for a value that is not there yet.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the allocator refuses.
    pub fn reserve() -> Result<Reserved, Error> {
        try_box(MaybeUninit::uninit()).map(Reserved)
    }

    /// Makes an arriving filter, as far as it has come, a filter: of the same type in its place, of another type taken
    /// out, so that nothing is left of it here.
    pub fn complete(&mut self) -> Option<Value> {
        let stored_as = self.value.stored_as();
        let filter = Value::from(self.value.take_filter());
        if filter.stored_as() == stored_as {
            self.value = filter;
            self.instance = next_instance();
            return None;
        }
        metrics::filter_goes(filter.contents());
        metrics::filter_came(self.value.contents());
        Some(filter)
    }

    /// Takes it out of INFO's totals, before it is dropped; answers what it is made of, in bytes. Nobody writes what pends in it
    /// any more.
    pub fn settle(&mut self) -> u64 {
        pending::unlist(&self.listed);
        let contents = self.value.contents();
        if std::mem::take(&mut self.is_counted) {
            metrics::filter_goes(contents);
        }
        contents.size_bytes
    }

    /// Bytes that were asked of the allocator. Visits every layer.
    pub fn allocated_bytes(&self) -> u64 {
        let own = (size_of::<Self>() - size_of::<Value>()) as u64;
        self.value.allocated_bytes().saturating_add(own)
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Memory for a value in the server's hands, asked for before anything is changed.
pub struct Reserved(Box<MaybeUninit<Stored>>);

impl Reserved {
    /// Takes a value over.
    pub fn put(self, value: Value) -> Box<Stored> {
        Box::write(self.0, Stored::new(value))
    }
}

/// A value that is open for writing. INFO's totals follow when the writer goes out of scope: it may have grown and taken
/// items.
pub struct Writer<'a> {
    stored: &'a mut Stored,
    /// Where that is.
    place: NonNull<Stored>,
    before: Contents,
}

impl<'a> Writer<'a> {
    /// # Safety
    /// The value must live, and nobody else may have it, as long as the writer.
    #[inline(always)]
    pub(super) unsafe fn new(mut place: NonNull<Stored>) -> Self {
        // SAFETY: the caller's promise.
        let stored = unsafe { place.as_mut() };
        let before = stored.value.contents();
        Self { stored, place, before }
    }

    /// The value's generation.
    pub const fn generation(&self) -> u16 {
        self.stored.generation
    }

    /// The value's instance.
    pub const fn instance(&self) -> u64 {
        self.stored.instance
    }

    /// Puts another value in its place, of the same type, and the old one there. A dump that was going on ends.
    pub fn swap(&mut self, value: &mut Value) {
        std::mem::swap(&mut self.stored.value, value);
        self.stored.generation = next_generation();
        self.stored.instance = next_instance();
        self.stored.mark.set(None);
    }
}

impl Deref for Writer<'_> {
    type Target = Value;

    #[inline]
    fn deref(&self) -> &Value {
        &self.stored.value
    }
}

impl DerefMut for Writer<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.stored.value
    }
}

impl Drop for Writer<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let after = self.stored.value.contents();
        metrics::filter_changed(&self.before, &after);
        if after.pending_bytes > 0 {
            pending::list(self.place, &self.stored.listed);
        }
    }
}
