//! The partial file, which gets its final name when it is complete. It is removed if the run fails, or if SIGINT or SIGTERM ends
//! it. After SIGKILL the next run overwrites it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// A file without its final name.
#[derive(Clone)]
pub struct Partial(Arc<Mutex<Option<PathBuf>>>);

impl Partial {
    /// Creates the file with `open`. Signals are already caught before it exists.
    ///
    /// # Errors
    /// Those of `open`; the thread that waits for signals cannot be started.
    pub fn create(path: &Path, open: impl FnOnce(&Path) -> Result<File>) -> Result<(Self, File)> {
        let partial = Self(Arc::default());
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let caught = partial.clone();
        // A thread, because the run may be blocked on a server or on input when a signal arrives.
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                // The lock keeps the file from being created or renamed meanwhile.
                let mut path = caught.path();
                remove(&mut path);
                // Ends the process as the signal would.
                _ = emulate_default_handler(signal);
            }
        })?;
        let mut made = partial.path();
        let file = open(path)?;
        *made = Some(path.to_owned());
        drop(made);
        Ok((partial, file))
    }

    /// Gives the file its final name.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub fn rename(&self, name: &Path) -> io::Result<()> {
        let mut path = self.path();
        if let Some(from) = &*path {
            fs::rename(from, name)?;
        }
        *path = None;
        Ok(())
    }

    /// Removes the file, unless it has its final name.
    pub fn remove(&self) {
        remove(&mut self.path());
    }

    fn path(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove(path: &mut Option<PathBuf>) {
    // The failure that led here is reported; a failure to remove the file is not.
    _ = path.take().map(fs::remove_file);
}
