//! Where results go: each section's tables on the terminal as soon as they are there, all of them in `tables.md`, each
//! one as CSV, the plots as SVG.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::table::Table;

/// The results so far.
pub struct Results {
    folder: PathBuf,
    text: String,
    sections: Vec<String>,
}

impl Results {
    /// Results that begin with these lines.
    pub fn new(folder: PathBuf, head: String) -> Self {
        Self { folder, text: head, sections: Vec::new() }
    }

    /// Takes a table: prints it and writes it.
    pub fn table(&mut self, table: &Table) -> Result<()> {
        let text = table.to_markdown();
        println!("{text}");
        self.sections.push(text);
        self.write(&format!("{}.csv", table.name), &table.to_csv())?;
        let all = format!("{}\n{}", self.text, self.sections.join("\n"));
        self.write("tables.md", &all)
    }

    /// Takes a plot, where there is one, and shows it behind the newest table.
    pub fn plot(&mut self, name: &str, alternative: &str, plot: Option<String>) -> Result<()> {
        let Some(plot) = plot else { return Ok(()) };
        let file = format!("{name}.svg");
        self.write(&file, &plot)?;
        if let Some(section) = self.sections.last_mut() {
            *section += &format!("\n![{alternative}]({file})\n");
        }
        let all = format!("{}\n{}", self.text, self.sections.join("\n"));
        self.write("tables.md", &all)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
