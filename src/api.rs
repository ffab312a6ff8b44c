//! The server's functions, each with one row in a table. The server fills them in when it loads the module. A function that the server
//! lacks does nothing, or returns the value in its row.
//!
//! The functions of the first table are safe for any arguments of their types: a [`Context`] and an [`Arg`] are valid for as long as they
//! exist. The functions of the second table take pointers of the server, or callbacks and their data.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use std::marker::PhantomData;
use std::ptr::{NonNull, null, null_mut};

use redis_module::RedisString;
use redis_module::raw::{
    self, RedisModuleBlockedClient as Client, RedisModuleCallReply as CallReply, RedisModuleCommand as Command,
    RedisModuleInfoCtx as InfoSection, RedisModuleKey as Key, RedisModuleScanCursor as Cursor,
    RedisModuleServerInfoData as Info, RedisModuleString as Word, RedisModuleType as Type,
};

/// The context of a command or a callback, valid while it runs; a null pointer in callbacks that get no context. The server's functions for
/// flags, the log and INFO accept a null pointer.
#[derive(Clone, Copy)]
pub struct Context {
    pub(super) raw: *mut raw::RedisModuleCtx,
}

impl Context {
    pub(super) const fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw }
    }
}

/// Defines handles that the server passes to the callbacks of a type, each valid while the callback runs.
macro_rules! handles {
    ($($(#[$note:meta])* $name:ident($raw:ident);)*) => {$(
        $(#[$note])*
        #[derive(Clone, Copy)]
        pub struct $name {
            raw: *mut raw::$raw,
        }

        impl $name {
            pub(super) const fn new(raw: *mut raw::$raw) -> Self {
                Self { raw }
            }
        }
    )*};
}

handles! {
    /// A snapshot, a `DUMP` payload or an AOF that is read or written.
    Io(RedisModuleIO);
    /// The digest of a value.
    Digest(RedisModuleDigest);
    /// A step of the defragmenter.
    Defragmenter(RedisModuleDefragCtx);
}

/// One argument of a command, or another string of the server that lives as long as `'a`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Arg<'a> {
    pub(super) raw: *mut Word,
    command: PhantomData<&'a ()>,
}

impl<'a> Arg<'a> {
    /// # Safety
    /// The string must live as long as `'a`.
    pub(super) unsafe fn of(raw: &'a *mut Word) -> Self {
        Self { raw: *raw, command: PhantomData }
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        RedisString::string_as_slice(self.raw)
    }
}

impl AsRef<[u8]> for Arg<'_> {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// The result of a callback or of a server function that succeeds.
pub const OK: c_int = 0;
/// The result of one that fails.
pub const ERR: c_int = 1;

/// Calls a function of the server.
macro_rules! call {
    ($raw:ident($($passed:expr),*)) => {
        if let Some(function) = raw::$raw {
            function($($passed),*);
        }
    };
    ($raw:ident($($passed:expr),*), $absent:expr) => {
        match raw::$raw {
            Some(function) => function($($passed),*),
            None => $absent,
        }
    };
}

/// Defines safe functions: `name(arguments) -> result, or value if the server lacks it => server's function(its arguments);`
macro_rules! functions {
    ($(
        $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty, or $absent:expr)? => $raw:ident($($passed:expr),*);
    )*) => {$(
        #[inline(always)]
        pub fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: contexts and arguments are valid, pointers and lengths are those of texts and buffers that live until the call
            // returns, and further arguments are those that the format before them announces.
            unsafe { call!($raw($($passed),*) $(, $absent)?) }
        }
    )*};
}

/// Defines unsafe functions in the same form.
macro_rules! unsafe_functions {
    ($(
        $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty, or $absent:expr)? => $raw:ident($($passed:expr),*);
    )*) => {$(
        /// # Safety
        /// Each pointer must come from the server, be of the kind that the function expects, and be valid for as long as the
        /// server uses it.
        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "the server's functions have that many")]
        pub unsafe fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller's promise.
            unsafe { call!($raw($($passed),*) $(, $absent)?) }
        }
    )*};
}

