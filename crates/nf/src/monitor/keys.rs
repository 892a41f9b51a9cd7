//! Keys of flows.

use tables::flow::{FlowKey, Seed, Tuple4, Tuple6};
use wire::flow::{FiveTuple, MAX_TAGS};
use wire::{EtherType, Ethernet, Vlan};
use zerocopy::FromBytes;

/// Key of a flow of either direction.
pub(super) trait Key: FlowKey {
    /// Returns the key for both directions, and true if it is that of the opposite one.
    fn either(self) -> (Self, bool);

    /// Returns the ends of the flow.
    fn endpoints(&self) -> Endpoints;
}

/// Ends of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) enum Endpoints {
    Ip(FiveTuple),
    Frame(FrameKey),
}

impl Endpoints {
    /// Returns those of the opposite direction.
    pub(super) fn reversed(self) -> Endpoints {
        match self {
            Endpoints::Ip(tuple) => Endpoints::Ip(tuple.reversed()),
            Endpoints::Frame(key) => Endpoints::Frame(key.reversed()),
        }
    }
}

impl Key for Tuple4 {
    #[inline(always)]
    fn either(self) -> (Self, bool) {
        Tuple4::either(self)
    }
    fn endpoints(&self) -> Endpoints {
        Endpoints::Ip(self.five_tuple())
    }
}

impl Key for Tuple6 {
    #[inline(always)]
    fn either(self) -> (Self, bool) {
        Tuple6::either(self)
    }
    fn endpoints(&self) -> Endpoints {
        Endpoints::Ip(self.five_tuple())
    }
}

impl Key for FrameKey {
    fn either(self) -> (Self, bool) {
        let reversed = self.reversed();
        if reversed < self { (reversed, true) } else { (self, false) }
    }
    fn endpoints(&self) -> Endpoints {
        Endpoints::Frame(*self)
    }
}

/// Source and destination address, EtherType and VLAN ID of a frame, as they are exported. Without a tag, the VLAN ID is
/// 0; with several it is that of the first. The EtherType is that behind the tags, 0 where a length is in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FrameKey(pub(super) [u8; 16]);

impl FrameKey {
    fn new(src: [u8; 6], dst: [u8; 6], ether_type: EtherType, vlan: u16) -> FrameKey {
        let mut key = [0; 16];
        key[..6].copy_from_slice(&src);
        key[6..12].copy_from_slice(&dst);
        key[12..14].copy_from_slice(&ether_type.0.to_be_bytes());
        key[14..].copy_from_slice(&vlan.to_be_bytes());
        FrameKey(key)
    }

    /// Returns the key of a frame, `None` if it has no Ethernet header.
    pub(super) fn of_frame(frame: &[u8]) -> Option<FrameKey> {
        let (ethernet, mut rest) = Ethernet::ref_from_prefix(frame).ok()?;
        let (mut ether_type, mut vlan) = (ethernet.ether_type(), None);
        for _ in 0..MAX_TAGS {
            let Some((tag, behind)) = Vlan::ref_from_prefix(rest).ok().filter(|_| ether_type.is_vlan()) else { break };
            vlan = vlan.or(Some(tag.vid()));
            (ether_type, rest) = (tag.ether_type(), behind);
        }
        let ether_type = if ether_type.is_length() { EtherType(0) } else { ether_type };
        Some(FrameKey::new(ethernet.src().0, ethernet.dst().0, ether_type, vlan.unwrap_or(0)))
    }

    /// Returns the key of the opposite direction.
    pub(super) fn reversed(self) -> FrameKey {
        let mut key = self.0;
        key[..12].rotate_left(6);
        FrameKey(key)
    }
}

impl FlowKey for FrameKey {
    type Packed = [u8; 16];

    fn flow_hash(&self, seed: &Seed) -> u64 {
        u128::from_ne_bytes(self.0).flow_hash(seed)
    }
    fn pack(&self) -> [u8; 16] {
        self.0
    }
    fn unpack(packed: &[u8; 16]) -> FrameKey {
        FrameKey(*packed)
    }
    fn is(&self, packed: &[u8; 16]) -> bool {
        self.0 == *packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_first_tag_and_the_last_type() {
        let (dst, src) = ([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 1]);
        let frame = |rest: &[u8]| [&dst[..], &src, rest].concat();
        let key = |ether_type, vlan| Some(FrameKey::new(src, dst, EtherType(ether_type), vlan));
        assert_eq!(FrameKey::of_frame(&frame(&[0x08, 6, 1])), key(0x806, 0));
        assert_eq!(FrameKey::of_frame(&frame(&[0x81, 0, 0x60, 5, 0x88, 0xcc])), key(0x88cc, 5));
        assert_eq!(FrameKey::of_frame(&frame(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5, 0x08, 6])), key(0x806, 7));
        assert_eq!(FrameKey::of_frame(&frame(&[0, 38, 0x42, 0x42, 3])), key(0, 0), "IEEE 802.3");
        assert_eq!(FrameKey::of_frame(&frame(&[0x81, 0, 0])), key(0x8100, 0), "half a tag");
        assert_eq!(FrameKey::of_frame(&frame(&[8])), None);
        let reversed = FrameKey::new(dst, src, EtherType(0x806), 0);
        assert_eq!(FrameKey::of_frame(&frame(&[8, 6])).unwrap().reversed(), reversed);
    }
}
