//! Options of IPv4 (RFC 791 §3.1) and TCP (RFC 9293 §3.2): kind, length, data; at most 40 bytes.

use crate::Malformed;
use core::{fmt, ops};

/// Bytes of options in an owned header.
pub const MAX: usize = 40;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;

/// The options of a header value: up to 40 bytes, filled up to a multiple of 4 with "end of list".
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OptionBytes {
    bytes: [u8; MAX],
    len: u8,
}

impl OptionBytes {
    /// No options.
    pub const EMPTY: Self = Self { bytes: [0; MAX], len: 0 };

    /// Returns the options as they stand in a header.
    ///
    /// # Errors
    /// [`Malformed::Range`] if there are more than 40 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut options = Self::EMPTY;
        options.bytes.get_mut(..bytes.len()).ok_or(Malformed::Range)?.copy_from_slice(bytes);
        options.len = bytes.len().next_multiple_of(4) as u8;
        Ok(options)
    }

    /// Joins options that each write themselves into the bytes left and say how many they took.
    pub(crate) fn join<T>(
        options: &[T],
        emit: impl Fn(&T, &mut [u8]) -> Result<usize, Malformed>,
    ) -> Result<Self, Malformed> {
        let mut bytes = [0; MAX];
        let mut len = 0;
        for option in options {
            len += emit(option, bytes.get_mut(len..).unwrap_or_default())?;
        }
        Self::new(bytes.get(..len).ok_or(Malformed::Range)?)
    }
}

impl Default for OptionBytes {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl ops::Deref for OptionBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }
}

impl fmt::Debug for OptionBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("]")
    }
}

/// Kinds and data of the options in `rest`, without "no operation", up to "end of list".
#[derive(Clone, Debug)]
pub(crate) struct Tlvs<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<(u8, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.rest {
                [] | [END, ..] => return None,
                [NO_OPERATION, ref rest @ ..] => self.rest = rest,
                [kind, len, ..] if len >= 2 && usize::from(len) <= self.rest.len() => {
                    let (option, rest) = self.rest.split_at_checked(len.into())?;
                    self.rest = rest;
                    return Some(Ok((kind, option.get(2..).unwrap_or_default())));
                }
                _ => {
                    self.rest = &[];
                    return Some(Err(Malformed::Option));
                }
            }
        }
    }
}

/// Writes one option; the bytes it took.
pub(crate) fn emit(kind: u8, data: &[u8], out: &mut [u8]) -> Result<usize, Malformed> {
    let len = data.len() + 2;
    let out = out.get_mut(..len).ok_or(Malformed::Range)?;
    let [kind_byte, len_byte, body @ ..] = out else { return Err(Malformed::Range) };
    (*kind_byte, *len_byte) = (kind, u8::try_from(len).map_err(|_| Malformed::Range)?);
    body.copy_from_slice(data);
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(bytes: &[u8]) -> Vec<Result<u8, Malformed>> {
        Tlvs { rest: bytes }.map(|option| option.map(|(kind, _)| kind)).collect()
    }

    #[test]
    fn lists() {
        assert_eq!(kinds(&[1, 1, 7, 3, 9, 0, 8, 2]), [Ok(7)]);
        assert_eq!(kinds(&[7, 2, 8, 2]), [Ok(7), Ok(8)]);
        for bad in [&[7][..], &[7, 0], &[7, 1], &[7, 3], &[7, 255, 0]] {
            assert_eq!(kinds(bad), [Err(Malformed::Option)]);
        }
    }

    #[test]
    fn owned() {
        assert_eq!(&*OptionBytes::new(&[7, 3, 1, 1, 1]).unwrap(), [7, 3, 1, 1, 1, 0, 0, 0]);
        assert_eq!(OptionBytes::new(&[0; 41]), Err(Malformed::Range));
        assert_eq!(OptionBytes::new(&[1; 39]).unwrap().len(), 40);
        let data = [0; 20];
        let twice = OptionBytes::join(&[&data[..], &data[..]], |data, out| emit(7, data, out));
        assert_eq!(twice, Err(Malformed::Range));
        assert_eq!(format!("{:?}", OptionBytes::new(&[1, 2]).unwrap()), "[01020000]");
    }
}
