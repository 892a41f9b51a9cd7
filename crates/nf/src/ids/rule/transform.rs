//! Transformations of buffers.

use super::bytes::build_regex;
use super::text::unquote;
use crate::ids::app::body::{gunzip, inflate};
use crate::ids::app::uri;
use md5::{Digest, Md5};
use regex::bytes::{Regex, RegexBuilder};
use ring::digest;
use std::borrow::Cow;

/// Most bytes of the result of a decompression.
const MAX_DECOMPRESSED: usize = 1 << 20;

/// A change of a buffer before it is inspected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ids) enum Transform {
    ToLowercase,
    ToUppercase,
    DotPrefix,
    StripWhitespace,
    CompressWhitespace,
    UrlDecode,
    ToMd5,
    ToSha1,
    ToSha256,
    HeaderLowercase,
    StripPseudoHeaders,
    Xor {
        key: XorKey,
        offset: usize,
    },
    FromBase64 {
        bytes: usize,
        offset: usize,
        mode: Base64Mode,
    },
    /// The first group of an expression.
    Group(Expression),
    /// Decompression up to a number of bytes.
    Gunzip(usize),
    Inflate(usize),
    Subslice {
        offset: i64,
        len: Option<i64>,
        truncate: bool,
    },
}

/// Key of `xor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ids) enum XorKey {
    Bytes(Vec<u8>),
    /// Bytes of the buffer.
    Extract {
        len: usize,
        offset: usize,
    },
}

/// Treatment of bytes that are not of the alphabet of base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ids) enum Base64Mode {
    /// The first one ends the text (RFC 4648 §3.3).
    Rfc4648,
    /// They are skipped (RFC 2045 §6.8).
    Rfc2045,
    /// Nothing is decoded.
    Strict,
}

/// A regular expression, compared by its text.
#[derive(Clone, Debug)]
pub(in crate::ids) struct Expression(Regex);

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Expression {}

/// Decodes base64; bits that are no whole byte at the end stay out.
pub(in crate::ids) fn decode_base64(text: &[u8], mode: Base64Mode) -> Vec<u8> {
    let (mut out, mut bits, mut n) = (Vec::with_capacity(text.len() / 4 * 3 + 3), 0u32, 0);
    for byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            _ => match mode {
                Base64Mode::Rfc4648 => break,
                Base64Mode::Rfc2045 => continue,
                Base64Mode::Strict => return vec![],
            },
        };
        (bits, n) = (bits << 6 | u32::from(value), n + 6);
        if n >= 8 {
            n -= 8;
            out.push((bits >> n) as u8);
        }
    }
    out
}

/// Returns the values of options `NAME VALUE`, separated by commas, in the order of the names; without a value, an empty
/// text.
fn named<'a, const N: usize>(text: &'a str, names: [&str; N]) -> Result<[Option<&'a str>; N], String> {
    let mut values = [None; N];
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once([' ', ':']).unwrap_or((part, ""));
        match names.iter().position(|known| *known == name.trim()).and_then(|n| values.get_mut(n)) {
            Some(to) if to.is_none() => *to = Some(value.trim()),
            _ => return Err(format!("{part}: not an option of this transformation, or a second one")),
        }
    }
    Ok(values)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text}: not a number in range"))
}

/// Returns true for the white space of C.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

impl Transform {
    /// Parses a transformation; `None` if the name is that of another option.
    pub(super) fn parse(name: &str, value: Option<&str>) -> Option<Result<Self, String>> {
        Some(Ok(match name {
            "to_lowercase" => Transform::ToLowercase,
            "to_uppercase" => Transform::ToUppercase,
            "dotprefix" => Transform::DotPrefix,
            "strip_whitespace" => Transform::StripWhitespace,
            "compress_whitespace" => Transform::CompressWhitespace,
            "url_decode" => Transform::UrlDecode,
            "to_md5" => Transform::ToMd5,
            "to_sha1" => Transform::ToSha1,
            "to_sha256" => Transform::ToSha256,
            "header_lowercase" => Transform::HeaderLowercase,
            "strip_pseudo_headers" => Transform::StripPseudoHeaders,
            _ => return Self::parse_with_value(name, value.unwrap_or("").trim()).transpose(),
        }))
    }

