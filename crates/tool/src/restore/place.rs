//! The temporary name under which a filter is loaded: a key of the same hash slot, so that it can be renamed in a cluster.

use crate::server::slot;

const SUFFIX: &[u8] = b":restoring";

/// The temporary name for a key: `{KEY}:restoring`; where the key has a tag of its own, `KEY:restoring`. A key that cannot stand
/// in braces gets a number there that hashes as it does.
pub fn beside(key: &[u8]) -> Vec<u8> {
    let braced = [b"{", key, b"}"].concat();
    let candidates = [braced, key.to_vec()].into_iter();
    let numbers = (0u32..).map(|number| [b"{", number.to_string().as_bytes(), b"}", key].concat());
    let mut names = candidates.chain(numbers).map(|name| [&name, SUFFIX].concat());
    // Of 16,384 slots some number has each: the first of them is a few thousand on the average.
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
