//! Verification of payload options.

use crate::ids::rule::bytes::{Field, JumpFrom, Match, MathOperator};
use crate::ids::rule::content::Content;
use crate::ids::rule::operand::Operand;
use crate::ids::rule::transform::{Base64Mode, decode_base64};

/// Largest number of options that are tried for a rule and buffer; searching this many bytes counts as one.
const MAX_STEPS: u32 = 3000;
const BYTES_PER_STEP: usize = 256;

/// Largest number of digits of a number whose length an option does not give.
const MAX_DIGITS: usize = 23;

/// Returns true if all options of a list match the buffer, and bytes behind the first `repeated` ones are part of the match.
pub(super) fn matches(list: &[Match], buffer: &[u8], repeated: usize, variables: &mut Vec<u64>) -> bool {
    Verifier { buffer, repeated, variables, steps: MAX_STEPS }.run(list, 0, 0)
}

struct Verifier<'a> {
    buffer: &'a [u8],
    repeated: usize,
    variables: &'a mut Vec<u64>,
    steps: u32,
}

impl Verifier<'_> {
    /// Matches the options from the end of the previous match on; `furthest` is the end of the furthest one, or of
    /// a number that was read.
    fn run(&mut self, list: &[Match], end: usize, furthest: usize) -> bool {
        let Some((option, rest)) = list.split_first() else {
            return self.repeated == 0 || furthest > self.repeated;
        };
        let Some(steps) = self.steps.checked_sub(1) else { return false };
        self.steps = steps;
        let len = self.buffer.len();
        match option {
            Match::Content(content) => self.content(content, rest, end, furthest),
            Match::IsDataAt { at, relative, negated } => {
                let at = at.value(self.variables);
                let there = if *relative { (end as i64).saturating_add(at) <= len as i64 } else { at < len as i64 };
                there != *negated && self.run(rest, end, furthest)
            }
            Match::BufferSize(size) => size.matches(len as u64) && self.run(rest, end, furthest),
            Match::Pcre { regex, relative, negated } => {
                let from = if *relative { end } else { 0 };
                let buffer = self.buffer;
                let Some(text) = buffer.get(from..) else { return false };
                let mut at = 0;
                loop {
                    let found = regex.find_at(text, at);
                    // a search may read far beyond its match
                    let searched = match found {
                        Some(found) if at == 0 => found.end(),
                        _ => (text.len() - at).max(BYTES_PER_STEP),
                    };
                    self.charge(searched);
                    let Some(found) = found else { break };
                    if *negated {
                        return false;
                    }
                    if self.run(rest, from + found.end(), furthest.max(from + found.end())) {
                        return true;
                    }
                    at = found.start() + 1;
                    if at > text.len() || self.steps == 0 || !self.depends_on_position(rest) {
                        return false;
                    }
                }
                *negated && self.run(rest, end, furthest)
            }
            Match::ByteTest { field, operator, negated, value } => {
                let Some((read, after)) = self.read(field, end) else { return false };
                let value = value.value(self.variables) as u64;
                operator.holds(read, value) != *negated && self.run(rest, end, furthest.max(after))
            }
            Match::ByteJump { field, multiplier, align, from, post_offset } => {
                let Some((read, after)) = self.read(field, end) else { return false };
                let mut jump = i128::from(read) * i128::from(*multiplier);
                if *align {
                    jump = (jump + 3) & !3;
                }
                jump += i128::from(post_offset.value(self.variables));
                let target = jump
                    + match from {
                        JumpFrom::Field => after as i128,
                        JumpFrom::Beginning => 0,
                        JumpFrom::End => len as i128,
                    };
                let target = target.max(0);
                // a target behind the bytes so far may be reached by further ones
                target <= len as i128 && self.run(rest, target as usize, furthest.max(after).max(target as usize))
            }
            Match::ByteExtract { field, multiplier, align, variable } => {
                let Some((read, after)) = self.read(field, end) else { return false };
                let value = read.wrapping_mul(*multiplier);
                let value = value.checked_next_multiple_of(*align).unwrap_or(value);
                self.set(*variable, value);
                self.run(rest, after, furthest.max(after))
            }
            Match::ByteMath { field, operator, value, variable } => {
                let Some((read, after)) = self.read(field, end) else { return false };
                let value = value.value(self.variables) as u64;
                let result = match operator {
                    MathOperator::Add => read.wrapping_add(value),
                    MathOperator::Subtract => read.wrapping_sub(value),
                    MathOperator::Multiply => read.wrapping_mul(value),
                    MathOperator::Divide => match read.checked_div(value) {
                        Some(result) => result,
                        None => return false,
                    },
                    MathOperator::ShiftLeft => u32::try_from(value).ok().and_then(|n| read.checked_shl(n)).unwrap_or(0),
                    MathOperator::ShiftRight => {
                        u32::try_from(value).ok().and_then(|n| read.checked_shr(n)).unwrap_or(0)
                    }
                };
                self.set(*variable, result);
                self.run(rest, after, furthest.max(after))
            }
            Match::Base64Decode { bytes, offset, relative, options } => {
                let from = if *relative { end } else { 0 } + offset;
                let buffer = self.buffer;
                let text = buffer.get(from..).unwrap_or_default();
                let text = text.get(..*bytes).unwrap_or(text);
                let repeated = text.get(..self.repeated.saturating_sub(from)).unwrap_or(text);
                let has_new = repeated.len() < text.len() && !self.decoded(repeated, options);
                let furthest = if has_new { furthest.max(from + text.len()) } else { furthest };
                self.decoded(text, options) && self.run(rest, end, furthest)
            }
        }
    }

    /// Returns true if the options match the bytes that Base64 stands for.
    fn decoded(&mut self, text: &[u8], options: &[Match]) -> bool {
        self.charge(text.len());
        let decoded = decode_base64(text, Base64Mode::Rfc4648);
        let mut inner = Verifier { buffer: &decoded, repeated: 0, variables: &mut *self.variables, steps: self.steps };
        let matches = !decoded.is_empty() && inner.run(options, 0, 0);
        self.steps = inner.steps;
        matches
    }

    /// Returns true if another position of the option before these may make them match.
    fn depends_on_position(&self, rest: &[Match]) -> bool {
        let next = rest.iter().find(|option| option.is_relative() || option.moves());
        self.repeated > 0 || next.is_some_and(Match::is_relative)
    }

    /// Subtracts the steps of a search.
    fn charge(&mut self, bytes: usize) {
        self.steps = self.steps.saturating_sub((bytes / BYTES_PER_STEP) as u32);
    }

    fn set(&mut self, variable: usize, value: u64) {
        if let Some(to) = self.variables.get_mut(variable) {
            *to = value;
        }
    }

    fn content(&mut self, content: &Content, rest: &[Match], end: usize, furthest: usize) -> bool {
        let (buffer, n) = (self.buffer, content.bytes.len());
        let len = buffer.len() as i64;
        let value = |operand: &Option<Operand>| operand.map(|operand| operand.value(self.variables));
        let (from, to) = if content.is_relative() {
            let from = (end as i64).saturating_add(value(&content.distance).unwrap_or(0));
            (from, value(&content.within).map_or(len, |within| from.saturating_add(within)))
        } else if content.startswith {
            (0, n as i64)
        } else {
            let from = value(&content.offset).unwrap_or(0);
            (from, value(&content.depth).map_or(len, |depth| from.saturating_add(depth)))
        };
        let (mut at, to) = (from.clamp(0, len) as usize, to.clamp(0, len) as usize);
        if content.endswith {
            at = at.max(buffer.len().saturating_sub(n));
        }
        // the last option has to end behind the repeated bytes, unless another one did
        if rest.is_empty() && !content.negated && furthest <= self.repeated && self.repeated > 0 {
            at = at.max((self.repeated + 1).saturating_sub(n));
        }
        while at + n <= to {
            let found = find(content, &buffer[at..to]);
            self.charge(found.unwrap_or(to - at));
            let Some(found) = found else { break };
            let found_end = at + found + n;
            if content.endswith && found_end != buffer.len() {
                at += found + 1;
                continue;
            }
            if content.negated {
                return false;
            }
            if self.run(rest, found_end, furthest.max(found_end)) {
                return true;
            }
            if self.steps == 0 || !self.depends_on_position(rest) {
                return false;
            }
            at += found + 1;
        }
        content.negated && self.run(rest, end, furthest)
    }

    /// Reads a number and returns the position behind it.
    fn read(&self, field: &Field, end: usize) -> Option<(u64, usize)> {
        let base = if field.relative { end as i64 } else { 0 };
        let start = base.saturating_add(field.offset.value(self.variables));
        let (start, len) = (usize::try_from(start).ok()?, usize::try_from(field.len.value(self.variables)).ok()?);
        if start >= self.buffer.len() {
            return None;
        }
        let mut bytes = self.buffer.get(start..start.checked_add(len)?)?;
        if field.len == Operand::Number(0) && field.text_base.is_some() {
            // as many digits as there are
            let text = self.buffer.get(start..).unwrap_or_default();
            let end = text.iter().take(MAX_DIGITS).take_while(|byte| byte.is_ascii_hexdigit()).count();
            bytes = text.get(..end)?;
        }
        let len = bytes.len();
        let mut read_len = len;
        let read = match field.text_base {
            _ if len == 0 => 0,
            Some(base) => {
                let text = bytes.trim_ascii_start();
                let text = match text {
                    [b'0', b'x' | b'X', rest @ ..] if base == 16 => rest,
                    text => text,
                };
                let digits = text.iter().take_while(|byte| char::from(**byte).is_digit(base)).count();
                read_len = len - text.len() + digits;
                u64::from_str_radix(std::str::from_utf8(text.get(..digits)?).ok()?, base).ok()?
            }
            None if len > 8 => return None,
            None if field.little => bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)),
            None => bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)),
        };
        let masked =
            if field.bitmask == u64::MAX { read } else { (read & field.bitmask) >> field.bitmask.trailing_zeros() };
        Some((masked, start + read_len))
    }
}