    /// Parses a transformation that has options.
    fn parse_with_value(name: &str, value: &str) -> Result<Option<Self>, String> {
        let max_size = || {
            let [max] = named(value, ["max-size"])?;
            match max.map_or(Ok(1024), number)? {
                max if (1..=MAX_DECOMPRESSED).contains(&max) => Ok(max),
                max => Err(format!("max-size {max}: write 1 to {MAX_DECOMPRESSED} bytes")),
            }
        };
        Ok(Some(match name {
            "xor" => xor(value)?,
            "from_base64" => {
                let [bytes, offset, mode] = named(value, ["bytes", "offset", "mode"])?;
                let mode = match mode {
                    None | Some("rfc4648") => Base64Mode::Rfc4648,
                    Some("rfc2045") => Base64Mode::Rfc2045,
                    Some("strict") => Base64Mode::Strict,
                    Some(other) => return Err(format!("{other}: write strict, rfc4648 or rfc2045")),
                };
                let offset = offset.map_or(Ok(0), number::<u16>)?;
                Transform::FromBase64 { bytes: bytes.map_or(Ok(usize::MAX), number)?, offset: offset.into(), mode }
            }
            "pcrexform" => {
                let expression = unquote(value)?.1;
                match build_regex(RegexBuilder::new(expression).unicode(false))? {
                    regex if regex.captures_len() > 1 => Transform::Group(Expression(regex)),
                    _ => return Err("the expression has no group".into()),
                }
            }
            "gunzip" => Transform::Gunzip(max_size()?),
            "zlib_deflate" => Transform::Inflate(max_size()?),
            "subslice" => {
                let parts: Vec<_> = value.split(',').map(str::trim).collect();
                let (parts, truncate) = match &parts[..] {
                    [parts @ .., "truncate"] => (parts, true),
                    parts => (parts, false),
                };
                match parts {
                    [offset] => Transform::Subslice { offset: number(offset)?, len: None, truncate },
                    [offset, len] => Transform::Subslice { offset: number(offset)?, len: Some(number(len)?), truncate },
                    _ => return Err(format!("{value}: write OFFSET or OFFSET,BYTES, and truncate")),
                }
            }
            _ => return Ok(None),
        }))
    }

    fn apply(&self, text: &[u8]) -> Vec<u8> {
        match self {
            Transform::ToLowercase => text.to_ascii_lowercase(),
            Transform::ToUppercase => text.to_ascii_uppercase(),
            Transform::DotPrefix => [b".", text].concat(),
            Transform::StripWhitespace => text.iter().copied().filter(|byte| !is_space(*byte)).collect(),
            Transform::CompressWhitespace => {
                let mut out: Vec<u8> = Vec::with_capacity(text.len());
                let mut in_space = false;
                for byte in text {
                    let space = is_space(*byte);
                    if !(space && in_space) {
                        out.push(if space { b' ' } else { *byte });
                    }
                    in_space = space;
                }
                out
            }
            Transform::UrlDecode => uri::decode(text, true),
            Transform::ToMd5 => Md5::digest(text).as_slice().to_vec(),
            Transform::ToSha1 => digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text).as_ref().to_vec(),
            Transform::ToSha256 => digest::digest(&digest::SHA256, text).as_ref().to_vec(),
            Transform::HeaderLowercase => {
                let mut in_name = true;
                let lower = |byte: &u8| {
                    match byte {
                        b':' => in_name = false,
                        b'\n' => in_name = true,
                        _ => {}
                    }
                    if in_name { byte.to_ascii_lowercase() } else { *byte }
                };
                text.iter().map(lower).collect()
            }
            Transform::StripPseudoHeaders => text
                .split_inclusive(|byte| *byte == b'\n')
                .filter(|line| !line.starts_with(b":"))
                .flatten()
                .copied()
                .collect(),
            Transform::Xor { key, offset } => {
                let key = match key {
                    XorKey::Bytes(bytes) => &bytes[..],
                    XorKey::Extract { len, offset } => text.get(*offset..offset + len).unwrap_or_default(),
                };
                let (head, tail) = text.split_at(text.len().min(*offset));
                let bytes = tail.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key);
                if key.is_empty() { text.to_vec() } else { head.iter().copied().chain(bytes).collect() }
            }
            Transform::FromBase64 { bytes, offset, mode } => {
                let text = text.get(*offset..).unwrap_or_default();
                decode_base64(text.get(..*bytes).unwrap_or(text), *mode)
            }
            Transform::Group(Expression(regex)) => {
                let group = regex.captures(text).and_then(|captures| captures.get(1));
                group.map_or_else(Vec::new, |group| group.as_bytes().to_vec())
            }
            Transform::Gunzip(max) => gunzip(text, *max),
            Transform::Inflate(max) => inflate(text, *max),
            Transform::Subslice { offset, len, truncate } => {
                let size = text.len() as i64;
                // positions outside the buffer give an empty one, or count as its ends
                let limit = |at: i64| {
                    if *truncate { Some(at.clamp(0, size)) } else { Some(at).filter(|at| (0..=size).contains(at)) }
                };
                let from = limit(if *offset < 0 { size.saturating_add(*offset) } else { *offset });
                let to = from.and_then(|from| match len {
                    None => Some(size),
                    Some(len) if *len < 0 => limit(size.saturating_add(*len)),
                    Some(len) => limit(from.saturating_add(*len)),
                });
                let range = from.zip(to).and_then(|(from, to)| text.get(from as usize..to as usize));
                range.unwrap_or_default().to_vec()
            }
        }
    }
}

