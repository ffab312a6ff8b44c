//! The server's keys, as a command opens them, and the values of ours that they hold.
//!
//! A value may be read by several open keys at a time, or be written by one. The compiler checks that: a command has one
//! [`Keyspace`], which a key that is open for reading borrows shared, and one that is open for writing mutably.

use std::cell::OnceCell;
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::null_mut;

use bloomgate_filter::format::Arrival;
use bloomgate_filter::{Filter, Value};
use redis_module::{RedisString, raw};

use super::data_type;
use super::place::{Place, Reserved, View, Writer};
use super::stored::Stored;
use crate::api::{self, OwnedString};
use crate::args::Arg;
use crate::context::{CommandClock, Context, OK};
use crate::reply::Refusal;

/// The mode of a key that is opened for reading.
const READ: u32 = raw::REDISMODULE_READ;
/// For reading and writing.
const WRITE: u32 = raw::REDISMODULE_READ | raw::REDISMODULE_WRITE;
/// Likewise, without a trace: the key's access time stays as it is, and no event is raised. Redis 7.0 knows only the first flag.
const WRITE_QUIETLY: u32 = WRITE | raw::REDISMODULE_OPEN_KEY_NOTOUCH | raw::REDISMODULE_OPEN_KEY_NOEFFECTS;

/// All keys of the server, as one command uses them.
pub struct Keyspace(Context);

impl Keyspace {
    /// # Safety
    /// At most one may be made in a call of the server's, and no key may be open then.
    pub(crate) const unsafe fn new(context: Context) -> Self {
        Self(context)
    }

    /// The context of the command.
    pub const fn context(&self) -> Context {
        self.0
    }
}

/// An open key. It is closed when it is dropped.
pub struct OpenKey<'a> {
    raw: *mut raw::RedisModuleKey,
    keyspace: PhantomData<&'a Keyspace>,
}

impl<'a> OpenKey<'a> {
    /// Opens a key for reading, while no other one is open. Even to read a string may change how the server stores it.
    #[inline]
    pub fn open(keys: &'a mut Keyspace, name: Arg<'_>) -> Self {
        // SAFETY: the keyspace is borrowed mutably.
        unsafe { Self::open_beside(keys.0, name, READ) }
    }

    /// Opens a key for reading and writing, while no other one is open.
    #[inline]
    pub fn open_for_writing(keys: &'a mut Keyspace, name: Arg<'_>) -> Result<Self, Refusal> {
        Self::open_in(keys, name, WRITE)
    }

    /// Opens a key for reading and writing in this mode. The server also opens missing keys: if it returns null, the key may exist.
    #[inline]
    fn open_in(keys: &'a mut Keyspace, name: Arg<'_>, mode: u32) -> Result<Self, Refusal> {
        // SAFETY: the keyspace is borrowed mutably.
        let key = unsafe { Self::open_beside(keys.0, name, mode) };
        if key.raw.is_null() { Err(Refusal::NotWritable) } else { Ok(key) }
    }

    /// # Safety
    /// For as long as `'a`, other keys may be open only for reading values of ours, and if this one is open for writing, only under
    /// other names.
    #[inline]
    unsafe fn open_beside(context: Context, name: Arg<'_>, mode: u32) -> Self {
        Self { raw: api::open_key(context, name, mode.cast_signed()), keyspace: PhantomData }
    }

    /// The server's number of the type of the key's value.
    #[inline]
    pub fn raw_type(&self) -> isize {
        // SAFETY: the server accepts an open key, and null for a missing one.
        unsafe { api::key_type(self.raw) as isize }
    }

    /// The string that the key holds; empty if it holds no string.
    #[inline]
    pub fn string_bytes(&self) -> &[u8] {
        if self.raw.is_null() {
            return &[];
        }
        let mut length = 0;
        // SAFETY: the key is open. The server gives null unless it holds a string, to which nothing writes before this key is closed.
        unsafe {
            let bytes = api::string_in_place(self.raw, &mut length, READ.cast_signed());
            if bytes.is_null() { &[] } else { std::slice::from_raw_parts(bytes.cast(), length) }
        }
    }

