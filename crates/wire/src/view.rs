//! Bytes that passed a protocol's check.

use crate::{Header, Malformed, fixed};

/// A checked header `H` with the payload that belongs to it.
///
/// Each protocol adds what it knows in its own module, under its own name: [`ipv4::Packet`](crate::ipv4::Packet),
/// [`tcp::Segment`](crate::tcp::Segment) and so on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View<'a, H> {
    header: &'a H,
    bytes: &'a [u8],
    len: usize,
}

impl<'a, H: Header> View<'a, H> {
    /// Checks the header at the start of `bytes`; what lies behind its payload is left out.
    ///
    /// # Errors
    /// The error of [`Header::check`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let len = H::check(bytes)?;
        let bytes = bytes.get(..H::extent(bytes)).ok_or(Malformed::Short)?;
        Ok(Self { header: fixed(bytes)?, bytes, len })
    }

    /// Returns the fixed part of the header.
    #[inline(always)]
    pub fn header(&self) -> &'a H {
        self.header
    }

    /// Returns the whole header, options and extension headers included.
    #[inline(always)]
    pub fn header_bytes(&self) -> &'a [u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Returns the payload, without bytes behind it such as Ethernet padding.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.len..).unwrap_or_default()
    }

    /// Returns the whole header and its payload.
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the header behind its fixed part.
    #[inline(always)]
    pub(crate) fn variable_part(&self) -> &'a [u8] {
        self.header_bytes().get(size_of::<H>()..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::*;
    use proptest::prelude::*;

    /// Asserts the contract of [`Header`] for arbitrary bytes.
    fn promises<H: Header>(bytes: &[u8]) {
        assert_eq!(H::NOT.strip_prefix("not_"), Some(H::NAME));
        assert_eq!(H::MALFORMED.strip_prefix("malformed_"), Some(H::NAME));
        let extent = H::extent(bytes);
        let view = View::<H>::new(bytes);
        match H::check(bytes) {
            Ok(len) => {
                assert!(size_of::<H>() <= len && len <= extent && extent <= bytes.len());
                let view = view.expect("check accepted");
                assert_eq!(view.header_bytes(), &bytes[..len]);
                assert_eq!(view.payload(), &bytes[len..extent]);
                // The check needs only the bytes of header and payload; trimming changes nothing.
                assert_eq!(H::check(&bytes[..extent]), Ok(len));
            }
            Err(why) => assert_eq!(view.err(), Some(why)),
        }
    }

    fn all(bytes: &[u8]) {
        promises::<Ethernet>(bytes);
        promises::<Vlan>(bytes);
        promises::<Arp>(bytes);
        promises::<Ipv4>(bytes);
        promises::<Ipv6>(bytes);
        promises::<Tcp>(bytes);
        promises::<Udp>(bytes);
        promises::<Icmpv4>(bytes);
        promises::<Icmpv6>(bytes);
        promises::<Dns>(bytes);
        promises::<TlsRecord>(bytes);
        let _ = flow::FiveTuple::of_frame(bytes);
        let _ = flow::FiveTuple::of_ipv4(bytes);
        let _ = flow::FiveTuple::of_ipv6(bytes);
        let _ = Ipv6::upper(bytes);
        if let Ok(packet) = ipv4::Packet::new(bytes) {
            let _ = (packet.options().count(), packet.checksum_ok(), ipv4::Repr::parse(&packet));
        }
        if let Ok(packet) = ipv6::Packet::new(bytes) {
            let lens = packet.extensions().map(|extension| extension.bytes.len()).sum::<usize>();
            assert_eq!(40 + lens, packet.header_bytes().len());
            let _ = ipv6::Repr::parse(&packet);
        }
        if let Ok(segment) = tcp::Segment::new(bytes) {
            let _ = (segment.options().count(), tcp::Repr::parse(&segment));
        }
        if let Ok(datagram) = udp::Datagram::new(bytes) {
            let _ = udp::Repr::parse(&datagram);
        }
        if let Ok(message) = icmpv4::Message::new(bytes) {
            let _ = (message.checksum_ok(), icmpv4::Repr::parse(&message));
        }
        if let Ok(message) = icmpv6::Message::new(bytes) {
            let _ = icmpv6::Repr::parse(&message);
        }
        if let Ok(packet) = arp::Packet::new(bytes) {
            let _ = arp::Repr::parse(&packet);
        }
    }

    #[test]
    fn no_bytes() {
        all(&[]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            all(&bytes);
        }

        #[test]
        fn plausible_bytes_never_panic(
            first in prop::sample::select(vec![0x45_u8, 0x46, 0x4f, 0x60, 0x44]),
            length in 0_u8..120,
            next in prop::sample::select(vec![0_u8, 4, 6, 17, 41, 43, 44, 51, 58, 60, 135]),
            mut bytes in prop::collection::vec(
                prop::sample::select(vec![0_u8, 1, 2, 3, 4, 6, 8, 17, 43, 44, 51, 60]), 20..120),
        ) {
            let at = if first == 0x60 { [5, 6] } else { [3, 9] };
            (bytes[0], bytes[at[0] - 1], bytes[at[0]], bytes[at[1]]) = (first, 0, length, next);
            all(&bytes);
        }

        #[test]
        fn mutated_packets_never_panic(
            index: prop::sample::Index, value: u8, cut: prop::sample::Index,
        ) {
            for mut frame in samples::frames() {
                let at = index.index(frame.len());
                frame[at] = value;
                for layer in [0, 14, 18, 34, 38, 54, 58] {
                    all(frame.get(layer..).unwrap_or_default());
                }
                frame.truncate(cut.index(frame.len()));
                for layer in [0, 14, 18, 34, 38, 54, 58] {
                    all(frame.get(layer..).unwrap_or_default());
                }
            }
        }
    }
}
