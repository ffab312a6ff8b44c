//! Restores one filter: loads it under a temporary key, compares it, and renames it.

use std::io::Read;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use redis::{Pipeline, cmd, from_redis_value};

use super::chosen::Chosen;
use super::place;
use crate::archive::{Contents, Event, How, Reader};
use crate::filters::contents;
use crate::report::counted;
use crate::server::{Server, shown};
use crate::signals::Signals;

/// The time to live of the temporary key, in case the run is killed.
pub const ABANDONED_AFTER: Duration = Duration::from_secs(600);
const ABANDONED_AFTER_MS: u64 = 600_000;
/// The time to live is renewed at this interval.
const RENEWED_AFTER: Duration = Duration::from_secs(60);
/// A key with a shorter time to live could expire before it is renamed.
const TTL_MS_MIN: u64 = 1000;

/// A filter that is being loaded.
pub struct Loading<'a> {
    chosen: &'a Chosen<'a>,
    replace: bool,
    temporary: Vec<u8>,
    /// The payload for RESTORE, as far as it has been read.
    payload: Vec<u8>,
    renewed: Option<Instant>,
}

impl<'a> Loading<'a> {
    /// Begins to load a filter. With `replace`, deletes what an earlier run left under the temporary key.
    ///
    /// # Errors
    /// The server's error.
    pub fn begin(chosen: &'a Chosen<'a>, replace: bool, server: &mut Server) -> Result<Self> {
        let temporary = place::beside(&chosen.target);
        if replace {
            server.ask(cmd("DEL").arg(&temporary), &temporary)?;
        }
        Ok(Self { chosen, replace, temporary, payload: Vec::new(), renewed: None })
    }

    /// Loads the whole filter and renames it. Returns its contents on the server.
    ///
    /// # Errors
    /// The file is damaged; the server's error; the loaded filter differs from the file; a signal has arrived.
    pub fn all(&mut self, reader: &mut Reader<impl Read>, server: &mut Server, signals: &Signals) -> Result<Contents> {
        loop {
            signals.check()?;
            match reader.next()? {
                Event::Part(iterator, data) => self.part(iterator, data, server)?,
                Event::FilterEnd(_) => break,
                Event::Filter(_) | Event::FilterVoid | Event::End => bail!("the file changed after it was checked"),
            }
        }
        if self.chosen.entry.head.how == How::Dump {
            let payload = std::mem::take(&mut self.payload);
            let mut restore = cmd("RESTORE");
            restore.arg(&self.temporary).arg(ABANDONED_AFTER_MS).arg(payload);
            server.ask(&restore, &self.temporary)?;
        }
        let contents = contents(&server.ask(cmd("BF.INFO").arg(&self.temporary), &self.temporary)?)?;
        self.compare(contents)?;
        self.put_in_place(server)?;
        Ok(contents)
    }

    fn part(&mut self, iterator: u64, data: Vec<u8>, server: &mut Server) -> Result<()> {
        if self.chosen.entry.head.how == How::Dump {
            if self.payload.is_empty() {
                self.payload.try_reserve_exact(usize::try_from(self.chosen.entry.bytes)?)?;
            }
            self.payload.extend(data);
            return Ok(());
        }
        let mut commands = Pipeline::new();
        commands.cmd("BF.LOADCHUNK").arg(&self.temporary).arg(iterator).arg(data);
        if self.renewed.is_none_or(|renewed| renewed.elapsed() > RENEWED_AFTER) {
            commands.cmd("PEXPIRE").arg(&self.temporary).arg(ABANDONED_AFTER_MS);
            self.renewed = Some(Instant::now());
        }
        server.ask_all(&mut commands, &self.temporary).map(|_| ())
    }

    /// Compares the loaded filter with the file. A filter that changed during its dump is not compared, because its contents may
    /// be of any moment of the dump. A filter that forgets may have fewer items by now.
    fn compare(&self, now: Contents) -> Result<()> {
        let (head, recorded) = (&self.chosen.entry.head, self.chosen.entry.after);
        if head.before != recorded {
            return Ok(());
        }
        let shape = |contents: Contents| (contents.capacity, contents.layers);
        let is_same = if head.kind == "windowed" {
            now.items <= recorded.items
        } else {
            now.items == recorded.items && shape(now) == shape(recorded)
        };
        ensure!(
            is_same,
            "the server has {} in {}, the file has {} in {}",
            counted(now.items, "item"),
            counted(now.layers, "layer"),
            counted(recorded.items, "item"),
            counted(recorded.layers, "layer")
        );
        Ok(())
    }

    fn put_in_place(&self, server: &mut Server) -> Result<()> {
        let (temporary, target) = (&self.temporary, &self.chosen.target);
        match self.chosen.entry.head.ttl_ms {
            Some(ttl_ms) => server.ask(cmd("PEXPIRE").arg(temporary).arg(ttl_ms.max(TTL_MS_MIN)), temporary)?,
            None => server.ask(cmd("PERSIST").arg(temporary), temporary)?,
        };
        if self.replace {
            server.ask(cmd("RENAME").arg(temporary).arg(target), temporary)?;
            return Ok(());
        }
        let renamed: i64 = from_redis_value(server.ask(cmd("RENAMENX").arg(temporary).arg(target), temporary)?)?;
        ensure!(renamed == 1, "the key `{}` was created in the meantime", shown(target));
        Ok(())
    }

    /// Deletes the temporary key. If the server does not respond, the key expires.
    pub fn abandon(&self, server: &mut Server) {
        _ = server.ask(cmd("DEL").arg(&self.temporary), &self.temporary);
    }
}