    /// The time to live in milliseconds; `None` if the key does not expire.
    pub fn remaining_ttl(&self) -> Option<u64> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: the key is open.
        u64::try_from(unsafe { api::remaining_ttl(self.raw) }).ok()
    }

    /// Whether the key holds a hash with this field.
    pub fn has_field(&self, field: Arg<'_>) -> bool {
        // SAFETY: the field is a string of the command, as the flag says.
        unsafe { self.has_hash_field(raw::REDISMODULE_HASH_EXISTS, field.raw.cast()) }
    }

    /// Whether the key holds a hash with the field `*`.
    pub fn has_field_of_all(&self) -> bool {
        // SAFETY: the field is a C string, as the second flag says.
        unsafe {
            self.has_hash_field(raw::REDISMODULE_HASH_EXISTS | raw::REDISMODULE_HASH_CFIELDS, c"*".as_ptr().cast())
        }
    }

    /// # Safety
    /// The flags must include `REDISMODULE_HASH_EXISTS`; the field is a C string with `REDISMODULE_HASH_CFIELDS`, otherwise a
    /// string of the server.
    unsafe fn has_hash_field(&self, flags: u32, field: *const c_void) -> bool {
        let mut exists: c_int = 0;
        if !self.raw.is_null() {
            // SAFETY: the key is open: a missing one is a null pointer, which the server does not take here.
            unsafe { api::has_hash_field(self.raw, flags.cast_signed(), field, &mut exists) };
        }
        exists != 0
    }

    /// Deletes the key, if it is open for writing.
    pub fn delete(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the key is open. The server refuses to delete one that is open for reading only.
            unsafe { api::delete_key(self.raw) };
        }
    }

    /// The place of our value under the key; `None` if the key is missing.
    #[inline]
    fn place(&self) -> Result<Option<Place>, Refusal> {
        if self.raw.is_null() {
            return Ok(None);
        }
        // SAFETY: the key is open, and one of our types has a pointer of a `Place`.
        unsafe {
            if data_type::is_ours(api::module_type(self.raw)) {
                return Ok(Some(Place::of(api::value(self.raw))));
            }
        }
        self.no_place()
    }

    /// Where the cuckoo filter is that the key holds, complete or arriving; `None` if the key is missing.
    fn cuckoo_place(&self) -> Result<Option<Place>, Refusal> {
        if self.raw.is_null() {
            return Ok(None);
        }
        // SAFETY: as in `place`, and nothing writes to the value meanwhile.
        unsafe {
            let value_type = api::module_type(self.raw);
            if data_type::is_cuckoo(value_type) {
                return Ok(Some(Place::of(api::value(self.raw))));
            }
            if data_type::is_ours(value_type)
                && let Place::Full(stored) = Place::of(api::value(self.raw))
                && stored.as_ref().value.is_cuckoo()
            {
                return Ok(Some(Place::Full(stored)));
            }
        }
        self.no_place()
    }

    /// Whether a key without such a value is missing.
    #[inline]
    fn no_place(&self) -> Result<Option<Place>, Refusal> {
        if self.raw_type() == raw::REDISMODULE_KEYTYPE_EMPTY { Ok(None) } else { Err(Refusal::WrongType) }
    }
}

impl Drop for OpenKey<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the key is open, and closed once.
            unsafe { api::close_key(self.raw) };
        }
    }
}

/// A key that is open for reading.
pub struct ReadKey<'a> {
    key: OpenKey<'a>,
    view: OnceCell<View>,
}

impl<'a> ReadKey<'a> {
    /// Opens a key.
    #[inline]
    pub fn open(keys: &'a Keyspace, name: Arg<'_>) -> Self {
        // SAFETY: every other key that is open borrows the keyspace shared as well: it is a `ReadKey`.
        Self { key: unsafe { OpenKey::open_beside(keys.0, name, READ) }, view: OnceCell::new() }
    }

    /// The value; `None` if the key is missing.
    #[inline]
    pub fn stored(&self) -> Result<Option<&Stored>, Refusal> {
        // SAFETY: the key holds the value as long as nothing writes to the key. Until this key is closed nothing can: it borrows
        // the keyspace.
        Ok(self.key.place()?.map(|place| unsafe { place.read(&self.view) }))
    }

    /// Whether the filter may contain an item. A missing filter contains nothing.
    #[inline]
    pub fn contains(&self, item: &[u8]) -> Result<bool, Refusal> {
        let Some(place) = self.key.place()? else { return Ok(false) };
        // SAFETY: as in `stored`.
        unsafe {
            match place {
                Place::Packed(packed) => Ok(packed.as_ref().contains(item)),
                Place::Full(stored) => Ok(filter_of(&stored.as_ref().value)?.contains(item, &CommandClock::default())),
            }
        }
    }

    /// The filter; `None` if the key is missing.
    #[inline]
    pub fn filter(&self) -> Result<Option<&Filter>, Refusal> {
        self.stored()?.map(|stored| filter_of(&stored.value)).transpose()
    }
}

impl ReadKey<'_> {
    /// The cuckoo filter, complete or arriving; `None` if the key is missing.
    pub fn cuckoo(&self) -> Result<Option<&Value>, Refusal> {
        let place = self.key.cuckoo_place()?;
        // SAFETY: as in `stored`.
        Ok(place.map(|place| unsafe { &place.read(&self.view).value }))
    }
}

