//! RedisBloom's two hashes, written from their public description for the model that the tests compare with.

use super::model::Seeds;

/// The hash of 64 bits as two numbers.
pub fn pair_64(item: &[u8], seeds: Seeds) -> (u64, u64) {
    let seed_mask = if seeds == Seeds::Of32Bits { u64::from(u32::MAX) } else { u64::MAX };
    let a = murmur_64a(item, 0xc6a4_a793_5bd1_e995 & seed_mask);
    (a, murmur_64a(item, a & seed_mask))
}

/// The hash of 32 bits, which filters without FORCE64 have.
pub fn pair_32(item: &[u8]) -> (u64, u64) {
    let a = murmur_32(item, 0x9747_b28c);
    (u64::from(a), u64::from(murmur_32(item, a)))
}

/// MurmurHash2's variant with 64 bits for 64-bit machines (Austin Appleby, public domain).
fn murmur_64a(item: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let words = item.chunks_exact(8);
    let rest = words.remainder();
    let mut hash = seed ^ (item.len() as u64).wrapping_mul(M);
    for word in words {
        let k = u64::from_le_bytes(word.try_into().expect("eight bytes")).wrapping_mul(M);
        hash = (hash ^ (k ^ (k >> 47)).wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, &byte| (tail << 8) | u64::from(byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 47)).wrapping_mul(M);
    hash ^ (hash >> 47)
}

/// MurmurHash2 with 32 bits (Austin Appleby, public domain).
fn murmur_32(item: &[u8], seed: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let words = item.chunks_exact(4);
    let rest = words.remainder();
    let mut hash = seed ^ item.len() as u32;
    for word in words {
        let k = u32::from_le_bytes(word.try_into().expect("four bytes")).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (k ^ (k >> 24)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, &byte| (tail << 8) | u32::from(byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}
