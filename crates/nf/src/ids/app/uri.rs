//! Normalisation of request targets.

/// Returns the number of two hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let [high, low, ..] = *digits else { return None };
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

/// Decodes `%HH`, and `+` as a space if `plus` is true. Incomplete escapes stay.
pub(in crate::ids) fn decode(text: &[u8], plus: bool) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'%' => match hex(after) {
                Some(byte) => {
                    out.push(byte);
                    rest = &after[2..];
                }
                None => out.push(b'%'),
            },
            b'+' if plus => out.push(b' '),
            byte => out.push(*byte),
        }
    }
    out
}

/// Splits a target into the authority of a URI with a scheme, if there is one, and the rest from the path on.
pub(super) fn split(target: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let scheme = target.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)).count();
    let behind = target.get(scheme..).and_then(|rest| rest.strip_prefix(b"://"));
    match behind.filter(|_| scheme > 0) {
        Some(rest) => {
            let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let host = authority.iter().rposition(|byte| *byte == b'@').map_or(authority, |at| &authority[at + 1..]);
            (Some(host), path)
        }
        None => (None, target),
    }
}

/// Returns path and query of a target: without percent-encoding, with `/` for backslashes and for several separators,
/// and without the segments `.` and `..` (RFC 3986 §5.2.4).
pub(super) fn normalise(target: &[u8]) -> Vec<u8> {
    let (_, target) = split(target);
    let end = target.iter().position(|byte| b"?#".contains(byte)).unwrap_or(target.len());
    let (path, query) = target.split_at(end);
    let mut out: Vec<u8> = Vec::with_capacity(target.len());
    for byte in decode(path, false) {
        let byte = if byte == b'\\' { b'/' } else { byte };
        if byte != b'/' || out.last() != Some(&b'/') {
            out.push(byte);
        }
    }
    if out.starts_with(b"/") {
        out = without_dot_segments(&out);
    }
    out.extend(decode(query, false));
    out
}

/// Removes the segments `.` and `..` of a path that begins with `/`.
fn without_dot_segments(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut segments = path.get(1..).unwrap_or_default().split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    out.truncate(out.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                }
                if is_last {
                    out.push(b'/');
                }
            }
            segment => {
                out.push(b'/');
                out.extend_from_slice(segment);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalises_targets() {
        for (target, expected) in [
            ("/a%20b?c=%41+d#e", "/a b?c=A+d#e"),
            ("/a/../b/./c//d\\e", "/b/c/d/e"),
            ("/..%2f../etc/passwd", "/etc/passwd"),
            ("/a/b/..", "/a/"),
            ("/", "/"),
            ("*", "*"),
            ("", ""),
            ("http://user@host:80/a?b", "/a?b"),
            ("http://host", ""),
            ("host:443", "host:443"),
            ("/%zz%4", "/%zz%4"),
        ] {
            assert_eq!(String::from_utf8_lossy(&normalise(target.as_bytes())), expected, "{target}");
        }
        assert_eq!(split(b"http://user@host:80/a"), (Some(&b"host:80"[..]), &b"/a"[..]));
    }
}
