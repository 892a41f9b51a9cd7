//! Attributes of netlink messages.

use std::net::IpAddr;

pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;

/// Length of the header of an attribute.
const HEADER: usize = 4;
/// `NLA_TYPE_MASK`: the type without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const KIND_MASK: u16 = 0x3fff;

/// Fault of a netlink message. Places are bytes from the start of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A length is shorter than the header it is in, or exceeds what contains it.
    #[error("{what} at byte {at}: length {len}: expected {min} to {max} bytes")]
    Length {
        /// `message`, `attribute` or `next hop`.
        what: &'static str,
        /// Place.
        at: usize,
        /// The invalid length, bytes.
        len: usize,
        /// Length of its header, bytes.
        min: usize,
        /// Bytes that are left in the frame or message.
        max: usize,
    },
    /// The value of an attribute has an invalid length or content.
    #[error("attribute {kind} at byte {at}: value of {len} bytes: expected {expected}")]
    Value {
        /// `RTA_*` or `NHA_*`.
        kind: u16,
        /// Place.
        at: usize,
        /// Length of the value, bytes.
        len: usize,
        /// The valid values.
        expected: &'static str,
    },
    /// An attribute is missing.
    #[error("attribute {0} is missing")]
    Missing(u16),
    /// A prefix is longer than an address.
    #[error("prefix length {len}: expected 0 to {max} bits")]
    PrefixLength {
        /// Bits.
        len: u8,
        /// Bits of an address.
        max: u8,
    },
}

/// Returns the four bytes at `at` as an integer in host order; 0 beyond the end, which callers exclude.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

/// Returns the two bytes at `at` as an integer in host order; 0 beyond the end, which callers exclude.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_ne_bytes(*b))
}

/// Returns `len` with padding to 4 bytes (`NLMSG_ALIGN`, `RTA_ALIGN`, `RTNH_ALIGN`).
pub(crate) fn aligned(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// One attribute.
#[derive(Clone, Copy)]
pub(crate) struct Attribute<'a> {
    pub(crate) kind: u16,
    /// Byte of the message at which it starts.
    pub(crate) at: usize,
    pub(crate) value: &'a [u8],
}

impl Attribute<'_> {
    pub(crate) fn invalid(&self, expected: &'static str) -> Malformed {
        Malformed::Value { kind: self.kind, at: self.at, len: self.value.len(), expected }
    }

    pub(crate) fn u32(&self) -> Result<u32, Malformed> {
        let value = self.value.try_into().map_err(|_| self.invalid("4 bytes"))?;
        Ok(u32::from_ne_bytes(value))
    }

    /// Returns an address whose family follows from its length.
    pub(crate) fn address(&self) -> Result<IpAddr, Malformed> {
        address(self.value).ok_or_else(|| self.invalid("an address of 4 or 16 bytes"))
    }

    /// Returns the address of a family.
    pub(crate) fn address_of(&self, v4: bool) -> Result<IpAddr, Malformed> {
        let expected = if v4 { "an IPv4 address" } else { "an IPv6 address" };
        address(self.value).filter(|a| a.is_ipv4() == v4).ok_or_else(|| self.invalid(expected))
    }

    /// Returns the address of `RTA_VIA` (`struct rtvia`, linux/rtnetlink.h): u16 family, address.
    pub(crate) fn via(&self) -> Result<IpAddr, Malformed> {
        let family = u16_at(self.value, 0);
        self.value
            .get(2..)
            .and_then(address)
            .filter(|a| family == u16::from(if a.is_ipv4() { AF_INET } else { AF_INET6 }))
            .ok_or_else(|| self.invalid("family 2 with 4 bytes or family 10 with 16 bytes"))
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = bytes.try_into().map(|b: [u8; 4]| b.into());
    v4.or_else(|_| bytes.try_into().map(|b: [u8; 16]| b.into())).ok()
}

/// Iterator of attributes, which ends after the first error. Attributes (`struct rtattr`, linux/rtnetlink.h): u16 length
/// with this header, u16 type, value, padding to 4 bytes.
pub(crate) struct Attributes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Attributes<'a> {
    /// Iterates over the attributes in `bytes`, which start at byte `at` of the message.
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Attributes { bytes, at }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let (bytes, at) = (std::mem::take(&mut self.bytes), self.at);
        if bytes.is_empty() {
            return None;
        }
        let len = if bytes.len() < HEADER { bytes.len() } else { usize::from(u16_at(bytes, 0)) };
        let Some(value) = bytes.get(HEADER..len) else {
            let what = "attribute";
            return Some(Err(Malformed::Length { what, at, len, min: HEADER, max: bytes.len() }));
        };
        self.bytes = bytes.get(aligned(len)..).unwrap_or_default();
        self.at += aligned(len);
        Some(Ok(Attribute { kind: u16_at(bytes, 2) & KIND_MASK, at, value }))
    }
}
