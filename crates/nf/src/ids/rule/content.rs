//! The option `content`.

use super::operand::Operand;

/// Longest content in bytes.
const MAX_LEN: usize = 255;

/// A sequence of bytes to find.
#[derive(Clone, Debug, Default)]
pub(in crate::ids) struct Content {
    pub(in crate::ids) bytes: Vec<u8>,
    pub(in crate::ids) negated: bool,
    pub(in crate::ids) nocase: bool,
    pub(in crate::ids) offset: Option<Operand>,
    pub(in crate::ids) depth: Option<Operand>,
    pub(in crate::ids) distance: Option<Operand>,
    pub(in crate::ids) within: Option<Operand>,
    pub(in crate::ids) startswith: bool,
    pub(in crate::ids) endswith: bool,
    pub(in crate::ids) fast_pattern: bool,
    /// Offset and length of the part that the prefilter uses.
    pub(in crate::ids) chop: Option<(usize, usize)>,
}

impl Content {
    pub(in crate::ids) fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }

    pub(in crate::ids) fn matches_at(&self, text: &[u8]) -> bool {
        match text.get(..self.bytes.len()) {
            Some(part) if self.nocase => part.eq_ignore_ascii_case(&self.bytes),
            Some(part) => part == self.bytes,
            None => false,
        }
    }
}

/// Parses the bytes of a content: text, escaped characters, and hexadecimal bytes between bars.
pub(super) fn parse_bytes(text: &str) -> Result<Vec<u8>, String> {
    let (mut out, mut chars) = (vec![], text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('"' | ';' | ':' | '\\' | '|')) => out.push(c as u8),
                Some(c) => return Err(format!("\\{c}: not an escape")),
                None => return Err("an escape is incomplete".into()),
            },
            '|' => {
                let mut high = None;
                loop {
                    let c = chars.next().ok_or("hexadecimal bytes are not closed")?;
                    match (c, c.to_digit(16), high) {
                        ('|', ..) if high.is_none() => break,
                        (' ', _, None) => {}
                        (_, Some(digit), None) => high = Some(digit),
                        (_, Some(digit), Some(first)) => {
                            out.push((first << 4 | digit) as u8);
                            high = None;
                        }
                        _ => return Err(format!("{c}: not a pair of hexadecimal digits")),
                    }
                }
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    match out.len() {
        0 => Err("the content is empty".into()),
        1..=MAX_LEN => Ok(out),
        n => Err(format!("the content has {n} bytes, at most {MAX_LEN} are possible")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_bytes() {
        assert_eq!(parse_bytes("a|0d 0A|b\\;\\\"|7c|").unwrap(), b"a\r\nb;\"|");
        for invalid in ["", "|0", "|0g|", "|0 1|", "\\x", "a\\"] {
            assert!(parse_bytes(invalid).is_err(), "{invalid}");
        }
    }
}
