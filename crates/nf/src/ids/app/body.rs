//! Content codings of HTTP bodies.

use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use std::io::{BufReader, ErrorKind, Read};

/// Largest number of codings that are decoded one after another.
const MAX_CODINGS: usize = 3;

/// Number of bytes that a decoder is given at once: the output of the last ones is lost at an error.
const PIECE: usize = 16;

/// A decoded body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    /// `None` if the body has no coding.
    pub(super) bytes: Option<Vec<u8>>,
    /// True if the body is not what its codings say, so that a receiver may use it as it is.
    pub(super) doubtful: bool,
}

/// Decodes the codings of a field `Content-Encoding`, the last of which was applied last, and returns at most `max` bytes.
/// Bytes behind an error, and codings that are not known, stay out.
pub(super) fn decode(body: &[u8], codings: &[u8], max: usize) -> Decoded {
    let mut decoded = Decoded { bytes: None, doubtful: false };
    for coding in codings.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii).take(MAX_CODINGS) {
        let text = decoded.bytes.as_deref().unwrap_or(body);
        let pieces = || BufReader::with_capacity(PIECE, text);
        let is = |name: &[u8]| coding.eq_ignore_ascii_case(name);
        let (out, is_valid) = if is(b"gzip") || is(b"x-gzip") {
            read(MultiGzDecoder::new(pieces()), max)
        } else if is(b"deflate") {
            // with a header of zlib by the standard, without one by custom (RFC 9110 §8.4.1.2)
            let (out, is_valid) = read(ZlibDecoder::new(pieces()), max);
            if out.is_empty() { read(DeflateDecoder::new(pieces()), max) } else { (out, is_valid) }
        } else if is(b"identity") || coding.is_empty() {
            continue;
        } else {
            break;
        };
        decoded.doubtful |= !is_valid;
        if out.is_empty() {
            break;
        }
        decoded.bytes = Some(out);
    }
    decoded
}

/// Decompresses gzip up to a number of bytes or an error.
pub(in crate::ids) fn gunzip(text: &[u8], max: usize) -> Vec<u8> {
    read(MultiGzDecoder::new(BufReader::with_capacity(PIECE, text)), max).0
}

/// Decompresses deflate with a header of zlib up to a number of bytes or an error.
pub(in crate::ids) fn inflate(text: &[u8], max: usize) -> Vec<u8> {
    read(ZlibDecoder::new(BufReader::with_capacity(PIECE, text)), max).0
}

/// Reads until the end, an error or `max` bytes; returns false if the text is not valid, though it may be incomplete.
fn read(mut from: impl Read, max: usize) -> (Vec<u8>, bool) {
    let (mut out, mut part) = (vec![], [0; 4096]);
    while out.len() < max {
        let room = part.len().min(max - out.len());
        match from.read(&mut part[..room]) {
            Ok(0) => break,
            Err(e) => return (out, e.kind() == ErrorKind::UnexpectedEof),
            Ok(n) => out.extend_from_slice(&part[..n]),
        }
    }
    (out, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use std::io::Write;

    #[test]
    fn decodes_up_to_the_limit() {
        let text = b"body ".repeat(1000);
        let mut gzip = GzEncoder::new(vec![], Compression::default());
        gzip.write_all(&text).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut zlib = ZlibEncoder::new(vec![], Compression::default());
        zlib.write_all(&text).unwrap();
        let mut deflate = DeflateEncoder::new(vec![], Compression::default());
        deflate.write_all(&text).unwrap();
        let mut twice = GzEncoder::new(vec![], Compression::default());
        twice.write_all(&gzip).unwrap();
        for (coding, body) in [
            ("gzip", gzip.clone()),
            ("x-gzip", [&gzip[..], b"no other member"].concat()),
            ("deflate", zlib.finish().unwrap()),
            ("deflate", deflate.finish().unwrap()),
            ("gzip, gzip", twice.finish().unwrap()),
        ] {
            let decoded = decode(&body, coding.as_bytes(), 1 << 20);
            assert_eq!(decoded.bytes.as_ref(), Some(&text), "{coding}");
            assert_eq!(decoded.doubtful, coding == "x-gzip", "{coding}");
            if !coding.contains(',') {
                assert_eq!(decode(&body, coding.as_bytes(), 7).bytes.unwrap(), b"body bo", "{coding}");
            }
        }
        assert_eq!(decode(b"x", b"br", 10), Decoded { bytes: None, doubtful: false });
        let incomplete = decode(&gzip[..40], b"gzip", 1 << 20);
        assert!(incomplete.bytes.unwrap().starts_with(b"body") && !incomplete.doubtful);
        assert_eq!(decode(b"the body itself", b"gzip", 20), Decoded { bytes: None, doubtful: true });
        // compressed once less than the field says
        let once = decode(&gzip, b"gzip, gzip", 1 << 20);
        assert!(once.bytes.as_ref() == Some(&text) && once.doubtful);
    }
}
