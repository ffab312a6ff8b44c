//! The output: each section's tables on the terminal as soon as they are complete, all of them in `tables.md`, and each as CSV.

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
    /// Creates results that begin with these lines.
    pub fn new(folder: PathBuf, head: String) -> Self {
        Self { folder, text: head, sections: Vec::new() }
    }

    /// Adds a table: prints it and writes it.
    pub fn table(&mut self, table: &Table) -> Result<()> {
        let text = table.to_markdown();
        println!("{text}");
        self.write(&format!("{}.csv", table.name), &table.to_csv()?)?;
        self.sections.push(text);
        let all = format!("{}\n{}", self.text, self.sections.join("\n"));
        self.write("tables.md", &all)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