/// Parses the key of `xor`, in hexadecimal digits or the place where it is in the buffer, and the offset of the first byte that
/// is changed.
fn xor(value: &str) -> Result<Transform, String> {
    let (offset, key) = match value.strip_prefix("offset ").and_then(|rest| rest.split_once(',')) {
        Some((offset, key)) => (number(offset.trim())?, key.trim()),
        None => (0, value),
    };
    if let Some(place) = key.strip_prefix("extract ") {
        let (len, at) = place.trim().split_once(' ').ok_or_else(|| format!("{key}: write extract BYTES OFFSET"))?;
        let (len, at) = (number::<u8>(len)?, number::<u32>(at.trim())?);
        let key = XorKey::Extract { len: len.into(), offset: at as usize };
        return if len > 0 { Ok(Transform::Xor { key, offset }) } else { Err(format!("{value}: the key is empty")) };
    }
    let digits = key.trim_matches('"').chars().map(|c| c.to_digit(16).map(|digit| digit as u8));
    match digits.collect::<Option<Vec<u8>>>().filter(|digits| !digits.is_empty() && digits.len().is_multiple_of(2)) {
        Some(digits) => {
            let key = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
            Ok(Transform::Xor { key: XorKey::Bytes(key), offset })
        }
        None => Err(format!("{key}: not a key of hexadecimal bytes")),
    }
}

/// Applies transformations in order.
pub(in crate::ids) fn transform<'a>(transforms: &[Transform], text: &'a [u8]) -> Cow<'a, [u8]> {
    transforms.iter().fold(Cow::Borrowed(text), |text, transform| Cow::Owned(transform.apply(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_buffers() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for (transform, text, expected) in [
            (Transform::ToLowercase, "aBc", "abc"),
            (Transform::ToUppercase, "aBc", "ABC"),
            (Transform::DotPrefix, "a.b", ".a.b"),
            (Transform::StripWhitespace, " a\t b\r\n", "ab"),
            (Transform::CompressWhitespace, " a\t b\r\n", " a b "),
            (Transform::UrlDecode, "a+%41%4%zz", "a A%4%zz"),
            (Transform::HeaderLowercase, "Host: A\r\nCookie: B", "host: A\r\ncookie: B"),
        ] {
            assert_eq!(transform.apply(text.as_bytes()), expected.as_bytes(), "{transform:?}");
        }
        for (name, value, text, expected) in [
            ("xor", "0102", "ab`", "``a"),
            ("xor", "offset 1,\"01\"", "ab`", "aca"),
            ("xor", "offset 1,extract 1 0", "\x01`c", "\x01ab"),
            ("from_base64", "", "VGhpcyBpcyBTdXJpY2F0YQ==", "This is Suricata"),
            ("from_base64", "offset 6, mode rfc4648", "/?arg=dGhpc2lzYXRlc3QK", "thisisatest\n"),
            ("from_base64", "bytes 16, offset 6, mode rfc2045", "/?arg=Zm 9v Ym Fy", "foobar"),
            ("from_base64", "mode strict", "Zm 9v", ""),
            ("from_base64", "bytes 4", "Zm9vYmFy", "foo"),
            ("pcrexform", "\"[a-zA-Z]+\\s+(.*)\\s+HTTP\"", "GET /dropper.php HTTP/1.0", "/dropper.php"),
            ("strip_pseudo_headers", "", ":a: b\nc: d\n", "c: d\n"),
            ("subslice", "5", "curl/7.64.1", "7.64.1"),
            ("subslice", "-20", "curl/7.64.1", ""),
            ("subslice", "-20, truncate", "curl/7.64.1", "curl/7.64.1"),
            ("subslice", "-20, 5, truncate", "curl/7.64.1", "curl/"),
            ("subslice", "0, -30", "curl/7.64.1", ""),
            ("subslice", "0, -30, truncate", "curl/7.64.1", ""),
            ("subslice", "0, -8", "curl/7.64.1", "cur"),
            ("subslice", "0, 30", "curl/7.64.1", ""),
            ("subslice", "0, 30, truncate", "curl/7.64.1", "curl/7.64.1"),
            ("subslice", "-3", "This is Suricata", "ata"),
        ] {
            let transform = Transform::parse(name, Some(value)).unwrap().unwrap();
            assert_eq!(transform.apply(text.as_bytes()), expected.as_bytes(), "{name}:{value}");
        }
        for (name, value) in [
            ("xor", "abc"),
            ("xor", "extract 0 1"),
            ("from_base64", "mode x"),
            ("from_base64", "bytes 1, bytes 2"),
            ("pcrexform", "\"abc\""),
            ("gunzip", "max-size 0"),
            ("subslice", ""),
            ("subslice", "1, 2, 3"),
        ] {
            assert!(Transform::parse(name, Some(value)).unwrap().is_err(), "{name}:{value}");
        }
        assert_eq!(hex(&Transform::ToMd5.apply(b"abc")), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(hex(&Transform::ToSha1.apply(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(
            hex(&Transform::ToSha256.apply(b"abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
