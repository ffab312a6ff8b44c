//! The archives of found inputs: each is what is made of its inputs, and these are none that the code makes.

use std::fs;
use std::io::Read;

use flate2::read::GzDecoder;

use crate::inputs::archive::{self, ARCHIVES};
use crate::inputs::{self, targets};

#[test]
fn each_target_has_one() {
    let mut expected = vec![targets::words::NAME, "restore"];
    expected.extend(targets::DECODERS.map(|target| target.name));
    expected.sort_unstable();
    assert_eq!(ARCHIVES.map(|(target, _)| target), *expected);
}

/// The bytes before compression: those after it are the compressor's, which may find a shorter way some day.
#[test]
fn each_is_what_is_made_of_its_inputs() {
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
fn what_is_made_is_not_in_them() {
    for (target, _) in ARCHIVES {
        let made = inputs::made(target);
        for (name, data) in archive::read(target).unwrap() {
            assert!(!made.contains_key(&name) && !made.values().any(|made| *made == data), "{target}/{name}");
        }
    }
}

#[test]
fn what_is_unpacked_is_found_again_and_an_input_under_a_made_name_is_refused() {
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
