//! Translation of ICMP errors between the versions (RFC 7915 §4.2, §4.3, §5.2, §5.3).

use super::headers::{
    AddressPair, FRAGMENT_HEADER_LEN, IPV4_HEADER_LEN, IPV6_HEADER_LEN, ipv4_header, ipv6_header, translate_l4,
};
use super::parse::{ICMP_HEADER_LEN, PacketInfo};
use crate::nat::flow::Direction;
use wire::{IpProtocol, checksum};

/// Largest ICMP errors in bytes, IPv4 (RFC 1812 §4.3.2.3) and IPv6 (RFC 4443 §2.4).
pub(super) const MAX_ICMPV4_ERROR_LEN: usize = 576;
pub(super) const MAX_ICMPV6_ERROR_LEN: usize = 1280;
/// Common MTUs, for routers that report none (RFC 1191 §7.1).
const PLATEAUS: [u16; 10] = [65_535, 32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296];

/// Type, code, and the four bytes after the checksum.
pub(super) type IcmpFields = (u8, u8, u32);

/// Translates an IPv4 error to IPv6. `mtu` is that of the inside link, `quoted_len` the length of the quoted packet.
pub(super) fn to_icmpv6((kind, code, rest): IcmpFields, mtu: usize, quoted_len: u16) -> Option<IcmpFields> {
    Some(match (kind, code) {
        (3, 2) => (4, 1, 6),
        (3, 3) => (1, 4, 0),
        (3, 4) => {
            let reported = match rest as u16 {
                0 => PLATEAUS.into_iter().find(|p| *p < quoted_len).unwrap_or(68),
                reported => reported,
            };
            (
                2,
                0,
                (usize::from(reported) + IPV6_HEADER_LEN - IPV4_HEADER_LEN).min(mtu).max(super::settings::MIN_MTU)
                    as u32,
            )
        }
        (3, 0 | 1 | 5..=8 | 11 | 12) => (1, 0, 0),
        (3, 9 | 10 | 13 | 15) => (1, 1, 0),
        (11, _) => (3, code, 0),
        (12, 0 | 2) => {
            let pointer = match rest >> 24 {
                pointer @ (0 | 1) => pointer,
                2 | 3 => 4,
                8 => 7,
                9 => 6,
                12..=15 => 8,
                16..=19 => 24,
                _ => return None,
            };
            (4, 0, pointer)
        }
        _ => return None,
    })
}

/// Translates an IPv6 error to IPv4.
pub(super) fn to_icmpv4((kind, code, rest): IcmpFields, mtu: usize) -> Option<IcmpFields> {
    Some(match (kind, code) {
        (1, 0 | 2 | 3) => (3, 1, 0),
        (1, 1) => (3, 10, 0),
        (1, 4) => (3, 3, 0),
        (2, _) => {
            let reported = (rest as usize).min(mtu).saturating_sub(IPV6_HEADER_LEN - IPV4_HEADER_LEN);
            (3, 4, reported.max(68) as u32)
        }
        (3, _) => (11, code, 0),
        (4, 0) => {
            let pointer = match rest {
                pointer @ (0 | 1) => pointer,
                4 | 5 => 2,
                6 => 9,
                7 => 8,
                8..=23 => 12,
                24..=39 => 16,
                _ => return None,
            };
            (12, 0, pointer << 24)
        }
        (4, 1) => (3, 2, 0),
        _ => return None,
    })
}

/// Returns the packet that a message quotes, without ICMP extensions (RFC 4884 §3, §5).
pub(super) fn quoted_packet(ipv6: bool, message: &[u8]) -> Option<&[u8]> {
    let body = message.get(ICMP_HEADER_LEN..)?;
    // ICMPv6 parameter problems have a pointer there and no extensions
    let quoted_len = match (ipv6, message[0]) {
        (true, 1 | 3) => usize::from(message[4]) * 8,
        (false, 3 | 11 | 12) => usize::from(message[5]) * 4,
        _ => 0,
    };
    Some(if quoted_len == 0 { body } else { &body[..quoted_len.min(body.len())] })
}

/// A translated ICMP error: its addresses, and the addresses, direction and port of the packet that it quotes.
pub(super) struct TranslatedError<'a> {
    pub(super) message: IcmpFields,
    pub(super) info: &'a PacketInfo,
    pub(super) hop_limit: u8,
    pub(super) addresses: AddressPair,
    pub(super) quoted: &'a PacketInfo,
    pub(super) bytes: &'a [u8],
    pub(super) quoted_addresses: AddressPair,
    pub(super) port: u16,
    pub(super) direction: Direction,
    pub(super) id: u16,
}