/// The filter that a value is.
#[inline]
pub fn filter_of(value: &Value) -> Result<&Filter, Refusal> {
    match value {
        Value::Filter(filter) => Ok(filter),
        Value::Cuckoo(_) => Err(Refusal::WrongType),
        Value::Arriving(_) => Err(Refusal::StillLoading),
    }
}

/// The outcome of [`WriteKey::writer_or_add`].
pub enum AddTarget<'a> {
    /// The item was looked up, and added if it was new, which this says.
    Added(bool),
    /// The value.
    Value(Writer<'a>),
}

/// A key that is open for reading and writing.
pub struct WriteKey<'a> {
    key: OpenKey<'a>,
    context: Context,
    name: Arg<'a>,
    /// The place to which a packed value is unpacked.
    unpacked: MaybeUninit<Stored>,
}

impl<'a> WriteKey<'a> {
    /// Opens a key.
    #[inline]
    pub fn open(keys: &'a mut Keyspace, name: Arg<'a>) -> Result<Self, Refusal> {
        let context = keys.0;
        Ok(Self { key: OpenKey::open_for_writing(keys, name)?, context, name, unpacked: MaybeUninit::uninit() })
    }

    /// Opens a key of a database by its name, outside of a command, and passes it to `work`. The key's access time does not change, so
    /// that the server evicts it no later.
    pub fn with_named<T>(
        keys: &mut Keyspace,
        database: c_int,
        name: &[u8],
        work: impl FnOnce(&mut WriteKey<'_>) -> T,
    ) -> Result<T, Refusal> {
        let context = keys.0;
        let string = OwnedString::of(name).ok_or(Refusal::NotWritable)?;
        let name = string.arg();
        api::select_database(context, database);
        let key = OpenKey::open_in(keys, name, WRITE_QUIETLY)?;
        Ok(work(&mut WriteKey { key, context, name, unpacked: MaybeUninit::uninit() }))
    }

    /// Whether the key holds a value of ours.
    pub fn exists(&self) -> Result<bool, Refusal> {
        Ok(self.key.place()?.is_some())
    }

    /// The value, open for writing; `None` if the key is missing.
    #[inline(always)]
    pub fn writer(&mut self) -> Result<Option<Writer<'_>>, Refusal> {
        let place = self.key.place()?;
        self.writer_at(place)
    }

    /// The cuckoo filter, complete or arriving, open for writing; `None` if the key is missing.
    pub fn cuckoo_writer(&mut self) -> Result<Option<Writer<'_>>, Refusal> {
        let place = self.key.cuckoo_place()?;
        self.writer_at(place)
    }

    /// `place`: the place of the key's value.
    #[inline(always)]
    fn writer_at(&mut self, place: Option<Place>) -> Result<Option<Writer<'_>>, Refusal> {
        let Self { key, context, name, unpacked } = self;
        // SAFETY: the key holds the value until it is replaced, which needs this key mutably. Nothing else uses the value: no other open
        // key is for this name.
        Ok(place.map(|place| unsafe { Writer::new(place, unpacked, key.raw, *context, *name) }).transpose()?)
    }

    /// Opens the value for writing like [`writer`](Self::writer), unless it is a packed filter and `item` can be added without unpacking
    /// it; then adds the item for a client.
    #[inline(always)]
    pub fn writer_or_add(&mut self, item: Option<Arg<'_>>) -> Result<Option<AddTarget<'_>>, Refusal> {
        let place = self.key.place()?;
        if let (Some(item), Some(Place::Packed(mut packed))) = (item, place) {
            // SAFETY: as in `writer`.
            if let Some(is_new) = unsafe { packed.as_mut() }.add(item.bytes()) {
                return Ok(Some(AddTarget::Added(is_new)));
            }
        }
        Ok(self.writer_at(place)?.map(AddTarget::Value))
    }

    /// Puts a value under the key, in place of the value that it holds and of its time to live. The server raises an event for a new
    /// key, whose listeners may delete the key: finish the value first.
    pub fn install(&mut self, place: Place) {
        // SAFETY: the key is open for writing. The server owns the value from then on, or refuses it, and then no key holds it.
        unsafe {
            if api::set_value(self.key.raw, data_type::raw_type(place.stored_as()), place.pointer()) != OK {
                place.free();
            }
        }
    }

    /// Sets when the key expires, in milliseconds since 1970.
    pub fn expire_at(&self, milliseconds: u64) {
        // SAFETY: the key is open for writing.
        unsafe { api::expire_at(self.key.raw, i64::try_from(milliseconds).unwrap_or(i64::MAX)) };
    }

    /// Turns an arriving filter into a filter. If the filter is of another type, it is put into the `reserved` memory, and the key
    /// is a new one to the server. The time to live stays.
    pub fn complete(&mut self, reserved: Reserved) -> Result<(), Refusal> {
        let Some(Place::Full(mut stored)) = self.key.place()? else { return Ok(()) };
        // SAFETY: as in `writer`; the reference is not used after `install`.
        let stored = unsafe { stored.as_mut() };
        let Some(filter) = stored.complete() else { return Ok(()) };
        // SAFETY: the key is open for writing.
        unsafe {
            let expires = api::expires_at(self.key.raw);
            self.install(reserved.put(filter));
            if expires != raw::REDISMODULE_NO_EXPIRE.into() {
                api::expire_at(self.key.raw, expires);
            }
        }
        Ok(())
    }

    /// Turns an arriving filter of RedisBloom's layout into a filter, however many chunks have arrived: RedisBloom uses a filter from
    /// its header on.
    /// One of ours is refused.
    pub fn put_into_use(&mut self) -> Result<(), Refusal> {
        if let Some(writer) = self.writer()?
            && let Value::Arriving(arrival) = &*writer
            && let Arrival::Own(_) = **arrival
        {
            return Err(Refusal::StillLoading);
        }
        self.complete(Reserved::full()?)
    }

    /// Closes the key, signals it as modified (for WATCH and client-side caches), and raises the events that are true. Listeners may
    /// do anything with the key, so it is closed first.
    #[inline]
    pub fn close_changed(self, events: &[(bool, &CStr)]) {
        let Self { key, context, name, .. } = self;
        drop(key);
        signal(context, name);
        raise(context, name, events);
    }

    /// Closes the key without signalling it as modified, and raises the events that are true.
    pub fn close_unchanged(self, events: &[(bool, &CStr)]) {
        let Self { key, context, name, .. } = self;
        drop(key);
        raise(context, name, events);
    }
}

