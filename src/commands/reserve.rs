//! `BF.RESERVE key error_rate capacity [option ...]`

use bloomgate_filter::words::{Command, Creation, reserve};

use super::adding;
use crate::args::Args;
use crate::clock::CommandClock;
use crate::config;
use crate::context::{Context, LogLevel};
use crate::keys::{Keyspace, Stored, WriteKey};
use crate::replicate::NewItems;
use crate::reply::{self, Refusal};
use crate::server::ceiling::machine_bytes;

/// Creates an empty filter.
pub fn run(context: Context, mut args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let clock = CommandClock::default();
    let parsed = reserve::parse(args.words(), &config::defaults(context));
    super::redact_key(context, &mut args, Command::Reserve);
    let creation = parsed?;
    let name = args.arg(1)?;
    let mut key = WriteKey::open(keys, name)?;
    if key.exists()? {
        // Two RedisBloom clients may have reserved the same filter.
        reply::error(context, Refusal::Exists);
        return Ok(());
    }
    let created = match adding::create(context, &creation, &clock) {
        Err(refusal) if context.must_obey() && is_beyond_this_machine(context, &creation, refusal) => {
            let line = format_args!("bloomgate: ignoring a reservation larger than this machine's memory: {refusal}");
            context.log(LogLevel::Warning, line);
            reply::error(context, refusal);
            return Ok(());
        }
        created => created?,
    };
    let reserved = Stored::reserve()?;
    created.propagate(context, name, &NewItems::none());
    let expires = created.expires();
    created.install(&mut key, reserved);
    key.close_changed(&[(true, c"bloom.reserve"), (expires, c"expire")]);
    reply::ok(context);
    Ok(())
}

/// Whether a filter of RedisBloom's layout cannot be created because it is larger than this machine's memory. RedisBloom 2.6 propagates
/// reservations that it refused, so a server that must obey ignores this one. If the primary did create the filter, no item is lost:
/// the next add finds no key and creates a filter.
fn is_beyond_this_machine(context: Context, creation: &Creation, refusal: Refusal) -> bool {
    let asked_bytes = if let Refusal::Filter(error) = refusal { error.asked_bytes() } else { None };
    creation.spec.is_redisbloom() && asked_bytes.is_some_and(|asked| asked > machine_bytes(context))
}