/// Finds the first position of a content.
fn find(content: &Content, text: &[u8]) -> Option<usize> {
    if !content.nocase {
        return memchr::memmem::find(text, &content.bytes);
    }
    let last = text.len().checked_sub(content.bytes.len())?;
    // looks for the byte of the content that is the least common in texts
    let (at, rare) = content.bytes.iter().enumerate().min_by_key(|(_, byte)| commonness(**byte))?;
    let (lower, upper) = (rare.to_ascii_lowercase(), rare.to_ascii_uppercase());
    let mut starts = memchr::memchr2_iter(lower, upper, text.get(at..=last + at)?);
    starts.find(|start| content.matches_at(text.get(*start..).unwrap_or_default()))
}

/// Returns how often a byte occurs in texts and headers, from 0 on.
fn commonness(byte: u8) -> u8 {
    match byte.to_ascii_lowercase() {
        b' ' | b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' | 0 => 3,
        b'l' | b'd' | b'h' | b'c' | b'u' | b'm' | b'p' | b'f' | b'g' | b'/' | b'.' | b'-' | b'=' | b'0'..=b'9' => 2,
        b'a'..=b'z' | b'_' | b':' | 0xff => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::rule::address::Variables;
    use crate::ids::rule::parser::Parser;
    use proptest::prelude::*;

    fn check(options: &str, payload: &[u8]) -> bool {
        let rule = format!("alert ip any any -> any any ({options} sid:1;)");
        let rule = Parser::new(Variables::new()).rule(&rule).unwrap();
        matches(&rule.buffers[0].1, payload, 0, &mut vec![0; rule.variables])
    }

    #[test]
    fn matches_options() {
        for (options, payload, expected) in [
            (r#"content:"b"; offset:1; depth:1;"#, "abc", true),
            (r#"content:"c"; offset:1; depth:1;"#, "abc", false),
            (r#"content:"AB"; nocase; startswith;"#, "abc", true),
            (r#"content:"ab"; endswith;"#, "abcab", true),
            (r#"content:"ab"; endswith;"#, "abc", false),
            (r#"content:!"d";"#, "abc", true),
            (r#"content:"a"; content:"b"; distance:1; within:1;"#, "axb", true),
            (r#"content:"a"; content:"b"; distance:1; within:1;"#, "axxb", false),
            (r#"content:"a"; content:"b"; within:1;"#, "axab", true),
            (r#"content:"b"; content:"a"; distance:-2; within:1;"#, "ab", true),
            (r#"content:"a"; isdataat:1,relative;"#, "ab", true),
            (r#"content:"a"; isdataat:!1,relative;"#, "ba", true),
            (r#"isdataat:3;"#, "abc", false),
            (r#"content:"a"; bsize:<3;"#, "ab", true),
            (r#"content:"a"; pcre:"/^B/Ri";"#, "ab", true),
            (r#"pcre:!"/b/";"#, "abc", false),
            (r#"pcre:"/(a)\/(b)/i, flow:x/y, pkt:z";"#, "A/B", true),
            (r#"byte_test:1,>,96,0;"#, "a", true),
            (r#"byte_test:2,=,0x6261,0,little;"#, "ab", true),
            (r#"byte_test:2,!=,12,0,string,dec;"#, "12", false),
            (r#"byte_test:1,=,6,0,bitmask 0xf0;"#, "a", true),
            (r#"byte_test:0,>=,1234,0,string,dec;"#, "1234;", true),
            (
                r#"base64_decode:bytes 8; base64_data; content:"foo"; startswith; content:"bar"; distance:0;"#,
                "Zm9vYmFy",
                true,
            ),
            (r#"base64_decode:bytes 4; base64_data; content:"bar";"#, "Zm9vYmFy", false),
            (
                r#"content:"a="; base64_decode:bytes 12, offset 1, relative; base64_data; content:"FOO"; nocase; pkt_data; content:"=x";"#,
                "a= Zm9v;=x",
                true,
            ),
            (r#"base64_decode; base64_data; content:!"a"; isdataat:2;"#, "Zm9v;YmFy", true),
            (r#"byte_jump:1,0,string,dec; isdataat:!1,relative;"#, "3abc", true),
            (r#"byte_jump:1,0,string,dec;"#, "4abc", false),
            (r#"base64_decode;"#, ";", false),
            (r#"byte_jump:1,0,string,dec; content:"x"; within:1;"#, "3abcx", true),
            (r#"byte_extract:1,0,n,string,dec; content:"x"; offset:n; depth:1;"#, "3abx", true),
            (
                r#"byte_math:bytes 1, offset 0, oper +, rvalue 1, result n, string dec; content:"x"; offset:n;"#,
                "2abx",
                true,
            ),
        ] {
            assert_eq!(check(options, payload.as_bytes()), expected, "{options} {payload}");
        }
    }

    proptest! {
        /// Contents with every position option, against a search of all combinations of positions.
        #[test]
        fn contents_match_like_a_slow_search(
            payload in "[ab]{0,12}",
            first in "[ab]{1,2}",
            second in "[ab]{1,2}",
            distance in -3i64..5,
            more in 0i64..4,
        ) {
            let within = second.len() as i64 + more;
            let expected = (0..payload.len()).any(|at| {
                payload[at..].starts_with(&first) && {
                    let from = (at + first.len()) as i64 + distance;
                    (0..payload.len() as i64).any(|other| {
                        other >= from && other + second.len() as i64 <= from + within && payload[other as usize..].starts_with(&second)
                    })
                }
            });
            let options = format!("content:\"{first}\"; content:\"{second}\"; distance:{distance}; within:{within};");
            prop_assert_eq!(check(&options, payload.as_bytes()), expected, "{} {}", options, payload);
        }
    }
}
