//! Converts rows to the bytes that the guard caches, and back.

#[cfg(feature = "json")]
use std::marker::PhantomData;

#[cfg(feature = "json")]
use serde::{Serialize, de::DeserializeOwned};

/// Converts a row to bytes and back. If [`Codec::decode`] fails, the guard loads the row and replaces the cached value. Every
/// caller gets its result, including the caller that loaded the row.
pub trait Codec: Send + Sync {
    /// A row.
    type Row: Clone + Send;

    /// Returns the bytes to cache.
    ///
    /// # Errors
    /// The reason why the row has no bytes. The guard then gives up its lease and fails with [`Error::Refused`](crate::Error::Refused).
    fn encode(&self, row: &Self::Row) -> Result<Vec<u8>, String>;

    /// Returns the row that cached bytes represent.
    ///
    /// # Errors
    /// The reason why the bytes do not represent a row.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Row, String>;
}

/// Returns bytes unchanged. The guard's default.
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

/// Writes rows as JSON in UTF-8, without spaces. Needs the feature `json`.
///
/// ```
/// use std::collections::BTreeMap;
/// use bloomgate_client::{Codec, Json};
///
/// let codec = Json::<BTreeMap<String, u64>>::default();
/// let row = BTreeMap::from([("pages".to_owned(), 17)]);
/// assert_eq!(codec.encode(&row)?, br#"{"pages":17}"#);
/// assert_eq!(codec.decode(br#"{"pages": 17}"#)?, row);
/// # Ok::<(), String>(())
/// ```
#[cfg(feature = "json")]
#[derive(Debug, Clone, Copy)]
pub struct Json<R>(PhantomData<fn(R) -> R>);

#[cfg(feature = "json")]
impl<R> Default for Json<R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

#[cfg(feature = "json")]
impl<R: Serialize + DeserializeOwned + Clone + Send> Codec for Json<R> {
    type Row = R;

    fn encode(&self, row: &R) -> Result<Vec<u8>, String> {
        serde_json::to_vec(row).map_err(|error| error.to_string())
    }

    fn decode(&self, bytes: &[u8]) -> Result<R, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}
