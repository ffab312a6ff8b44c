//! Which server a program is, and in what servers differ by right: each difference that a test has to know of has a name
//! here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

/// A server's own name and version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Version {
    is_valkey: bool,
    number: (u32, u32),
}

impl Version {
    /// What the program says of itself; it is asked once.
    pub fn of(program: &Path) -> Self {
        static KNOWN: LazyLock<Mutex<HashMap<PathBuf, Version>>> = LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *known.entry(program.to_owned()).or_insert_with(|| {
            let output = Command::new(program).arg("--version").output();
            let output = output.unwrap_or_else(|fault| panic!("{} does not start: {fault}", program.display()));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Self::parse(&text).unwrap_or_else(|| panic!("{} says of itself: {text:?}", program.display()))
        })
    }

    /// From `Redis server v=7.0.15 sha=...` or `Valkey server v=9.1.2 sha=...`.
    fn parse(text: &str) -> Option<Self> {
        let number = text.split_once(" v=")?.1.split(' ').next()?;
        let mut parts = number.split('.').map(str::parse);
        let number = (parts.next()?.ok()?, parts.next()?.ok()?);
        Some(Self { is_valkey: text.starts_with("Valkey"), number })
    }

    /// CLUSTER MIGRATESLOTS, which carries slots to another node in one go: Valkey 9.
    pub fn migrates_slots(self) -> bool {
        self.is_valkey && self.number >= (9, 0)
    }
}

#[test]
fn programs_are_told_apart_by_what_they_say() {
    let version = |text| Version::parse(text).map(|version| (version.is_valkey, version.number));
    assert_eq!(version("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0"), Some((false, (7, 0))));
    assert_eq!(version("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64"), Some((true, (9, 1))));
    assert_eq!(version("no server at all"), None);
}
