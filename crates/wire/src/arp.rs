//! ARP for IPv4 over Ethernet (RFC 826).

use crate::{EtherType, Ethernet, Follows, Header, MacAddr, Malformed, View, Vlan, ethernet, fixed, fixed_mut, vlan};
use core::net::Ipv4Addr;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    network_endian::{U16, U32},
};

/// The 28 bytes of an ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Arp {
    hardware: U16,
    protocol: U16,
    hardware_len: u8,
    protocol_len: u8,
    operation: U16,
    sender_mac: MacAddr,
    sender_ip: U32,
    target_mac: MacAddr,
    target_ip: U32,
}

impl Arp {
    /// [`operation`](Self::operation) of a request.
    pub const REQUEST: u16 = 1;
    /// [`operation`](Self::operation) of a reply.
    pub const REPLY: u16 = 2;

    /// Returns the operation: 1 request, 2 reply.
    #[inline(always)]
    pub fn operation(&self) -> u16 {
        self.operation.get()
    }

    /// Returns the sender's MAC address.
    #[inline(always)]
    pub fn sender_mac(&self) -> MacAddr {
        self.sender_mac
    }

    /// Returns the sender's IPv4 address.
    #[inline(always)]
    pub fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.sender_ip.get())
    }

    /// Returns the target's MAC address; meaningless in a request.
    #[inline(always)]
    pub fn target_mac(&self) -> MacAddr {
        self.target_mac
    }

    /// Returns the target's IPv4 address.
    #[inline(always)]
    pub fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.target_ip.get())
    }

    /// Sets hardware Ethernet, protocol IPv4 and their address lengths.
    #[inline(always)]
    pub fn set_format(&mut self) {
        self.hardware = U16::new(1);
        self.protocol = U16::new(EtherType::IPV4.0);
        self.hardware_len = 6;
        self.protocol_len = 4;
    }

    /// Sets the operation.
    #[inline(always)]
    pub fn set_operation(&mut self, operation: u16) {
        self.operation = U16::new(operation);
    }

    /// Sets the sender's MAC address.
    #[inline(always)]
    pub fn set_sender_mac(&mut self, mac: MacAddr) {
        self.sender_mac = mac;
    }

    /// Sets the sender's IPv4 address.
    #[inline(always)]
    pub fn set_sender_ip(&mut self, ip: Ipv4Addr) {
        self.sender_ip = U32::new(ip.to_bits());
    }

    /// Sets the target's MAC address.
    #[inline(always)]
    pub fn set_target_mac(&mut self, mac: MacAddr) {
        self.target_mac = mac;
    }

    /// Sets the target's IPv4 address.
    #[inline(always)]
    pub fn set_target_ip(&mut self, ip: Ipv4Addr) {
        self.target_ip = U32::new(ip.to_bits());
    }
}

impl Header for Arp {
    const NAME: &'static str = "arp";
    const NOT: &'static str = "not_arp";
    const MALFORMED: &'static str = "malformed_arp";

    #[inline(always)]
    fn check(bytes: &[u8]) -> Result<usize, Malformed> {
        let header = fixed::<Self>(bytes)?;
        let format = (header.hardware.get(), header.protocol.get(), header.hardware_len, header.protocol_len);
        if format != (1, EtherType::IPV4.0, 6, 4) {
            return Err(Malformed::Kind);
        }
        Ok(size_of::<Self>())
    }

    #[inline(always)]
    fn extent(bytes: &[u8]) -> usize {
        bytes.len().min(size_of::<Self>())
    }
}

impl Follows<Ethernet> for Arp {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        ethernet::announces(below, EtherType::ARP)
    }
}

impl Follows<Vlan> for Arp {
    #[inline(always)]
    fn announced_by(below: &[u8]) -> bool {
        vlan::announces(below, EtherType::ARP)
    }
}

/// A checked ARP packet.
pub type Packet<'a> = View<'a, Arp>;

/// Operation of an ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Asks for the MAC address of the target address.
    Request,
    /// The sender has the sender address.
    Reply,
}

/// An ARP packet as a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Request or reply.
    pub operation: Operation,
    /// The sender's MAC address.
    pub sender_mac: MacAddr,
    /// The sender's IPv4 address.
    pub sender_ip: Ipv4Addr,
    /// The target's MAC address; zero in a request.
    pub target_mac: MacAddr,
    /// The target's IPv4 address.
    pub target_ip: Ipv4Addr,
}

impl Repr {
    /// Parses a checked packet.
    ///
    /// # Errors
    /// [`Malformed::Kind`] if it is neither request nor reply.
    pub fn parse(packet: &Packet<'_>) -> Result<Self, Malformed> {
        let header = packet.header();
        let operation = match header.operation() {
            Arp::REQUEST => Operation::Request,
            Arp::REPLY => Operation::Reply,
            _ => return Err(Malformed::Kind),
        };
        Ok(Self {
            operation,
            sender_mac: header.sender_mac(),
            sender_ip: header.sender_ip(),
            target_mac: header.target_mac(),
            target_ip: header.target_ip(),
        })
    }

    /// Returns the reply to this request, with `mac` as the owner of the target address.
    #[must_use]
    pub fn reply(&self, mac: MacAddr) -> Self {
        Self {
            operation: Operation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Returns the length of the packet in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        size_of::<Arp>()
    }

    /// Writes the packet to the start of `out`.
    ///
    /// # Errors
    /// [`Malformed::Short`] if there is no room.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), Malformed> {
        let header = fixed_mut::<Arp>(out)?;
        header.set_format();
        header.set_operation(match self.operation {
            Operation::Request => Arp::REQUEST,
            Operation::Reply => Arp::REPLY,
        });
        header.set_sender_mac(self.sender_mac);
        header.set_sender_ip(self.sender_ip);
        header.set_target_mac(self.target_mac);
        header.set_target_ip(self.target_ip);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: [u8; 28] = *b"\x00\x01\x08\x00\x06\x04\x00\x01\x02\0\0\0\0\x01\x0a\0\0\x01\0\0\0\0\0\0\x0a\0\0\x02";

    #[test]
    fn fields() {
        let packet = Packet::new(&REQUEST).unwrap();
        let repr = Repr::parse(&packet).unwrap();
        let expected = Repr {
            operation: Operation::Request,
            sender_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            sender_ip: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: MacAddr::ZERO,
            target_ip: Ipv4Addr::new(10, 0, 0, 2),
        };
        assert_eq!(repr, expected);
        let mut out = [0xff; 28];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, REQUEST);
        let mac = MacAddr([2, 0, 0, 0, 0, 2]);
        let reply = repr.reply(mac);
        reply.emit(&mut out).unwrap();
        assert_eq!(Repr::parse(&Packet::new(&out).unwrap()), Ok(reply));
        assert_eq!((reply.sender_mac, reply.sender_ip, reply.target_ip), (mac, repr.target_ip, repr.sender_ip));
        assert_eq!(repr.emit(&mut out[..27]), Err(Malformed::Short));
    }

    #[test]
    fn only_ipv4_over_ethernet() {
        for at in 0..6 {
            let mut bytes = REQUEST;
            bytes[at] ^= 0x10;
            assert_eq!(Arp::check(&bytes), Err(Malformed::Kind));
        }
        let mut rarp = REQUEST;
        rarp[7] = 3;
        assert_eq!(Repr::parse(&Packet::new(&rarp).unwrap()), Err(Malformed::Kind));
        assert_eq!(Packet::new(&[&REQUEST[..], &[0; 18]].concat()).unwrap().payload(), []);
    }
}
