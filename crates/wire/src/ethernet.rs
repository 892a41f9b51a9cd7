//! Ethernet II (IEEE 802.3 §3.1), without preamble and frame check sequence.

use crate::{Header, Malformed, View, fixed, fixed_mut};
use core::{fmt, str::FromStr};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, network_endian::U16};

/// A 48-bit MAC address in transmission order.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// `ff:ff:ff:ff:ff:ff`
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// `00:00:00:00:00:00`
    pub const ZERO: Self = Self([0; 6]);

    /// Returns true if this is the all-ones address.
    #[inline(always)]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Returns true if the group bit is set; the broadcast address is a multicast address.
    #[inline(always)]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns true if the address is neither a group address nor all zeros.
    #[inline(always)]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Self::ZERO
    }

    /// Returns true if the locally-administered bit is set.
    #[inline(always)]
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six two-digit hexadecimal groups separated by colons or hyphens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotMacAddr;

impl fmt::Display for NotMacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a MAC address such as 02:00:00:00:00:01")
    }
}

impl core::error::Error for NotMacAddr {}

impl FromStr for MacAddr {
    type Err = NotMacAddr;

    fn from_str(text: &str) -> Result<Self, NotMacAddr> {
        let mut octets = [0; 6];
        let mut groups = text.split([':', '-']);
        for octet in &mut octets {
            let group = groups.next().ok_or(NotMacAddr)?;
            if group.len() != 2 || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(NotMacAddr);
            }
            *octet = u8::from_str_radix(group, 16).map_err(|_| NotMacAddr)?;
        }
        if groups.next().is_some() { Err(NotMacAddr) } else { Ok(Self(octets)) }
    }
}

/// The EtherType or, below [`EtherType::MIN`], the length field of an IEEE 802.3 frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// The smallest EtherType; smaller values are lengths (IEEE 802.3 §3.2.6).
    pub const MIN: Self = Self(0x0600);
    /// IPv4
    pub const IPV4: Self = Self(0x0800);
    /// ARP
    pub const ARP: Self = Self(0x0806);
    /// IEEE 802.1Q customer tag
    pub const VLAN: Self = Self(0x8100);
    /// IPv6
    pub const IPV6: Self = Self(0x86dd);
    /// IEEE 802.1ad service tag
    pub const QINQ: Self = Self(0x88a8);
    /// MPLS unicast
    pub const MPLS: Self = Self(0x8847);
    /// PPPoE session (RFC 2516 §4)
    pub const PPPOE: Self = Self(0x8864);
    /// LLDP
    pub const LLDP: Self = Self(0x88cc);
    /// IEEE 1588 precision time protocol
    pub const PTP: Self = Self(0x88f7);

    /// Returns true if a VLAN tag comes next: 0x8100 or 0x88a8.
    #[inline(always)]
    pub fn is_vlan(self) -> bool {
        self == Self::VLAN || self == Self::QINQ
    }

    /// Returns true if the value is the length of an 802.3 frame, which announces no protocol.
    #[inline(always)]
    pub fn is_length(self) -> bool {
        self < Self::MIN
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// The 14-byte Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ethernet {
    dst: MacAddr,
    src: MacAddr,
    ether_type: U16,
}

impl Ethernet {
    /// Returns the destination address.
    #[inline(always)]
    pub fn dst(&self) -> MacAddr {
        self.dst
    }

    /// Returns the source address.
    #[inline(always)]
    pub fn src(&self) -> MacAddr {
        self.src
    }

    /// Returns the EtherType that follows.
    #[inline(always)]
    pub fn ether_type(&self) -> EtherType {
        EtherType(self.ether_type.get())
    }

    /// Sets the destination address.
    #[inline(always)]
    pub fn set_dst(&mut self, dst: MacAddr) {
        self.dst = dst;
    }

    /// Sets the source address.
    #[inline(always)]
    pub fn set_src(&mut self, src: MacAddr) {
        self.src = src;
    }

    /// Sets what comes next.
    #[inline(always)]
    pub fn set_ether_type(&mut self, ether_type: EtherType) {
        self.ether_type = U16::new(ether_type.0);
    }

