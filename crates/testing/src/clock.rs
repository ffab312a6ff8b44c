//! Sets the wall clock of one server back or forward, as NTP or the resumption of a virtual machine does. The machine's clock is unchanged.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file with the seconds by which the clock is shifted, in the server's folder.
const SHIFT: &str = "clock";

/// Compiles the library that shifts a server's clock into the server's folder. Returns the library's path.
pub fn prepare(folder: &Path) -> PathBuf {
    let library = folder.join("clock.so");
    let source = folder.join("clock.c");
    fs::write(&source, include_str!("clock.c")).expect("the library's source is written");
    fs::write(folder.join(SHIFT), 0i64.to_ne_bytes()).expect("the shift is written");
    let done = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(done.is_ok_and(|status| status.success()), "cc compiles the library");
    library
}

/// Shifts the clock. The server has mapped the file into its memory.
pub fn shift(folder: &Path, seconds: i64) {
    let mut file = OpenOptions::new().write(true).open(folder.join(SHIFT)).expect("the file with the shift");
    file.write_all(&seconds.to_ne_bytes()).expect("the shift is written");
}
