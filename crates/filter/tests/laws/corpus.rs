//! The inputs of the fuzz targets, replayed as ordinary tests. Every input keeps the laws, no input makes a decoder allocate more memory
//! than allowed, every error has an input that causes it, and the archives hold the inputs that fuzzing found.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;

use bloomgate_filter::Value;
use bloomgate_filter::arguments::Refusal;
use bloomgate_filter::format::Error;
use flate2::read::GzDecoder;

use crate::allocator::measure;
use crate::inputs;
use crate::inputs::archive::{self, ARCHIVES};
use crate::inputs::spelled::{Native, RedisBloom, ValkeyBloom};
use crate::inputs::targets::words::{self, Parsed};
use crate::inputs::targets::{
    self, CEILING_BYTES, NATIVE_DUMP, NATIVE_SNAPSHOT, REDISBLOOM_CUCKOO, REDISBLOOM_DUMP, REDISBLOOM_SNAPSHOT,
};
use crate::inputs::targets::{Target, VALKEY_BLOOM_LOAD, VALKEY_BLOOM_SNAPSHOT};

/// A test for each kind of input that is generated.
mod made {
    macro_rules! tests {
        ($($file:ident: $($kind:ident)*;)*) => {$(
            mod $file {
                $(
                    #[test]
                    fn $kind() {
                        crate::inputs::$file::$kind(&Default::default());
                    }
                )*
            }
        )*};
    }
    crate::inputs::for_each_kind!(tests);
}

/// The distance between replayed inputs: larger under miri, which is slow.
const STEP: usize = if cfg!(miri) { 29 } else { 1 };

/// Replays all inputs of a target: each keeps the laws. Decoding may request a few times the size of the input, because the input is copied
/// and a few bytes may describe a layer, and also the memory that a header may announce. Large layers begin at a page, which takes up to
/// 4095 bytes for each 256 KiB. Refused requests count as well.
fn replay(target: Target, may_announce: bool) {
    let announced = if may_announce { CEILING_BYTES + CEILING_BYTES / 64 } else { 0 };
    let mut highest = (0, String::new());
    for (name, data) in inputs::of(target.name).into_iter().step_by(STEP) {
        println!("{}/{name}", target.name);
        let peak = measure(|| drop((target.decode)(&data))).bytes_max;
        assert!(peak <= announced + 5 * data.len() as u64, "{name} of {} bytes asks for {peak}", data.len());
        highest = highest.max((peak, name));
        (target.check)(&data);
    }
    println!("{}: at most {} bytes, by {}", target.name, highest.0, highest.1);
}

#[test]
fn native_snapshots_and_dumps_keep_the_laws() {
    replay(NATIVE_SNAPSHOT, true);
    replay(NATIVE_DUMP, true);
}

#[test]
fn redisbloom_snapshots_and_dumps_keep_the_laws() {
    replay(REDISBLOOM_SNAPSHOT, false);
    replay(REDISBLOOM_DUMP, true);
    replay(REDISBLOOM_CUCKOO, true);
}

#[test]
fn valkey_bloom_snapshots_and_loads_keep_the_laws() {
    replay(VALKEY_BLOOM_SNAPSHOT, false);
    replay(VALKEY_BLOOM_LOAD, false);
}

/// Words are parsed in place. Only the name of a command, which the target writes in capital letters, and load-time arguments make the
/// parsers allocate texts: for a refusal, and for arguments without effect.
#[test]
fn command_words_keep_the_laws() {
    for (name, data) in inputs::of(words::NAME).into_iter().step_by(STEP) {
        println!("{name}");
        let (defaults, parts) = words::of(&data);
        let mut outcome = None;
        let peak = measure(|| outcome = Some(words::parsed(&parts, &defaults))).bytes_max;
        let texts = matches!(outcome, Some(Parsed::LoadTime(_) | Parsed::LoadTimeRefused(_)));
        let allowed = if texts { 1000 + 30 * data.len() as u64 } else { 100 };
        assert!(peak <= allowed, "{name} of {} bytes asks for {peak}", data.len());
        words::check(&data);
    }
}

/// Filters of every kind and many shapes, in the formats of old releases too, and filters that are arriving.
#[test]
fn sound_inputs_are_accepted() {
    for target in targets::DECODERS {
        let inputs = archive::read(target.name).unwrap();
        let sound = inputs.iter().filter(|(name, _)| name.starts_with("whole-") || name.starts_with("arriving-"));
        let mut count = 0;
        for (name, data) in sound {
            let outcome = (target.decode)(data);
            let is_whole = matches!(outcome.value, Some(Value::Filter(_) | Value::Cuckoo(_)));
            assert_eq!((is_whole, outcome.refused), (name.starts_with("whole-"), None), "{}/{name}", target.name);
            count += 1;
        }
        assert!(count >= 10, "{}: {count}", target.name);
    }
}

