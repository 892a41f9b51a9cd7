//! Tag and length of the distinguished encoding rules of ASN.1 (X.690 §8.1).

/// Header of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header<'a> {
    pub(super) tag: u8,
    /// Length of the content in bytes.
    pub(super) length: usize,
    /// Bytes behind the header: the content, or as much of it as there is, and what follows.
    pub(super) rest: &'a [u8],
}

/// Reads tag and length; a tag takes one byte.
pub(super) fn header(bytes: &[u8]) -> Option<Header<'_>> {
    let [tag, first, rest @ ..] = bytes else { return None };
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0xf))?;
            (length.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    Some(Header { tag: *tag, length, rest })
}

/// Reads a value with this tag; returns its content, or as much as there is, and the bytes behind it.
pub(super) fn value(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let header = header(bytes).filter(|header| header.tag == tag)?;
    Some(header.rest.split_at(header.length.min(header.rest.len())))
}

/// Reads an INTEGER of at most four bytes; returns it and the bytes behind it.
pub(super) fn integer(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let header = header(bytes).filter(|header| header.tag == 2 && (1..=5).contains(&header.length))?;
    let (number, rest) = header.rest.split_at_checked(header.length)?;
    Some((number.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)), rest))
}