/// Signals a key as modified (for WATCH and client-side caches), and raises the events that are true. Listeners may do anything with
/// any key, so none may be open.
pub fn changed(keys: &mut Keyspace, name: Arg<'_>, events: &[(bool, &CStr)]) {
    signal(keys.0, name);
    raise(keys.0, name, events);
}

#[inline]
fn signal(context: Context, name: Arg<'_>) {
    api::signal_modified(context, name);
}

/// Raises the events that are true.
#[inline]
fn raise(context: Context, name: Arg<'_>, events: &[(bool, &CStr)]) {
    for (_, event) in events.iter().filter(|(is_raised, _)| *is_raised) {
        api::notify(context, event, name);
    }
}

/// A pass over the keys of all databases, a few keys at a time. It may miss keys that are moved or renamed before it ends.
pub struct Pass {
    database: c_int,
    /// The server's cursor in this database; null before the first step.
    cursor: *mut raw::RedisModuleScanCursor,
}

// SAFETY: the cursor belongs to no thread. The server uses it only in the calls below.
unsafe impl Send for Pass {}

impl Pass {
    /// How many times a step asks the server for keys, mostly one at a time.
    const CALLS: usize = 16;

    /// A pass that starts at the first key.
    pub const fn new() -> Self {
        Self { database: 0, cursor: null_mut() }
    }

    /// Starts again at the first key.
    pub fn restart(&mut self) {
        self.start_in(0);
    }

    fn start_in(&mut self, database: c_int) {
        self.database = database;
        if !self.cursor.is_null() {
            // SAFETY: the cursor is the server's, and is never freed.
            unsafe { api::restart_cursor(self.cursor) };
        }
    }

    /// Calls `visit` with the database, the name and the value of each of the next few keys that has a value of ours. Returns whether
    /// there were keys left. After the last key the pass starts again.
    pub fn step<F: FnMut(c_int, &[u8], &Stored)>(&mut self, keys: &mut Keyspace, mut visit: F) -> bool {
        let context = keys.0;
        if self.cursor.is_null() {
            self.cursor = api::create_cursor();
        }
        if self.cursor.is_null() || api::select_database(context, self.database) != OK {
            self.restart();
            return false;
        }
        let data = (&raw mut visit).cast();
        // SAFETY: the cursor is the server's, and `visit` lives until the calls return.
        let has_keys = |_| unsafe { api::scan(context, self.cursor, Some(visit_scanned::<F>), data) != 0 };
        if !(0..Self::CALLS).all(has_keys) {
            self.start_in(self.database + 1);
        }
        true
    }
}

/// The server calls this for each key that it scans.
unsafe extern "C" fn visit_scanned<F: FnMut(c_int, &[u8], &Stored)>(
    context: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    visit: *mut c_void,
) {
    // The server closes the key.
    let key = ManuallyDrop::new(OpenKey { raw: key, keyspace: PhantomData });
    // SAFETY: the server passes a key that is open for reading until this returns, and the closure of `step`.
    unsafe {
        if let (Ok(Some(place)), Some(visit)) = (key.place(), visit.cast::<F>().as_mut()) {
            let view = OnceCell::new();
            visit(Context::new(context).database(), RedisString::string_as_slice(name), place.read(&view));
        }
    }
}
