//! Identifies servers, and names each legitimate difference between them that a test must know.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

use super::process::Server;
use super::resp::Connection;

/// A server's own name and version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Version {
    is_valkey: bool,
    number: (u32, u32),
}

impl Version {
    /// The output of the program's `--version`, which is read once.
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

    /// The version that a server reports in INFO.
    pub fn of_server(client: &mut Connection) -> Self {
        let text = client.run("INFO server").text();
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let (is_valkey, number) = match line("valkey_version") {
            Some(number) => (true, number),
            None => (false, line("redis_version").unwrap_or_default()),
        };
        let number = Self::number(number).unwrap_or_else(|| panic!("no version in {text}"));
        Self { is_valkey, number }
    }

    /// From `Redis server v=7.0.15 sha=...` or `Valkey server v=9.1.2 sha=...`.
    fn parse(text: &str) -> Option<Self> {
        let number = Self::number(text.split_once(" v=")?.1.split(' ').next()?)?;
        Some(Self { is_valkey: text.starts_with("Valkey"), number })
    }

    fn number(text: &str) -> Option<(u32, u32)> {
        let mut parts = text.split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    }

    /// Whether the server checks the number of arguments of commands in the append-only file, and exits if there are too
    /// few: Valkey.
    pub fn counts_words_of_files(self) -> bool {
        self.is_valkey && self.number >= (8, 1)
    }

    /// The format of a double in RESP2: with 17 digits by Redis 7.0, as the shortest decimal that parses back by all
    /// others.
    pub fn double(self, number: f64) -> String {
        match number.abs() {
            _ if !self.is_valkey && self.number < (7, 2) => with_17_digits(number),
            1e-6.. => format!("{number}"),
            _ => format!("{number:e}"),
        }
    }

    /// Whether a module's commands can be in `@read` and `@write`.
    pub fn puts_module_commands_in_categories(self) -> bool {
        self.number >= (7, 2)
    }

    /// Whether a module can add a category, such as `@bloom`.
    pub fn has_categories_of_modules(self) -> bool {
        self.number >= if self.is_valkey { (8, 0) } else { (7, 4) }
    }

    /// Whether ACL CAT lists a module's commands. Redis 7.4.1 and Valkey 8.0.1 omit them, although the permissions work.
    pub fn lists_module_commands_in_categories(self) -> bool {
        self.number >= if self.is_valkey { (8, 1) } else { (8, 0) }
    }

    /// Whether a script that calls a command gets only an error if the reply is an array that contains it: Valkey 9.1.
    pub fn cuts_arrays_in_scripts(self) -> bool {
        self.is_valkey && self.number >= (9, 1)
    }

    /// Whether the guard is notified of every change of a key: not on Valkey 8.1 and 9.0, where the subscription would move clients to
    /// other databases.
    pub fn reports_every_change(self) -> bool {
        !self.is_valkey || !((8, 1)..(9, 1)).contains(&self.number)
    }

    /// CLUSTER MIGRATESLOTS, which moves slots to another node atomically: Valkey 9.
    pub fn migrates_slots(self) -> bool {
        self.is_valkey && self.number >= (9, 0)
    }
}

/// Whether a server was built with active defragmentation, that is, with its own jemalloc.
pub fn defragments(program: &Path) -> bool {
    Server::with(program).without_module().line("activedefrag yes").try_start().is_ok()
}

/// Formats a number like C's `%.17g`.
fn with_17_digits(number: f64) -> String {
    let text = format!("{number:.16e}");
    let (digits, exponent) = text.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    let short = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    if (-4..17).contains(&exponent) {
        return short(&format!("{number:.*}", (16 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(digits), exponent.abs())
}

#[test]
fn doubles_are_formatted_like_the_servers() {
    let spelled = [
        (0.5, "0.5", "0.5"),
        (0.05, "0.050000000000000003", "0.05"),
        (0.9, "0.90000000000000002", "0.9"),
        (0.0001, "0.0001", "0.0001"),
        (0.00001, "1.0000000000000001e-05", "0.00001"),
        (1e-30, "1.0000000000000001e-30", "1e-30"),
    ];
    for (number, redis_7_0, others) in spelled {
        assert_eq!(Version { is_valkey: false, number: (7, 0) }.double(number), redis_7_0);
        assert_eq!(Version { is_valkey: false, number: (7, 2) }.double(number), others);
        assert_eq!(Version { is_valkey: true, number: (7, 2) }.double(number), others);
    }
}

#[test]
fn servers_are_recognised_by_their_version_output() {
    let version = |text| Version::parse(text).map(|version| (version.is_valkey, version.number));
    assert_eq!(version("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0"), Some((false, (7, 0))));
    assert_eq!(version("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64"), Some((true, (9, 1))));
    assert_eq!(version("no server at all"), None);
}
