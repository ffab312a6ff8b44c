//! The functions that the server calls for commands, and the replies to refused commands. The `unsafe` code here converts the server's
//! pointers to arguments; the commands themselves have none.

use std::ffi::c_int;

use bloomgate_filter::arguments;

use crate::args::{Arg, Args};
use crate::context::{Context, OK, Origin};
use crate::keys::Keyspace;
use crate::reply::{self, Refusal};

/// Runs a command: replies, or returns a refusal without any change.
pub type Run = fn(Context, Args<'_>, &mut Keyspace) -> Result<(), Refusal>;

/// Returns the function that the server calls for a command. With `effect`, for commands that primaries propagate, the command receives
/// its origin.
macro_rules! handler {
    ($run:path) => {
        handler!($crate::commands::dispatch::dispatch, $run)
    };
    (effect $run:path) => {{
        unsafe extern "C" fn handle(
            context: *mut redis_module::raw::RedisModuleCtx,
            argv: *mut *mut redis_module::raw::RedisModuleString,
            argc: std::ffi::c_int,
        ) -> std::ffi::c_int {
            let context = $crate::context::Context::new(context);
            let origin = $crate::server::role::origin(context);
            // SAFETY: as below. The words are read again only after the command has ended.
            unsafe {
                if let Err(refusal) = $run(context, origin, $crate::args::Args::new(argv, argc), &mut $crate::keys::Keyspace::new(context)) {
                    $crate::commands::dispatch::refuse_command(context, origin, &$crate::args::Args::new(argv, argc), refusal);
                }
            }
            $crate::context::OK
        }
        Some(handle)
    }};
    ($dispatch:path, $run:path) => {{
        unsafe extern "C" fn handle(
            context: *mut redis_module::raw::RedisModuleCtx,
            argv: *mut *mut redis_module::raw::RedisModuleString,
            argc: std::ffi::c_int,
        ) -> std::ffi::c_int {
            let context = $crate::context::Context::new(context);
            // SAFETY: the server calls this function with its context and the words of a command, which live until it returns. No
            // key is open yet.
            let (args, mut keys) = unsafe { ($crate::args::Args::new(argv, argc), $crate::keys::Keyspace::new(context)) };
            $dispatch(context, args, &mut keys, $run)
        }
        Some(handle)
    }};
}

/// Runs a command.
#[inline]
pub fn dispatch(context: Context, args: Args<'_>, keys: &mut Keyspace, run: Run) -> c_int {
    if let Err(refusal) = run(context, args, keys) {
        reply::error(context, refusal);
    }
    OK
}

/// Like [`refuse`], with the command and the key in the log.
#[cold]
pub fn refuse_command(context: Context, origin: Origin, args: &Args<'_>, refusal: Refusal) {
    if origin.is_effect() {
        let word = |index| args.arg(index).map_or(&[][..], Arg::bytes).escape_ascii();
        context.abort_replication(format_args!("{} {}: {refusal}", word(0), word(1)));
    }
    reply::error(context, refusal);
}

pub(super) use handler;

/// Replies with an error, or ends the server if the command is an effect: the primary has applied it, so this server's filter would
/// differ. RedisBloom and valkey-bloom propagate a few commands that they refused; callers handle these.
pub fn refuse(context: Context, origin: Origin, refusal: Refusal) {
    if origin.is_effect() {
        context.abort_replication(refusal);
    }
    reply::error(context, refusal);
}

/// Replies with an error to a client. A primary and the AOF get no error, because RedisBloom and valkey-bloom propagate refused items, and
/// no data is lost. Otherwise the server would log an error as critical, count it in `unexpected_error_replies`, and exit if
/// `propagation-error-behavior` is `panic`.
pub fn refuse_as_primary(context: Context, origin: Origin, refusal: Refusal) {
    if origin.is_effect() {
        reply::ok(context);
    } else {
        reply::error(context, refusal);
    }
}

/// Redacts the secret key of a filter, if the arguments contain one, in SLOWLOG and MONITOR. Call it after parsing: on Valkey 8.1 the
/// command can no longer read the redacted argument.
///
/// Nothing is redacted while the server reads its AOF: SLOWLOG and MONITOR do not show those commands, and the server would keep the
/// arguments of the first redacted command and crash at the second one.
pub fn redact_key(context: Context, origin: Origin, args: &mut Args<'_>, command: arguments::Command) {
    if origin != Origin::Aof
        && let Some(position) = arguments::key_position(command, args.words())
    {
        args.redact(context, position);
    }
}
