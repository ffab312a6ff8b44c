//! `BF.LOAD key data`
//!
//! A command of valkey-bloom, which its AOF consists of.

use bloomgate_filter::Filter;
use bloomgate_filter::kinds::valkey_bloom::load;

use crate::args::Args;
use crate::context::Context;
use crate::keys::{Keyspace, Stored, WriteKey};
use crate::replicate;
use crate::reply::{self, Refusal};
use crate::server::ceiling::ServerCeiling;

/// Creates a filter of valkey-bloom's layout from its serialized form.
pub fn run(context: Context, args: Args<'_>, keys: &mut Keyspace) -> Result<(), Refusal> {
    let data = args.arg(2)?.bytes();
    let mut key = WriteKey::open(keys, args.arg(1)?)?;
    if key.exists()? {
        return Err(Refusal::LoadExists);
    }
    let filter = load::decode(data, &ServerCeiling::of(context)).map_err(Refusal::Load)?;
    key.install(Stored::boxed(Filter::boxed(filter)?.into())?);
    replicate::verbatim(context);
    key.close_changed(&[(true, c"bloom.reserve")]);
    reply::ok(context);
    Ok(())
}
