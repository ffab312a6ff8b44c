//! Propagates effects, not commands, to replicas and the AOF: a creation with everything that defines the filter, an add with the items
//! that were new. A command without an effect is not propagated.

use std::cell::Cell;
use std::ffi::CStr;
use std::fmt::Display;
use std::io::Write as _;
use std::marker::PhantomData;
use std::ptr::null_mut;

use bloomgate_filter::kinds::effect::{self, ArgToken, Number};
use bloomgate_filter::kinds::{BucketStart, RedisBloomCuckooSpec};
use bloomgate_filter::{Error, Spec};
use redis_module::{RedisString, raw};

use super::api;
use super::args::Arg;
use super::context::Context;

/// A list with room for more items than this is freed after the command.
const KEPT_ITEMS: usize = 4096;

thread_local! {
    /// The list of the previous command, for the next one: so an add allocates nothing.
    static KEPT: Cell<Vec<*mut raw::RedisModuleString>> = const { Cell::new(Vec::new()) };
    /// The word AS of every creation.
    static AS: *mut raw::RedisModuleString = api::create_string(b"AS");
}

/// The items of a command that changed a filter, in order: those that were new, or those that were deleted.
pub struct NewItems<'a> {
    /// The only item of a command with one item, which needs no list.
    one: Option<*mut raw::RedisModuleString>,
    list: Vec<*mut raw::RedisModuleString>,
    items: PhantomData<Arg<'a>>,
}

impl<'a> NewItems<'a> {
    /// An empty list with room for this many items. Every item that is added must be propagated, so the room is reserved first.
    #[inline]
    pub fn with_room(items: usize) -> Result<Self, Error> {
        if items <= 1 { Ok(Self::none()) } else { Self::with_list(items) }
    }

    #[inline(never)]
    fn with_list(items: usize) -> Result<Self, Error> {
        let mut list = KEPT.take();
        let asked_bytes = items.saturating_mul(size_of::<*mut raw::RedisModuleString>()) as u64;
        list.try_reserve(items).map_err(|_| Error::OutOfMemory { asked_bytes })?;
        Ok(Self { one: None, list, items: PhantomData })
    }

    /// An empty list for at most one item.
    #[inline]
    pub const fn none() -> Self {
        Self { one: None, list: Vec::new(), items: PhantomData }
    }

    /// Adds an item. The list must have room for it.
    #[inline]
    pub fn push(&mut self, item: Arg<'a>) {
        if self.list.capacity() == 0 {
            self.one = Some(item.raw);
        } else {
            self.list.push(item.raw);
        }
    }

    /// The items as the server's strings.
    #[inline]
    fn words(&self) -> &[*mut raw::RedisModuleString] {
        self.one.as_ref().map_or(&self.list, std::slice::from_ref)
    }

    /// The number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.words().len()
    }
}

impl NewItems<'_> {
    /// Keeps the list for the next command, unless it is too long.
    #[inline(never)]
    fn keep(&mut self) {
        let mut list = std::mem::take(&mut self.list);
        list.clear();
        if list.capacity() <= KEPT_ITEMS {
            KEPT.set(list);
        }
    }
}

impl Drop for NewItems<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.list.capacity() > 0 {
            self.keep();
        }
    }
}

/// Propagates the command verbatim, because its arguments describe its whole effect.
pub fn verbatim(context: Context) {
    api::replicate_verbatim(context);
}

/// Propagates added items of an existing filter.
pub fn added(context: Context, key: Arg<'_>, items: &NewItems<'_>) {
    send(context, c"BF.MADD", key, &[], items.words());
}

/// Propagates items that were added to the newest bucket of a ring although an older bucket has some of them. A client that repeated
/// them with BF.MADD would not add those.
pub fn renewed(context: Context, key: Arg<'_>, items: &NewItems<'_>) {
    insert_known(context, key, "RENEW", items);
}

/// Propagates deleted items.
pub fn deleted(context: Context, key: Arg<'_>, items: &NewItems<'_>) {
    send(context, c"BF.MDEL", key, &[], items.words());
}

/// Propagates the deletion of a key.
pub fn deleted_key(context: Context, key: Arg<'_>) {
    send(context, c"DEL", key, &[], &[]);
}

/// Propagates items that were present, for clients that WAIT until replicas have them. Replicas add nothing.
pub fn known(context: Context, key: Arg<'_>, items: &NewItems<'_>) {
    insert_known(context, key, "SYNC", items);
}

/// Propagates items of an existing filter with an option of BF.INSERT.
fn insert_known(context: Context, key: Arg<'_>, option: &str, items: &NewItems<'_>) {
    let mut words = OwnedWords::new();
    ["NOCREATE", option, "ITEMS"].into_iter().for_each(|word| words.push_bytes(word.as_bytes()));
    send(context, c"BF.INSERT", key, words.strings(), items.words());
}

/// Propagates the creation of a cuckoo filter with everything that defines it.
pub fn cuckoo_created(context: Context, key: Arg<'_>, spec: &RedisBloomCuckooSpec) {
    let mut words = OwnedWords::new();
    spec.encode_args(|word| words.push(word));
    send(context, c"CF.RESERVE", key, words.strings(), &[]);
}

/// Propagates items that an existing cuckoo filter has stored.
pub fn cuckoo_added(context: Context, key: Arg<'_>, items: &NewItems<'_>) {
    if items.len() <= 1 {
        return send(context, c"CF.ADD", key, &[], items.words());
    }
    let mut words = OwnedWords::new();
    [&b"NOCREATE"[..], b"ITEMS"].into_iter().for_each(|word| words.push_bytes(word));
    send(context, c"CF.INSERT", key, words.strings(), items.words());
}

