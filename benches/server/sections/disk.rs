//! The disk itself: writing and reading as many bytes as a snapshot has, for comparison with saving and loading.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

/// Bytes per write.
const PIECE: usize = 1 << 20;

/// Copies a file next to itself, to the disk and not only to the cache; the copy is removed.
pub fn seconds_to_write(file: &Path) -> Result<f64> {
    let mut piece = vec![0; PIECE];
    let copy = file.with_extension("copy");
    // Read into the cache first, so that only writing is measured.
    seconds_to_read(file)?;
    let start = Instant::now();
    let mut from = File::open(file).with_context(|| file.display().to_string())?;
    let mut to = File::create(&copy)?;
    loop {
        let length = from.read(&mut piece)?;
        if length == 0 {
            break;
        }
        to.write_all(&piece[..length])?;
    }
    to.sync_all()?;
    let seconds = start.elapsed().as_secs_f64();
    fs::remove_file(&copy)?;
    Ok(seconds)
}

/// Reads a file to its end.
pub fn seconds_to_read(file: &Path) -> Result<f64> {
    let mut piece = vec![0; PIECE];
    let start = Instant::now();
    let mut from = File::open(file).with_context(|| file.display().to_string())?;
    while from.read(&mut piece)? > 0 {}
    Ok(start.elapsed().as_secs_f64())
}

/// Makes the system drop what it has cached of the disk, if this program may (root on Linux).
pub fn forget_cache() -> bool {
    let _ = Command::new("sync").output();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// What a reader must know about the reading times.
pub fn note() -> &'static str {
    if forget_cache() {
        "The system's cache of the disk was emptied before loading and before reading."
    } else {
        "The system's cache of the disk could not be emptied (that needs root on Linux): loading and reading are from \
         memory."
    }
}
