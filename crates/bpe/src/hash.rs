//! The hash that places a token in its table.
//!
//! Compiled twice: into the crate, and into the build script that lays the tables out.

/// Odd constants without pattern (from the splitmix64 and golden-ratio families).
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const LENGTH: u64 = 0xA24B_AED4_963E_E407;
const FINISH: u64 = 0xBF58_476D_1CE4_E5B9;

/// Not keyed: the table is made once, and its longest chain is known and bounded by the build script.
#[inline]
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = (bytes.len() as u64).wrapping_mul(LENGTH);
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        hash = mix(hash, rest_as_word(bytes, rest));
    }
    hash = (hash ^ (hash >> 29)).wrapping_mul(FINISH);
    hash ^ (hash >> 32)
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(STEP)
}

/// The one to seven last bytes as a number, without reading them one by one.
#[inline]
pub(crate) fn rest_as_word(bytes: &[u8], rest: &[u8]) -> u64 {
    match bytes.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
        None => short_word(rest),
    }
}

/// At most seven bytes as a little-endian number.
#[inline]
pub(crate) fn short_word(bytes: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let shift = 8 * (bytes.len() - 4);
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift;
    }
    match *bytes {
        [a, b, c] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
        [a, b] => u64::from(a) | u64::from(b) << 8,
        [a] => u64::from(a),
        _ => 0,
    }
}