    /// Exchanges source and destination.
    #[inline(always)]
    pub fn swap_addrs(&mut self) {
        // as two overlapping words: two loads, two double shifts, two stores
        let bytes = self.as_mut_bytes();
        let (Some(front), Some(back)) = (bytes[..12].first_chunk(), bytes[..12].last_chunk()) else { return };
        let (front, back) = (u64::from_le_bytes(*front), u64::from_le_bytes(*back));
        bytes[..8].copy_from_slice(&(back >> 16 | front << 48).to_le_bytes());
        bytes[4..12].copy_from_slice(&(back >> 48 | front << 16).to_le_bytes());
    }
}

impl Header for Ethernet {
    const NAME: &'static str = "ethernet";
    const NOT: &'static str = "not_ethernet";
    const MALFORMED: &'static str = "malformed_ethernet";

    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        fixed::<Self>(bytes)?;
        Ok(size_of::<Self>())
    }
}

/// Returns the EtherType of a checked Ethernet header.
#[inline(always)]
pub(crate) fn announces(below: &[u8], wanted: EtherType) -> bool {
    fixed::<Ethernet>(below).is_ok_and(|header| header.ether_type() == wanted)
}

/// A checked Ethernet frame; its payload includes padding.
pub type Frame<'a> = View<'a, Ethernet>;

/// An Ethernet header as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// EtherType that follows.
    pub ether_type: EtherType,
}

impl Repr {
    /// Parses a checked header.
    ///
    /// # Errors
    /// None: every Ethernet header has a value.
    pub fn parse(frame: &Frame<'_>) -> Result<Self, Malformed> {
        let header = frame.header();
        Ok(Self { dst: header.dst(), src: header.src(), ether_type: header.ether_type() })
    }

    /// Returns the length of the header in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        size_of::<Ethernet>()
    }

    /// Writes the header to the start of `out`.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there is no room.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Malformed> {
        let header = fixed_mut::<Ethernet>(out)?;
        header.set_dst(self.dst);
        header.set_src(self.src);
        header.set_ether_type(self.ether_type);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Follows, Ipv4, Vlan};

    #[test]
    fn mac_text() {
        let mac = MacAddr([2, 0, 0xab, 0, 0, 0x1f]);
        assert_eq!(mac.to_string(), "02:00:ab:00:00:1f");
        assert_eq!("02:00:AB:00:00:1f".parse(), Ok(mac));
        assert_eq!("02-00-ab-00-00-1f".parse(), Ok(mac));
        for bad in
            ["", "02:00:ab:00:00", "02:00:ab:00:00:1f:00", "2:0:ab:0:0:1f", "02:00:ab:00:00:+f", "02:00:ab:00:00:é"]
        {
            assert_eq!(bad.parse::<MacAddr>(), Err(NotMacAddr), "{bad}");
        }
    }

    #[test]
    fn mac_kinds() {
        assert!(MacAddr::BROADCAST.is_broadcast() && MacAddr::BROADCAST.is_multicast());
        assert!(!MacAddr::BROADCAST.is_unicast() && !MacAddr::ZERO.is_unicast());
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        assert!(mac.is_local() && mac.is_unicast() && !mac.is_broadcast());
    }

    #[test]
    fn fields() {
        let mut bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x86, 0xdd, 99];
        let frame = Frame::new(&bytes).unwrap();
        assert_eq!(frame.payload(), [99]);
        let repr = Repr::parse(&frame).unwrap();
        let (dst, src) = (MacAddr([1, 2, 3, 4, 5, 6]), MacAddr([7, 8, 9, 10, 11, 12]));
        assert_eq!(repr, Repr { dst, src, ether_type: EtherType::IPV6 });
        fixed_mut::<Ethernet>(&mut bytes).unwrap().swap_addrs();
        assert_eq!(bytes, [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 0x86, 0xdd, 99]);
        repr.emit(&mut bytes).unwrap();
        assert_eq!(Repr::parse(&Frame::new(&bytes).unwrap()), Ok(repr));
        assert_eq!(repr.emit(&mut bytes[..13]), Err(Malformed::Short));
        assert_eq!(Ethernet::check(&bytes[..13]), Err(Malformed::Short));
    }

    #[test]
    fn lengths_announce_nothing() {
        let mut bytes = [0; 14];
        for length in 0..EtherType::MIN.0 {
            bytes[12..].copy_from_slice(&length.to_be_bytes());
            assert!(fixed::<Ethernet>(&bytes).unwrap().ether_type().is_length());
            assert!(!<Ipv4 as Follows<Ethernet>>::announced_by(&bytes));
            assert!(!<Vlan as Follows<Ethernet>>::announced_by(&bytes));
        }
    }
}
