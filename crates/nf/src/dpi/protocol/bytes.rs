//! Numbers and text in payloads.

/// Returns the byte at an offset.
pub(super) fn byte(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

/// Returns the 16-bit number in network byte order at an offset.
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

/// Returns the 24-bit number in network byte order at an offset.
pub(super) fn be24(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|[a, b, c]| u32::from_be_bytes([0, *a, *b, *c]))
}

/// Returns the 32-bit number in network byte order at an offset.
pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// Returns the 64-bit number in network byte order at an offset.
pub(super) fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_be_bytes(*word))
}

/// Returns true if the bytes start with a text, regardless of case.
pub(super) fn starts_with(bytes: &[u8], text: &[u8]) -> bool {
    bytes.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text))
}

/// Returns true if the bytes are a proper start of a text, so that more may complete it.
pub(super) fn is_start_of(bytes: &[u8], text: &[u8]) -> bool {
    !bytes.is_empty() && bytes.len() < text.len() && text.starts_with(bytes)
}

/// Returns true if a part of the bytes is equal to a text.
pub(super) fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text))
}

/// Returns the first line without its end, and true if it is complete.
pub(super) fn first_line(bytes: &[u8]) -> (&[u8], bool) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = bytes.get(..end).unwrap_or_default();
            (line.strip_suffix(b"\r").unwrap_or(line), true)
        }
        None => (bytes, false),
    }
}

/// Returns true if the bytes start with a command that a space, a line end or the end of the bytes follows.
pub(super) fn is_command(bytes: &[u8], commands: &[&[u8]]) -> bool {
    commands.iter().any(|command| {
        starts_with(bytes, command) && matches!(byte(bytes, command.len()), None | Some(b' ' | b'\r' | b'\n' | b':'))
    })
}

/// Returns true for printable ASCII characters, spaces, tabs and line ends.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n'))
}
