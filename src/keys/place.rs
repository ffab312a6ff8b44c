//! The place of a value: the pointer that the server has for it, its conversion from and to a value, and access by commands.
//!
//! The pointer leads to a [`Stored`], or, for a [small filter](PackedFilter), to a [`PackedStored`] of half its size, which most commands
//! unpack. The lowest bit of the pointer distinguishes the two, so that no memory is read for that.

use std::cell::{Cell, OnceCell};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bloomgate_filter::Mover;
use bloomgate_filter::format::records::GENERATIONS;
use bloomgate_filter::format::{StoredAs, Value};
use bloomgate_filter::kinds::{Contents, NativeSpec, PackedFilter, TAGS};
use bloomgate_filter::{BloomFilter, Ceiling, Error, Filter, try_box};
use redis_module::raw;

use super::stored::{OVERHEAD_UNIT, Stored, list_pending, next_generation, next_instance};
use crate::api;
use crate::args::Arg;
use crate::context::{Context, OK};
use crate::metrics;
use crate::server::freeing;

/// A packed filter is mostly this and its bits. jemalloc gives 80 bytes for one byte more.
const _: () = assert!(size_of::<PackedStored>() <= 64);

/// A packed filter that the server owns.
pub struct PackedStored {
    /// Its tag is the value's generation.
    filter: PackedFilter,
    /// See [`Stored::instance`].
    instance: u64,
}

const _: () = assert!(GENERATIONS <= TAGS);

impl PackedStored {
    /// Whether the filter may contain an item. Not inlined, so that the lookup in a large filter is.
    #[inline(never)]
    pub fn contains(&self, item: &[u8]) -> bool {
        self.filter.contains(item)
    }

    /// Adds an item for a client. Returns whether it is new; `None` if the filter must be unpacked for that, and then nothing has
    /// changed.
    #[inline(never)]
    pub(super) fn add(&mut self, item: &[u8]) -> Option<bool> {
        let is_new = self.filter.add(item)?;
        if is_new {
            metrics::item_added();
        }
        Some(is_new)
    }

    /// The memory that the value takes from the allocator.
    fn allocated_bytes(&self) -> u64 {
        self.filter.allocated_bytes() + (size_of::<Self>() - size_of::<PackedFilter>()) as u64
    }

    /// The same beyond the filter's size.
    fn overhead(&self, size_bytes: u64) -> u64 {
        self.allocated_bytes().saturating_sub(size_bytes)
    }

    /// Packs a filter into this memory, or returns a filter that cannot be packed.
    fn put(memory: Box<MaybeUninit<Self>>, filter: BloomFilter, size_bytes: u64) -> Result<Place, BloomFilter> {
        let filter = PackedFilter::pack(filter, next_generation())?;
        let packed = Box::leak(Box::write(memory, Self { filter, instance: next_instance() }));
        metrics::overhead_changed(0, packed.overhead(size_bytes));
        Ok(Place::Packed(NonNull::from(packed)))
    }

    /// # Safety
    /// As [`PackedFilter::unpack`].
    #[inline]
    unsafe fn unpack(&self) -> Stored {
        // SAFETY: the caller's promise.
        let filter = unsafe { self.filter.unpack() };
        let value = Value::Filter(Filter::Native(filter));
        Stored { value, generation: self.filter.tag(), overhead: 0, instance: self.instance }
    }
}

/// The place of a value.
#[derive(Clone, Copy)]
#[must_use]
pub enum Place {
    /// Any value.
    Full(NonNull<Stored>),
    /// A small filter.
    Packed(NonNull<PackedStored>),
}

/// The bit of a pointer that says that the value is packed.
const IS_PACKED: usize = 1;

impl Place {
    /// # Safety
    /// The pointer must be one that the server got from [`pointer`](Self::pointer).
    #[inline]
    pub(super) unsafe fn of(pointer: *const c_void) -> Self {
        let address = pointer.addr() & !IS_PACKED;
        // SAFETY: the caller's promise: no such pointer is null.
        unsafe {
            let value = NonNull::new_unchecked(pointer.cast_mut().with_addr(address));
            if address == pointer.addr() { Self::Full(value.cast()) } else { Self::Packed(value.cast()) }
        }
    }

    /// Returns the pointer for the server.
    pub(super) fn pointer(self) -> *mut c_void {
        match self {
            Self::Full(stored) => stored.as_ptr().cast(),
            Self::Packed(packed) => packed.as_ptr().cast::<c_void>().map_addr(|address| address | IS_PACKED),
        }
    }

    /// The server's type of the value.
    ///
    /// # Safety
    /// The value must live, and nothing may write to it during the call.
    pub(super) unsafe fn stored_as(self) -> StoredAs {
        match self {
            // SAFETY: the caller's promise.
            Self::Full(stored) => unsafe { stored.as_ref() }.value.stored_as(),
            Self::Packed(_) => StoredAs::Own,
        }
    }

