//! The figures at the end of a run: a name, a right-aligned figure and what it means, a line each.

use std::fmt::Display;
use std::io::{self, Write};

/// Lines of figures, printed in one go.
#[derive(Default)]
pub struct Report {
    text: String,
}

impl Report {
    /// Adds a line. `remark` may be empty.
    pub fn line(&mut self, name: &str, figure: impl Display, remark: &str) {
        let line = format!("{name:<22}{:>12}   {remark}", figure.to_string());
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Prints the lines. A reader that went away (`| head`) is no error.
    pub fn print(&self) -> io::Result<()> {
        print(&self.text)
    }
}

/// Prints a text. A reader that went away (`| head`) is no error.
pub fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// `share` (0.0 to 1.0) as a percentage with two digits that count, as in 0.97%, 1%, 12%, 0.000031%.
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
    fn percentages_keep_two_digits_that_count() {
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
