//! `BF.LOADCHUNK key iterator data`

use crate::format::native::Value;
use crate::format::{Arriving, Progress, came_already, dump};
use crate::server::args::{self, Args};
use crate::server::ceiling::ServerCeiling;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::replicate;
use crate::server::reply::{self, Refusal};

/// Takes a record of a dump: the header creates the key, the last chunk makes it a filter. A record that came already
/// changes nothing.
pub fn run(context: Context, args: Args<'_>) -> Result<(), Refusal> {
    let iterator = args::integer(args.word(2)?.bytes()).ok_or(Refusal::BadLoadIterator)?;
    let iterator = u64::try_from(iterator).map_err(|_| Refusal::BadData)?;
    let data = args.word(3)?.bytes();
    let mut key = Key::write(context, args.word(1)?);
    let progress = match key.stored()? {
        Some(stored) => {
            let generation = stored.generation;
            let progress = match &mut stored.value {
                Value::Arriving(arriving) => arriving.accept(iterator, data),
                Value::Filter(filter) => came_already(filter, generation, iterator, data).map(|()| Progress::Known),
            };
            if progress == Ok(Progress::Complete) {
                stored.complete();
            }
            progress.map_err(Refusal::Chunk)?
        }
        None if dump::is_header(data) => {
            let arriving = Arriving::begin(iterator, data, &ServerCeiling(context)).map_err(Refusal::Chunk)?;
            key.install(Value::Arriving(Box::new(arriving)));
            Progress::Stored
        }
        // The iterator that RedisBloom's headers have.
        None if iterator == 1 => return Err(Refusal::BadData),
        None => return Err(Refusal::NotFound),
    };
    if progress != Progress::Known {
        replicate::verbatim(context);
        key.signal_changed();
    }
    reply::ok(context);
    Ok(())
}
