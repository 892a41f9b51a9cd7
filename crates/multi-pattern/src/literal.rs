//! Sequences of bytes to find.

/// A sequence of bytes to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Literal<'a> {
    /// The bytes, at least one.
    pub bytes: &'a [u8],
    /// True if ASCII letters match in upper and lower case.
    pub nocase: bool,
}
