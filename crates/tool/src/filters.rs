//! Replies of servers about filters.

use anyhow::Result;
use bloomgate_client::Info;
use redis::Value;

use crate::archive::Contents;

/// Whether a reply to TYPE names a type of filters.
pub fn is_filter(type_name: &str) -> bool {
    matches!(type_name, "bloomgate" | "MBbloom--" | "bloomfltr")
}

/// Parses the reply to BF.INFO.
///
/// # Errors
/// The reply has another form.
pub fn contents(reply: &Value) -> Result<Contents> {
    let Info { capacity, layers, items, size_bytes, .. } = reply.try_into()?;
    Ok(Contents { capacity, layers, items, bytes: size_bytes })
}
