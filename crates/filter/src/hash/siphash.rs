//! SipHash-2-4 with 128 bits of output (Aumasson, Bernstein: <https://www.aumasson.jp/siphash/siphash.pdf>, and `siphash.c` of the
//! reference implementation, public domain): a hash under a secret key. Without the key, it is infeasible to construct two items with the
//! same hash.
//!
//! A round depends on the one before it, so hashing one item leaves half of the processor idle. Two interleaved items take 30
//! ns each instead of 38 (70 bytes). Three or four are no faster, because the units that rotate are then saturated (`cargo
//! bench -p bloomgate-filter --bench kernel -- hash`).

/// The key of a filter, 16 bytes.
pub type Key = [u8; 16];

/// The number of items hashed side by side.
pub(super) const LANES: usize = 2;

/// The first and the second eight bytes of the 128-bit hash, each little-endian.
#[inline]
pub fn siphash24_128(item: &[u8], key: Key) -> [u64; 2] {
    let [hash] = side_by_side([item], key);
    hash
}

/// Hashes items side by side: in step for the whole words of the shortest item, and again at the end.
#[inline]
pub(super) fn side_by_side<const N: usize>(items: [&[u8]; N], key: Key) -> [[u64; 2]; N] {
    let mut states = [State::new(key); N];
    let words = items.map(|item| item.as_chunks().0);
    let shared = words.iter().map(|words| words.len()).min().unwrap_or(0);
    let (in_step, longer) = (words.map(|words| words.get(..shared)), words.map(|words| words.get(shared..)));
    let mut in_step = in_step.map(|words| words.unwrap_or_default().iter());
    for _ in 0..shared {
        absorb(&mut states, in_step.each_mut().map(|words| words.next().map_or(0, |word| u64::from_le_bytes(*word))));
    }
    for (state, words) in states.iter_mut().zip(longer) {
        for word in words.unwrap_or_default() {
            absorb(std::array::from_mut(state), [u64::from_le_bytes(*word)]);
        }
    }
    absorb(&mut states, items.map(last_word));
    states.iter_mut().for_each(|state| state.v2 ^= 0xee);
    let first = finish(&mut states);
    states.iter_mut().for_each(|state| state.v1 ^= 0xdd);
    let mut second = finish(&mut states).into_iter();
    first.map(|first| [first, second.next().unwrap_or_default()])
}

/// Returns the bytes after the last whole word, 0 to 7 of them, as the low bytes of a word, with the low byte of the length on top. If the
/// item is longer than a word, shifts its last eight bytes.
#[inline]
fn last_word(item: &[u8]) -> u64 {
    let tail = match item.last_chunk() {
        Some(last) => u64::from_le_bytes(*last) >> 8 >> (8 * (7 - item.len() % 8)),
        None => item.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    tail | (item.len() as u64) << 56
}

/// The four words of state for one item.
#[derive(Clone, Copy)]
struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the halves of 128 bits are 64 bits each")]
    const fn new(key: Key) -> Self {
        let key = u128::from_le_bytes(key);
        let (k0, k1) = (key as u64, (key >> 64) as u64);
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            // Distinguishes 128 bits of output from 64.
            v1: k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        }
    }

    #[inline]
    const fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }
}

/// Absorbs a word of each item: two rounds.
#[inline]
fn absorb<const N: usize>(states: &mut [State; N], words: [u64; N]) {
    states.iter_mut().zip(words).for_each(|(state, word)| state.v3 ^= word);
    for _ in 0..2 {
        states.iter_mut().for_each(State::round);
    }
    states.iter_mut().zip(words).for_each(|(state, word)| state.v0 ^= word);
}

/// Runs four rounds, and returns half of the hash.
#[inline]
fn finish<const N: usize>(states: &mut [State; N]) -> [u64; N] {
    for _ in 0..4 {
        states.iter_mut().for_each(State::round);
    }
    states.map(|state| state.v0 ^ state.v1 ^ state.v2 ^ state.v3)
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher as _;

    use siphasher::sip128::{Hasher128 as _, SipHasher24};

    use super::*;

    const KEYS: [Key; 4] = [REFERENCE_KEY, [0; 16], [0xff; 16], *b"0123456789abcdef"];
    const REFERENCE_KEY: Key = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    fn by_the_crate(item: &[u8], key: Key) -> [u64; 2] {
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(item);
        let hash = hasher.finish128();
        [hash.h1, hash.h2]
    }

    fn bytes(count: usize) -> Vec<u8> {
        let mut state = 1u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    /// The first of `vectors_sip128` in `vectors.h` of the reference implementation: of the items [], [0], [0, 1], [0, 1, 2]
    /// and [0, 1, 2, 3].
    #[test]
    fn equals_the_vectors_of_the_reference() {
        let vectors: [u128; 5] = [
            0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293,
            0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45,
            0x8177_228d_a4a4_5dc7_fca3_8bde_f60a_ffe4,
            0x9c70_b60c_5267_a94e_5f33_b6b0_2985_ed51,
            0xf881_64c1_2d9c_8faf_7d0f_6e7c_7bcd_5579,
        ];
        for (length, vector) in vectors.into_iter().enumerate() {
            let hash = siphash24_128(&REFERENCE_KEY[..length], REFERENCE_KEY);
            assert_eq!(hash.map(u64::to_le_bytes).concat(), vector.to_be_bytes(), "{length} bytes");
        }
    }

    #[test]
    fn equals_the_crate_on_every_length() {
        let bytes = bytes(300);
        for length in (0..=200).step_by(if cfg!(miri) { 37 } else { 1 }).chain([255, 256, 257, 300]) {
            for key in KEYS {
                for item in [&bytes[..length], &bytes[300 - length..]] {
                    assert_eq!(siphash24_128(item, key), by_the_crate(item, key), "{length} bytes");
                }
            }
        }
    }

    #[test]
    fn items_side_by_side_do_not_mix() {
        let bytes = bytes(64);
        let lengths = 0..if cfg!(miri) { 9 } else { 64 };
        for (first, second) in lengths.clone().flat_map(|first| lengths.clone().map(move |second| (first, second))) {
            let items = [&bytes[..first], &bytes[64 - second..], &bytes[1..][..first / 2]];
            let hashes = items.map(|item| siphash24_128(item, KEYS[3]));
            assert_eq!(side_by_side(items, KEYS[3]), hashes, "{first} and {second} bytes");
        }
    }
}