    /// Moves a value into memory for the server, which must get it: INFO's totals include it.
    pub fn for_value(value: Value) -> Result<Self, Error> {
        let reserved = match &value {
            Value::Filter(Filter::Native(filter)) if PackedFilter::fits(filter) => Reserved::packed()?,
            _ => Reserved::full()?,
        };
        Ok(reserved.put(value))
    }

    /// Creates a small filter as [`PackedFilter::like_last`], passes it to `fill`, and adds it to INFO's totals.
    pub fn like_last(
        spec: &NativeSpec,
        ceiling: &impl Ceiling,
        fill: impl FnOnce(&mut Filter),
    ) -> Result<Option<Self>, Error> {
        let memory = try_box(MaybeUninit::uninit())?;
        reserve_spare()?;
        let Some(filter) = PackedFilter::like_last(spec, next_generation(), ceiling)? else { return Ok(None) };
        let mut packed = Box::write(memory, PackedStored { filter, instance: next_instance() });
        // SAFETY: the packed form is updated, or dropped if it cannot be.
        let mut filter = Filter::Native(unsafe { packed.filter.unpack() });
        fill(&mut filter);
        let value = Value::Filter(filter);
        let contents = metrics::filter_added(&value);
        let value = match value {
            Value::Filter(Filter::Native(filter)) => match packed.filter.update(filter) {
                Ok(()) => {
                    metrics::overhead_changed(0, packed.overhead(contents.size_bytes));
                    return Ok(Some(Self::Packed(NonNull::from(Box::leak(packed)))));
                }
                Err(filter) => Value::Filter(Filter::Native(filter)),
            },
            value => value,
        };
        Ok(Some(Reserved { packed: None, full: SPARE.take() }.put_full(value)))
    }

    /// Reads the value, which is unpacked into `view` if it is packed.
    ///
    /// # Safety
    /// The value must live, and nothing may write to it, for as long as the result does.
    #[inline]
    pub(super) unsafe fn read(self, view: &OnceCell<View>) -> &Stored {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Full(stored) => stored.as_ref(),
                Self::Packed(packed) => &view.get_or_init(|| View(ManuallyDrop::new(packed.as_ref().unpack()))).0,
            }
        }
    }

    /// The memory that the value takes from the allocator. Visits every layer.
    ///
    /// # Safety
    /// The value must live, and nothing may write to it during the call.
    pub(super) unsafe fn allocated_bytes(self) -> u64 {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Full(stored) => stored.as_ref().allocated_bytes(),
                Self::Packed(packed) => packed.as_ref().allocated_bytes(),
            }
        }
    }

    /// Frees a value, on whichever thread, and subtracts it from INFO's totals.
    ///
    /// # Safety
    /// No key may have the value any more.
    pub(super) unsafe fn free(self) {
        // SAFETY: the caller's promise: this is the only owner. The memory came from a box.
        unsafe {
            match self {
                Self::Full(stored) => {
                    let stored = Box::from_raw(stored.as_ptr());
                    let contents = metrics::filter_removed(&stored.value);
                    metrics::overhead_changed(u64::from(stored.overhead) * OVERHEAD_UNIT, 0);
                    freeing::free(stored, contents.size_bytes);
                }
                Self::Packed(packed) => {
                    let packed = Box::from_raw(packed.as_ptr());
                    let value = packed.unpack().value;
                    let contents = metrics::filter_removed(&value);
                    metrics::overhead_changed(packed.overhead(contents.size_bytes), 0);
                }
            }
        }
    }

    /// Moves the value's own memory, then its layers' from place number `first` on. Returns the value's new place, and the place number to
    /// continue with if the mover stops before the last.
    ///
    /// # Safety
    /// The value must live, and nothing else may use it during the call.
    pub(super) unsafe fn relocate(self, first: usize, mover: &mut impl Mover) -> (Self, Option<usize>) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Full(mut stored) => {
                    if first == 0 {
                        stored = mover.moved(stored.cast()).map_or(stored, NonNull::cast);
                    }
                    // An arriving filter is short-lived: only its own block is moved.
                    let next = match &mut stored.as_mut().value {
                        Value::Filter(filter) => filter.relocate(first, mover),
                        Value::Cuckoo(filter) => filter.relocate(first, mover),
                        Value::Arriving(_) => None,
                    };
                    (Self::Full(stored), next)
                }
                Self::Packed(mut packed) => {
                    if first == 0 {
                        packed = mover.moved(packed.cast()).map_or(packed, NonNull::cast);
                    }
                    let mut filter = packed.as_ref().filter.unpack();
                    let next = filter.relocate(first, mover);
                    let is_packed = packed.as_mut().filter.update(filter).is_ok();
                    debug_assert!(is_packed, "only addresses have changed");
                    (Self::Packed(packed), next)
                }
            }
        }
    }
}

