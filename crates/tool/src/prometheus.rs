//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

/// The content type.
pub const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics in the order in which they are written.
#[derive(Default)]
pub struct Metrics(String);

impl Metrics {
    /// Starts a metric. `kind` is `counter` or `gauge`. Its samples follow.
    pub fn describe(&mut self, name: &str, kind: &str, help: &str) {
        // Writing into a string does not fail.
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample. `labels` has the form `name="value",name="value"`, with [`escaped`] values.
    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        _ = if labels.is_empty() {
            writeln!(self.0, "{name} {value}")
        } else {
            writeln!(self.0, "{name}{{{labels}}} {value}")
        };
    }

    /// Returns the text.
    pub fn text(self) -> String {
        self.0
    }
}

/// Escapes backslashes, quotes and line feeds in the value of a label.
pub fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_as_the_format_requires() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
