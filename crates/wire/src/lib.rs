//! Protocol headers over bytes.
//!
//! Each protocol has three faces:
//!
//! * a **header** ([`Ipv4`], [`Tcp`], ...): the fixed part, laid over packet bytes without copying. Any bit pattern
//!   is a valid header, so its getters and setters never fail; [`Header::check`] says whether the bytes are one.
//! * a **checked view** ([`ipv4::Packet`], [`tcp::Segment`], ...): bytes that passed the check, with options and
//!   payload.
//! * a **value** ([`ipv4::Repr`], [`tcp::Repr`], ...): plain fields, parsed from a view and emitted to bytes.
//!
//! Of applications, [`dns`] has messages, [`http`] requests and [`tls`] the ClientHello.
//!
//! [`Follows`] says which header may stand above which, [`checksum`] computes and updates checksums, [`flow`] tells
//! packets apart, and [`build`] makes whole frames for tests and tools.
//!
//! No function in this crate panics whatever bytes it is given, unless its documentation says so.
#![forbid(unsafe_code)]

#[cfg(test)]
mod against_etherparse;
pub mod arp;
pub mod build;
#[cfg(test)]
mod captures;
pub mod checksum;
pub mod dns;
pub mod ethernet;
pub mod flow;
pub mod http;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
mod ip_in_ip;
pub mod ipv4;
pub mod ipv6;
pub mod ndp;
pub mod options;
#[cfg(test)]
mod samples;
pub mod tcp;
pub mod tls;
pub mod udp;
mod view;
pub mod vlan;

use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use arp::Arp;
pub use dns::Dns;
pub use ethernet::{EtherType, Ethernet, MacAddr};
pub use icmpv4::Icmpv4;
pub use icmpv6::Icmpv6;
pub use ip::IpProtocol;
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use tcp::{Tcp, TcpFlags};
pub use tls::TlsRecord;
pub use udp::Udp;
pub use view::View;
pub use vlan::Vlan;

/// Why bytes are not the header they claim to be, or why a value cannot be written as one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end before the header does, or before a length stated in it.
    Short,
    /// The version field names another protocol.
    Version,
    /// The header length field is smaller than the smallest header.
    HeaderLength,
    /// A total or payload length field is smaller than the header it counts.
    TotalLength,
    /// An option or extension header has an impossible length, or there are too many of them.
    Option,
    /// The type, operation or address format is one this crate has no value for.
    Kind,
    /// A value does not fit in its field.
    Range,
    /// A name or label is too long, or a compression pointer does not refer backwards.
    Name,
    /// A line of text does not follow the grammar of its protocol.
    Text,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Short => "bytes end before the header or the length it states",
            Malformed::Version => "wrong protocol version",
            Malformed::HeaderLength => "header length below the minimum",
            Malformed::TotalLength => "total length smaller than the header",
            Malformed::Option => "option or extension header with an impossible length",
            Malformed::Kind => "unsupported type, operation or address format",
            Malformed::Range => "value does not fit in its field",
            Malformed::Name => "name too long, or with a pointer that does not refer backwards",
            Malformed::Text => "line that does not follow the grammar of the protocol",
        })
    }
}

impl core::error::Error for Malformed {}

/// A protocol header laid over bytes: `Self` is the fixed part, any bit pattern is a valid `Self` and its accessors
/// never panic.
pub trait Header: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Sized + 'static {
    /// The protocol in lower case, e.g. `"ipv4"`.
    const NAME: &'static str;
    /// Drop reason when the header below announces something else, e.g. `"not_ipv4"`.
    const NOT: &'static str;
    /// Drop reason when [`check`](Header::check) fails, e.g. `"malformed_ipv4"`.
    const MALFORMED: &'static str;

    /// Returns the length in bytes of the header at the start of `bytes`, options and extension headers included.
    ///
    /// Always at least `size_of::<Self>()` and at most `bytes.len()`.
    ///
    /// # Errors
    /// The reason why the bytes are not a valid header.
    fn check(bytes: &[u8]) -> Result<usize, Malformed>;

    /// Returns the length of header and payload, without bytes behind them such as Ethernet padding.
    ///
    /// Only meaningful after [`check`](Header::check) accepted the same bytes; then at least the length it returned and
    /// at most `bytes.len()`.
    #[inline(always)]
    fn extent(bytes: &[u8]) -> usize {
        bytes.len()
    }
}

/// `Self` may stand directly above `Below`.
pub trait Follows<Below: Header>: Header {
    /// Returns true if the checked header `below` announces `Self` next.
    ///
    /// `below` is the whole header, options included: exactly as long as [`Header::check`] returned.
    fn announced_by(below: &[u8]) -> bool;
}

/// Returns the fixed part of a header at the start of `bytes`.
#[inline(always)]
pub(crate) fn fixed<H: Header>(bytes: &[u8]) -> Result<&H, Malformed> {
    match H::ref_from_prefix(bytes) {
        Ok((header, _)) => Ok(header),
        Err(_) => Err(Malformed::Short),
    }
}

/// [`fixed`] to be written to.
#[inline(always)]
pub(crate) fn fixed_mut<H: Header>(bytes: &mut [u8]) -> Result<&mut H, Malformed> {
    match H::mut_from_prefix(bytes) {
        Ok((header, _)) => Ok(header),
        Err(_) => Err(Malformed::Short),
    }
}