/// A packed value, unpacked for reading.
pub(super) struct View(ManuallyDrop<Stored>);

impl Drop for View {
    #[inline]
    fn drop(&mut self) {
        // A single layer needs no list, and its cells stay where they are.
        if let Value::Filter(filter) = &self.0.value
            && filter.layer_count() > 1
        {
            self.release();
        }
    }
}

impl View {
    #[inline(never)]
    fn release(&mut self) {
        // SAFETY: only `drop` calls this, so the value is not used afterwards.
        let stored = unsafe { ManuallyDrop::take(&mut self.0) };
        if let Value::Filter(Filter::Native(filter)) = stored.value {
            PackedFilter::release(filter);
        }
    }
}

/// Memory for a value that the server will own, reserved before anything is changed.
pub struct Reserved {
    packed: Option<Box<MaybeUninit<PackedStored>>>,
    full: Option<Box<MaybeUninit<Stored>>>,
}

impl Reserved {
    /// Reserves memory for a new filter to which this number of items will be added.
    pub fn of(filter: &Filter, items: usize) -> Result<Self, Error> {
        let room = match filter {
            Filter::Native(filter) if PackedFilter::fits_new(filter) => filter.remaining_capacity(),
            _ => return Self::full(),
        };
        let full = if items as u64 > room { Self::full()?.full } else { None };
        Ok(Self { full, ..Self::packed()? })
    }

    fn packed() -> Result<Self, Error> {
        reserve_spare()?;
        Ok(Self { packed: Some(try_box(MaybeUninit::uninit())?), full: None })
    }

    /// Reserves memory for any value.
    pub fn full() -> Result<Self, Error> {
        Ok(Self { packed: None, full: Some(try_box(MaybeUninit::uninit())?) })
    }

    /// Puts a value into the memory, and adds it to INFO's totals.
    pub fn put(self, value: Value) -> Place {
        let contents = metrics::filter_added(&value);
        let value = match (self.packed, value) {
            (Some(memory), Value::Filter(Filter::Native(filter))) => {
                match PackedStored::put(memory, filter, contents.size_bytes) {
                    Ok(place) => return place,
                    Err(filter) => Value::Filter(Filter::Native(filter)),
                }
            }
            (_, value) => value,
        };
        Self { packed: None, ..self }.put_full(value)
    }

    /// Puts a value that is in INFO's totals.
    fn put_full(self, value: Value) -> Place {
        let memory = self.full.unwrap_or_else(|| Box::new(MaybeUninit::uninit()));
        Place::Full(NonNull::from(Box::leak(Box::write(memory, Stored::new(value)))))
    }
}

thread_local! {
    /// Memory for the next packed value that outgrows its form. That must not fail, because the value has changed by then.
    static SPARE: Cell<Option<Box<MaybeUninit<Stored>>>> = const { Cell::new(None) };
}

/// Reserves the memory, unless there is some from before.
fn reserve_spare() -> Result<(), Error> {
    let spare = match SPARE.take() {
        Some(spare) => spare,
        None => try_box(MaybeUninit::uninit())?,
    };
    SPARE.set(Some(spare));
    Ok(())
}

/// Unpacks a value for writing. Not inlined, so that a large filter costs no more.
///
/// # Safety
/// As [`PackedFilter::unpack`].
#[inline(never)]
unsafe fn unpack_into(
    unpacked: &mut MaybeUninit<Stored>,
    packed: NonNull<PackedStored>,
) -> Result<NonNull<Stored>, Error> {
    reserve_spare()?;
    // SAFETY: the caller's promise.
    Ok(NonNull::from(unpacked.write(unsafe { packed.as_ref().unpack() })))
}

/// A value that is open for writing. When the writer is dropped, INFO's totals follow what has changed, and the key of a value with
/// pending adds is listed.
pub struct Writer<'a> {
    /// The value, or the unpacked form of a packed one.
    stored: NonNull<Stored>,
    packed: Option<PackedAt>,
    before: Contents,
    context: Context,
    /// The name of the value's key.
    name: Arg<'a>,
    borrow: PhantomData<&'a mut Stored>,
}

/// The place of a packed value that is open for writing, and its key, which gets another pointer if the value can no longer be packed.
#[derive(Clone, Copy)]
struct PackedAt {
    packed: NonNull<PackedStored>,
    key: *mut raw::RedisModuleKey,
}

