//! A sharded filter in a backup: its shards like other filters, followed by the key with their number, so that a restore writes
//! that key last.

use anyhow::{Result, bail};
use redis::{Value, from_redis_value};

use super::parts::replies_about;
use super::{Backup, Dumped};
use crate::archive::{Contents, Head, How};
use crate::filters::is_filter;
use crate::keys::ask_of_each;
use crate::server::{Server, shown};
use crate::target::{parse_shards, shard_keys, sharded_name};

impl Backup<'_, '_> {
    /// Backs up the sharded filter whose number of shards is under `key`. Returns false if there is none.
    ///
    /// # Errors
    /// The filter is incomplete; the server's error.
    pub(super) fn take_sharded_named(&mut self, server: &mut Server, key: &[u8]) -> Result<bool> {
        let Some(name) = sharded_name(key) else { return Ok(false) };
        let Some((text, ttl_ms)) = number(server, key)? else { return Ok(false) };
        let Some(shards) = parse_shards(&text) else {
            bail!("the key `{}` holds `{}`, not a number of shards", shown(key), shown(&text));
        };
        match self.take_shards(server, key, name, shards, ttl_ms)? {
            Ok(()) => Ok(true),
            Err(reason) => bail!("the sharded filter `{}` is incomplete: {reason}", shown(name)),
        }
    }

    /// Does the same for a string found by a scan. Other strings are ignored, and an incomplete sharded filter is reported.
    pub(super) fn take_sharded_found(&mut self, server: &mut Server, key: &[u8]) -> Result<()> {
        let Some(name) = sharded_name(key) else { return Ok(()) };
        let Some((text, ttl_ms)) = number(server, key)? else { return Ok(()) };
        let Some(shards) = parse_shards(&text) else { return Ok(()) };
        let types = ask_of_each(server, &["TYPE"], &shard_keys(name, 0..shards))?;
        let types = types.into_iter().map(from_redis_value::<String>).collect::<std::result::Result<Vec<_>, _>>()?;
        if !types.iter().any(|name| is_filter(name)) {
            return Ok(());
        }
        if let Err(reason) = self.take_shards(server, key, name, shards, ttl_ms)? {
            self.skipped += 1;
            eprintln!("bloomgate: skipped `{}`, because the sharded filter is incomplete: {reason}", shown(key));
        }
        Ok(())
    }

    /// Writes the shards that are not in the file yet, and then their number, or returns why the filter is incomplete.
    fn take_shards(
        &mut self,
        server: &mut Server,
        key: &[u8],
        name: &[u8],
        shards: u32,
        ttl_ms: Option<u64>,
    ) -> Result<std::result::Result<(), String>> {
        for shard in shard_keys(name, 0..shards) {
            if !self.done.insert(shard.clone()) {
                if !self.listing.rows.iter().any(|row| row.key == shard) {
                    return Ok(Err(format!("its shard `{}` was skipped", shown(&shard))));
                }
                continue;
            }
            match self.dump(server, &shard)? {
                Dumped::Written(row) => self.listing.rows.push(row),
                Dumped::Gone => return Ok(Err(format!("its shard `{}` is missing", shown(&shard)))),
                Dumped::NoFilter(name) => {
                    return Ok(Err(format!("its shard `{}` has type {name}, not a filter", shown(&shard))));
                }
                Dumped::Loading => return Ok(Err(format!("its shard `{}` is still being loaded", shown(&shard)))),
            }
        }
        let now = number(server, key)?.and_then(|(text, _)| parse_shards(&text));
        if now != Some(shards) {
            return Ok(Err("the number of its shards changed meanwhile".to_owned()));
        }
        let head = Head {
            key: key.to_vec(),
            type_name: "string".to_owned(),
            kind: "shards".to_owned(),
            how: How::Shards,
            ttl_ms,
            before: Contents::default(),
        };
        self.archive.put(|writer| writer.filter(&head))?;
        self.archive.put(|writer| writer.part(0, shards.to_string().as_bytes()))?;
        self.archive.put(|writer| writer.filter_end(Contents::default()))?;
        self.listing.sharded.push((name.to_vec(), shards));
        Ok(Ok(()))
    }
}

/// Returns the string under a key and its time to live.
fn number(server: &mut Server, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>> {
    let mut replies = replies_about(server, key, |commands| {
        commands.cmd("GET").arg(key).cmd("PTTL").arg(key);
    })?;
    let (ttl, text) = (replies.pop().unwrap_or(Value::Nil), replies.pop().unwrap_or(Value::Nil));
    if let Value::ServerError(error) = &text {
        if error.code() == "WRONGTYPE" {
            return Ok(None);
        }
        return Err(server.describe(error.code(), error.details().unwrap_or_default(), key));
    }
    let text: Option<Vec<u8>> = from_redis_value(text)?;
    let ttl = from_redis_value::<i64>(ttl).ok().and_then(|ttl| u64::try_from(ttl).ok());
    Ok(text.map(|text| (text, ttl)))
}
