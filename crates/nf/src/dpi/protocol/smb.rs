//! SMB 1 to 3, directly over TCP, in NetBIOS sessions and in NetBIOS datagrams.

use super::bytes::{be24, byte, contains};
use super::{Context, Transport, Verdict};

/// Recognises the protocol identifier behind the length of a message (MS-SMB2 §2.1).
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    if context.transport == Transport::Udp {
        let datagram = matches!(payload, [0x10..=0x16, ..=0x0f, ..]) && context.uses_port(&[138]);
        return Verdict::of(datagram && contains(payload, b"\xffSMB"));
    }
    let (Some(0), Some(length)) = (byte(payload, 0), be24(payload, 1)) else { return Verdict::NoMatch };
    let Some(identifier) = payload.get(4..8) else {
        let expected = context.uses_port(&[139, 445]) && length >= 32;
        return if expected { Verdict::NeedMore } else { Verdict::NoMatch };
    };
    Verdict::of(length >= 32 && matches!(identifier, [0xfc..=0xff, b'S', b'M', b'B']))
}
