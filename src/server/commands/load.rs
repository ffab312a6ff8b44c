//! `BF.LOAD key data`
//!
//! A command of valkey-bloom's: its AOF is made of it.

use crate::bloom::Filter;
use crate::format::valkey_bloom;
use crate::server::args::Args;
use crate::server::ceiling::ServerCeiling;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::replicate;
use crate::server::reply::{self, Refusal};
use crate::server::stored::Stored;

/// Creates a filter of valkey-bloom's layout, as it was.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let data = args.word(2)?.bytes();
    let mut key = Key::write(context, args.word(1)?);
    if key.stored()?.is_some() {
        return Err(Refusal::LoadExists);
    }
    let filter = valkey_bloom::decode_load(data, &ServerCeiling(context)).map_err(Refusal::Load)?;
    key.install(Stored::boxed(Filter::boxed(filter)?.into())?);
    replicate::verbatim(context);
    key.close_changed().notify(c"bloom.reserve");
    reply::ok(context);
    Ok(())
}
