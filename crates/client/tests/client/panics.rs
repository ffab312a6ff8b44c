//! Not covered by the cases, because other languages have no panics: after a caller's function has panicked, no lease and no
//! unconfirmed change is left.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use bloomgate_client::{Client, Guard, GuardOptions};

use crate::PATIENCE;
use crate::scripted::Scripted;

/// Runs a call that panics while the server replies to these commands.
fn panics(fail_safe: Duration, call: impl FnOnce(&Guard) + Send, exchange: &[(&str, &str)]) {
    let server = Scripted::start();
    let client = Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
    let guard = Guard::new(&client, "users", GuardOptions { beta: 0.0, fail_safe, ..GuardOptions::default() }).unwrap();
    thread::scope(|scope| {
        let calling = scope.spawn(|| catch_unwind(AssertUnwindSafe(|| call(&guard))));
        for (expected, reply) in exchange {
            let arrival = server.next(PATIENCE).expect("a command");
            assert_eq!(arrival.command, *expected);
            arrival.answer(reply);
        }
        assert!(calling.join().unwrap().is_err(), "the panic reaches the caller");
    });
}

#[test]
fn a_panicking_load_gives_up_its_lease() {
    panics(
        Duration::ZERO,
        |guard| drop(guard.get(17, |_| -> Result<_, String> { panic!("a bug") })),
        &[
            ("BF.FETCH users 17 {users}:17", "*2\r\n$4\r\nload\r\n$5\r\ntoken\r\n"),
            ("BF.FILL users 17 {users}:17 token GIVEUP", "+OK\r\n"),
        ],
    );
}

#[test]
fn a_panicking_load_begins_a_back_off() {
    panics(
        Duration::from_secs(60),
        |guard| drop(guard.get(17, |_| -> Result<_, String> { panic!("a bug") })),
        &[
            ("BF.FETCH users 17 {users}:17 STALE 60000", "*2\r\n$4\r\nload\r\n$5\r\ntoken\r\n"),
            ("BF.FILL users 17 {users}:17 token GIVEUP BACKOFF", "+OK\r\n"),
        ],
    );
}

#[test]
fn a_change_that_panics_is_confirmed() {
    panics(
        Duration::ZERO,
        |guard| drop(guard.changed([17], || -> Result<(), String> { panic!("a bug") })),
        &[("BF.CHANGED users 17 {users}:17", ":0\r\n"), ("BF.CHANGED users 17 {users}:17", ":0\r\n")],
    );
}
