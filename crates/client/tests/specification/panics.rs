//! What no case covers, because other languages have no panics: a caller's function that panics leaves no lease and no
//! unconfirmed change behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use bloomgate_client::{Client, Guard, GuardOptions};

use crate::scripted::Scripted;
use crate::steps::PATIENCE;
use crate::words::{Reply, Word, command_matches};

/// Runs a call that panics while the server replies to these commands.
fn panics(call: impl FnOnce(&Guard) + Send, exchange: &[(&str, &str)]) {
    let server = Scripted::start();
    let client = Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
    let guard = Guard::new(&client, "users", GuardOptions { beta: 0.0, ..GuardOptions::default() }).unwrap();
    thread::scope(|scope| {
        let calling = scope.spawn(|| catch_unwind(AssertUnwindSafe(|| call(&guard))));
        for (expected, reply) in exchange {
            let arrival = server.next(PATIENCE).expect("a command");
            let (expected, reply): (Vec<Word>, Reply) =
                (serde_json::from_str(expected).unwrap(), serde_json::from_str(reply).unwrap());
            assert_eq!(command_matches(&expected, &arrival.words), Ok(true), "{}", arrival.shown());
            arrival.connection.answer(&arrival, &reply).unwrap();
        }
        assert!(calling.join().unwrap().is_err(), "the panic reaches the caller");
    });
}

#[test]
fn a_load_that_panics_gives_its_lease_up() {
    panics(
        |guard| drop(guard.get(17, |_| -> Result<_, String> { panic!("a bug") })),
        &[
            (r#"["BF.FETCH", "users", "17", "{users}:17", "LEASE", "3000"]"#, r#"["load", {"token": "a"}]"#),
            (r#"["BF.FILL", "users", "17", "{users}:17", {"token": "a"}, "GIVEUP"]"#, r#"{"ok": "OK"}"#),
        ],
    );
}

#[test]
fn a_change_that_panics_is_confirmed() {
    panics(
        |guard| drop(guard.changed([17], || -> Result<(), String> { panic!("a bug") })),
        &[
            (r#"["BF.CHANGED", "users", "17", "{users}:17"]"#, "false"),
            (r#"["BF.CHANGED", "users", "17", "{users}:17"]"#, "false"),
        ],
    );
}
