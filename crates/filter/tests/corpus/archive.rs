//! The kept inputs, which fuzzing found or earlier code made: for each target an archive in `fuzz/corpus`, written so that equal inputs
//! make an equal archive. `tool.rs` unpacks all inputs of a target into a folder, and packs such a folder again.

use std::fs;
use std::io::{Error, Read, Result};
use std::path::Path;

use flate2::read::GzDecoder;

use super::{Input, made, of};

macro_rules! archives {
    ($($target:literal)*) => {
        [$(($target, include_bytes!(concat!("../../../../fuzz/corpus/", $target, ".tar.gz")))),*]
    };
}

/// The targets, each with its archive.
pub const ARCHIVES: [(&str, &[u8]); 9] = archives!(
    "command_words" "native_dump" "native_snapshot" "redisbloom_cuckoo" "redisbloom_dump" "redisbloom_snapshot" "restore"
    "valkey_bloom_load" "valkey_bloom_snapshot"
);

/// The inputs in a target's archive.
pub fn read(target: &str) -> Result<Vec<Input>> {
    let archive = ARCHIVES.iter().find(|(name, _)| *name == target);
    let (_, archive) = archive.ok_or_else(|| Error::other("there is no such target"))?;
    let mut archive = tar::Archive::new(GzDecoder::new(*archive));
    let mut inputs = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.display().to_string();
        let mut data = Vec::new();
        entry.read_to_end(&mut data)?;
        inputs.push((name, data));
    }
    Ok(inputs)
}

/// Returns an archive of inputs before compression: sorted by name, without owners and times.
pub fn pack(mut inputs: Vec<Input>) -> Result<Vec<u8>> {
    inputs.sort();
    let mut archive = tar::Builder::new(Vec::new());
    for (name, data) in inputs {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(data.len() as u64);
        archive.append_data(&mut header, name, data.as_slice())?;
    }
    archive.into_inner()
}

/// Writes all inputs of a target into a folder, one file each.
pub fn unpack_into(target: &str, folder: &Path) -> Result<usize> {
    fs::create_dir_all(folder)?;
    let inputs = of(target);
    for (name, data) in &inputs {
        fs::write(folder.join(name), data)?;
    }
    Ok(inputs.len())
}

/// Returns the inputs in a folder, without generated ones. Fails if an input has the name of a generated input but other bytes.
pub fn found_in(target: &str, folder: &Path) -> Result<Vec<Input>> {
    let made = made(target);
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let data = fs::read(&path)?;
        match made.get(&name) {
            None => inputs.push((name, data)),
            Some(made) if *made == data => {}
            Some(_) => return Err(Error::other(format!("{}: an input of this name is made", path.display()))),
        }
    }
    Ok(inputs)
}
