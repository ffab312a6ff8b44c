//! C strings for the server, made without allocating: if memory runs out, the client can still be told.

use std::ffi::{CStr, c_char};
use std::fmt::{self, Display, Write};

/// The longest line of the server's log.
const BYTES: usize = 1024;

/// A text that ends with a NUL byte, as the server's functions need it. A text that is too long is cut; a NUL byte inside becomes a
/// question mark.
pub struct Text {
    bytes: [u8; BYTES],
    length: usize,
}

impl Text {
    /// The text of a value.
    pub fn of(value: impl Display) -> Self {
        let mut text = Self { bytes: [0; BYTES], length: 0 };
        // A text that is too long is cut: there is no error.
        let _ = write!(text, "{value}");
        text
    }

    /// The text with the NUL byte after it, for as long as the value lives.
    pub const fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }

    /// The text with the NUL byte after it.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    /// The text without the NUL byte.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The text; empty if it was cut inside a character.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }
}

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..BYTES - 1).unwrap_or_default();
        let taken = room.iter_mut().zip(more.bytes());
        self.length += taken.len();
        taken.for_each(|(place, byte)| *place = if byte == 0 { b'?' } else { byte });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_with_nul_and_has_none_inside() {
        let text = Text::of(format_args!("{} of {:?}\0{}", 1, 0.5, "bytes"));
        assert_eq!(text.as_str(), "1 of 0.5?bytes");
        // SAFETY: the text lives and ends with NUL.
        assert_eq!(unsafe { CStr::from_ptr(text.as_ptr()) }.to_bytes(), text.bytes());
        assert_eq!(Text::of("").bytes(), b"");
    }

    #[test]
    fn a_long_text_is_cut() {
        let text = Text::of("x".repeat(5000));
        assert_eq!(text.bytes().len(), BYTES - 1);
        assert_eq!(text.bytes[BYTES - 1], 0);
    }

    /// The longest rates of filters are not cut, so that replicas read them.
    #[test]
    fn every_fraction_fits() {
        for number in [5e-324, f64::MIN_POSITIVE, 2.225_073_858_507_201e-308, 1.797_693_134_862_315_7e308, 0.01] {
            assert_eq!(Text::of(number).as_str().parse(), Ok(number));
        }
    }
}
