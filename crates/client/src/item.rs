//! Items of filters, and ids of rows, as bytes.

use std::borrow::Cow;

use crate::BoxError;

/// An item of a filter: bytes, a text, which is encoded as UTF-8, or an integer of 16 bits or more, which is written in decimal. `17` and
/// `"17"` are the same item.
///
/// ```
/// use bloomgate_client::Item;
///
/// assert_eq!(*17.item_bytes(), *b"17");
/// assert_eq!(*"é".item_bytes(), [0xc3, 0xa9]);
/// assert_eq!(*[0, 255].as_slice().item_bytes(), [0, 255]);
/// ```
///
/// Booleans and floating-point numbers are not items:
///
/// ```compile_fail
/// use bloomgate_client::Item;
///
/// true.item_bytes();
/// ```
///
/// Single bytes are not items either. A list of bytes is one item; it would otherwise also be a list of items, and
/// `changed(b"17", ...)` would announce the rows 49 and 55.
///
/// ```compile_fail
/// use bloomgate_client::{Guard, Client, GuardOptions};
///
/// let client = Client::open("redis://127.0.0.1/")?;
/// Guard::new(&client, "users", GuardOptions::default())?.announce(b"17")?;
/// # Ok::<(), bloomgate_client::Error>(())
/// ```
///
/// ```
/// # use bloomgate_client::{Guard, Client, GuardOptions};
/// # if false {
/// # let client = Client::open("redis://127.0.0.1/")?;
/// Guard::new(&client, "users", GuardOptions::default())?.announce([b"17"])?;
/// # }
/// # Ok::<(), bloomgate_client::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    note = "a list of bytes is one item: where a list of items is expected, pass `[bytes]`",
    note = "a single `u8` or `i8` is not an item: convert an id to a larger integer"
)]
pub trait Item {
    /// Returns the bytes that the filter hashes.
    fn item_bytes(&self) -> Cow<'_, [u8]>;
}

/// An item of a batch, or the error of a source that failed to read it: batches and
/// [`fill_filter`](crate::fill_filter) take lists of items and lists of `Result`s. The first error ends the batch.
///
/// ```no_run
/// # use bloomgate_client::{Client, Filter};
/// # use std::io::BufRead;
/// # let client = Client::open("redis://127.0.0.1/")?;
/// let added = Filter::new(&client, "seen").add_many(std::io::stdin().lock().lines())?;
/// # Ok::<(), bloomgate_client::Error>(())
/// ```
pub trait BatchItem {
    /// The item's type.
    type Item: Item;

    /// Returns the item.
    ///
    /// # Errors
    /// The error of the source.
    fn item(self) -> Result<Self::Item, BoxError>;
}

impl<T: Item> BatchItem for T {
    type Item = T;

    fn item(self) -> Result<T, BoxError> {
        Ok(self)
    }
}

impl<T: Item, E: Into<BoxError>> BatchItem for Result<T, E> {
    type Item = T;

    fn item(self) -> Result<T, BoxError> {
        self.map_err(Into::into)
    }
}

macro_rules! as_bytes {
    ($($type:ty),*) => {$(
        impl Item for $type {
            fn item_bytes(&self) -> Cow<'_, [u8]> {
                Cow::Borrowed(self.as_ref())
            }
        }
    )*};
}

as_bytes!([u8], Vec<u8>, str, String);

macro_rules! in_decimal {
    ($($type:ty),*) => {$(
        impl Item for $type {
            fn item_bytes(&self) -> Cow<'_, [u8]> {
                Cow::Owned(self.to_string().into_bytes())
            }
        }
    )*};
}

in_decimal!(i16, i32, i64, i128, isize, u16, u32, u64, u128, usize);

impl<const N: usize> Item for [u8; N] {
    fn item_bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

impl<T: Item + ?Sized> Item for &T {
    fn item_bytes(&self) -> Cow<'_, [u8]> {
        (**self).item_bytes()
    }
}

impl<T: Item + ToOwned + ?Sized> Item for Cow<'_, T> {
    fn item_bytes(&self) -> Cow<'_, [u8]> {
        (**self).item_bytes()
    }
}
