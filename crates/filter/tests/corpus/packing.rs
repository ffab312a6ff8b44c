//! The archives of found inputs: each is packed from its inputs, none of which is generated.

use std::fs;
use std::io::Read;

use flate2::read::GzDecoder;

use crate::inputs::archive::{self, ARCHIVES};
use crate::inputs::{self, targets};

#[test]
fn each_target_has_an_archive() {
    let mut expected = vec![targets::words::NAME, "restore"];
    expected.extend(targets::DECODERS.map(|target| target.name));
    expected.sort_unstable();
    assert_eq!(ARCHIVES.map(|(target, _)| target), *expected);
}

/// Compares the bytes before compression, because the compressor may change.
#[test]
fn each_archive_is_packed_from_its_inputs() {
    for (target, compressed) in ARCHIVES {
        let mut decoder = GzDecoder::new(compressed);
        let header = decoder.header().unwrap();
        assert_eq!((header.mtime(), header.filename()), (0, None), "{target}: no time and no name");
        let mut bytes = Vec::new();
        decoder.read_to_end(&mut bytes).unwrap();
        assert!(bytes == archive::pack(archive::read(target).unwrap()).unwrap(), "{target}");
    }
}

#[test]
fn archives_hold_no_generated_inputs() {
    for (target, _) in ARCHIVES {
        let made = inputs::made(target);
        for (name, data) in archive::read(target).unwrap() {
            assert!(!made.contains_key(&name) && !made.values().any(|made| *made == data), "{target}/{name}");
        }
    }
}

#[test]
fn unpacked_inputs_are_found_and_names_of_generated_ones_are_refused() {
    for (target, _) in ARCHIVES {
        let folder = tempfile::tempdir().unwrap();
        let count = archive::unpack_into(target, folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), count);
        let mut found = archive::found_in(target, folder.path()).unwrap();
        found.sort();
        assert_eq!(found, archive::read(target).unwrap(), "{target}");
        if let Some(name) = inputs::made(target).keys().next() {
            fs::write(folder.path().join(name), "other bytes").unwrap();
            assert!(archive::found_in(target, folder.path()).is_err(), "{target}/{name}");
        }
    }
}
