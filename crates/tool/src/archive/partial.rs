//! The file that is written until it is whole and gets its name. It is removed if the run fails, or SIGINT or SIGTERM ends it;
//! what SIGKILL leaves is overwritten by the next run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// A file without its name.
#[derive(Clone)]
pub struct Partial(Arc<Mutex<Option<PathBuf>>>);

impl Partial {
    /// Creates the file by `open`. Signals are caught from before that on.
    ///
    /// # Errors
    /// Those of `open`; no thread can wait for signals.
    pub fn create(path: &Path, open: impl FnOnce(&Path) -> Result<File>) -> Result<(Self, File)> {
        let partial = Self(Arc::default());
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let caught = partial.clone();
        // A thread, because the run may be waiting for a server or for input at that moment.
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                // While the lock is held, the file is not created and does not get its name.
                let mut path = caught.path();
                remove(&mut path);
                // Ends the process as the signal does.
                _ = emulate_default_handler(signal);
            }
        })?;
        let mut made = partial.path();
        let file = open(path)?;
        *made = Some(path.to_owned());
        drop(made);
        Ok((partial, file))
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn rename(&self, name: &Path) -> io::Result<()> {
        let mut path = self.path();
        if let Some(from) = &*path {
            fs::rename(from, name)?;
        }
        *path = None;
        Ok(())
    }

    /// Removes the file, unless it has its name.
    pub fn remove(&self) {
        remove(&mut self.path());
    }

    fn path(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove(path: &mut Option<PathBuf>) {
    // The reason why it is removed is reported; that it cannot be removed is not.
    _ = path.take().map(fs::remove_file);
}
