//! Every error of a decoder, and of the words of commands, has an input that causes it, and unchanged inputs cause none.

use std::collections::BTreeSet;

use bloomgate_filter::Value;
use bloomgate_filter::format::Error;
use bloomgate_filter::words::Refusal;

use crate::inputs;
use crate::inputs::spelled::{Native, RedisBloom, ValkeyBloom};
use crate::inputs::targets::words::{self, Parsed};
use crate::inputs::targets::{NATIVE_DUMP, NATIVE_SNAPSHOT, REDISBLOOM_DUMP, REDISBLOOM_SNAPSHOT, Target};
use crate::inputs::targets::{VALKEY_BLOOM_LOAD, VALKEY_BLOOM_SNAPSHOT};

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

/// Checks that the inputs of a target cause exactly these errors.
#[track_caller]
fn meets(target: Target, errors: &str) {
    let name = |error: Error| {
        let shown = match error {
            Error::Filter(error) => format!("{error:?}"),
            error => format!("{error:?}"),
        };
        shown.split([' ', '(']).next().unwrap().to_owned()
    };
    let inputs = inputs::of(target.name);
    let met: BTreeSet<_> = inputs.iter().filter_map(|(_, data)| (target.decode)(data).refused).map(name).collect();
    assert_eq!(met, errors.split_whitespace().map(str::to_owned).collect(), "{}", target.name);
}

#[test]
fn of_native_snapshots() {
    let of_fields = "Truncated UnknownVersion UnknownKind UnknownHash OutOfRange WrongLength NotADump";
    meets(NATIVE_SNAPSHOT, &format!("{of_fields} Overlong Unsound AboveCeiling"));
}

#[test]
fn of_native_dumps() {
    let of_fields = "Truncated Overlong UnknownVersion UnknownHash OutOfRange WrongLength NotADump";
    let of_records = "WrongChecksum WrongGeneration WrongOrder Different";
    meets(NATIVE_DUMP, &format!("{of_fields} {of_records} Unsound AboveCeiling"));
}

#[test]
fn of_redisbloom_snapshots() {
    meets(REDISBLOOM_SNAPSHOT, "Truncated UnknownVersion OutOfRange Unsound AboveCeiling");
}

#[test]
fn of_redisbloom_dumps() {
    let of_records = "WrongLength Gap BeyondEnd TooLong Different";
    meets(REDISBLOOM_DUMP, &format!("Truncated NotADump OutOfRange {of_records} Unsound AboveCeiling"));
}

/// An input that is too large here arrives as a whole, so no error of memory occurs.
#[test]
fn of_valkey_bloom_snapshots_and_loads() {
    for target in [VALKEY_BLOOM_SNAPSHOT, VALKEY_BLOOM_LOAD] {
        meets(target, "Truncated UnknownVersion OutOfRange WrongLength Unsound");
    }
}

/// The missing refusals are about the key, the filter or the data.
#[test]
fn every_refusal_of_words() {
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
