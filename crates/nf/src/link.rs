//! Link headers of frames.

use wire::flow::MAX_TAGS;
use wire::{EtherType, Ethernet, Vlan};
use zerocopy::FromBytes;

/// Reason for which the link header of a frame is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkError {
    /// The frame is shorter than an Ethernet header.
    NoEthernet,
    /// A VLAN tag is truncated, or there are more than [`MAX_TAGS`].
    InvalidTags,
}

/// Returns the EtherType and the payload of a frame, without its VLAN tags.
///
/// # Errors
/// The link header is invalid.
#[inline]
pub(crate) fn parse(frame: &[u8]) -> Result<(EtherType, &[u8]), LinkError> {
    let (ethernet, mut payload) = Ethernet::ref_from_prefix(frame).map_err(|_| LinkError::NoEthernet)?;
    let mut ether_type = ethernet.ether_type();
    for _ in 0..MAX_TAGS {
        if !ether_type.is_vlan() {
            break;
        }
        let (vlan, rest) = Vlan::ref_from_prefix(payload).map_err(|_| LinkError::InvalidTags)?;
        (ether_type, payload) = (vlan.ether_type(), rest);
    }
    // the packet after further tags is unknown, so it must not be taken for another protocol
    if ether_type.is_vlan() { Err(LinkError::InvalidTags) } else { Ok((ether_type, payload)) }
}

/// Compares the first bytes of a frame with those of an untagged, unfragmented IPv4 packet without options; returns 0
/// if they match.
#[inline(always)]
pub(crate) fn plain_ipv4_mismatch(frame: &[u8; 24]) -> u32 {
    let word = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    // EtherType, version and header length; the only flag that may be set is "don't fragment"
    ((word(12) & 0x00ff_ffff) ^ 0x0045_0008) | word(20) & 0xffbf
}
