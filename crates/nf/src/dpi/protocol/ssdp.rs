//! SSDP.

use super::bytes::{contains, starts_with};
use super::{Context, Verdict};

/// Recognises searches, announcements and responses.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let request = starts_with(payload, b"M-SEARCH * HTTP/1.") || starts_with(payload, b"NOTIFY * HTTP/1.");
    let response = starts_with(payload, b"HTTP/1.1 200 OK\r\n")
        && (context.uses_port(&[1900]) || contains(payload, b"\r\nUSN:") || contains(payload, b"\r\nST:"));
    Verdict::of(request || response)
}
