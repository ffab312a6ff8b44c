//! Prints to the standard output: figures at the end of a run, one per line, and other texts. It is not an error if the reader
//! exits (`| head`).

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::HumanCount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Prints a text. Returns whether the reader still exists.
pub fn print(text: &str) -> io::Result<bool> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true),
    }
}

/// Waits until `until`, or until the reader of the standard output exits. Returns whether the reader still exists.
pub fn wait_with_reader(until: Instant) -> io::Result<bool> {
    let stdout = io::stdout();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return Ok(true);
        }
        // With no requested events, poll returns only if the reader has exited, or on an error.
        let mut outputs = [PollFd::new(&stdout, PollFlags::empty())];
        match poll(&mut outputs, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The number of names that [`some`] lists.
const NAMES_SHOWN: usize = 5;

/// Lists the first names, and how many more there are.
pub fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMES_SHOWN);
    let first = names.iter().take(NAMES_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {} more", HumanCount(more as u64)) }
}

/// Formats `share` (0.0 to 1.0) as a percentage with two significant digits: 0.97%, 1%, 12%, 0.000031%.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let mut digits = 0;
    let mut scaled = percent;
    while scaled > 0.0 && scaled < 9.95 && digits < 12 {
        scaled *= 10.0;
        digits += 1;
    }
    let text = format!("{percent:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_cut_short() {
        let names: Vec<_> = (0..7).map(|number| format!("k{number}")).collect();
        assert_eq!(some(&names[..2]), "k0, k1");
        assert_eq!(some(&names), "k0, k1, k2, k3, k4 and 2 more");
    }

    #[test]
    fn percentages_have_two_significant_digits() {
        let cases = [
            (0.0, "0%"),
            (0.01, "1%"),
            (0.00971, "0.97%"),
            (0.000_000_314, "0.000031%"),
            (0.1234, "12%"),
            (0.999_99, "100%"),
            (1.0, "100%"),
            (1e-12, "0.0000000001%"),
        ];
        for (share, text) in cases {
            assert_eq!(percent(share), text);
        }
    }
}
