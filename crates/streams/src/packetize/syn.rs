//! Options and window of a SYN.

use super::header_template::HeaderOffsets;
use packet::Packet;
use wire::tcp::{Segment, TcpOption};
use wire::{Tcp, TcpFlags};
use zerocopy::FromBytes;

/// Options that sign the header or the payload: TCP MD5 (RFC 2385) and TCP-AO (RFC 5925).
const SIGNED: [u8; 2] = [19, 29];
/// Options that stay in a SYN: padding, maximum segment size, window scale, timestamps.
const KEPT: [u8; 4] = [1, 2, 3, 8];
/// Kind of the window scale option.
const SCALE: u8 = 3;
/// Default maximum segment size over IPv4 and IPv6 (RFC 9293 §3.7.1).
const MSS: [u16; 2] = [536, 1220];

/// Parameters that a SYN announces.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SynParameters {
    /// Maximum segment size in bytes.
    pub(super) mss: u16,
    /// Window scale of the sender in bits, if it announces one.
    pub(super) scale: Option<u8>,
    /// Window scale that is announced on behalf of the sender, in bits: large enough that no advertised window rounds
    /// to 0.
    pub(super) told_scale: u8,
    /// True if the sender uses timestamps.
    pub(super) stamps: bool,
    /// Unscaled window.
    pub(super) window: u16,
}

impl SynParameters {
    /// Parses a SYN; `None` if the connection must not be rewritten. No window of more than `most` bytes will be
    /// advertised.
    pub(super) fn read(frame: &[u8], place: &HeaderOffsets, most: u32) -> Option<SynParameters> {
        let segment = Segment::new(frame.get(place.tcp..place.payload)?).ok()?;
        let mut hello = SynParameters {
            mss: MSS[usize::from(place.v6)],
            window: segment.header().window(),
            ..SynParameters::default()
        };
        for option in segment.options() {
            match option {
                Ok(TcpOption::Mss(bytes)) => hello.mss = bytes.max(64),
                Ok(TcpOption::WindowScale(bits)) => {
                    let enough = (u32::BITS - (most >> 16).leading_zeros()) as u8;
                    (hello.scale, hello.told_scale) = (Some(bits.min(14)), bits.min(enough));
                }
                Ok(TcpOption::Timestamps { .. }) => hello.stamps = true,
                Ok(TcpOption::Unknown { kind, .. }) if SIGNED.contains(&kind) => return None,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        Some(hello)
    }

    /// Removes from a SYN options that carry sequence numbers or negotiate other features, its payload, and any window
    /// beyond the available one.
    pub(super) fn sanitise(packet: &mut Packet, place: &HeaderOffsets, window: u16, scale: u8) {
        packet.truncate(place.payload);
        let frame = packet.data_mut();
        let (fixed, options) = frame[place.tcp..].split_at_mut(size_of::<Tcp>());
        let mut at = 0;
        while let Some(&kind) = options.get(at) {
            if kind == 0 {
                break;
            }
            let len = match options.get(at + 1) {
                _ if kind == 1 => 1,
                Some(len) => usize::from(*len).max(2),
                None => 1,
            };
            let end = (at + len).min(options.len());
            if !KEPT.contains(&kind) {
                options[at..end].fill(1);
            } else if kind == SCALE && end == at + 3 {
                options[at + 2] = scale;
            }
            at = end;
        }
        if let Ok((header, _)) = Tcp::mut_from_prefix(fixed) {
            header.set_window(window.min(header.window()));
            header.set_urgent(0);
            header.set_flags(header.flags().without(TcpFlags::URG));
        }
        place.write_checksums(frame);
    }
}