functions! {
    // The server and its log.
    server_version() -> c_int, or 0 => RedisModule_GetServerVersion();
    context_flags(context: Context) -> c_int, or 0 => RedisModule_GetContextFlags(context.raw);
    set_attributes(context: Context, name: &CStr, version: c_int) =>
        RedisModule_SetModuleAttribs(
            context.raw, name.as_ptr(), version, raw::REDISMODULE_APIVER_1.cast_signed()
        );
    set_options(context: Context, options: c_int) => RedisModule_SetModuleOptions(context.raw, options);
    log(context: Context, level: &CStr, line: &CStr) =>
        RedisModule_Log(context.raw, level.as_ptr(), c"%s".as_ptr(), line.as_ptr());
    random_bytes(buffer: &mut [u8]) => RedisModule_GetRandomBytes(buffer.as_mut_ptr(), buffer.len());
    cached_microseconds() -> c_longlong, or milliseconds().saturating_mul(1000) => RedisModule_CachedMicroseconds();
    milliseconds() -> c_longlong, or 0 => RedisModule_Milliseconds();
    used_memory_ratio() -> f32, or 1.0 => RedisModule_GetUsedMemoryRatio();
    server_info(context: Context, section: &CStr) -> *mut Info, or null_mut() =>
        RedisModule_GetServerInfo(context.raw, section.as_ptr());
    database(context: Context) -> c_int, or 0 => RedisModule_GetSelectedDb(context.raw);
    select_database(context: Context, number: c_int) -> c_int, or ERR => RedisModule_SelectDb(context.raw, number);
    subscribe_to_event(
        context: Context, event: raw::RedisModuleEvent, callback: raw::RedisModuleEventCallback
    ) -> c_int, or ERR =>
        RedisModule_SubscribeToServerEvent(context.raw, event, callback);
    subscribe_to_keys(context: Context, classes: c_int, callback: raw::RedisModuleNotificationFunc) -> c_int, or ERR =>
        RedisModule_SubscribeToKeyspaceEvents(context.raw, classes, callback);
    unsubscribe_from_keys(context: Context, classes: c_int, callback: raw::RedisModuleNotificationFunc) -> c_int, or ERR =>
        RedisModule_UnsubscribeFromKeyspaceEvents(context.raw, classes, callback);
    create_timer(
        context: Context, period: raw::mstime_t, callback: raw::RedisModuleTimerProc
    ) -> raw::RedisModuleTimerID, or 0 =>
        RedisModule_CreateTimer(context.raw, period, callback, null_mut());
    stop_timer(context: Context, timer: raw::RedisModuleTimerID) =>
        RedisModule_StopTimer(context.raw, timer, null_mut());
    register_info(context: Context, callback: raw::RedisModuleInfoFunc) =>
        RedisModule_RegisterInfoFunc(context.raw, callback);

    // Commands.
    create_command(
        context: Context, name: &CStr, handler: raw::RedisModuleCmdFunc, flags: &CStr,
        first: c_int, last: c_int, step: c_int
    ) -> c_int, or ERR =>
        RedisModule_CreateCommand(context.raw, name.as_ptr(), handler, flags.as_ptr(), first, last, step);
    command(context: Context, name: &CStr) -> *mut Command, or null_mut() =>
        RedisModule_GetCommand(context.raw, name.as_ptr());
    add_category(context: Context, name: &CStr) -> c_int, or ERR =>
        RedisModule_AddACLCategory(context.raw, name.as_ptr());
    asks_for_keys(context: Context) -> c_int, or 0 => RedisModule_IsKeysPositionRequest(context.raw);
    report_key(context: Context, position: c_int, flags: c_int) =>
        RedisModule_KeyAtPosWithFlags(context.raw, position, flags);
    redact(context: Context, position: c_int) => RedisModule_RedactClientCommandArgument(context.raw, position);
    current_command(context: Context) -> *const c_char, or null() => RedisModule_GetCurrentCommandName(context.raw);

    // Replies.
    wrong_arity(context: Context) -> c_int, or ERR => RedisModule_WrongArity(context.raw);
    reply_error(context: Context, text: &CStr) => RedisModule_ReplyWithError(context.raw, text.as_ptr());
    reply_simple_string(context: Context, text: &CStr) => RedisModule_ReplyWithSimpleString(context.raw, text.as_ptr());
    reply_bytes(context: Context, bytes: &[u8]) =>
        RedisModule_ReplyWithStringBuffer(context.raw, bytes.as_ptr().cast(), bytes.len());
    reply_boolean(context: Context, value: bool) => RedisModule_ReplyWithBool(context.raw, value.into());
    reply_integer(context: Context, number: c_longlong) => RedisModule_ReplyWithLongLong(context.raw, number);
    reply_double(context: Context, number: f64) => RedisModule_ReplyWithDouble(context.raw, number);
    reply_null(context: Context) => RedisModule_ReplyWithNull(context.raw);
    reply_array(context: Context, length: c_long) => RedisModule_ReplyWithArray(context.raw, length);
    reply_map(context: Context, pairs: c_long) => RedisModule_ReplyWithMap(context.raw, pairs);
    set_array_length(context: Context, length: c_long) => RedisModule_ReplySetArrayLength(context.raw, length);

    // Effects and events.
    replicate_verbatim(context: Context) => RedisModule_ReplicateVerbatim(context.raw);
    signal_modified(context: Context, key: Arg<'_>) => RedisModule_SignalModifiedKey(context.raw, key.raw);
    notify(context: Context, event: &CStr, key: Arg<'_>) =>
        RedisModule_NotifyKeyspaceEvent(context.raw, raw::REDISMODULE_NOTIFY_GENERIC, event.as_ptr(), key.raw);

    // Keys and strings.
    open_key(context: Context, name: Arg<'_>, mode: c_int) -> *mut Key, or null_mut() =>
        RedisModule_OpenKey(context.raw, name.raw, mode);
    create_string(bytes: &[u8]) -> *mut Word, or null_mut() =>
        RedisModule_CreateString(null_mut(), bytes.as_ptr().cast(), bytes.len());
    hold_string(word: Arg<'_>) -> *mut Word, or null_mut() => RedisModule_HoldString(null_mut(), word.raw);
    create_cursor() -> *mut Cursor, or null_mut() => RedisModule_ScanCursorCreate();

    // The commands of the server that the module calls.
    call_get(context: Context, key: Arg<'_>) -> *mut CallReply, or null_mut() =>
        RedisModule_Call(context.raw, c"GET".as_ptr(), c"s".as_ptr(), key.raw);
    call_set(context: Context, key: Arg<'_>, value: Arg<'_>) -> *mut CallReply, or null_mut() =>
        RedisModule_Call(context.raw, c"SET".as_ptr(), c"!MEss".as_ptr(), key.raw, value.raw);
    call_set_px(context: Context, key: Arg<'_>, value: Arg<'_>, milliseconds: i64) -> *mut CallReply, or null_mut() =>
        RedisModule_Call(
            context.raw, c"SET".as_ptr(), c"!MEsscl".as_ptr(), key.raw, value.raw, c"PX".as_ptr(), milliseconds
        );
    call_cluster_info(context: Context) -> *mut CallReply, or null_mut() =>
        RedisModule_Call(context.raw, c"CLUSTER".as_ptr(), c"c".as_ptr(), c"INFO".as_ptr());
    call_module_list(context: Context) -> *mut CallReply, or null_mut() =>
        RedisModule_Call(context.raw, c"MODULE".as_ptr(), c"c".as_ptr(), c"LIST".as_ptr());

    // Blocked clients.
    block_client(
        context: Context, unblocked: raw::RedisModuleCmdFunc,
        freed: Option<unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void)>
    ) -> *mut Client, or null_mut() =>
        RedisModule_BlockClient(context.raw, None, unblocked, freed, 0);
    blocked_client(context: Context) -> *mut Client, or null_mut() =>
        RedisModule_GetBlockedClientHandle(context.raw);
    has_disconnected(context: Context) -> c_int, or 0 => RedisModule_BlockedClientDisconnected(context.raw);

    // Settings and types.
    load_settings(context: Context) -> c_int, or ERR => RedisModule_LoadConfigs(context.raw);
    create_type(
        context: Context, name: &CStr, encoding: c_int, methods: &mut raw::RedisModuleTypeMethods
    ) -> *mut Type, or null_mut() =>
        RedisModule_CreateDataType(context.raw, name.as_ptr(), encoding, methods);

    // Snapshots, the AOF, digests, defragmentation.
    snapshot_key(io: Io) -> *const Word, or null() => RedisModule_GetKeyNameFromIO(io.raw);
    snapshot_log(io: Io, level: &CStr, line: &CStr) =>
        RedisModule_LogIOError(io.raw, level.as_ptr(), c"%s".as_ptr(), line.as_ptr());
    has_failed(io: Io) -> c_int, or 0 => RedisModule_IsIOError(io.raw);
    load_integer(io: Io) -> u64, or 0 => RedisModule_LoadUnsigned(io.raw);
    load_double(io: Io) -> f64, or 0.0 => RedisModule_LoadDouble(io.raw);
    load_bytes(io: Io, length: &mut usize) -> *mut c_char, or null_mut() =>
        RedisModule_LoadStringBuffer(io.raw, length);
    save_integer(io: Io, number: u64) => RedisModule_SaveUnsigned(io.raw, number);
    save_double(io: Io, number: f64) => RedisModule_SaveDouble(io.raw, number);
    save_bytes(io: Io, bytes: &[u8]) =>
        RedisModule_SaveStringBuffer(io.raw, bytes.as_ptr().cast(), bytes.len());
    emit_chunk(io: Io, name: &CStr, key: Arg<'_>, iterator: i64, data: &[u8]) =>
        RedisModule_EmitAOF(io.raw, name.as_ptr(), c"slb".as_ptr(), key.raw, iterator, data.as_ptr(), data.len());
    emit_string(io: Io, name: &CStr, key: Arg<'_>, data: Arg<'_>) =>
        RedisModule_EmitAOF(io.raw, name.as_ptr(), c"ss".as_ptr(), key.raw, data.raw);
    emit_bytes(io: Io, name: &CStr, key: Arg<'_>, data: &[u8]) =>
        RedisModule_EmitAOF(io.raw, name.as_ptr(), c"sb".as_ptr(), key.raw, data.as_ptr(), data.len());
    digest_bytes(digest: Digest, bytes: &[u8]) =>
        RedisModule_DigestAddStringBuffer(digest.raw, bytes.as_ptr().cast(), bytes.len());
    end_digest(digest: Digest) => RedisModule_DigestEndSequence(digest.raw);
    should_stop(defragmenter: Defragmenter) -> c_int, or 0 => RedisModule_DefragShouldStop(defragmenter.raw);
    defrag_cursor(defragmenter: Defragmenter, cursor: &mut c_ulong) =>
        RedisModule_DefragCursorGet(defragmenter.raw, cursor);
    set_defrag_cursor(defragmenter: Defragmenter, cursor: c_ulong) =>
        RedisModule_DefragCursorSet(defragmenter.raw, cursor);
}

unsafe_functions! {
    // Strings and the server's memory.
    free_string(string: *mut Word) => RedisModule_FreeString(null_mut(), string);
    append_to_string(string: *mut Word, bytes: &[u8]) -> c_int, or ERR =>
        RedisModule_StringAppendBuffer(null_mut(), string, bytes.as_ptr().cast(), bytes.len());
    free(block: *mut c_void) => RedisModule_Free(block);
    move_block(defragmenter: Defragmenter, block: *mut c_void) -> *mut c_void, or null_mut() =>
        RedisModule_DefragAlloc(defragmenter.raw, block);

    // Open keys.
    close_key(key: *mut Key) => RedisModule_CloseKey(key);
    key_type(key: *mut Key) -> c_int, or 0 => RedisModule_KeyType(key);
    string_in_place(key: *mut Key, length: &mut usize, mode: c_int) -> *mut c_char, or null_mut() =>
        RedisModule_StringDMA(key, length, mode);
    remaining_ttl(key: *mut Key) -> raw::mstime_t, or -1 => RedisModule_GetExpire(key);
    expires_at(key: *mut Key) -> raw::mstime_t, or -1 => RedisModule_GetAbsExpire(key);
    expire_at(key: *mut Key, milliseconds: raw::mstime_t) => RedisModule_SetAbsExpire(key, milliseconds);
    has_hash_field(key: *mut Key, flags: c_int, field: *const c_void, exists: &mut c_int) =>
        RedisModule_HashGet(key, flags, field, exists as *mut c_int, null_mut::<c_void>());
    delete_key(key: *mut Key) => RedisModule_DeleteKey(key);
    module_type(key: *mut Key) -> *mut Type, or null_mut() => RedisModule_ModuleTypeGetType(key);
    value(key: *mut Key) -> *mut c_void, or null_mut() => RedisModule_ModuleTypeGetValue(key);
    set_value(key: *mut Key, module_type: *mut Type, value: *mut c_void) -> c_int, or ERR =>
        RedisModule_ModuleTypeSetValue(key, module_type, value);
    replace_value(key: *mut Key, module_type: *mut Type, value: *mut c_void, old: *mut *mut c_void) -> c_int, or ERR =>
        RedisModule_ModuleTypeReplaceValue(key, module_type, value, old);

    // A pass over all keys of the selected database.
    scan(context: Context, cursor: *mut Cursor, callback: raw::RedisModuleScanCB, data: *mut c_void) -> c_int, or 0 =>
        RedisModule_Scan(context.raw, cursor, callback, data);
    restart_cursor(cursor: *mut Cursor) => RedisModule_ScanCursorRestart(cursor);

    // Effects.
    replicate(context: Context, name: &CStr, key: Arg<'_>, words: &[*mut Word], items: &[*mut Word]) =>
        RedisModule_Replicate(
            context.raw, name.as_ptr(), c"svv".as_ptr(), key.raw, words.as_ptr(), words.len(), items.as_ptr(),
            items.len()
        );
    replicate_definition(context: Context, key: Arg<'_>, as_word: *mut Word, word: &[u8], items: &[*mut Word]) =>
        RedisModule_Replicate(
            context.raw, c"BF.INSERT".as_ptr(), c"ssbv".as_ptr(), key.raw, as_word, word.as_ptr(), word.len(), items.as_ptr(),
            items.len()
        );
    // For one item the server need not lengthen its list of words.
    replicate_definition_and_item(context: Context, key: Arg<'_>, as_word: *mut Word, word: &[u8], item: *mut Word) =>
        RedisModule_Replicate(
            context.raw, c"BF.INSERT".as_ptr(), c"ssbs".as_ptr(), key.raw, as_word, word.as_ptr(), word.len(), item
        );

    // Replies to the module's calls.
    reply_type(reply: *mut CallReply) -> c_int, or -1 =>
        RedisModule_CallReplyType(reply);
    reply_string(reply: *mut CallReply, length: &mut usize) -> *const c_char, or null() =>
        RedisModule_CallReplyStringPtr(reply, length);
    reply_element(reply: *mut CallReply, index: usize) -> *mut CallReply, or null_mut() =>
        RedisModule_CallReplyArrayElement(reply, index);
    pass_reply(context: Context, reply: *mut CallReply) =>
        RedisModule_ReplyWithCallReply(context.raw, reply);
    free_reply(reply: *mut CallReply) => RedisModule_FreeCallReply(reply);

    // Blocked clients.
    reply_context(client: *mut Client) -> *mut raw::RedisModuleCtx, or null_mut() =>
        RedisModule_GetThreadSafeContext(client);
    free_reply_context(context: *mut raw::RedisModuleCtx) => RedisModule_FreeThreadSafeContext(context);
    abort_block(client: *mut Client) => RedisModule_AbortBlock(client);
    unblock(client: *mut Client, data: *mut c_void) => RedisModule_UnblockClient(client, data);
    when_disconnected(client: *mut Client, callback: raw::RedisModuleDisconnectFunc) =>
        RedisModule_SetDisconnectCallback(client, callback);

    // INFO.
    info_number(info: *mut Info, field: &CStr, error: &mut c_int) -> u64, or 0 =>
        RedisModule_ServerInfoGetFieldUnsigned(info, field.as_ptr(), error);
    info_text(info: *mut Info, field: &CStr) -> *const c_char, or null() =>
        RedisModule_ServerInfoGetFieldC(info, field.as_ptr());
    free_info(context: Context, info: *mut Info) => RedisModule_FreeServerInfo(context.raw, info);
    add_info_section(info: *mut InfoSection) => RedisModule_InfoAddSection(info, null());
    add_info_text(info: *mut InfoSection, field: &CStr, text: &CStr) =>
        RedisModule_InfoAddFieldCString(info, field.as_ptr(), text.as_ptr());
    add_info_number(info: *mut InfoSection, field: &CStr, number: u64) =>
        RedisModule_InfoAddFieldULongLong(info, field.as_ptr(), number);

    // Descriptions of commands.
    describe_command(command: *mut Command, description: &raw::RedisModuleCommandInfo) -> c_int, or ERR =>
        RedisModule_SetCommandInfo(command, description);
    set_categories(command: *mut Command, categories: &CStr) -> c_int, or OK =>
        RedisModule_SetCommandACLCategories(command, categories.as_ptr());

    // Settings.
    register_number(
        context: Context, name: &CStr, default: c_longlong, flags: c_uint, min: c_longlong, max: c_longlong,
        get: raw::RedisModuleConfigGetNumericFunc, set: raw::RedisModuleConfigSetNumericFunc, data: *mut c_void
    ) -> c_int, or ERR =>
        RedisModule_RegisterNumericConfig(context.raw, name.as_ptr(), default, flags, min, max, get, set, None, data);
    register_string(
        context: Context, name: &CStr, default: &CStr, flags: c_uint, get: raw::RedisModuleConfigGetStringFunc,
        set: raw::RedisModuleConfigSetStringFunc, data: *mut c_void
    ) -> c_int, or ERR =>
        RedisModule_RegisterStringConfig(context.raw, name.as_ptr(), default.as_ptr(), flags, get, set, None, data);
    register_switch(
        context: Context, name: &CStr, default: c_int, flags: c_uint, get: raw::RedisModuleConfigGetBoolFunc,
        set: raw::RedisModuleConfigSetBoolFunc, data: *mut c_void
    ) -> c_int, or ERR =>
        RedisModule_RegisterBoolConfig(context.raw, name.as_ptr(), default, flags, get, set, None, data);
    register_choice(
        context: Context, name: &CStr, default: c_int, flags: c_uint, names: &mut [*const c_char; 3],
        numbers: &[c_int; 3], get: raw::RedisModuleConfigGetEnumFunc,
        set: raw::RedisModuleConfigSetEnumFunc, data: *mut c_void
    ) -> c_int, or ERR => RedisModule_RegisterEnumConfig(
        context.raw, name.as_ptr(), default, flags, names.as_mut_ptr(), numbers.as_ptr(), 3, get, set, None, data
    );
}

/// A server string that the module created or holds a counted reference to. Dropping this frees it.
pub struct OwnedString(NonNull<Word>);

// SAFETY: the server counts references without atomics. The reference is taken, read and released by the thread that holds the
// server's lock: in commands, in callbacks of the server, and in its timers.
unsafe impl Send for OwnedString {}

impl OwnedString {
    /// Creates a string. The server copies the bytes.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        NonNull::new(create_string(bytes)).map(Self)
    }

    /// Adds a reference to an argument.
    pub fn hold(word: Arg<'_>) -> Option<Self> {
        NonNull::new(hold_string(word)).map(Self)
    }

    /// Appends bytes in place. The string must have no other owner, and must have been created with more than 44 bytes: the server embeds
    /// shorter ones in their objects.
    pub fn append(&mut self, bytes: &[u8]) {
        // SAFETY: the string lives as long as this, and nothing borrows its bytes.
        unsafe { append_to_string(self.0.as_ptr(), bytes) };
    }

    /// Borrows the string.
    pub fn arg(&self) -> Arg<'_> {
        Arg { raw: self.0.as_ptr(), command: PhantomData }
    }
}

impl Drop for OwnedString {
    fn drop(&mut self) {
        // SAFETY: this owns one reference, which is released once.
        unsafe { free_string(self.0.as_ptr()) };
    }
}

/// The server's reply to a command that the module called. Dropping this frees it.
pub struct Reply(NonNull<raw::RedisModuleCallReply>);

impl Reply {
    /// Calls GET. Returns `None` if the server returns no reply.
    pub fn to_get(context: Context, key: Arg<'_>) -> Option<Self> {
        NonNull::new(call_get(context, key)).map(Self)
    }

    /// Calls SET, with a time to live in milliseconds if there is one, and replicates it.
    pub fn to_set(context: Context, key: Arg<'_>, value: Arg<'_>, lives: Option<u64>) -> Option<Self> {
        let reply = match lives.map(|lives| i64::try_from(lives).unwrap_or(i64::MAX)) {
            Some(lives) => call_set_px(context, key, value, lives),
            None => call_set(context, key, value),
        };
        NonNull::new(reply).map(Self)
    }

    /// Calls CLUSTER INFO.
    pub fn to_cluster_info(context: Context) -> Option<Self> {
        NonNull::new(call_cluster_info(context)).map(Self)
    }

    /// Calls MODULE LIST.
    pub fn to_module_list(context: Context) -> Option<Self> {
        NonNull::new(call_module_list(context)).map(Self)
    }

    /// The type of the reply, as the server numbers types.
    pub fn sort(&self) -> isize {
        // SAFETY: the reply lives as long as this.
        unsafe { reply_type(self.0.as_ptr()) as isize }
    }

    /// Its text; empty unless it is a string.
    pub fn bytes(&self) -> &[u8] {
        self.whole().bytes()
    }

    /// Its elements, if it is an array.
    pub fn elements(&self) -> impl Iterator<Item = Element<'_>> {
        self.whole().elements()
    }

    fn whole(&self) -> Element<'_> {
        Element { raw: self.0, reply: PhantomData }
    }

    /// Sends the reply to the client.
    pub fn pass(&self, context: Context) {
        // SAFETY: the reply lives as long as this.
        unsafe { pass_reply(context, self.0.as_ptr()) };
    }
}

/// A reply, or one of its elements.
#[derive(Clone, Copy)]
pub struct Element<'a> {
    raw: NonNull<CallReply>,
    reply: PhantomData<&'a Reply>,
}

impl<'a> Element<'a> {
    /// Its text; empty unless it is a string.
    pub fn bytes(self) -> &'a [u8] {
        let mut length = 0;
        // SAFETY: the reply lives as long as `'a`. The server returns null unless the reply is a string.
        unsafe {
            let text = reply_string(self.raw.as_ptr(), &mut length);
            if text.is_null() { &[] } else { std::slice::from_raw_parts(text.cast(), length) }
        }
    }

    /// Its elements, if it is an array.
    pub fn elements(self) -> impl Iterator<Item = Self> {
        // SAFETY: the reply lives as long as `'a`, and its elements with it. The server returns null after the last element.
        let element = move |index| NonNull::new(unsafe { reply_element(self.raw.as_ptr(), index) });
        (0..).map_while(element).map(|raw| Self { raw, reply: PhantomData })
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: the reply is ours, and freed once.
        unsafe { free_reply(self.0.as_ptr()) };
    }
}
