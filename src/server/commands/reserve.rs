//! `BF.RESERVE key error_rate capacity [EXPANSION e] [NONSCALING] [SEED s] [LAYOUT native | redisbloom]`

use super::adding;
use crate::bloom::Error;
use crate::server::args::Args;
use crate::server::ceiling::machine_bytes;
use crate::server::config;
use crate::server::context::{Context, LogLevel};
use crate::server::key::Key;
use crate::server::replicate::{self, NewItems};
use crate::server::reply::{self, Refusal};
use crate::words::{Creation, Kind, reserve};

/// Creates an empty filter.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let creation = reserve::parse(args.words(), &config::usual(context))?;
    let name = args.word(1)?;
    let mut key = Key::write(context, name);
    if key.stored()?.is_some() {
        return Err(Refusal::Exists);
    }
    let mut stored = match adding::create(context, &creation) {
        Err(refusal) if context.must_obey() && is_beyond_this_machine(context, &creation, refusal) => {
            let line =
                format_args!("bloomgate: a reservation beyond all memory of this machine is passed over: {refusal}");
            context.log(LogLevel::Warning, line);
            reply::error(context, refusal);
            return Ok(());
        }
        created => created?,
    };
    replicate::created(context, name, stored.filter()?, &NewItems::new());
    key.install(stored);
    key.close_changed().notify(c"bloom.reserve");
    reply::ok(context);
    Ok(())
}

/// Whether a filter like RedisBloom's cannot be created because it is larger than all memory of this machine. RedisBloom 2.6
/// carries the reservations that it refused, so this one does not end a server that must obey. No item is lost where the
/// primary has more memory than this machine: those to come find no key and create a filter.
fn is_beyond_this_machine(context: Context, creation: &Creation, refusal: Refusal) -> bool {
    matches!(refusal, Refusal::Filter(Error::OutOfMemory { asked_bytes, .. })
        if creation.kind == Kind::RedisBloom && asked_bytes > machine_bytes(context))
}
