//! The log lines of a guard, and the text of the error about an older module.

use std::sync::Mutex;
use std::thread;

use bloomgate_client::{Client, Error, Guard, GuardOptions};
use log::{LevelFilter, Log, Metadata, Record};

use crate::PATIENCE;
use crate::scripted::Scripted;

/// Records the warnings of all guards of this program.
struct Kept(Mutex<Vec<String>>);

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

impl Log for Kept {
    fn enabled(&self, _metadata: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        if record.target().starts_with("bloomgate_client") {
            self.0.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_guard_without_its_server_warns_once_a_minute() {
    log::set_logger(&KEPT).unwrap();
    log::set_max_level(LevelFilter::Warn);
    // No server listens at this address.
    let client = Client::open("redis://127.0.0.1:1").unwrap();
    let guard = Guard::new(&client, "logged", GuardOptions::default()).unwrap();
    for id in 0..3 {
        assert_eq!(guard.get(id, |_| Ok::<_, String>(None)).unwrap(), None);
    }
    let warnings = KEPT.0.lock().unwrap();
    let warnings: Vec<_> = warnings.iter().filter(|text| text.starts_with("the guard of logged: ")).collect();
    assert!(matches!(warnings.as_slice(), [one] if one.contains("a command failed")), "{warnings:?}");
}

#[test]
fn a_module_that_rejects_an_option_is_reported_as_older() {
    let server = Scripted::start();
    let client = Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
    let guard = Guard::new(&client, "older", GuardOptions::default()).unwrap();
    let announced = thread::scope(|scope| {
        let call = scope.spawn(|| guard.announce([17]));
        server.next(PATIENCE).expect("a command").answer("-ERR syntax error\r\n");
        call.join().unwrap()
    });
    let error = announced.unwrap_err();
    assert!(matches!(error, Error::ModuleMissing { .. }), "{error:?}");
    assert!(error.to_string().contains("older than this client"), "{error}");
}
