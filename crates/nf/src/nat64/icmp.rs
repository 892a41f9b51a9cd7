//! ICMP errors of one version as those of the other (RFC 7915 §4.2, §4.3, §5.2, §5.3).

use super::look::{Head, ICMP_LEAST};
use super::translate::{Ends, FOUR, FRAGMENT, SIX, header4, header6, upper};
use crate::nat44::flow::Way;
use wire::{IpProtocol, checksum};

/// Bytes of an ICMP error over IPv4 at most (RFC 1812 §4.3.2.3), and over IPv6 (RFC 4443 §2.4).
pub(super) const LARGEST4: usize = 576;
pub(super) const LARGEST6: usize = 1280;
/// Lengths that links have, for routers that do not say (RFC 1191 §7.1).
const PLATEAUS: [u16; 10] = [65_535, 32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296];

/// Type, code, and the four bytes behind the checksum.
pub(super) type Message = (u8, u8, u32);

/// An IPv4 error as one of IPv6; `mtu` is that of the next link inside, `total` the length of the packet that is quoted.
pub(super) fn to6((kind, code, rest): Message, mtu: usize, total: u16) -> Option<Message> {
    Some(match (kind, code) {
        (3, 2) => (4, 1, 6),
        (3, 3) => (1, 4, 0),
        (3, 4) => {
            let told = match rest as u16 {
                0 => PLATEAUS.into_iter().find(|p| *p < total).unwrap_or(68),
                told => told,
            };
            (2, 0, (usize::from(told) + SIX - FOUR).min(mtu).max(super::settings::LEAST) as u32)
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

/// An IPv6 error as one of IPv4.
pub(super) fn to4((kind, code, rest): Message, mtu: usize) -> Option<Message> {
    Some(match (kind, code) {
        (1, 0 | 2 | 3) => (3, 1, 0),
        (1, 1) => (3, 10, 0),
        (1, 4) => (3, 3, 0),
        (2, _) => {
            let told = (rest as usize).min(mtu).saturating_sub(SIX - FOUR);
            (3, 4, told.max(68) as u32)
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

/// Bytes of a message that belong to the packet it quotes: extensions behind it are left out (RFC 4884 §3, §5).
pub(super) fn quote(six: bool, message: &[u8]) -> Option<&[u8]> {
    let body = message.get(ICMP_LEAST..)?;
    // parameter problems of IPv6 have a pointer there, and no extensions
    let said = match (six, message[0]) {
        (true, 1 | 3) => usize::from(message[4]) * 8,
        (false, 3 | 11 | 12) => usize::from(message[5]) * 4,
        _ => 0,
    };
    Some(if said == 0 { body } else { &body[..said.min(body.len())] })
}

/// An error, translated, as a packet of the other version: its own `ends`, and those of the packet that it quotes, which
/// went the way `way` and gets this port.
pub(super) struct Translated<'a> {
    pub(super) message: Message,
    pub(super) head: &'a Head,
    pub(super) hops: u8,
    pub(super) ends: Ends,
    pub(super) quoted: &'a Head,
    pub(super) bytes: &'a [u8],
    pub(super) quoted_ends: Ends,
    pub(super) port: u16,
    pub(super) way: Way,
    pub(super) id: u16,
}

impl Translated<'_> {
    /// The whole IP packet.
    pub(super) fn packet(&self) -> Vec<u8> {
        let Translated { head, quoted, .. } = self;
        let inner = match quoted.six {
            true => header4(quoted, quoted.protocol, &self.quoted_ends, quoted.hops, 0),
            false => header6(quoted, &self.quoted_ends, quoted.hops),
        };
        let mut body = self.bytes[quoted.upper..self.bytes.len().min(quoted.end)].to_vec();
        upper(&mut body, quoted, &self.quoted_ends, self.port, self.way, quoted.len());
        let outer = if head.six { FOUR } else { SIX };
        let most = if head.six { LARGEST4 } else { LARGEST6 };
        let (kind, code, rest) = self.message;
        let mut message = vec![kind, code, 0, 0];
        message.extend(rest.to_be_bytes());
        message.extend(inner.bytes());
        message.extend(body);
        message.truncate(most - outer);
        let sum = match head.six {
            true => checksum::of(&message),
            false => {
                let (src, dst) = (self.ends.src.into(), self.ends.dst.into());
                checksum::Pseudo::v6(src, dst, IpProtocol::ICMPV6).sum(&message).finish()
            }
        };
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        // as if the message were what is behind the old header
        let long = Head { upper: 0, end: message.len(), ..**head };
        let header = match head.six {
            true => header4(&long, IpProtocol::ICMPV4.0, &self.ends, self.hops, self.id),
            false => header6(&long, &self.ends, self.hops),
        };
        [header.bytes(), &message].concat()
    }
}

const _: () = assert!(LARGEST4 > FOUR + ICMP_LEAST + SIX + FRAGMENT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_ipv4_as_the_rfc_says() {
        let to6 = |kind, code, rest| to6((kind, code, rest), 1500, 1500);
        for code in [0, 1, 5, 6, 7, 8, 11, 12] {
            assert_eq!(to6(3, code, 0), Some((1, 0, 0)), "code {code}");
        }
        for code in [9, 10, 13, 15] {
            assert_eq!(to6(3, code, 0), Some((1, 1, 0)), "code {code}");
        }
        assert_eq!((to6(3, 2, 0), to6(3, 3, 0)), (Some((4, 1, 6)), Some((1, 4, 0))));
        assert_eq!([to6(3, 14, 0), to6(3, 16, 0), to6(4, 0, 0), to6(5, 1, 0), to6(12, 1, 0)], [None; 5]);
        assert_eq!([to6(11, 0, 0), to6(11, 1, 0)], [Some((3, 0, 0)), Some((3, 1, 0))]);
        // 20 bytes more, but never less than every link has nor more than ours
        let mtus = [1400, 1280, 576, 9000, 0].map(|mtu| to6(3, 4, mtu).unwrap().2);
        assert_eq!(mtus, [1420, 1300, 1280, 1500, 1500]);
        assert_eq!(super::to6((3, 4, 0), 1500, 1492).unwrap().2, 1280, "the plateau below");
        let pointers = [0, 1, 2, 3, 8, 9, 12, 15, 16, 19].map(|p| to6(12, 0, p << 24).unwrap().2);
        assert_eq!(pointers, [0, 1, 4, 4, 7, 6, 8, 8, 24, 24]);
        assert!([4, 5, 6, 7, 10, 11, 20].iter().all(|p| to6(12, 0, p << 24).is_none()));
    }

    #[test]
    fn errors_of_ipv6_as_the_rfc_says() {
        let to4 = |kind, code, rest| to4((kind, code, rest), 1500);
        let codes = [0, 1, 2, 3, 4].map(|code| to4(1, code, 0).unwrap().1);
        assert_eq!(codes, [1, 10, 1, 1, 3]);
        assert_eq!([to4(1, 5, 0), to4(4, 2, 0), to4(100, 0, 0)], [None; 3]);
        let mtus = [1500, 1280, 9000, 0].map(|mtu| to4(2, 0, mtu).unwrap());
        assert_eq!(mtus, [(3, 4, 1480), (3, 4, 1260), (3, 4, 1480), (3, 4, 68)]);
        assert_eq!([to4(3, 0, 0), to4(3, 1, 0), to4(4, 1, 40)], [Some((11, 0, 0)), Some((11, 1, 0)), Some((3, 2, 0))]);
        let pointers = [0, 1, 4, 5, 6, 7, 8, 23, 24, 39].map(|p| to4(4, 0, p).unwrap().2 >> 24);
        assert_eq!(pointers, [0, 1, 2, 2, 9, 8, 12, 12, 16, 16]);
        assert!([2, 3, 40].iter().all(|p| to4(4, 0, *p).is_none()));
    }

    #[test]
    fn a_quote_ends_where_extensions_begin() {
        let mut message = vec![11, 0, 0, 0, 0, 32, 0, 0];
        message.extend([7; 140]);
        assert_eq!(quote(false, &message).unwrap().len(), 128);
        message[5] = 0;
        assert_eq!(quote(false, &message).unwrap().len(), 140);
        message[0] = 3;
        message[4] = 16;
        assert_eq!(quote(true, &message).unwrap().len(), 128);
    }
}
