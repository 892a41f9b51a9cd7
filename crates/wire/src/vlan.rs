//! VLAN tags (IEEE 802.1Q §9.6), customer (0x8100) and service (0x88a8).
//!
//! The tag's own EtherType belongs to the header below, so the header here is the tag control information and the
//! EtherType behind it.

use crate::{EtherType, Ethernet, Follows, Header, Malformed, View, fixed, fixed_mut};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

const VID: u16 = 0x0fff;
const DEI: u16 = 0x1000;

/// The four bytes of a VLAN tag that follow its 0x8100 or 0x88a8.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Vlan {
    tci: U16,
    ether_type: U16,
}

impl Vlan {
    /// Returns the priority code point, 0 to 7.
    #[inline(always)]
    pub fn pcp(&self) -> u8 {
        (self.tci.get() >> 13) as u8
    }

    /// Returns the drop eligible indicator.
    #[inline(always)]
    pub fn dei(&self) -> bool {
        self.tci.get() & DEI != 0
    }

    /// Returns the VLAN identifier, 0 to 4095; 0 is a priority tag, 4095 is reserved.
    #[inline(always)]
    pub fn vid(&self) -> u16 {
        self.tci.get() & VID
    }

    /// Returns the EtherType that follows.
    #[inline(always)]
    pub fn ether_type(&self) -> EtherType {
        EtherType(self.ether_type.get())
    }

    /// Sets the priority to the low three bits of `pcp`.
    #[inline(always)]
    pub fn set_pcp(&mut self, pcp: u8) {
        self.tci = U16::new(self.tci.get() & (VID | DEI) | u16::from(pcp) << 13);
    }

    /// Sets the drop eligible indicator.
    #[inline(always)]
    pub fn set_dei(&mut self, dei: bool) {
        self.tci = U16::new(self.tci.get() & !DEI | u16::from(dei) << 12);
    }

    /// Sets the VLAN identifier to the low twelve bits of `vid`.
    #[inline(always)]
    pub fn set_vid(&mut self, vid: u16) {
        self.tci = U16::new(self.tci.get() & !VID | vid & VID);
    }

    /// Sets what comes next.
    #[inline(always)]
    pub fn set_ether_type(&mut self, ether_type: EtherType) {
        self.ether_type = U16::new(ether_type.0);
    }
}

impl Header for Vlan {
    const NAME: &'static str = "vlan";
    const NOT: &'static str = "not_vlan";
    const MALFORMED: &'static str = "malformed_vlan";

    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        fixed::<Self>(bytes)?;
        Ok(size_of::<Self>())
    }
}

impl Follows<Ethernet> for Vlan {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        fixed::<Ethernet>(below).is_ok_and(|header| header.ether_type().is_vlan())
    }
}

impl Follows<Vlan> for Vlan {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        fixed::<Vlan>(below).is_ok_and(|header| header.ether_type().is_vlan())
    }
}

/// Returns true if a checked VLAN tag announces `wanted`.
#[inline(always)]
pub(crate) fn announces(below: &[u8], wanted: EtherType) -> bool {
    fixed::<Vlan>(below).is_ok_and(|header| header.ether_type() == wanted)
}

/// A checked VLAN tag and what it carries.
pub type Tag<'a> = View<'a, Vlan>;

/// A VLAN tag as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Priority code point, 0 to 7.
    pub pcp: u8,
    /// Drop eligible indicator.
    pub dei: bool,
    /// VLAN identifier, 0 to 4095.
    pub vid: u16,
    /// EtherType that follows.
    pub ether_type: EtherType,
}

impl Repr {
    /// Parses a checked tag.
    ///
    /// # Errors
    /// None: every tag has a value.
    pub fn parse(tag: &Tag<'_>) -> Result<Self, Malformed> {
        let header = tag.header();
        Ok(Self { pcp: header.pcp(), dei: header.dei(), vid: header.vid(), ether_type: header.ether_type() })
    }

    /// Returns the length of the tag in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        size_of::<Vlan>()
    }

    /// Writes the tag to the start of `out`.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there is no room, [`Malformed::Range`] if the priority or identifier is too large.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Malformed> {
        if self.pcp > 7 || self.vid > VID {
            return Err(Malformed::Range);
        }
        let header = fixed_mut::<Vlan>(out)?;
        header.set_pcp(self.pcp);
        header.set_dei(self.dei);
        header.set_vid(self.vid);
        header.set_ether_type(self.ether_type);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let bytes = [0xb0, 0x05, 0x08, 0x00, 1];
        let tag = Tag::new(&bytes).unwrap();
        let repr = Repr::parse(&tag).unwrap();
        assert_eq!(repr, Repr { pcp: 5, dei: true, vid: 5, ether_type: EtherType::IPV4 });
        assert_eq!(tag.payload(), [1]);
        let mut out = [0xff; 4];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, bytes[..4]);
        assert_eq!(repr.emit(&mut out[..3]), Err(Malformed::Short));
        assert_eq!(Repr { pcp: 8, ..repr }.emit(&mut out), Err(Malformed::Range));
        assert_eq!(Repr { vid: 4096, ..repr }.emit(&mut out), Err(Malformed::Range));
    }

    #[test]
    fn setters_leave_the_rest() {
        let mut tag = *fixed::<Vlan>(&[0xff; 4]).unwrap();
        tag.set_vid(0xf001);
        assert_eq!((tag.pcp(), tag.dei(), tag.vid()), (7, true, 1));
        tag.set_pcp(2);
        assert_eq!((tag.pcp(), tag.dei(), tag.vid()), (2, true, 1));
        tag.set_dei(false);
        assert_eq!((tag.pcp(), tag.dei(), tag.vid()), (2, false, 1));
    }

    #[test]
    fn stacks() {
        for tpid in [0x8100_u16, 0x88a8] {
            let [high, low] = tpid.to_be_bytes();
            let ethernet = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low];
            assert!(<Vlan as Follows<Ethernet>>::announced_by(&ethernet));
            assert!(<Vlan as Follows<Vlan>>::announced_by(&[0, 1, high, low]));
            assert!(!<crate::Ipv4 as Follows<Vlan>>::announced_by(&[0, 1, high, low]));
        }
        assert!(<crate::Ipv4 as Follows<Vlan>>::announced_by(&[0, 1, 8, 0]));
        assert!(<crate::Arp as Follows<Vlan>>::announced_by(&[0, 1, 8, 6]));
        assert!(<crate::Ipv6 as Follows<Vlan>>::announced_by(&[0, 1, 0x86, 0xdd]));
    }
}