/// Propagates a turn of a ring.
pub fn rotated(context: Context, key: Arg<'_>, start: BucketStart) {
    let mut words = OwnedWords::new();
    let numbers = [start.slot, start.begin.0, start.end.0, start.capacity];
    numbers.iter().for_each(|number| words.push(effect::whole(*number)));
    send(context, c"BF.ROTATE", key, words.strings(), &[]);
}

/// Propagates when a key expires, in milliseconds since 1970.
pub fn expires(context: Context, key: Arg<'_>, milliseconds: u64) {
    let mut words = OwnedWords::new();
    words.push(effect::whole(milliseconds));
    send(context, c"PEXPIREAT", key, words.strings(), &[]);
}

/// Propagates the creation of a filter with everything that defines it, the start that began its first bucket, and the items that the
/// same command added.
pub fn created(context: Context, key: Arg<'_>, spec: &Spec, start: Option<BucketStart>, items: &NewItems<'_>) {
    if let Some(word) = spec.to_word() {
        let as_word = AS.with(|word| *word);
        // SAFETY: the strings are the server's, which live until it has propagated them. It copies the word.
        unsafe {
            match items.words() {
                [item] => api::replicate_definition_and_item(context, key, as_word, &word, *item),
                items => api::replicate_definition(context, key, as_word, &word, items),
            }
        };
        return;
    }
    let mut words = OwnedWords::new();
    let name = spec.encode_args(|word| words.push(word));
    if !spec.takes_items() {
        send(context, name, key, words.strings(), &[]);
        if let Some(start) = start {
            rotated(context, key, start);
        }
        if items.len() > 0 {
            added(context, key, items);
        }
        return;
    }
    if items.len() > 0 {
        words.push_bytes(b"ITEMS");
    }
    send(context, name, key, words.strings(), items.words());
}

/// Propagates a command with two lists of arguments after the key.
fn send(
    context: Context,
    name: &CStr,
    key: Arg<'_>,
    words: &[*mut raw::RedisModuleString],
    items: &[*mut raw::RedisModuleString],
) {
    // SAFETY: the words and the items are strings of the server, which live until it has propagated them.
    unsafe { api::replicate(context, name, key, words, items) };
}

/// The maximum number of arguments that define a filter, and ITEMS.
const WORDS_MAX: usize = effect::WORDS_MAX + 1;
/// No argument is longer: rates have up to 343 digits.
const TEXT_BYTES: usize = 512;

/// The arguments of an effect, and the numbers of which they are the text.
#[derive(Clone, Copy)]
struct Words {
    strings: [*mut raw::RedisModuleString; WORDS_MAX],
    numbers: [Option<Number>; WORDS_MAX],
}

impl Words {
    const NONE: Self = Self { strings: [null_mut(); WORDS_MAX], numbers: [None; WORDS_MAX] };
}

thread_local! {
    /// The arguments of the previous effect, which the next one mostly repeats.
    static KEPT_WORDS: Cell<Words> = const { Cell::new(Words::NONE) };
}

/// Arguments that the module makes, as the server's strings. The strings after `count` are from the previous effect.
struct OwnedWords {
    words: Words,
    count: usize,
}

impl OwnedWords {
    fn new() -> Self {
        Self { words: KEPT_WORDS.replace(Words::NONE), count: 0 }
    }

    fn strings(&self) -> &[*mut raw::RedisModuleString] {
        self.words.strings.get(..self.count).unwrap_or_default()
    }

    fn push(&mut self, word: ArgToken<'_>) {
        match word {
            ArgToken::Bytes(word) => self.push_bytes(word),
            ArgToken::Number(number) => {
                let place = self.count;
                if self.words.numbers.get(place) == Some(&Some(number)) {
                    self.count += 1;
                    return;
                }
                self.push_text(&number);
                if let Some(known) = self.words.numbers.get_mut(place) {
                    *known = Some(number);
                }
            }
            ArgToken::Text(text) => self.push_text(text),
        }
    }

    fn push_text(&mut self, text: &dyn Display) {
        let mut bytes = [0; TEXT_BYTES];
        let mut rest = bytes.as_mut_slice();
        // Every word fits.
        let _ = write!(rest, "{text}");
        let left = rest.len();
        self.push_bytes(bytes.get(..TEXT_BYTES - left).unwrap_or_default());
    }

    fn push_bytes(&mut self, word: &[u8]) {
        let Words { strings, numbers } = &mut self.words;
        let (Some(string), Some(number)) = (strings.get_mut(self.count), numbers.get_mut(self.count)) else { return };
        self.count += 1;
        *number = None;
        if !string.is_null() {
            if RedisString::string_as_slice(*string) == word {
                return;
            }
            free(*string);
        }
        *string = api::create_string(word);
    }
}

impl Drop for OwnedWords {
    fn drop(&mut self) {
        // There are others if an effect was made during this one.
        KEPT_WORDS.replace(self.words).strings.into_iter().filter(|string| !string.is_null()).for_each(free);
    }
}

/// Frees a string that this module owns.
fn free(string: *mut raw::RedisModuleString) {
    // SAFETY: the string came from `create_string` and is freed once. The server has counted its own references.
    unsafe { api::free_string(string) };
}