/// Inputs are sound as long as no field is changed.
#[test]
fn unchanged_inputs_are_sound() {
    let spelled = [
        (NATIVE_SNAPSHOT, Native::default().snapshot()),
        (NATIVE_DUMP, Native::default().dump()),
        (REDISBLOOM_SNAPSHOT, RedisBloom::default().snapshot()),
        (REDISBLOOM_DUMP, RedisBloom::default().dump()),
        (VALKEY_BLOOM_SNAPSHOT, ValkeyBloom::default().snapshot()),
        (VALKEY_BLOOM_LOAD, ValkeyBloom::default().load()),
    ];
    for (target, data) in spelled {
        let outcome = (target.decode)(&data);
        assert!(matches!(outcome.value, Some(Value::Filter(_))) && outcome.refused.is_none(), "{}", target.name);
        (target.check)(&data);
    }
}

/// The inputs of each target cause exactly these errors. Inputs of valkey-bloom's layout arrive as a whole, so one that is too large here
/// causes no error of memory.
#[test]
fn every_error_of_a_decoder_has_an_input() {
    let own = "Truncated Overlong UnknownVersion UnknownHash OutOfRange WrongLength NotADump Unsound AboveCeiling";
    let name = |error: Error| {
        let shown = match error {
            Error::Filter(error) => format!("{error:?}"),
            error => format!("{error:?}"),
        };
        shown.split([' ', '(']).next().unwrap().to_owned()
    };
    for (target, errors) in [
        (NATIVE_SNAPSHOT, format!("{own} UnknownKind")),
        (NATIVE_DUMP, format!("{own} WrongChecksum WrongGeneration WrongOrder Different")),
        (REDISBLOOM_SNAPSHOT, "Truncated UnknownVersion OutOfRange Unsound AboveCeiling".to_owned()),
        (
            REDISBLOOM_DUMP,
            "Truncated UnknownVersion NotADump OutOfRange WrongLength Gap BeyondEnd TooLong Different Unsound AboveCeiling"
                .to_owned(),
        ),
        (VALKEY_BLOOM_SNAPSHOT, "Truncated UnknownVersion OutOfRange WrongLength Unsound".to_owned()),
        (VALKEY_BLOOM_LOAD, "Truncated UnknownVersion OutOfRange WrongLength Unsound".to_owned()),
    ] {
        let inputs = inputs::of(target.name);
        let met: BTreeSet<_> = inputs.iter().filter_map(|(_, data)| (target.decode)(data).refused).map(name).collect();
        assert_eq!(met, errors.split_whitespace().map(str::to_owned).collect(), "{}", target.name);
    }
}

/// The missing refusals are about the key, the filter or the data.
#[test]
fn every_refusal_of_words_has_an_input() {
    let inputs = inputs::of(words::NAME);
    let is_met = |command: Option<&str>, wanted: Refusal| {
        inputs.iter().any(|(_, data)| {
            let of_command =
                command.is_none_or(|command| words::of(data).1[0].eq_ignore_ascii_case(command.as_bytes()));
            of_command && words::parse(data) == Parsed::Refused(wanted)
        })
    };
    assert!(is_met(None, Refusal::Arity));
    let of_filters = ["BF.RESERVE", "BF.INSERT", "BF.INFO", "BF.SCANDUMP", "BF.LOADCHUNK", "BF.ROTATE"];
    let of_the_guard = ["BF.FETCH", "BF.MFETCH", "BF.MCHANGED", "BF.FILL"];
    for command in of_filters.into_iter().chain(of_the_guard) {
        let refusals = words::refusals_of(command.as_bytes());
        assert!(!refusals.is_empty());
        for refusal in refusals {
            assert!(is_met(Some(command), *refusal), "{command}: {refusal:?}");
        }
    }
}

#[test]
fn each_target_has_an_archive() {
    let mut expected = vec![words::NAME, "restore"];
    expected.extend(targets::DECODERS.map(|target| target.name));
    expected.sort_unstable();
    assert_eq!(ARCHIVES.map(|(target, _)| target), *expected);
}

/// Compares the bytes before compression, because the compressor may change.
#[test]
fn each_archive_is_packed_from_its_inputs_none_of_which_is_generated() {
    for (target, compressed) in ARCHIVES {
        let mut decoder = GzDecoder::new(compressed);
        let header = decoder.header().unwrap();
        assert_eq!((header.mtime(), header.filename()), (0, None), "{target}: no time and no name");
        let mut bytes = Vec::new();
        decoder.read_to_end(&mut bytes).unwrap();
        assert!(bytes == archive::pack(archive::read(target).unwrap()).unwrap(), "{target}");
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
