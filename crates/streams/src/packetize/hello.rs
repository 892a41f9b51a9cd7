//! What the two SYNs of a connection agree on.

use super::head::Place;
use packet::Packet;
use wire::tcp::{Segment, TcpOption};
use wire::{Tcp, TcpFlags};
use zerocopy::FromBytes;

/// Options that cover the header or the payload with a checksum of their own: TCP MD5 (RFC 2385) and TCP-AO (RFC 5925).
const SIGNED: [u8; 2] = [19, 29];
/// Options of a SYN that are left in it: padding, the maximum segment size, the window scale, timestamps.
const KEPT: [u8; 4] = [1, 2, 3, 8];
/// The option that says by how much windows are shifted.
const SCALE: u8 = 3;
/// What a receiver takes that does not say how much (RFC 9293 §3.7.1): over IPv4 and IPv6.
const MSS: [u16; 2] = [536, 1220];

/// What a SYN says.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Hello {
    /// Largest segment that its sender takes, in bytes.
    pub(super) mss: u16,
    /// By how many bits its sender shifts windows, if it can.
    pub(super) scale: Option<u8>,
    /// By how many bits those are shifted that are told in its name: no window that could be told becomes 0.
    pub(super) told_scale: u8,
    /// Whether its sender uses timestamps.
    pub(super) stamps: bool,
    /// Window, not shifted.
    pub(super) window: u16,
}

impl Hello {
    /// Reads a SYN; `None` when what follows it must not be changed. No window of more than `most` bytes will be told.
    pub(super) fn read(frame: &[u8], place: &Place, most: u32) -> Option<Hello> {
        let segment = Segment::new(frame.get(place.tcp..place.payload)?).ok()?;
        let mut hello =
            Hello { mss: MSS[usize::from(place.v6)], window: segment.header().window(), ..Hello::default() };
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

    /// Takes out of a SYN what the other side must not learn: options that speak of sequence numbers or begin something else,
    /// its payload, and more window than there is.
    pub(super) fn scrub(packet: &mut Packet, place: &Place, window: u16, scale: u8) {
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
        place.seal(frame);
    }
}
