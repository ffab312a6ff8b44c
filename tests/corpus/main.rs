//! The corpus of the fuzz targets (`fuzz/corpus`), replayed as ordinary tests: every input is held to the laws, none makes
//! a decoder ask for more memory than it may, and the files that are named after what went wrong in other modules meet
//! the error that they should.
//!
//! The named files are made by this code. `BLOOMGATE_WRITE_CORPUS=1 cargo test --test corpus` writes them.

// All of this is test code: a panic is how a test fails.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod cases;
mod found;
#[cfg(not(feature = "module"))]
mod memory;
mod refusals;
mod replay;
mod seeds;
mod spelled;
#[path = "../../fuzz/src/lib.rs"]
mod targets;
mod words;

use std::path::PathBuf;

/// The folder of a target's inputs.
fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

/// A target's inputs, each with its name.
fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut inputs: Vec<_> = std::fs::read_dir(folder(target))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "no inputs for {target}");
    inputs
}

/// Writes a named file where that is asked for.
fn write_if_asked(target: &str, name: &str, data: &[u8]) {
    if std::env::var_os("BLOOMGATE_WRITE_CORPUS").is_some() {
        std::fs::create_dir_all(folder(target)).unwrap();
        std::fs::write(folder(target).join(name), data).unwrap();
    }
}

/// The file of this name is there and holds this input.
#[track_caller]
fn is_kept(target: &str, name: &str, data: &[u8]) {
    write_if_asked(target, name, data);
    let path = folder(target).join(name);
    assert!(std::fs::read(&path).is_ok_and(|file| file == data), "{} is not what is made here", path.display());
}
