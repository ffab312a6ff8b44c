//! The output: each section's tables on the terminal as soon as they are complete, all of them in `tables.md`, each as CSV,
//! and the plots as SVG.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::plots;
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

    /// Adds a table: prints it and writes it, with its plots.
    pub fn table(&mut self, table: &Table) -> Result<()> {
        let mut text = table.to_markdown();
        println!("{text}");
        let csv = table.to_csv()?;
        self.write(&format!("{}.csv", table.name), &csv)?;
        for plot in plots::of(&table.name, &csv)? {
            self.write(plot.file, &plot.svg)?;
            text += &format!("\n![{}]({})\n", plot.title, plot.file);
        }
        self.sections.push(text);
        let all = format!("{}\n{}", self.text, self.sections.join("\n"));
        self.write("tables.md", &all)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Draws the plots of all tables in a folder again.
pub fn draw_again(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_none_or(|ending| ending != "csv") {
            continue;
        }
        let table = path.file_stem().unwrap_or_default().to_string_lossy();
        for plot in plots::of(&table, &fs::read_to_string(&path)?)? {
            fs::write(folder.join(plot.file), plot.svg)?;
            println!("{}", folder.join(plot.file).display());
        }
    }
    Ok(())
}
