//! The options of a guard match clients/specification/options.json, with its defaults and its ranges.

use std::time::Duration;

use bloomgate_client::{Client, Durability, Error, Guard, GuardOptions};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Listed {
    name: String,
    least: Option<u64>,
    most: Option<u64>,
    default: Value,
}

fn listed() -> Vec<Listed> {
    #[derive(Deserialize)]
    struct Content {
        options: Vec<Listed>,
    }
    let text = include_str!("../../../../clients/specification/options.json");
    serde_json::from_str::<Content>(text).unwrap().options
}

/// Returns the option in the form of the list, or `None` if this crate has no such option.
fn value(options: &GuardOptions, name: &str) -> Option<Value> {
    let ms = |time: Duration| json!(u64::try_from(time.as_millis()).unwrap());
    Some(match name {
        "ttl" => ms(options.ttl),
        "absent_ttl" => ms(options.absent_ttl),
        "lease" => ms(options.lease),
        "wait" => ms(options.wait),
        "attempts" => json!(options.attempts),
        "fail_safe" => ms(options.fail_safe),
        "beta" => json!(options.beta as u64),
        "feed" => json!(options.feed),
        "fresh" => ms(options.fresh),
        "patience" => ms(options.patience),
        "prefix" => json!(options.prefix),
        "announce_to" => json!(options.announce_to),
        "replicas" => json!(options.durability.replicas),
        "replicas_timeout" => ms(options.durability.timeout),
        "aof" => json!(options.durability.aof),
        // `soft_timeout` is an argument of a call.
        "soft_timeout" | "near" => return None,
        other => panic!("unknown option {other}"),
    })
}

/// Creates a guard with a number as the value of an option.
fn with(name: &str, number: u64) -> Result<(), Error> {
    let (ms, default) = (Duration::from_millis(number), GuardOptions::default());
    let durability = default.durability.clone();
    let options = match name {
        "ttl" => GuardOptions { ttl: ms, ..default },
        "absent_ttl" => GuardOptions { absent_ttl: ms, ..default },
        "lease" => GuardOptions { lease: ms, ..default },
        "wait" => GuardOptions { wait: ms, ..default },
        "attempts" => GuardOptions { attempts: u32::try_from(number).unwrap(), ..default },
        "fail_safe" => GuardOptions { fail_safe: ms, ..default },
        "beta" => GuardOptions { beta: number as f64, ..default },
        "patience" => GuardOptions { patience: ms, ..default },
        "fresh" => GuardOptions { fresh: ms, feed: true, lease: Duration::from_millis(1), ..default },
        "replicas" => GuardOptions {
            durability: Durability { replicas: u32::try_from(number).unwrap(), ..durability },
            ..default
        },
        "replicas_timeout" => GuardOptions { durability: Durability { timeout: ms, ..durability }, ..default },
        "soft_timeout" => default,
        other => panic!("unknown option {other}"),
    };
    // No server listens at this address, so rows are read from the database.
    let guard = Guard::new(&Client::open("redis://127.0.0.1:1").unwrap(), "users", options)?;
    if name == "soft_timeout" {
        guard.get_with_soft_timeout(17, ms, |_| Ok::<_, String>(None))?;
    } else if name == "ttl" {
        guard.get_with_ttl(17, ms, |_| Ok::<_, String>(None))?;
    }
    Ok(())
}

#[test]
fn options_have_the_ranges_and_the_defaults_of_the_list() {
    let mut ranges = 0;
    for Listed { name, least, most, default } in listed() {
        if let Some(value) = value(&GuardOptions::default(), &name) {
            assert_eq!(value, default, "{name}");
        }
        let (Some(least), Some(most)) = (least, most) else { continue };
        ranges += 1;
        for number in [least, most] {
            assert!(with(&name, number).is_ok(), "{name}: {number}");
        }
        for number in [least.checked_sub(1), Some(most + 1)].into_iter().flatten() {
            let refused = with(&name, number);
            let Err(Error::Refused(text)) = &refused else { panic!("{name}: {number}: {refused:?}") };
            let names_range = [&name, &least.to_string(), &most.to_string()].iter().all(|word| text.contains(*word));
            assert!(names_range, "{text}");
        }
    }
    assert_eq!(ranges, 12);
    assert!(with("lease", 2 * 3_600_000).is_err(), "the server refuses it, and would never cache a row");
    for (fresh_ms, feed) in [(5000, false), (2999, true)] {
        let options = GuardOptions { fresh: Duration::from_millis(fresh_ms), feed, ..GuardOptions::default() };
        assert!(Guard::new(&Client::open("redis://127.0.0.1:1").unwrap(), "users", options).is_err(), "{fresh_ms}");
    }
    for beta in [f64::NAN, f64::INFINITY, -1.0] {
        let options = GuardOptions { beta, ..GuardOptions::default() };
        assert!(Guard::new(&Client::open("redis://127.0.0.1:1").unwrap(), "users", options).is_err(), "{beta}");
    }
}
