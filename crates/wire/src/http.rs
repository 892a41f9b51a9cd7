//! Requests of HTTP/1.x (RFC 9112), as the first bytes of a stream.

use crate::Malformed;

/// Longest head of a request in bytes.
pub const MAX_HEAD: usize = 64 << 10;
/// Most fields of a head.
pub const MAX_FIELDS: usize = 256;
/// Longest method in bytes; that of WebDAV's `UPDATEREDIRECTREF` (RFC 4437) has 17.
pub const MAX_METHOD: usize = 32;

/// A checked request: a complete head, and the bytes behind it.
///
/// Lines end with CR LF or with LF alone, and one empty line may precede the request (RFC 9112 §2.2). A field that
/// continues on another line and white space before a colon are rejected (§5.1, §5.2), as they are means of smuggling
/// requests past intermediaries.
///
/// ```
/// use wire::{Malformed, http::Request};
///
/// let request = Request::new(b"GET /index.html HTTP/1.1\r\nHost: example.com\r\n\r\n")?;
/// assert_eq!((request.method(), request.target()), ("GET", &b"/index.html"[..]));
/// assert_eq!(request.field("host"), Some(&b"example.com"[..]));
/// assert_eq!(Request::new(b"GET / HTTP/1.1\r\nHost: exam"), Err(Malformed::Short)); // more bytes are needed
/// assert_eq!(Request::new(b"\x16\x03\x01"), Err(Malformed::Text));
/// # Ok::<(), Malformed>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    method: &'a str,
    target: &'a [u8],
    minor: u8,
    /// Lines of the fields, without the empty line.
    fields: &'a [u8],
    head_len: usize,
    bytes: &'a [u8],
}

/// Returns true for the characters of a token (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns true for the bytes of a field value: no control characters except the tab (RFC 9110 §5.5).
fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Splits at the end of the first line; returns the line without its end, and the rest.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = (bytes.get(..end)?, bytes.get(end + 1..)?);
    Some((line.strip_suffix(b"\r").unwrap_or(line), rest))
}

/// Returns true if the bytes may be continued to a line.
fn is_partial_line(bytes: &[u8]) -> bool {
    bytes.strip_suffix(b"\r").unwrap_or(bytes).iter().all(|byte| is_value(*byte))
}

/// Removes spaces and tabs from both ends.
fn trim(bytes: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let from = bytes.iter().position(is_text).unwrap_or(bytes.len());
    let to = bytes.iter().rposition(is_text).map_or(from, |last| last + 1);
    bytes.get(from..to).unwrap_or_default()
}

/// Splits the line of a field into name and value.
fn field(line: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Malformed::Text)?;
    let (name, value) = (line.get(..colon).unwrap_or_default(), trim(line.get(colon + 1..).unwrap_or_default()));
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) || !value.iter().all(|byte| is_value(*byte)) {
        return Err(Malformed::Text);
    }
    Ok((core::str::from_utf8(name).map_err(|_| Malformed::Text)?, value))
}

