//! Copies the rows of a table.

use anyhow::{Context, Result};
use bytes::Bytes;
use mysql_async::Value;

use super::session::Session;
use crate::engine::{BATCH, Copier};
use crate::table::{Table, templates};
use crate::template::Field;

impl Copier for Session {
    fn copy(&mut self, table: &Table, pass: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>) -> Result<u64> {
        let (item, _) = templates(&table.config, &table.columns)?;
        let places: Vec<usize> = item.columns().collect();
        let names =
            places.iter().filter_map(|index| table.columns.get(*index)).map(|column| format!("`{}`", column.name));
        let query = format!("SELECT {} FROM {}", names.collect::<Vec<_>>().join(", "), table.from);
        let (mut rows, mut items) = (0, Vec::with_capacity(BATCH));
        let mut row = vec![Field::Null; table.columns.len()];
        self.each_row(&query, |values| {
            let Some(values) = values else { return pass(&[]) };
            for (place, value) in places.iter().zip(values) {
                let field = row.get_mut(*place).context("a column")?;
                *field = match value {
                    Value::Bytes(text) => Field::Text(Bytes::from(text)),
                    _ => Field::Null,
                };
            }
            items.extend(table.item(&row)?);
            rows += 1;
            if items.len() == BATCH {
                pass(&items)?;
                items.clear();
            }
            Ok(())
        })?;
        pass(&items)?;
        Ok(rows)
    }
}
