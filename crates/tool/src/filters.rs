//! Replies of servers about filters.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use redis::{Value, from_redis_value};

use crate::archive::Contents;

/// Whether a reply to TYPE names a type of filters.
pub fn is_filter(type_name: &str) -> bool {
    matches!(type_name, "bloomgate" | "MBbloom--" | "bloomfltr")
}

/// Parses the reply to BF.INFO.
///
/// # Errors
/// The reply has another form.
pub fn contents(info: Value) -> Result<Contents> {
    let mut fields: BTreeMap<String, Value> = from_redis_value(info)?;
    let mut number = |name: &str| -> Result<u64> {
        let value = fields.remove(name).ok_or_else(|| anyhow!("the reply to BF.INFO has no `{name}`"))?;
        Ok(from_redis_value(value)?)
    };
    Ok(Contents {
        capacity: number("Capacity")?,
        layers: number("Number of filters")?,
        items: number("Number of items inserted")?,
        bytes: number("Size")?,
    })
}
