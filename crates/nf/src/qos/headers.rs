//! Fields of a packet that classes, meters and queues use, and the changes that they make.

use crate::Classification;
use crate::{link, traffic_class};
use packet::Packet;
use wire::EtherType;
use wire::flow::FiveTuple;

/// ECN field "congestion experienced" (RFC 3168 §5).
const CE: u8 = 0b11;

/// Fields of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    /// EtherType and position of the IP header in the frame. `None` if there is no well-formed one.
    ip: Option<(EtherType, u16)>,
    /// Addresses, ports and protocol.
    pub(super) tuple: Option<FiveTuple>,
    /// DSCP of the IP header.
    pub(super) dscp: Option<u8>,
    /// Results of earlier NFs.
    pub(super) classification: Classification,
}

impl Headers {
    /// Parses a packet.
    #[inline]
    pub(super) fn of(packet: &Packet) -> Self {
        let classification = packet.meta().metadata::<Classification>().unwrap_or_default();
        Self::of_frame(packet.data(), classification)
    }

    pub(super) fn of_frame(frame: &[u8], classification: Classification) -> Self {
        let none = Headers { ip: None, tuple: None, dscp: None, classification };
        let Ok((ether_type, payload)) = link::parse(frame) else { return none };
        let tuple = match ether_type {
            EtherType::IPV4 => FiveTuple::of_ipv4(payload),
            EtherType::IPV6 => FiveTuple::of_ipv6(payload),
            _ => return none,
        };
        let (Some(tuple), &[first, second, ..]) = (tuple, payload) else { return none };
        let class = if ether_type == EtherType::IPV4 { second } else { first << 4 | second >> 4 };
        let at = (frame.len() - payload.len()) as u16;
        Headers { ip: Some((ether_type, at)), tuple: Some(tuple), dscp: Some(class >> 2), classification }
    }

    /// Replaces the bits `mask` of the traffic class in the frame with those of `value`; nothing if there is no IP
    /// header.
    fn set_class(&self, frame: &mut [u8], mask: u8, value: u8) {
        let Some((kind, at)) = self.ip else { return };
        if let Some(header) = frame.get_mut(usize::from(at)..) {
            traffic_class::set(kind, header, mask, value);
        }
    }

    /// Sets the DSCP and keeps the ECN field. Updates the IPv4 checksum (RFC 1624).
    pub(super) fn set_dscp(&self, frame: &mut [u8], dscp: u8) {
        if self.dscp != Some(dscp) {
            self.set_class(frame, 0xfc, dscp << 2);
        }
    }

    /// Sets the ECN field to "congestion experienced" and returns true, or returns false if the transport is not
    /// capable of ECN (RFC 3168).
    pub(super) fn mark_congestion(&self, frame: &mut [u8]) -> bool {
        let Some((kind, at)) = self.ip else { return false };
        let ecn = match (kind, frame.get(usize::from(at)..)) {
            (EtherType::IPV4, Some([_, class, ..])) => class & CE,
            (EtherType::IPV6, Some([_, second, ..])) => second >> 4 & CE,
            _ => return false,
        };
        if ecn != 0 && ecn != CE {
            self.set_class(frame, CE, CE);
        }
        ecn != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::wire::build;
    use wire::{Ipv4, Ipv6, checksum};

    fn headers(frame: &[u8]) -> Headers {
        Headers::of_frame(frame, Classification::default())
    }

    #[test]
    fn marks_ipv4_with_a_correct_checksum_and_keeps_ecn() {
        for (vlan, old, new) in (0..64).flat_map(|dscp| [(false, dscp, 63 - dscp), (true, dscp, dscp ^ 1)]) {
            let frame = |dscp| {
                let frame = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).dscp(dscp).ecn(2);
                if vlan { frame.vlan(7).to_vec() } else { frame.to_vec() }
            };
            let mut marked = frame(old);
            assert_eq!(headers(&marked).dscp, Some(old));
            headers(&marked).set_dscp(&mut marked, new);
            assert_eq!(marked, frame(new));
            assert!(headers(&marked).mark_congestion(&mut marked));
            let at = if vlan { 18 } else { 14 };
            assert_eq!(marked[at + 1], new << 2 | 3);
            assert!(checksum::verify(&marked[at..at + size_of::<Ipv4>()]));
        }
    }

    #[test]
    fn marks_ipv6() {
        let frame = |class| build::udp6([1; 8], [2; 8], 1, 2).traffic_class(class).flow_label(0xabcde).to_vec();
        let mut marked = frame(0b1010_1001);
        assert_eq!(headers(&marked).dscp, Some(0b10_1010));
        headers(&marked).set_dscp(&mut marked, 0b01_0111);
        assert_eq!(marked, frame(0b0101_1101));
        assert!(headers(&marked).mark_congestion(&mut marked));
        assert_eq!(marked, frame(0b0101_1111));
        assert!(headers(&marked).mark_congestion(&mut marked), "stays marked");
        let mut plain = frame(0b1010_1000);
        assert!(!headers(&plain).mark_congestion(&mut plain));
        assert_eq!((plain, size_of::<Ipv6>()), (frame(0b1010_1000), 40));
    }

    #[test]
    fn leaves_other_frames_unchanged() {
        let mut arp = [vec![2; 12], vec![8, 6], vec![0; 46]].concat();
        let before = arp.clone();
        headers(&arp).set_dscp(&mut arp, 5);
        assert!(!headers(&arp).mark_congestion(&mut arp));
        assert_eq!(arp, before);
    }
}
