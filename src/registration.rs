//! Registers the commands: name, arity, flags, keys, access control, documentation.
//!
//! Checks for functions that Redis 7.0 lacks: access control categories came with 7.2 (for a command) and 7.4 (a module's own). The server
//! derives no category from the flags of a module's command, so each category is named.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};

use bloomgate_filter::arguments;
use bloomgate_filter::arguments::options::{CommandOption, Value};
use redis_module::raw;

use super::api;
use super::context::{Context, OK, Text};

/// A command, as the server and its documentation see it.
pub struct Command {
    /// Its name, in lower case.
    pub name: &'static CStr,
    /// The function that the server calls.
    pub handler: raw::RedisModuleCmdFunc,
    /// The access of the command to its keys.
    pub access: Access,
    /// Which words are keys.
    pub keys: Keys,
    /// Whether it is in the access control category `fast`.
    pub is_fast: bool,
    /// One sentence.
    pub summary: &'static CStr,
    /// Its cost, in O notation.
    pub complexity: &'static CStr,
    /// The version of RedisBloom that introduced it.
    pub since: &'static CStr,
    /// The words after the name, without options of creation.
    pub arguments: &'static [Argument],
}

impl Command {
    /// The options of creation that the command accepts.
    fn options(&self) -> impl Iterator<Item = &'static CommandOption> {
        let name = self.name.to_bytes();
        let is_named = move |command: &arguments::Command| name.eq_ignore_ascii_case(command.name().as_bytes());
        arguments::Command::ALL.into_iter().filter(is_named).flat_map(arguments::Command::options)
    }

    /// The number of words, including the name; if negative, the minimum.
    fn arity(&self) -> c_int {
        let fewest = 1 + self.arguments.iter().map(Argument::words_min).sum::<c_int>();
        let is_fixed = |argument: &Argument| argument.flags == raw::REDISMODULE_CMD_ARG_NONE;
        if self.options().next().is_none() && self.arguments.iter().all(is_fixed) { fewest } else { -fewest }
    }
}

/// A command's access to its key.
#[derive(Clone, Copy, PartialEq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Reads it. The reply may change without a write to the key, so clients are told not to cache it.
    Inspect,
    /// May change or create it.
    Write,
    /// May change it, also while the server is above `maxmemory`.
    Release,
    /// Reads a filter and a cache key, and may grant its lease, so it needs the permission to fill the cache key.
    Fetch,
    /// Reads a filter and may change a cache key, also while the server is above `maxmemory`.
    Fill,
}

/// The positions of a command's keys.
#[derive(Clone, Copy, PartialEq)]
pub enum Keys {
    /// None.
    None,
    /// The first word.
    First,
    /// The first word, which the command may change, and all others, which it reads.
    FirstAndSources,
    /// A filter at [`FILTER_WORD`] and a cache key at [`CACHE_KEY_WORD`]. No single range covers both, so the server queries the command.
    FilterAndCache,
    /// A filter at [`FILTER_WORD`], and pairs of an item and a cache key: the cache keys are every second word from
    /// [`FIRST_PAIRED_WORD`] on.
    FilterAndPairs,
    /// As [`FilterAndCache`](Self::FilterAndCache), and the keys of WHILE and UNLESS, which the command reads.
    Fetch,
    /// The keys of BF.MFETCH: a filter, those of WHILE and UNLESS, and cache keys as in
    /// [`FilterAndPairs`](Self::FilterAndPairs), from a position on that depends on the options.
    FetchMany,
}

impl Keys {
    /// Whether the server must query the command for the positions of its keys.
    const fn are_asked_for(self) -> bool {
        matches!(self, Self::FilterAndCache | Self::FilterAndPairs | Self::Fetch | Self::FetchMany)
    }
}

/// The position of the filter in a command of the guard.
const FILTER_WORD: c_int = 1;
/// The position of the cache key in a command of the guard.
const CACHE_KEY_WORD: c_int = 3;
/// The position of the first cache key in BF.MCHANGED.
const FIRST_PAIRED_WORD: c_int = 4;

/// A documented argument: a word of a command, or an option's name with its value.
pub struct Argument {
    kind: raw::RedisModuleCommandArgType,
    name: &'static CStr,
    token: Option<&'static CStr>,
    flags: u32,
    /// For a key, the index of the key specification that finds it.
    key_spec: c_int,
    /// For a block, its arguments.
    parts: &'static [Argument],
}

impl Argument {
    const fn new(kind: raw::RedisModuleCommandArgType, name: &'static CStr) -> Self {
        Self { kind, name, token: None, flags: raw::REDISMODULE_CMD_ARG_NONE, key_spec: -1, parts: &[] }
    }

    /// The key.
    pub const KEY: Self = Self::key(c"key", 0);

    /// A key, with the index of the key specification that finds it.
    pub const fn key(name: &'static CStr, key_spec: c_int) -> Self {
        Self { key_spec, ..Self::new(raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, name) }
    }

    /// Any bytes.
    pub const fn string(name: &'static CStr) -> Self {
        Self::new(raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, name)
    }

