//! What every source of rows shares: which rows are loaded, how far a source was read, and what takes the items.

use anyhow::Result;

use crate::usage::usage;

/// Rows of a database.
#[derive(Clone, Debug)]
pub enum Rows {
    Table { table: String, column: String },
    Query { query: String, column: Option<String> },
}

impl Rows {
    /// Combines the options of the command line.
    ///
    /// # Errors
    /// They give neither a table with a column nor a query.
    pub fn of(table: Option<&String>, column: Option<&String>, query: Option<&String>) -> Result<Self> {
        match (table, column, query) {
            (Some(table), Some(column), None) => Ok(Self::Table { table: table.clone(), column: column.clone() }),
            (None, column, Some(query)) => {
                let query = query.trim().trim_end_matches(';').to_owned();
                Ok(Self::Query { query, column: column.cloned() })
            }
            _ => Err(usage("say which rows to load: --table TABLE --column COLUMN, or --query SQL")),
        }
    }
}

/// How far a source was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Rows read so far, with or without an item.
    pub rows: u64,
    /// The last item, if there was any.
    pub last: Option<Vec<u8>>,
    /// The number of consecutive rows with that item, up to here.
    pub repeats: u64,
}

/// Takes the item of each row, or `None` for a row without one.
pub type Sink<'a> = dyn FnMut(Option<&[u8]>) -> Result<()> + 'a;
