//! Measures commands against variants over several rounds, next to the server's own EXISTS, and makes the table of the
//! sections on single commands.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use super::load::Measured;
use super::statistics::Samples;
use super::table::{Cell, Table, summary};
use super::variants::Variant;

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of the command and its load.
    pub command: String,
    /// The name of the filter.
    pub filter: String,
    /// The server's command for comparison.
    pub base: Base,
}

/// One of the server's own commands, which calibrates the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// EXISTS of 100 missing keys.
    Many,
    /// EXISTS of one missing key.
    One,
}

impl Base {
    const fn name(self) -> &'static str {
        match self {
            Self::Many => "EXISTS, 100 absent keys, pipeline 4",
            Self::One => "EXISTS, 1 absent key, pipeline 32",
        }
    }
}

/// Both figures of a measurement over the rounds.
#[derive(Clone, Debug, Default)]
struct Figures {
    microseconds: Samples,
    requests: Samples,
}

impl Figures {
    fn push(&mut self, measured: Measured) {
        self.microseconds.push(measured.microseconds_per_call);
        self.requests.push(measured.requests_per_second);
    }
}

/// The measurements.
pub struct Grid<'a> {
    variants: &'a [Variant],
    cases: Vec<Case>,
    figures: BTreeMap<(usize, usize), Figures>,
    /// EXISTS does not depend on modules, so all variants on one server program share its figures.
    bases: BTreeMap<(Base, String), Figures>,
}

impl<'a> Grid<'a> {
    /// Creates an empty grid.
    pub const fn new(variants: &'a [Variant], cases: Vec<Case>) -> Self {
        Self { variants, cases, figures: BTreeMap::new(), bases: BTreeMap::new() }
    }

    /// Adds a round of a case.
    pub fn push(&mut self, case: usize, variant: usize, measured: Measured) {
        self.figures.entry((case, variant)).or_default().push(measured);
    }

    /// Adds a round of the server's own command on a variant's server.
    pub fn push_base(&mut self, base: Base, variant: &Variant, measured: Measured) {
        self.bases.entry((base, variant.server.clone())).or_default().push(measured);
    }

    /// Returns the table: the server's own commands first, then each case with each variant.
    pub fn table(&self, name: &str, title: &str) -> Table {
        let mut table = Table::new(
            name,
            title,
            &[
                "command",
                "filter",
                "variant",
                "us/call",
                "least",
                "most",
                "x EXISTS",
                "x bloomgate",
                "requests/s",
                "least/s",
                "most/s",
                "x EXISTS/s",
            ],
        );
        for ((base, program), figures) in &self.bases {
            // The server program is named only if there is another one.
            let is_another = |other: &(Base, String)| other.1 != *program;
            let name = Path::new(program).file_name().map(OsStr::to_string_lossy);
            let name = name.filter(|_| !self.bases.keys().any(is_another)).unwrap_or(program.into());
            let names = [base.name().into(), Cell::Empty, format!("server's own ({name})").into()];
            table.row(cells(names, figures, None, None));
        }
        for (index, case) in self.cases.iter().enumerate() {
            let ours = self.figures.get(&(index, 0));
            for (number, variant) in self.variants.iter().enumerate() {
                let names = [case.command.as_str().into(), case.filter.as_str().into(), variant.name.as_str().into()];
                match self.figures.get(&(index, number)) {
                    None => table.row(names),
                    Some(figures) => {
                        let base = self.bases.get(&(case.base, variant.server.clone()));
                        table.row(cells(names, figures, base, ours));
                    }
                }
            }
        }
        table
    }

    /// The time inside a case's command for a variant.
    pub fn microseconds(&self, case: usize, variant: usize) -> Option<&Samples> {
        Some(&self.figures.get(&(case, variant))?.microseconds)
    }
}

fn cells(names: [Cell; 3], figures: &Figures, base: Option<&Figures>, ours: Option<&Figures>) -> Vec<Cell> {
    let ratio = |other: Option<&Figures>, of: fn(&Figures) -> &Samples| -> Cell {
        other.and_then(|other| of(figures).ratio_to(of(other))).into()
    };
    let mut cells = Vec::from(names);
    cells.extend(summary(&figures.microseconds));
    cells.push(ratio(base, |figures| &figures.microseconds));
    cells.push(ratio(ours, |figures| &figures.microseconds));
    cells.extend(summary(&figures.requests));
    cells.push(ratio(base, |figures| &figures.requests));
    cells
}