    /// A whole number.
    pub const fn integer(name: &'static CStr) -> Self {
        Self::new(raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, name)
    }

    /// A number with a fraction.
    pub const fn double(name: &'static CStr) -> Self {
        Self::new(raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_DOUBLE, name)
    }

    /// Several arguments that belong together.
    pub const fn block(name: &'static CStr, parts: &'static [Self]) -> Self {
        Self { parts, ..Self::new(raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK, name) }
    }

    /// A word that counts towards the arity and is not documented.
    pub const HIDDEN: Self = Self::string(c"");

    /// An optional word without a value.
    pub const fn flag(name: &'static CStr, token: &'static CStr) -> Self {
        Self::new(raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN, name).after(token).optional()
    }

    /// Makes the argument the value of an option.
    pub const fn after(self, token: &'static CStr) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Makes the argument optional.
    pub const fn optional(self) -> Self {
        Self { flags: self.flags | raw::REDISMODULE_CMD_ARG_OPTIONAL, ..self }
    }

    /// Marks the argument as repeatable.
    pub const fn repeated(self) -> Self {
        Self { flags: self.flags | raw::REDISMODULE_CMD_ARG_MULTIPLE, ..self }
    }

    /// The minimum number of words of the argument.
    fn words_min(&self) -> c_int {
        if self.flags & raw::REDISMODULE_CMD_ARG_OPTIONAL != 0 {
            return 0;
        }
        let value = if self.parts.is_empty() { 1 } else { self.parts.iter().map(Self::words_min).sum() };
        c_int::from(self.token.is_some()) + value
    }

    /// The documentation of an option of creation.
    fn of(option: &CommandOption) -> Self {
        let CommandOption { name, argument, .. } = *option;
        match option.value {
            Value::Flag => Self::flag(argument, name),
            Value::Integer => Self::integer(argument).after(name).optional(),
            Value::Double => Self::double(argument).after(name).optional(),
            Value::Text => Self::string(argument).after(name).optional(),
            Value::Rest => Self::string(argument).after(name).optional().repeated(),
        }
    }

    fn raw(&self) -> raw::RedisModuleCommandArg {
        raw::RedisModuleCommandArg {
            name: self.name.as_ptr(),
            type_: self.kind,
            key_spec_index: self.key_spec,
            token: self.token.map_or(null(), CStr::as_ptr),
            flags: self.flags.cast_signed(),
            ..NO_ARGUMENT
        }
    }
}

/// The end of a list of arguments.
const NO_ARGUMENT: raw::RedisModuleCommandArg = raw::RedisModuleCommandArg {
    name: null(),
    type_: 0,
    key_spec_index: -1,
    token: null(),
    summary: null(),
    since: null(),
    flags: 0,
    deprecated_since: null(),
    subargs: null_mut(),
    display_text: null(),
};

/// Registers commands, in the categories `bloom` and `cuckoo` if the server supports a module's own categories.
/// The error is a line for the log.
pub fn register(context: Context, commands: &[Command]) -> Result<(), String> {
    let has_category = [c"bloom", c"cuckoo"].into_iter().all(|name| api::add_category(context, name) == OK);
    commands.iter().try_for_each(|command| register_command(context, command, has_category))
}

fn register_command(context: Context, command: &Command, has_category: bool) -> Result<(), String> {
    let refused = |what: &str| format!("the server refuses {what} of {}", command.name.to_string_lossy());
    let flags = match command.access {
        _ if command.keys.are_asked_for() => c"write getkeys-api",
        Access::Read | Access::Inspect => c"readonly fast",
        Access::Write => c"write deny-oom",
        Access::Release | Access::Fetch | Access::Fill => c"write",
    };
    let (first, last, step) = match command.keys {
        Keys::None => (0, 0, 0),
        Keys::First | Keys::FilterAndPairs | Keys::FetchMany => (1, 1, 1),
        Keys::FirstAndSources => (1, -1, 1),
        Keys::FilterAndCache | Keys::Fetch => (FILTER_WORD, CACHE_KEY_WORD, CACHE_KEY_WORD - FILTER_WORD),
    };
    if api::create_command(context, command.name, command.handler, flags, first, last, step) != OK {
        return Err(refused("the name"));
    }
    let registered = api::command(context, command.name);
    if registered.is_null() {
        return Err(refused("access to the registration"));
    }
    let category = match command.access {
        Access::Read | Access::Inspect => "read",
        Access::Write | Access::Release | Access::Fetch | Access::Fill => "write",
    };
    let fast = if command.is_fast { " fast" } else { "" };
    let family = match has_category {
        false => "",
        true if command.name.to_bytes().starts_with(b"cf.") => " cuckoo",
        true => " bloom",
    };
    let categories = format!("{category}{fast}{family}");
    // SAFETY: the command is one of this module, during OnLoad.
    unsafe {
        if describe(registered, command) != OK {
            return Err(refused("the description"));
        }
        if api::set_categories(registered, Text::of(categories).as_c_str()) != OK {
            return Err(refused("the categories"));
        }
    }
    Ok(())
}

/// Sets the documentation and the key specifications of a command.
///
/// # Safety
/// `registered` must be a command of this module, during OnLoad.
unsafe fn describe(registered: *mut raw::RedisModuleCommand, command: &Command) -> c_int {
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let own_flags = match command.access {
        Access::Read | Access::Inspect | Access::Fetch | Access::Fill => {
            raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS
        }
        Access::Write => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_INSERT,
        Access::Release if command.keys.are_asked_for() => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_INSERT
        }
        Access::Release => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
    };
    let read_only = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;
    let updated = raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE;
    let cache_flags = if command.access == Access::Fetch { updated | raw::REDISMODULE_CMD_KEY_ACCESS } else { updated };
    // SAFETY: an all-zero key specification is valid; it ends the list.
    let mut keys: [raw::RedisModuleCommandKeySpec; 5] = unsafe { std::mem::zeroed() };
    let [first, others, while_key, unless_key, _] = &mut keys;
    if command.keys != Keys::None {
        describe_keys(first, own_flags, 1, 0);
    }
    match command.keys {
        Keys::FirstAndSources => describe_keys(others, read_only, 2, -1),
        Keys::FilterAndCache => describe_keys(others, cache_flags, CACHE_KEY_WORD, 0),
        Keys::Fetch => {
            describe_keys(others, cache_flags, CACHE_KEY_WORD, 0);
            describe_key_after(while_key, c"WHILE", CACHE_KEY_WORD + 1);
            describe_key_after(unless_key, c"UNLESS", CACHE_KEY_WORD + 1);
        }
        Keys::FetchMany => {
            describe_keys_anywhere(others, cache_flags);
            describe_key_after(while_key, c"WHILE", FILTER_WORD + 1);
            describe_key_after(unless_key, c"UNLESS", FILTER_WORD + 1);
        }
        Keys::FilterAndPairs => {
            describe_keys(others, cache_flags, FIRST_PAIRED_WORD, -1);
            others.fk.range.keystep = 2;
        }
        Keys::None | Keys::First => {}
    }

