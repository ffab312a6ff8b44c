//! The output: each section's tables on the terminal as soon as they are complete, and all of them in `tables.md`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::table::Table;

/// The results so far.
pub struct Results {
    folder: PathBuf,
    text: String,
}

impl Results {
    /// Creates results that begin with these lines.
    pub fn new(folder: PathBuf, head: String) -> Self {
        Self { folder, text: head }
    }

    /// Adds a table: prints it and writes it.
    pub fn table(&mut self, table: &Table) -> Result<()> {
        let text = table.to_markdown();
        println!("{text}");
        self.text += &format!("\n{text}");
        let path = self.folder.join("tables.md");
        fs::write(&path, &self.text).with_context(|| format!("cannot write {}", path.display()))
    }
}