impl<'a> Writer<'a> {
    /// # Safety
    /// The value must be the one that this key has, which is open for writing under this name. Nothing else may use the value, and
    /// `unpacked`, for as long as the writer lives, and the key must stay open.
    #[inline(always)]
    pub(super) unsafe fn new(
        place: Place,
        unpacked: &'a mut MaybeUninit<Stored>,
        key: *mut raw::RedisModuleKey,
        context: Context,
        name: Arg<'a>,
    ) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        unsafe {
            let (stored, packed) = match place {
                Place::Full(stored) => (stored, None),
                Place::Packed(packed) => (unpack_into(unpacked, packed)?, Some(PackedAt { packed, key })),
            };
            let before = stored.as_ref().value.contents();
            Ok(Self { stored, packed, before, context, name, borrow: PhantomData })
        }
    }

    #[inline(always)]
    const fn stored(&self) -> &Stored {
        // SAFETY: the value lives and nothing else borrows it, as the caller of `new` promised.
        unsafe { self.stored.as_ref() }
    }

    /// The value's generation.
    pub const fn generation(&self) -> u16 {
        self.stored().generation
    }

    /// Swaps the value for another one of the same type. A dump that has begun cannot continue.
    pub fn swap(&mut self, value: &mut Value) {
        // SAFETY: as in `stored`; the writer is borrowed mutably.
        let stored = unsafe { self.stored.as_mut() };
        std::mem::swap(&mut stored.value, value);
        stored.generation = next_generation();
        stored.instance = next_instance();
    }
}

impl Deref for Writer<'_> {
    type Target = Value;

    #[inline]
    fn deref(&self) -> &Value {
        &self.stored().value
    }
}

impl DerefMut for Writer<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Value {
        // SAFETY: as in `stored`; the writer is borrowed mutably.
        unsafe { &mut self.stored.as_mut().value }
    }
}

impl Drop for Writer<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let after = self.contents();
        let has_another_size = metrics::filter_changed(&self.before, &after);
        if let Some(packed) = self.packed {
            let sizes = has_another_size.then_some((self.before.size_bytes, after.size_bytes));
            // SAFETY: the unpacked form is not used after this.
            unsafe { packed.update(self.stored.read(), sizes) };
        } else if has_another_size {
            // SAFETY: as in `stored`; the writer is borrowed mutably.
            unsafe { self.stored.as_mut() }.count_overhead();
        }
        if after.pending_bytes > 0 {
            list_pending(self.context.database(), self.name.bytes());
        }
    }
}

impl PackedAt {
    /// Packs the value again, or stores a full one under the key. `sizes`: the sizes of the filter before and after, if they differ.
    ///
    /// # Safety
    /// The value must be the one that was unpacked, and nothing else may use the packed form.
    #[inline(never)]
    unsafe fn update(mut self, stored: Stored, sizes: Option<(u64, u64)>) {
        // SAFETY: the caller's promise.
        let packed = unsafe { self.packed.as_mut() };
        let overhead = sizes.map(|(before, _)| packed.overhead(before));
        let Stored { value, generation, instance, .. } = stored;
        let refused = match value {
            Value::Filter(Filter::Native(filter)) => {
                packed.filter.update(filter).map_err(|filter| Value::Filter(Filter::Native(filter)))
            }
            value => Err(value),
        };
        match refused {
            Ok(()) => {
                packed.filter.set_tag(generation);
                packed.instance = instance;
                if let (Some(before), Some((_, size_bytes))) = (overhead, sizes) {
                    metrics::overhead_changed(before, packed.overhead(size_bytes));
                }
            }
            Err(value) => {
                let memory = SPARE.take().unwrap_or_else(|| Box::new(MaybeUninit::uninit()));
                let full = Box::write(memory, Stored { value, generation, overhead: 0, instance });
                // SAFETY: as above. The packed form is not used after this.
                unsafe { self.replace(full, overhead) }
                // Without memory now, the next writer tries again.
                let _ = reserve_spare();
            }
        }
    }

    /// Stores a full value under the key and frees the packed form, whose filter is in the full value.
    ///
    /// # Safety
    /// Nothing may use the packed form.
    #[cold]
    unsafe fn replace(self, mut full: Box<Stored>, overhead: Option<u64>) {
        full.count_overhead();
        // A filter of the same size as before has another overhead as well: its fields take more.
        // SAFETY: the caller's promise. The key is open for writing, and has a value of this type.
        unsafe {
            let overhead = overhead.unwrap_or_else(|| self.packed.as_ref().overhead(full.value.contents().size_bytes));
            metrics::overhead_changed(overhead, 0);
            let place = Place::Full(NonNull::from(Box::leak(full)));
            let mut old = std::ptr::null_mut();
            if api::replace_value(self.key, api::module_type(self.key), place.pointer(), &mut old) != OK {
                std::process::abort();
            }
            drop(Box::from_raw(self.packed.as_ptr()));
        }
    }
}
