//! What a guard logs.

use std::sync::Mutex;

use bloomgate_client::{Client, Guard, GuardOptions};
use log::{LevelFilter, Log, Metadata, Record};

/// Keeps the warnings of all guards of this program.
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
    // Nobody listens there.
    let client = Client::open("redis://127.0.0.1:1").unwrap();
    let guard = Guard::new(&client, "logged", GuardOptions::default()).unwrap();
    for id in 0..3 {
        assert_eq!(guard.get(id, |_| Ok::<_, String>(None)).unwrap(), None);
    }
    let warnings = KEPT.0.lock().unwrap();
    let warnings: Vec<_> = warnings.iter().filter(|text| text.starts_with("the guard of logged: ")).collect();
    assert!(matches!(warnings.as_slice(), [one] if one.contains("a command failed")), "{warnings:?}");
}
