//! Conditions of a rule.

use super::error::{Error, Fault};
use super::region::{Region, Span, meta};
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::RangeInclusive;

/// One rule: a packet matches if it meets every condition. Position in the list is its rank: the first match wins.
///
/// ```
/// use tables::classifier::{Addresses, Rule, Upper};
///
/// let dns = Rule {
///     addresses: Addresses::V4 { src: ([10, 0, 0, 0].into(), 8), dst: ([0, 0, 0, 0].into(), 0) },
///     protocol: Some(17),
///     upper: Upper::Ports { src: 0..=u16::MAX, dst: 53..=53 },
///     ..Rule::ANY
/// };
/// assert!(tables::Classifier::new(&[dns, Rule::ANY]).is_ok());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rule {
    /// The addresses, and with them the IP version.
    pub addresses: Addresses,
    /// The protocol behind the IP header (and extension headers); `None`: any.
    pub protocol: Option<u8>,
    /// Condition on the transport header.
    pub upper: Upper,
    /// TCP flags; `None`: any protocol, any flags.
    pub tcp_flags: Option<TcpFlags>,
    /// Fragments that match.
    pub fragment: FragmentMatch,
}

impl Rule {
    /// Matches every packet of either version.
    pub const ANY: Self = Self {
        addresses: Addresses::Any,
        protocol: None,
        upper: Upper::Any,
        tcp_flags: None,
        fragment: FragmentMatch::Any,
    };
}

/// Source and destination prefixes: an address and its length in bits. Bits behind the length are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Addresses {
    /// Any address of either version.
    Any,
    /// IPv4 packets; lengths are 0 to 32.
    V4 {
        /// Source prefix.
        src: (Ipv4Addr, u8),
        /// Destination prefix.
        dst: (Ipv4Addr, u8),
    },
    /// IPv6 packets; lengths are 0 to 128.
    V6 {
        /// Source prefix.
        src: (Ipv6Addr, u8),
        /// Destination prefix.
        dst: (Ipv6Addr, u8),
    },
}

/// A condition on the header behind IP. Anything but `Any` is never met by a later fragment, which does not carry it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Upper {
    /// No condition.
    Any,
    /// TCP, UDP, SCTP, DCCP or UDP-Lite with ports in these ranges.
    Ports {
        /// Source ports.
        src: RangeInclusive<u16>,
        /// Destination ports.
        dst: RangeInclusive<u16>,
    },
    /// ICMP in IPv4 packets, ICMPv6 in IPv6 packets, with type and code in these ranges.
    Icmp {
        /// Types.
        kind: RangeInclusive<u8>,
        /// Codes.
        code: RangeInclusive<u8>,
    },
}

/// A condition on the flags of a TCP header (its byte 13: FIN is 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TcpFlags {
    /// The flags that matter.
    pub mask: u8,
    /// Required flags, within `mask`.
    pub value: u8,
}

/// A condition on fragmentation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FragmentMatch {
    /// Fragment or not.
    Any,
    /// Only packets that are not fragments.
    Whole,
    /// Only fragments, first or later.
    Fragment,
    /// Only first fragments (offset 0, more to follow).
    First,
    /// Only later fragments (offset above 0).
    Later,
}

const TCP: u8 = 6;
/// Protocols that begin with a source and a destination port: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [TCP, 17, 33, 132, 136];

impl Rule {
    /// Checks that a classifier accepts the rule.
    ///
    /// # Errors
    /// The contradiction.
    pub fn check(&self) -> Result<(), Fault> {
        match self.compile(0) {
            Ok(_) | Err(Error::TooMany { .. }) => Ok(()),
            Err(Error::Rule { fault, .. }) => Err(fault),
        }
    }

