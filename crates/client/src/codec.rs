//! Converts rows to the bytes that the guard caches, and back.

/// Converts a row to bytes and back. If [`Codec::decode`] fails, the guard loads the row and replaces the cached value.
pub trait Codec: Send + Sync {
    /// A row.
    type Row: Clone + Send;

    /// Returns the bytes to cache.
    ///
    /// # Errors
    /// Why the row has no bytes. The guard then gives up its lease and fails with [`Error::Refused`](crate::Error::Refused).
    fn encode(&self, row: &Self::Row) -> Result<Vec<u8>, String>;

    /// Returns the row of cached bytes.
    ///
    /// # Errors
    /// Why they are not a row.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Row, String>;
}

/// Leaves bytes as they are: the guard's default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bytes;

impl Codec for Bytes {
    type Row = Vec<u8>;

    fn encode(&self, row: &Vec<u8>) -> Result<Vec<u8>, String> {
        Ok(row.clone())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.to_vec())
    }
}
