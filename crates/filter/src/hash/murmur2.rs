//! MurmurHash2 (Austin Appleby, public domain), the hash of RedisBloom's filters: the 64-bit variant for 64-bit machines
//! (MurmurHash64A), and the 32-bit variant that RedisBloom's first release used.

/// MurmurHash64A.
#[inline]
pub(crate) fn murmur_hash_64a(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let scramble = |word: u64| {
        let word = word.wrapping_mul(M);
        (word ^ (word >> 47)).wrapping_mul(M)
    };
    let (words, tail) = bytes.as_chunks();
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    for word in words {
        hash = (hash ^ scramble(u64::from_le_bytes(*word))).wrapping_mul(M);
    }
    if !tail.is_empty() {
        let word = tail.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        hash = (hash ^ word).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 47)).wrapping_mul(M);
    hash ^ (hash >> 47)
}

/// MurmurHash2, 32 bits. Only the low 32 bits of the length are hashed.
#[expect(clippy::cast_possible_truncation, reason = "the hash takes the low 32 bits of the length")]
pub(crate) fn murmur_hash_2(bytes: &[u8], seed: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let (words, tail) = bytes.as_chunks();
    let mut hash = seed ^ bytes.len() as u32;
    for word in words {
        let word = u32::from_le_bytes(*word).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (word ^ (word >> 24)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        let word = tail.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        hash = (hash ^ word).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from RedisBloom's hash, under its seed and under the first hash as seed.
    #[test]
    fn hashes_of_64_bits() {
        let cases: [(&[u8], u64, u64); 4] = [
            (b"", 0x1ab1_1ea5_a7b2_c56e, 0xbbdd_cb5a_b56d_d547),
            (b"a", 0x4292_cee2_27b9_150a, 0x7e9b_5270_31f5_0c11),
            (b"hello", 0x5ba5_b8a5_9803_e699, 0xa7d4_51d5_88a0_c2a4),
            (b"item1", 0xa053_790e_072b_2e8b, 0x707e_5d60_182e_b075),
        ];
        for (item, first, second) in cases {
            assert_eq!(murmur_hash_64a(item, 0xc6a4_a793_5bd1_e995), first, "{item:?}");
            assert_eq!(murmur_hash_64a(item, first), second, "{item:?}");
        }
    }

    /// The verification values of SMHasher, the test suite of the hash's author: the hashes of the keys of 0 to 255
    /// bytes [0], [0, 1], ... under seeds 256 - length, hashed once more.
    #[test]
    fn the_verification_values_of_smhasher() {
        let keys: Vec<u8> = (0..=255).collect();
        let mut hashes = Vec::new();
        for length in 0..256 {
            let seed = u32::try_from(256 - length).unwrap();
            hashes.extend(murmur_hash_2(&keys[..length], seed).to_le_bytes());
        }
        assert_eq!(murmur_hash_2(&hashes, 0), 0x2786_4C1E);
        let mut hashes = Vec::new();
        for length in 0..256 {
            hashes.extend(murmur_hash_64a(&keys[..length], 256 - length as u64).to_le_bytes());
        }
        assert_eq!(murmur_hash_64a(&hashes, 0) & 0xffff_ffff, 0x1F0D_3804);
    }
}