    /// Returns the rule, number `rank`, as regions of IPv4 and of IPv6 packets.
    pub(super) fn compile(&self, rank: u32) -> Result<(Option<Region>, Option<Region>), Error> {
        let at = |fault| Error::Rule { rule: rank as usize, fault };
        let compile = |words: usize, icmp: u8| -> Result<Region, Error> {
            let mut region = Region::all(words, rank);
            self.upper_and_meta(&mut region, icmp).map_err(at)?;
            Ok(region)
        };
        let prefix = |spans: &mut [Span], bits: u128, width: u8, len: u8| {
            if len > width {
                return Err(at(Fault::Length { len, most: width }));
            }
            for (at, span) in (0u8..).step_by(32).zip(spans) {
                let word = (bits >> (width - 32 - at)) as u32;
                let wild = u32::MAX.checked_shr(len.saturating_sub(at).into()).unwrap_or(0);
                *span = Span { lo: word & !wild, hi: word | wild };
            }
            Ok(())
        };
        Ok(match self.addresses {
            Addresses::Any if matches!(self.upper, Upper::Icmp { .. }) && self.protocol.is_some() => {
                return Err(at(Fault::IcmpOfBoth));
            }
            Addresses::Any => (Some(compile(1, 1)?), Some(compile(4, 58)?)),
            Addresses::V4 { src, dst } => {
                let mut region = compile(1, 1)?;
                prefix(&mut region.spans[..1], src.0.to_bits().into(), 32, src.1)?;
                prefix(&mut region.spans[1..2], dst.0.to_bits().into(), 32, dst.1)?;
                (Some(region), None)
            }
            Addresses::V6 { src, dst } => {
                let mut region = compile(4, 58)?;
                prefix(&mut region.spans[..4], src.0.to_bits(), 128, src.1)?;
                prefix(&mut region.spans[4..8], dst.0.to_bits(), 128, dst.1)?;
                (None, Some(region))
            }
        })
    }

    /// Fills in everything but the addresses; `icmp` is the version's own ICMP.
    fn upper_and_meta(&self, region: &mut Region, icmp: u8) -> Result<(), Fault> {
        let mut protocol = self.protocol;
        let [src_port, dst_port] = [region.fields() - 3, region.fields() - 2];
        match &self.upper {
            Upper::Any => {}
            Upper::Ports { src, dst } => {
                if let Some(protocol) = protocol.filter(|p| !WITH_PORTS.contains(p)) {
                    return Err(Fault::NoPorts { protocol });
                }
                region.spans[src_port] = range(src)?;
                region.spans[dst_port] = range(dst)?;
                region.require(meta::PORTS | meta::LATER, meta::PORTS);
            }
            Upper::Icmp { kind, code } => {
                if let Some(protocol) = protocol.filter(|&p| p != icmp) {
                    return Err(Fault::NotIcmp { protocol, icmp });
                }
                protocol = Some(icmp);
                region.spans[src_port] = range(kind)?;
                region.spans[dst_port] = range(code)?;
                region.require(meta::ICMP | meta::LATER, meta::ICMP);
            }
        }
        if let Some(TcpFlags { mask, value }) = self.tcp_flags {
            if let Some(protocol) = protocol.filter(|&p| p != TCP) {
                return Err(Fault::NotTcp { protocol });
            }
            if value & !mask != 0 {
                return Err(Fault::Flags { mask, value });
            }
            protocol = Some(TCP);
            region.require(u32::from(mask) | meta::FLAGS | meta::LATER, u32::from(value) | meta::FLAGS);
        }
        if let Some(protocol) = protocol {
            region.require(meta::PROTOCOL, u32::from(protocol) << meta::PROTOCOL_AT);
            region.spans[region.fields() - 1] = Span { lo: protocol.into(), hi: protocol.into() };
        }
        let (mask, value) = match self.fragment {
            FragmentMatch::Any => (0, 0),
            FragmentMatch::Whole => (meta::FRAGMENT, 0),
            FragmentMatch::Fragment => (meta::FRAGMENT, meta::FRAGMENT),
            FragmentMatch::First => (meta::FRAGMENT | meta::LATER, meta::FRAGMENT),
            FragmentMatch::Later if region.meta_mask & meta::LATER != 0 => return Err(Fault::LaterFragment),
            FragmentMatch::Later => (meta::LATER, meta::LATER),
        };
        region.require(mask, value);
        Ok(())
    }
}

fn range<T: Copy + PartialOrd + Into<u32>>(range: &RangeInclusive<T>) -> Result<Span, Fault> {
    let (lo, hi) = ((*range.start()).into(), (*range.end()).into());
    if range.is_empty() {
        return Err(Fault::EmptyRange { from: lo, to: hi });
    }
    Ok(Span { lo, hi })
}