impl TranslatedError<'_> {
    /// Builds the IP packet.
    pub(super) fn packet(&self) -> Vec<u8> {
        let TranslatedError { info, quoted, .. } = self;
        let inner = match quoted.is_ipv6 {
            true => ipv4_header(quoted, quoted.protocol, &self.quoted_addresses, quoted.hop_limit, 0),
            false => ipv6_header(quoted, &self.quoted_addresses, quoted.hop_limit),
        };
        let mut body = self.bytes[quoted.l4..self.bytes.len().min(quoted.end)].to_vec();
        translate_l4(&mut body, quoted, &self.quoted_addresses, self.port, self.direction, quoted.len());
        let outer = if info.is_ipv6 { IPV4_HEADER_LEN } else { IPV6_HEADER_LEN };
        let max_len = if info.is_ipv6 { MAX_ICMPV4_ERROR_LEN } else { MAX_ICMPV6_ERROR_LEN };
        let (kind, code, rest) = self.message;
        let mut message = vec![kind, code, 0, 0];
        message.extend(rest.to_be_bytes());
        message.extend(inner.bytes());
        message.extend(body);
        message.truncate(max_len - outer);
        let sum = match info.is_ipv6 {
            true => checksum::of(&message),
            false => {
                let (src, dst) = (self.addresses.src.into(), self.addresses.dst.into());
                checksum::Pseudo::v6(src, dst, IpProtocol::ICMPV6).sum(&message).finish()
            }
        };
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        // the message takes the place of the old payload
        let long = PacketInfo { l4: 0, end: message.len(), ..**info };
        let header = match info.is_ipv6 {
            true => ipv4_header(&long, IpProtocol::ICMPV4.0, &self.addresses, self.hop_limit, self.id),
            false => ipv6_header(&long, &self.addresses, self.hop_limit),
        };
        [header.bytes(), &message].concat()
    }
}

const _: () = assert!(MAX_ICMPV4_ERROR_LEN > IPV4_HEADER_LEN + ICMP_HEADER_LEN + IPV6_HEADER_LEN + FRAGMENT_HEADER_LEN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translates_icmpv4_errors() {
        let to_icmpv6 = |kind, code, rest| to_icmpv6((kind, code, rest), 1500, 1500);
        for code in [0, 1, 5, 6, 7, 8, 11, 12] {
            assert_eq!(to_icmpv6(3, code, 0), Some((1, 0, 0)), "code {code}");
        }
        for code in [9, 10, 13, 15] {
            assert_eq!(to_icmpv6(3, code, 0), Some((1, 1, 0)), "code {code}");
        }
        assert_eq!((to_icmpv6(3, 2, 0), to_icmpv6(3, 3, 0)), (Some((4, 1, 6)), Some((1, 4, 0))));
        assert_eq!(
            [to_icmpv6(3, 14, 0), to_icmpv6(3, 16, 0), to_icmpv6(4, 0, 0), to_icmpv6(5, 1, 0), to_icmpv6(12, 1, 0)],
            [None; 5]
        );
        assert_eq!([to_icmpv6(11, 0, 0), to_icmpv6(11, 1, 0)], [Some((3, 0, 0)), Some((3, 1, 0))]);
        // 20 bytes more, within 1280 and the inside MTU
        let mtus = [1400, 1280, 576, 9000, 0].map(|mtu| to_icmpv6(3, 4, mtu).unwrap().2);
        assert_eq!(mtus, [1420, 1300, 1280, 1500, 1500]);
        assert_eq!(super::to_icmpv6((3, 4, 0), 1500, 1492).unwrap().2, 1280, "the next lower plateau");
        let pointers = [0, 1, 2, 3, 8, 9, 12, 15, 16, 19].map(|p| to_icmpv6(12, 0, p << 24).unwrap().2);
        assert_eq!(pointers, [0, 1, 4, 4, 7, 6, 8, 8, 24, 24]);
        assert!([4, 5, 6, 7, 10, 11, 20].iter().all(|p| to_icmpv6(12, 0, p << 24).is_none()));
    }

    #[test]
    fn translates_icmpv6_errors() {
        let to_icmpv4 = |kind, code, rest| to_icmpv4((kind, code, rest), 1500);
        let codes = [0, 1, 2, 3, 4].map(|code| to_icmpv4(1, code, 0).unwrap().1);
        assert_eq!(codes, [1, 10, 1, 1, 3]);
        assert_eq!([to_icmpv4(1, 5, 0), to_icmpv4(4, 2, 0), to_icmpv4(100, 0, 0)], [None; 3]);
        let mtus = [1500, 1280, 9000, 0].map(|mtu| to_icmpv4(2, 0, mtu).unwrap());
        assert_eq!(mtus, [(3, 4, 1480), (3, 4, 1260), (3, 4, 1480), (3, 4, 68)]);
        assert_eq!(
            [to_icmpv4(3, 0, 0), to_icmpv4(3, 1, 0), to_icmpv4(4, 1, 40)],
            [Some((11, 0, 0)), Some((11, 1, 0)), Some((3, 2, 0))]
        );
        let pointers = [0, 1, 4, 5, 6, 7, 8, 23, 24, 39].map(|p| to_icmpv4(4, 0, p).unwrap().2 >> 24);
        assert_eq!(pointers, [0, 1, 2, 2, 9, 8, 12, 12, 16, 16]);
        assert!([2, 3, 40].iter().all(|p| to_icmpv4(4, 0, *p).is_none()));
    }

    #[test]
    fn quotes_exclude_icmp_extensions() {
        let mut message = vec![11, 0, 0, 0, 0, 32, 0, 0];
        message.extend([7; 140]);
        assert_eq!(quoted_packet(false, &message).unwrap().len(), 128);
        message[5] = 0;
        assert_eq!(quoted_packet(false, &message).unwrap().len(), 140);
        message[0] = 3;
        message[4] = 16;
        assert_eq!(quoted_packet(true, &message).unwrap().len(), 128);
    }
}