impl<'a> Request<'a> {
    /// Checks the request at the start of `bytes`.
    ///
    /// # Errors
    /// [`Malformed::Short`] if the head is not complete but correct so far, [`Malformed::Range`] if it is longer than
    /// [`MAX_HEAD`] or has more than [`MAX_FIELDS`] fields, and [`Malformed::Text`] if it is not a request of HTTP/1.x.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let head = bytes.get(..MAX_HEAD).unwrap_or(bytes);
        let incomplete = if bytes.len() >= MAX_HEAD { Malformed::Range } else { Malformed::Short };
        let start = match head {
            [b'\r', b'\n', rest @ ..] | [b'\n', rest @ ..] => rest,
            [b'\r'] => return Err(Malformed::Short),
            head => head,
        };
        // other protocols are rejected by their first bytes
        let end = start.iter().position(|byte| !is_token(*byte)).unwrap_or(start.len());
        match start.get(end) {
            Some(b' ') if (1..=MAX_METHOD).contains(&end) => {}
            None if end <= MAX_METHOD => return Err(incomplete),
            _ => return Err(Malformed::Text),
        }
        let Some((first, mut rest)) = line(start) else {
            return Err(if is_partial_line(start) { incomplete } else { Malformed::Text });
        };
        let method = first.get(..end).and_then(|method| core::str::from_utf8(method).ok()).ok_or(Malformed::Text)?;
        let behind = first.get(end + 1..).unwrap_or_default();
        let space = behind.iter().position(|byte| *byte == b' ').ok_or(Malformed::Text)?;
        let (target, version) = (behind.get(..space).unwrap_or_default(), behind.get(space + 1..).unwrap_or_default());
        let minor = match version {
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9'] => minor - b'0',
            _ => return Err(Malformed::Text),
        };
        if target.is_empty() || !target.iter().all(|byte| is_value(*byte) && !matches!(byte, b' ' | b'\t')) {
            return Err(Malformed::Text);
        }
        let from = rest;
        for _ in 0..=MAX_FIELDS {
            let Some((next, behind)) = line(rest) else {
                return Err(if is_partial_line(rest) { incomplete } else { Malformed::Text });
            };
            if next.is_empty() {
                let fields = from.get(..from.len() - rest.len()).unwrap_or_default();
                let head_len = head.len() - behind.len();
                return Ok(Request { method, target, minor, fields, head_len, bytes });
            }
            field(next)?;
            rest = behind;
        }
        Err(Malformed::Range)
    }

    /// Returns the method, such as `GET`.
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// Returns the request target as sent: a path with query, a URI, an authority or `*` (RFC 9112 §3.2).
    pub fn target(&self) -> &'a [u8] {
        self.target
    }

    /// Returns the minor version: 1 for HTTP/1.1.
    pub fn minor_version(&self) -> u8 {
        self.minor
    }

    /// Returns names and values of the fields, in order.
    pub fn fields(&self) -> Fields<'a> {
        Fields { rest: self.fields }
    }

    /// Returns the value of the first field of a name, regardless of case.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns the length of the head in bytes, with the empty line at its end.
    pub fn head_len(&self) -> usize {
        self.head_len
    }

    /// Returns the bytes behind the head: the content or a part of it, and further requests.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.head_len..).unwrap_or_default()
    }
}

/// The fields of a [`Request`].
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (line, rest) = line(self.rest)?;
        self.rest = rest;
        field(line).ok()
    }
}

/// The head of a request as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr<'a> {
    /// Method.
    pub method: &'a str,
    /// Request target.
    pub target: &'a [u8],
    /// Minor version.
    pub minor_version: u8,
    /// Names and values of the fields.
    pub fields: &'a [(&'a str, &'a [u8])],
}

impl Repr<'_> {
    /// Returns the parts of the head in the order in which they are written.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let minor = b"0123456789".get(usize::from(self.minor_version)..).and_then(|digits| digits.get(..1));
        let first = [self.method.as_bytes(), b" ", self.target, b" HTTP/1.", minor.unwrap_or_default(), b"\r\n"];
        let fields = self.fields.iter().flat_map(|(name, value)| [name.as_bytes(), b": ", value, b"\r\n"]);
        first.into_iter().chain(fields).chain([&b"\r\n"[..]])
    }

    /// Returns the length of the head in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a head is never empty")]
    pub fn len(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    /// Writes the head to the start of `bytes`.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there are fewer than [`len`](Repr::len) bytes; otherwise the error of [`Request::new`]
    /// for the head, or [`Malformed::Text`] if it would be read as another one.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<(), Malformed> {
        let bytes = bytes.get_mut(..self.len()).ok_or(Malformed::Short)?;
        let mut rest = &mut *bytes;
        for part in self.parts() {
            let (to, behind) = rest.split_at_mut(part.len());
            to.copy_from_slice(part);
            rest = behind;
        }
        let written = match Request::new(bytes) {
            // the head is complete, whatever it contains
            Err(Malformed::Short) => return Err(Malformed::Text),
            written => written?,
        };
        let same = written.method == self.method
            && written.target == self.target
            && written.minor == self.minor_version
            && written.fields().eq(self.fields.iter().copied())
            && written.rest().is_empty();
        if same { Ok(()) } else { Err(Malformed::Text) }
    }
}

#[cfg(test)]
mod tests;
