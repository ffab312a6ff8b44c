//! Opens and writes files. A new file gets its name only when it is complete and synced to the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::archive::Writer;
use crate::archive::catalogue::Catalogue;
use crate::server::usage;

const BUFFER_BYTES: usize = 1 << 18;

/// A file that is being written.
pub struct Output {
    /// The name, or `None` for the standard output.
    path: Option<PathBuf>,
    /// The partial file, unless the output is not a regular file.
    partial: Option<Partial>,
    writer: Writer<BufWriter<File>>,
}

impl Output {
    /// Creates a file; `-` is the standard output.
    pub fn create(path: &Path, packs: bool, made_at_ms: u64) -> Result<Self> {
        let (path, partial, file) = if path == Path::new("-") {
            if io::stdout().is_terminal() {
                return Err(usage("will not write binary data to a terminal: use -o FILE or redirect the output"));
            }
            (None, None, File::from(io::stdout().as_fd().try_clone_to_owned()?))
        } else {
            // Follows links, so that the file is replaced and not the link.
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let is_special = fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file());
            if is_special {
                let file = OpenOptions::new().write(true).open(&path).with_context(|| cannot_write(&path))?;
                (Some(path), None, file)
            } else {
                let written_to = partial_of(&path)?;
                let (partial, file) = Partial::create(&written_to, open).with_context(|| cannot_write(&written_to))?;
                (Some(path), Some(partial), file)
            }
        };
        let begun = Writer::begin(BufWriter::with_capacity(BUFFER_BYTES, file), packs, made_at_ms);
        let name = path.as_deref().unwrap_or(Path::new("the standard output")).to_owned();
        let writer = begun.inspect_err(|_| remove(partial.as_ref())).with_context(|| cannot_write(&name))?;
        Ok(Self { path, partial, writer })
    }

    /// Whether the output is the standard output. No other text may be printed there then.
    pub const fn is_stdout(&self) -> bool {
        self.path.is_none()
    }

    /// Writes the contents with `fill` and gives the file its name. If that fails, the file is removed. Returns the result of
    /// `fill` and the length in bytes.
    pub fn fill<T>(mut self, verifies: bool, fill: impl FnOnce(&mut Archive<'_>) -> Result<T>) -> Result<(T, u64)> {
        let partial = self.partial.clone();
        let name = self.name();
        let filled = fill(&mut Archive { writer: &mut self.writer, name: &name });
        let done = filled.and_then(|done| Ok((done, self.finish(verifies)?)));
        done.inspect_err(|_| remove(partial.as_ref()))
    }

    fn finish(self, verifies: bool) -> Result<u64> {
        let name = self.name();
        let (file, bytes) = self.writer.finish().with_context(|| cannot_write(&name))?;
        let mut file =
            file.into_inner().map_err(io::IntoInnerError::into_error).with_context(|| cannot_write(&name))?;
        // Only regular files can be synced.
        if self.path.is_some() && file.metadata()?.is_file() {
            file.sync_all().with_context(|| cannot_write(&name))?;
        }
        if verifies {
            file.seek(SeekFrom::Start(0)).with_context(|| format!("cannot read {}", name.display()))?;
            let read = Catalogue::of(BufReader::with_capacity(BUFFER_BYTES, file));
            let catalogue = read.with_context(|| format!("{} was not written correctly", name.display()))?;
            ensure!(catalogue.file_bytes == bytes, "{} has a different length than was written", name.display());
        }
        if let (Some(path), Some(partial)) = (&self.path, &self.partial) {
            partial.rename(path).with_context(|| cannot_write(path))?;
            // Syncs the new name, too.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder).and_then(|folder| folder.sync_all()).with_context(|| cannot_write(path))?;
        }
        Ok(bytes)
    }

    fn name(&self) -> PathBuf {
        self.path.clone().unwrap_or_else(|| PathBuf::from("the standard output"))
    }
}

/// Writes the contents of a file.
pub struct Archive<'a> {
    writer: &'a mut Writer<BufWriter<File>>,
    name: &'a Path,
}

impl Archive<'_> {
    /// Calls `write` with the writer and adds the file's name to its error.
    pub fn put(&mut self, write: impl FnOnce(&mut Writer<BufWriter<File>>) -> io::Result<()>) -> Result<()> {
        write(self.writer).with_context(|| cannot_write(self.name))
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn remove(partial: Option<&Partial>) {
    _ = partial.map(Partial::remove);
}

fn partial_of(path: &Path) -> Result<PathBuf> {
    let mut name = path.file_name().ok_or_else(|| anyhow!("{} is not a file name", path.display()))?.to_owned();
    name.push(".partial");
    Ok(path.with_file_name(name))
}

/// Opens a partial file, which only its owner may read, because filters may contain secret keys. Overwrites the file of a killed run. Fails
/// if another run is writing the file.
fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).read(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    if let Err(fs::TryLockError::WouldBlock) = file.try_lock() {
        bail!("another bloomgate process is writing it");
    }
    file.set_len(0)?;
    Ok(file)
}

/// A file that can be read several times.
pub struct Input {
    file: File,
    name: String,
}

impl Input {
    /// Opens a file; `-` is the standard input, which is copied to a temporary file.
    pub fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            if io::stdin().is_terminal() {
                return Err(usage("cannot read filters from a terminal: name a file"));
            }
            return Self::spooled(io::stdin(), "the standard input".to_owned());
        }
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
        let metadata = file.metadata().with_context(|| format!("cannot read {name}"))?;
        ensure!(!metadata.is_dir(), "cannot read {name}: it is a folder");
        // A pipe can be read only once.
        if metadata.is_file() { Ok(Self { file, name }) } else { Self::spooled(file, name) }
    }

    fn spooled(mut source: impl Read, name: String) -> Result<Self> {
        let mut file = tempfile::tempfile().context("cannot create a temporary file")?;
        io::copy(&mut source, &mut file).with_context(|| format!("cannot copy {name} to a temporary file"))?;
        Ok(Self { file, name })
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its length, in bytes.
    pub fn length(&self) -> Option<u64> {
        self.file.metadata().ok().map(|metadata| metadata.len())
    }

    /// Returns a reader at the beginning of the file.
    pub fn read(&mut self) -> Result<BufReader<&File>> {
        self.file.seek(SeekFrom::Start(0)).with_context(|| format!("cannot read {}", self.name))?;
        Ok(BufReader::with_capacity(BUFFER_BYTES, &self.file))
    }
}

// The partial file, which gets its final name when it is complete. It is removed if the run fails, or if SIGINT or SIGTERM ends
// it. After SIGKILL the next run overwrites it.

/// A file without its final name.
#[derive(Clone)]
pub struct Partial(Arc<Mutex<Option<PathBuf>>>);

impl Partial {
    /// Creates the file with `open`, after installing the signal handlers.
    pub fn create(path: &Path, open: impl FnOnce(&Path) -> Result<File>) -> Result<(Self, File)> {
        let partial = Self(Arc::default());
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let caught = partial.clone();
        // A thread, because the run may be blocked on a server or on input when a signal arrives.
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                // The lock prevents other processes from creating or renaming the file.
                let mut path = caught.path();
                delete(&mut path);
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

    /// Renames the file to its final name.
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
        delete(&mut self.path());
    }

    fn path(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn delete(path: &mut Option<PathBuf>) {
    // The failure that led here is reported; a failure to remove the file is not.
    _ = path.take().map(fs::remove_file);
}
