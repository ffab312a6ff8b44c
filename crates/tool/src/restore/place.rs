//! The temporary key under which a filter is loaded. It has the hash slot of the final key, so that it can be renamed in a cluster.

use crate::server::slot;

const SUFFIX: &[u8] = b":restoring";

/// Returns the temporary key for a key: `{KEY}:restoring`, or `KEY:restoring` if the key has a hash tag. If the key cannot be in
/// braces, a number with the same slot is in them.
pub fn beside(key: &[u8]) -> Vec<u8> {
    let braced = [b"{", key, b"}"].concat();
    let candidates = [braced, key.to_vec()].into_iter();
    let numbers = (0u32..).map(|number| [b"{", number.to_string().as_bytes(), b"}", key].concat());
    let mut names = candidates.chain(numbers).map(|name| [&name, SUFFIX].concat());
    // Some number hashes to each of the 16,384 slots; finding it takes about as many attempts on average.
    names.find(|name| slot(name) == slot(key)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_name_has_the_slot_of_its_key() {
        let keys: [&[u8]; 12] =
            [b"seen", b"", b"{", b"}", b"{}", b"{}a", b"a{b}c", b"{a}", b"a}b", b"a{b", b"{{a}}", b"\xff\0{\r\n"];
        for key in keys {
            let name = beside(key);
            assert_eq!(slot(&name), slot(key), "{}", key.escape_ascii());
            assert!(name.ends_with(b":restoring") && name != key);
        }
        assert_eq!(beside(b"seen"), b"{seen}:restoring");
        assert_eq!(beside(b"a{b}c"), b"a{b}c:restoring");
    }
}
