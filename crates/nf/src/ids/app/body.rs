//! Content codings of HTTP bodies.

use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use std::io::Read;

/// Largest number of codings that are decoded one after another.
const MAX_CODINGS: usize = 3;

/// Decodes the codings of a field `Content-Encoding`, the last of which was applied last, and returns at most `max` bytes.
/// Bytes behind an error, and codings that are not known, stay out.
pub(super) fn decode(body: &[u8], codings: &[u8], max: usize) -> Option<Vec<u8>> {
    let codings: Vec<&[u8]> = codings.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
    let mut decoded: Option<Vec<u8>> = None;
    for coding in codings.iter().rev().take(MAX_CODINGS) {
        let text = decoded.as_deref().unwrap_or(body);
        let is = |name: &[u8]| coding.eq_ignore_ascii_case(name);
        decoded = Some(if is(b"gzip") || is(b"x-gzip") {
            read(MultiGzDecoder::new(text), max)
        } else if is(b"deflate") {
            // with a header of zlib by the standard, without one by custom (RFC 9110 §8.4.1.2)
            let out = read(ZlibDecoder::new(text), max);
            if out.is_empty() { read(DeflateDecoder::new(text), max) } else { out }
        } else if is(b"identity") || coding.is_empty() {
            continue;
        } else {
            break;
        });
    }
    decoded
}

/// Reads until the end, an error or `max` bytes.
fn read(mut from: impl Read, max: usize) -> Vec<u8> {
    let (mut out, mut part) = (vec![], [0; 4096]);
    while out.len() < max {
        let room = part.len().min(max - out.len());
        match from.read(&mut part[..room]) {
            Ok(0) | Err(_) => break,
            Ok(n) => out.extend_from_slice(&part[..n]),
        }
    }
    out
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
            ("x-gzip", [&gzip[..], b"rubbish"].concat()),
            ("deflate", zlib.finish().unwrap()),
            ("deflate", deflate.finish().unwrap()),
            ("gzip, gzip", twice.finish().unwrap()),
        ] {
            assert_eq!(decode(&body, coding.as_bytes(), 1 << 20).unwrap(), text, "{coding}");
            if !coding.contains(',') {
                assert_eq!(decode(&body, coding.as_bytes(), 7).unwrap(), b"body bo", "{coding}");
            }
        }
        assert!(decode(b"x", b"br", 10).is_none());
        assert!(decode(&gzip[..40], b"gzip", 1 << 20).unwrap().starts_with(b"body"));
    }
}
