//! Writes the inputs of fuzz targets into a folder for the fuzzer, and packs such a folder into an archive again.
//! `scripts/test --only fuzz` calls it. See `fuzz/README.md`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_possible_truncation)]

#[allow(dead_code, unused_imports, reason = "the tests need more of it")]
#[path = "inputs.rs"]
mod inputs;

use std::fs::File;
use std::io::{Result, Write};
use std::path::Path;
use std::process::ExitCode;

use flate2::Compression;
use flate2::write::GzEncoder;
use inputs::archive;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [task, folder, targets @ ..] = words.as_slice() else {
        eprintln!("corpus unpack|pack FOLDER TARGET...");
        return ExitCode::from(2);
    };
    let run = match task.as_str() {
        "unpack" => unpack,
        "pack" => pack,
        _ => panic!("{task} is no task"),
    };
    for target in targets {
        if let Err(fault) = run(target, &Path::new(folder).join(target)) {
            eprintln!("{task} {target}: {fault}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn unpack(target: &str, folder: &Path) -> Result<()> {
    println!("{}: {} inputs", folder.display(), archive::unpack_into(target, folder)?);
    Ok(())
}

fn pack(target: &str, folder: &Path) -> Result<()> {
    let found = archive::found_in(target, folder)?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(format!("{target}.tar.gz"));
    println!("{}: {} inputs, {} before", path.display(), found.len(), archive::read(target)?.len());
    // The header of the compressed file also has no time and no name.
    let mut file = GzEncoder::new(File::create(path)?, Compression::best());
    file.write_all(&archive::pack(found)?)?;
    file.finish()?.sync_all()
}