    let documented = || command.arguments.iter().filter(|argument| !argument.name.is_empty());
    let options = command.options().map(Argument::of);
    let arguments = documented().map(Argument::raw).chain(options.map(|option| option.raw()));
    let mut arguments: Vec<_> = arguments.chain([NO_ARGUMENT]).collect();
    // The parts of each block live until the server has copied them.
    let parts = |argument: &Argument| -> Vec<_> {
        let parts = argument.parts.iter().map(Argument::raw);
        parts.chain([NO_ARGUMENT]).collect()
    };
    let mut blocks: Vec<Vec<_>> = documented().map(parts).collect();
    for (argument, (described, block)) in arguments.iter_mut().zip(documented().zip(&mut blocks)) {
        if !described.parts.is_empty() {
            argument.subargs = block.as_mut_ptr();
        }
    }
    let pointer = |text: &CStr| -> *const c_char { text.as_ptr() };
    let info = raw::RedisModuleCommandInfo {
        version: &raw const version,
        summary: pointer(command.summary),
        complexity: pointer(command.complexity),
        since: pointer(command.since),
        history: null_mut(),
        tips: tips(command.access),
        arity: command.arity(),
        key_specs: keys.as_mut_ptr(),
        args: arguments.as_mut_ptr(),
    };
    // SAFETY: the caller's promise; everything that `info` points to lives until the call returns.
    unsafe { api::describe_command(registered, &info) }
}

/// Returns the hints for clients and proxies, separated by spaces, that COMMAND INFO shows.
const fn tips(access: Access) -> *const c_char {
    match access {
        Access::Inspect => c"dont_cache".as_ptr(),
        Access::Fetch => c"nondeterministic_output".as_ptr(),
        Access::Read | Access::Write | Access::Release | Access::Fill => null(),
    }
}

/// Describes the key that follows a word, which the server searches for from `position` on. A key may have the same name as the word, so
/// the description is marked as incomplete, and the server queries the command instead.
const fn describe_key_after(keys: &mut raw::RedisModuleCommandKeySpec, word: &'static CStr, position: c_int) {
    let flags = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_INCOMPLETE;
    describe_keys(keys, flags, position, 0);
    keys.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_KEYWORD;
    keys.bs.keyword.keyword = word.as_ptr();
    keys.bs.keyword.startfrom = position;
}

/// Describes keys whose positions only the command knows.
const fn describe_keys_anywhere(keys: &mut raw::RedisModuleCommandKeySpec, flags: u32) {
    keys.flags = (flags | raw::REDISMODULE_CMD_KEY_INCOMPLETE) as u64;
    keys.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_UNKNOWN;
    keys.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_UNKNOWN;
}

/// Describes the keys from `position` to `last`. `last` is relative to `position`, or, if negative, to the end of the words.
const fn describe_keys(keys: &mut raw::RedisModuleCommandKeySpec, flags: u32, position: c_int, last: c_int) {
    keys.flags = flags as u64;
    keys.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    keys.bs.index.pos = position;
    keys.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    keys.fk.range.lastkey = last;
    keys.fk.range.keystep = 1;
    keys.fk.range.limit = 0;
}
