//! A table, which is printed as Markdown, and the file of all tables.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::statistics::Samples;

/// The content of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A number with this many significant digits.
    Number(f64, usize),
    /// A count, written in full.
    Count(u64),
    /// Not measured, or not known.
    Empty,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

/// A number with three significant digits, or an empty cell.
impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.filter(|number| number.is_finite()).map_or(Self::Empty, |number| Self::Number(number, 3))
    }
}

impl Cell {
    fn plain(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number, digits) => significant(*number, *digits),
            Self::Count(count) => count.to_string(),
            Self::Empty => String::new(),
        }
    }

    fn markdown(&self) -> String {
        match self {
            Self::Text(text) => text.replace('|', "\\|"),
            Self::Number(..) | Self::Count(_) => grouped(&self.plain()),
            Self::Empty => "-".to_owned(),
        }
    }
}

/// The median, minimum and maximum of some rounds, as three cells.
pub fn summary(samples: &Samples) -> [Cell; 3] {
    let spread = samples.spread();
    [samples.median().into(), spread.map(|(low, _)| low).into(), spread.map(|(_, high)| high).into()]
}

/// A table with its title and notes for the reader.
#[derive(Clone, Debug)]
pub struct Table {
    /// The title.
    pub title: String,
    /// Descriptions of the measurement, one paragraph each.
    pub notes: Vec<String>,
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        Self { title: title.to_owned(), notes: Vec::new(), columns, rows: Vec::new() }
    }

    /// Adds a paragraph.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds a row; missing cells stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let mut cells: Vec<Cell> = cells.into_iter().collect();
        cells.resize(self.columns.len(), Cell::Empty);
        self.rows.push(cells);
    }

    /// Formats it as Markdown, with numbers aligned to the right.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("## {}\n\n", self.title);
        for note in &self.notes {
            text += &format!("{note}\n\n");
        }
        let mut lines = vec![self.columns.clone()];
        lines.extend(self.rows.iter().map(|row| row.iter().map(Cell::markdown).collect()));
        let is_words = |column: usize| self.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Text(_))));
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0).max(4))
            .collect();
        for (number, line) in lines.iter().enumerate() {
            text += "|";
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                text += &if is_words(column) { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") };
            }
            text += "\n";
            if number == 0 {
                text += "|";
                for (column, width) in widths.iter().enumerate() {
                    let dashes = "-".repeat(width - 1);
                    text += &if is_words(column) { format!(" {dashes}- |") } else { format!(" {dashes}: |") };
                }
                text += "\n";
            }
        }
        text
    }
}

/// The output: each table is printed as soon as it is complete, and all of them are in one file.
pub struct Results {
    file: PathBuf,
    text: String,
}

impl Results {
    /// Creates results that begin with these lines.
    pub const fn new(file: PathBuf, head: String) -> Self {
        Self { file, text: head }
    }

    /// Adds a table: prints it and writes it.
    pub fn table(&mut self, table: &Table) -> Result<()> {
        let text = table.to_markdown();
        println!("{text}");
        self.text += &format!("\n{text}");
        fs::write(&self.file, &self.text).with_context(|| format!("cannot write {}", self.file.display()))
    }
}

/// Formats a number with this many significant digits, without an exponent; digits before the decimal point are never dropped.
pub fn significant(number: f64, digits: usize) -> String {
    if number == 0.0 || !number.is_finite() {
        return if number == 0.0 { "0".to_owned() } else { number.to_string() };
    }
    let magnitude = number.abs().log10().floor() as i64;
    let decimals = (digits as i64 - 1 - magnitude).clamp(0, 12) as usize;
    format!("{number:.decimals$}")
}

/// Formats a number with commas between thousands.
fn grouped(number: &str) -> String {
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, rest)| (whole, Some(rest)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |rest| ("-", rest));
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    fraction.map_or_else(|| format!("{sign}{text}"), |fraction| format!("{sign}{text}.{fraction}"))
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_significant_digits() {
        let cases =
            [(0.012_345, "0.0123"), (1.5, "1.50"), (21.53, "21.5"), (32_612.4, "32612"), (0.0, "0"), (-2.0, "-2.00")];
        for (number, text) in cases {
            assert_eq!(significant(number, 3), text);
        }
    }

    #[test]
    fn thousands_are_grouped_in_front_of_the_point_only() {
        let cases = [("1", "1"), ("100", "100"), ("1000", "1,000"), ("-1234567.1234", "-1,234,567.1234")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn a_table_is_aligned_markdown() {
        let mut table = Table::new("Title", &["what", "us"]);
        table.note("A note.");
        table.row(["a | \"b\", c".into(), Cell::Number(1234.5, 5)]);
        table.row(["gone".into()]);
        let markdown = table.to_markdown();
        assert!(markdown.starts_with("## Title\n\nA note.\n\n| what "), "{markdown}");
        assert!(markdown.contains("| a \\| \"b\", c | 1,234.5 |"), "{markdown}");
        assert!(markdown.lines().all(|line| !line.starts_with('|') || line.chars().count() == 25), "{markdown}");
    }

    #[test]
    fn rounds_become_three_cells() {
        let samples: Samples = [3.0, 1.0, 2.0].into_iter().collect();
        assert_eq!(summary(&samples), [2.0, 1.0, 3.0].map(|number| Cell::Number(number, 3)));
        assert_eq!(summary(&Samples::new()), [Cell::Empty, Cell::Empty, Cell::Empty]);
    }
}
