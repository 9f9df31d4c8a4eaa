//! Runs of bytes that need no look one by one.

pub(super) const fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

pub(super) const fn is_newline(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Before the first byte that ends a run, and from it.
pub(super) fn split(bytes: &[u8], ends: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let length = bytes.iter().position(|byte| ends(*byte)).unwrap_or(bytes.len());
    bytes.split_at_checked(length).unwrap_or((bytes, &[]))
}

/// Before the first quote, backslash or control byte, and from it. Most bytes of an answer are passed over
/// here, eight at a time.
pub(super) fn split_plain(bytes: &[u8]) -> (&[u8], &[u8]) {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    const TOP: u64 = u64::from_ne_bytes([0x80; 8]);
    // The top bit of every byte that is less than `bound`, and perhaps of bytes after such a byte: a borrow
    // runs upwards, so the lowest bit found is true.
    const fn below(word: u64, bound: u8) -> u64 {
        word.wrapping_sub(EACH * bound as u64) & !word & TOP
    }
    const fn marks(word: u64) -> u64 {
        below(word, 0x20) | below(word ^ (EACH * b'"' as u64), 1) | below(word ^ (EACH * b'\\' as u64), 1)
    }
    let mut length = 0;
    for word in bytes.as_chunks().0 {
        match marks(u64::from_le_bytes(*word)) {
            0 => length += word.len(),
            found => {
                length += (found.trailing_zeros() / 8) as usize;
                return bytes.split_at_checked(length).unwrap_or((bytes, &[]));
            }
        }
    }
    let rest = bytes.get(length..).unwrap_or_default();
    let (plain, _) = split(rest, |byte| matches!(byte, b'"' | b'\\' | ..0x20));
    bytes.split_at_checked(length + plain.len()).unwrap_or((bytes, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_runs_end_where_a_look_at_every_byte_ends_them() {
        for mark in 0..=255 {
            for filler in [b'a', 0x7F, 0x80, 0xFF, b'!', b'#', b'[', b']', b' '] {
                for length in 0..20 {
                    let mut bytes = vec![filler; length];
                    bytes.push(mark);
                    bytes.extend([mark, filler, b'"', 0, filler]);
                    let slow = split(&bytes, |byte| matches!(byte, b'"' | b'\\' | ..0x20));
                    assert_eq!(split_plain(&bytes), slow, "{bytes:?}");
                }
            }
        }
    }
}
