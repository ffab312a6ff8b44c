//! The database: a table of pages in SQLite, and lookups that are counted.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use flate2::bufread::GzDecoder;
use rusqlite::{Connection, OptionalExtension};

/// The pages of a site as a crawler found them: each distinct link is a row of the table.
const LINKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/frontier.txt.gz");
/// The added duration of each query, as for a database across a network.
pub const QUERY: Duration = Duration::from_millis(1);

/// The number of queries since the last reset.
pub static QUERIES: AtomicUsize = AtomicUsize::new(0);

/// Creates the table and inserts the distinct links.
pub fn fill_table(file: &Path) -> Result<HashSet<String>> {
    let mut database = Connection::open(file)?;
    database.execute_batch("CREATE TABLE pages (url TEXT PRIMARY KEY, title TEXT NOT NULL) WITHOUT ROWID")?;
    let links = BufReader::new(File::open(LINKS).with_context(|| LINKS.to_owned())?);
    let urls = BufReader::new(GzDecoder::new(links)).lines().collect::<std::io::Result<HashSet<String>>>()?;
    let transaction = database.transaction()?;
    let mut insert = transaction.prepare("INSERT INTO pages (url, title) VALUES (?1, ?2)")?;
    for url in &urls {
        insert.execute((url, url.rsplit('/').next().unwrap_or_default()))?;
    }
    drop(insert);
    transaction.commit()?;
    Ok(urls)
}

/// One client's connection to the table.
pub struct Pages(Connection);

impl Pages {
    /// Opens the table.
    pub fn open(file: &Path) -> Result<Self> {
        Ok(Self(Connection::open(file)?))
    }

    /// Returns the title of a page, if the page exists.
    pub fn title(&self, url: &str) -> Result<Option<String>> {
        QUERIES.fetch_add(1, Ordering::Relaxed);
        thread::sleep(QUERY);
        let mut select = self.0.prepare_cached("SELECT title FROM pages WHERE url = ?1")?;
        Ok(select.query_row([url], |row| row.get(0)).optional()?)
    }

    /// Inserts a page, or changes its title.
    pub fn write(&self, url: &str, title: &str) -> Result<()> {
        self.0.execute("INSERT OR REPLACE INTO pages (url, title) VALUES (?1, ?2)", (url, title))?;
        Ok(())
    }

    /// Deletes a page.
    pub fn delete(&self, url: &str) -> Result<()> {
        self.0.execute("DELETE FROM pages WHERE url = ?1", [url])?;
        Ok(())
    }
}
