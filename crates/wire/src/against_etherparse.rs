//! The same bytes to this crate and to etherparse: the same verdicts, lengths and fields.

use crate::checksum::Pseudo;
use crate::samples::{self, A, B, ip6};
use crate::tcp::TcpOption;
use crate::{
    Ethernet, Header, IpProtocol, Ipv4, Ipv6, TcpFlags, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp, udp, vlan,
};
use etherparse::{
    ArpPacketSlice, Ethernet2Slice, Icmpv4Slice, Icmpv4Type, Icmpv6Slice, Icmpv6Type, Ipv4Slice, Ipv6Slice,
    PacketBuilder, SingleVlanSlice, TcpOptionElement, TcpSlice, UdpSlice,
};
use proptest::prelude::*;

fn link(bytes: &[u8]) {
    match (ethernet::Frame::new(bytes), Ethernet2Slice::from_slice_without_fcs(bytes)) {
        (Ok(ours), Ok(theirs)) => {
            let header = ours.header();
            assert_eq!((header.dst().0, header.src().0), (theirs.destination(), theirs.source()));
            assert_eq!(header.ether_type().0, theirs.ether_type().0);
            assert_eq!(ours.payload(), theirs.payload_slice());
        }
        (ours, theirs) => assert!(ours.is_err() && theirs.is_err()),
    }
    match (vlan::Tag::new(bytes), SingleVlanSlice::from_slice(bytes)) {
        (Ok(ours), Ok(theirs)) => {
            let header = ours.header();
            assert_eq!(header.pcp(), theirs.priority_code_point().value());
            assert_eq!(
                (header.dei(), header.vid()),
                (theirs.drop_eligible_indicator(), theirs.vlan_identifier().value())
            );
            assert_eq!((header.ether_type().0, ours.payload()), (theirs.ether_type().0, theirs.payload_slice()));
        }
        (ours, theirs) => assert!(ours.is_err() && theirs.is_err()),
    }
}

fn arp(bytes: &[u8]) {
    // etherparse's check takes any address format; its conversion to Ethernet and IPv4 takes ours.
    let theirs = ArpPacketSlice::from_slice(bytes).ok().and_then(|slice| slice.to_packet().try_eth_ipv4().ok());
    match (arp::Packet::new(bytes), theirs) {
        (Ok(ours), Some(theirs)) => {
            let header = ours.header();
            assert_eq!(header.operation(), theirs.operation.0);
            assert_eq!((header.sender_mac().0, header.sender_ip()), (theirs.sender_mac, theirs.sender_ipv4_addr()));
            assert_eq!((header.target_mac().0, header.target_ip()), (theirs.target_mac, theirs.target_ipv4_addr()));
        }
        (ours, theirs) => assert!(ours.is_err() && theirs.is_none()),
    }
}

fn ipv4(bytes: &[u8]) {
    // etherparse counts an authentication header as part of the IPv4 header, here it is payload.
    if bytes.get(9) == Some(&IpProtocol::AH.0) {
        return;
    }
    match (ipv4::Packet::new(bytes), Ipv4Slice::from_slice(bytes)) {
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(ours.payload(), theirs.payload().payload);
            let (header, theirs) = (ours.header(), theirs.header());
            assert_eq!(ours.header_bytes(), theirs.slice());
            // etherparse's value, of which it takes the sum, has no reserved flag (RFC 791 §3.1).
            if bytes[6] & 0x80 == 0 {
                assert_eq!(ours.checksum_ok(), theirs.header_checksum() == theirs.to_header().calc_header_checksum());
            }
            assert_eq!((header.dscp(), header.ecn()), (theirs.dcp().value(), theirs.ecn().value()));
            assert_eq!((header.total_length(), header.id()), (theirs.total_len(), theirs.identification()));
            assert_eq!(header.dont_fragment(), theirs.dont_fragment());
            assert_eq!(header.more_fragments(), theirs.more_fragments());
            assert_eq!(header.fragment_offset(), theirs.fragments_offset().byte_offset());
            assert_eq!(header.is_fragment(), theirs.is_fragmenting_payload());
            assert_eq!((header.ttl(), header.protocol().0), (theirs.ttl(), theirs.protocol().0));
            assert_eq!(header.checksum(), theirs.header_checksum());
            assert_eq!((header.src(), header.dst()), (theirs.source_addr(), theirs.destination_addr()));
        }
        (ours, theirs) => assert!(ours.is_err() && theirs.is_err(), "{ours:?} {theirs:?}"),
    }
}

fn ipv6(bytes: &[u8]) {
    use etherparse::err::{ipv6::SliceError, ipv6_exts::HeaderError};
    // etherparse takes payload length 0 for a jumbogram and reads on; here the payload is empty.
    if bytes.get(4..6) == Some(&[0, 0]) {
        return;
    }
    let (ours, theirs) = (ipv6::Packet::new(bytes), Ipv6Slice::from_slice(bytes));
    // etherparse walks into later fragments, here the walk ends there.
    if ours.is_ok_and(|packet| packet.upper().1) {
        return;
    }
    match (ours, theirs) {
        // etherparse wants hop-by-hop options first; RFC 8200 §4.1 has receivers cope.
        (_, Err(SliceError::Exts(HeaderError::HopByHopNotAtStart))) => {}
        // etherparse does not walk mobility headers (RFC 6275 §6.1).
        (_, Ok(theirs)) if theirs.payload().ip_number.0 == IpProtocol::MOBILITY.0 => {}
        (Ok(ours), Err(_)) if ours.extensions().any(|extension| extension.kind == IpProtocol::MOBILITY) => {}
        (Ok(ours), Ok(theirs)) => {
            assert_eq!((ours.payload(), ours.upper().0.0), (theirs.payload().payload, theirs.payload().ip_number.0));
            assert_eq!(ipv6::flow_protocol(ours.header_bytes()).1, theirs.is_payload_fragmented());
            let (header, theirs) = (ours.header(), theirs.header());
            assert_eq!(
                (header.traffic_class(), header.flow_label()),
                (theirs.traffic_class(), theirs.flow_label().value())
            );
            assert_eq!((header.payload_length(), header.hop_limit()), (theirs.payload_length(), theirs.hop_limit()));
            assert_eq!(header.next_header().0, theirs.next_header().0);
            assert_eq!((header.src(), header.dst()), (theirs.source_addr(), theirs.destination_addr()));
        }
        (ours, theirs) => assert!(ours.is_err() && theirs.is_err(), "{ours:?} {theirs:?}"),
    }
}

fn tcp(bytes: &[u8]) {
    match (tcp::Segment::new(bytes), TcpSlice::from_slice(bytes)) {
        (Ok(ours), Ok(theirs)) => {
            let header = ours.header();
            assert_eq!((ours.header_bytes(), ours.payload()), (theirs.header_slice(), theirs.payload()));
            assert_eq!((header.src_port(), header.dst_port()), (theirs.source_port(), theirs.destination_port()));
            assert_eq!((header.seq(), header.ack()), (theirs.sequence_number(), theirs.acknowledgment_number()));
            assert_eq!((header.window(), header.checksum()), (theirs.window_size(), theirs.checksum()));
            assert_eq!(header.urgent(), theirs.urgent_pointer());
            let set = |flag| header.flags().contains(flag);
            let low = [TcpFlags::FIN, TcpFlags::SYN, TcpFlags::RST, TcpFlags::PSH].map(set);
            assert_eq!(low, [theirs.fin(), theirs.syn(), theirs.rst(), theirs.psh()]);
            let high = [TcpFlags::ACK, TcpFlags::URG, TcpFlags::ECE, TcpFlags::CWR].map(set);
            assert_eq!(high, [theirs.ack(), theirs.urg(), theirs.ece(), theirs.cwr()]);
            let sum = theirs.calc_checksum_ipv4(A, B).unwrap();
            assert_eq!(ours.checksum_ok(Pseudo::v4(A.into(), B.into(), IpProtocol::TCP)), sum == theirs.checksum());
            let mut ours = ours.options();
            // etherparse has no value for unknown options, and lists "no operation".
            for theirs in theirs.options_iterator().filter(|option| *option != Ok(TcpOptionElement::Noop)) {
                match (ours.next(), theirs) {
                    (Some(Ok(TcpOption::Unknown { .. }) | Err(_)), Err(_)) => return,
                    (Some(Ok(ours)), Ok(theirs)) => assert_eq!(element(ours), Some(theirs)),
                    (ours, theirs) => panic!("{ours:?} {theirs:?}"),
                }
            }
            assert_eq!(ours.next(), None);
        }
        (ours, theirs) => assert!(ours.is_err() && theirs.is_err()),
    }
}

fn element(option: TcpOption<'_>) -> Option<TcpOptionElement> {
    let pair = |block: &tcp::SackBlock| (block.left(), block.right());
    Some(match option {
        TcpOption::Mss(bytes) => TcpOptionElement::MaximumSegmentSize(bytes),
        TcpOption::WindowScale(shift) => TcpOptionElement::WindowScale(shift),
        TcpOption::SackPermitted => TcpOptionElement::SelectiveAcknowledgementPermitted,
        TcpOption::Sack([first, rest @ ..]) => {
            let rest = core::array::from_fn(|at| rest.get(at).map(pair));
            TcpOptionElement::SelectiveAcknowledgement(pair(first), rest)
        }
        TcpOption::Timestamps { value, echo } => TcpOptionElement::Timestamp(value, echo),
        TcpOption::Sack([]) | TcpOption::Unknown { .. } => return None,
    })
}

fn udp(bytes: &[u8]) {
    // etherparse takes length 0 for a jumbogram and uses all bytes; here it is refused.
    if bytes.get(4..6) == Some(&[0, 0]) {
        return;
    }
    match (udp::Datagram::new(bytes), UdpSlice::from_slice(bytes)) {
        (Ok(ours), Ok(theirs)) => {
            let header = ours.header();
            assert_eq!(ours.payload(), theirs.payload());
            assert_eq!((header.src_port(), header.dst_port()), (theirs.source_port(), theirs.destination_port()));
            assert_eq!((header.length(), header.checksum()), (theirs.length(), theirs.checksum()));
            let sum = theirs.to_header().calc_checksum_ipv6_raw(ip6(1), ip6(2), theirs.payload()).unwrap();
            let pseudo = Pseudo::v6(ip6(1).into(), ip6(2).into(), IpProtocol::UDP);
            assert_eq!(ours.checksum_ok(pseudo), sum == theirs.checksum());
        }
        (ours, theirs) => assert!(ours.is_err() && theirs.is_err()),
    }
}

fn icmp(bytes: &[u8]) {
    // etherparse wants timestamp messages whole; here every type needs its first 8 bytes only.
    if let (Ok(ours), Ok(theirs)) = (icmpv4::Message::new(bytes), Icmpv4Slice::from_slice(bytes)) {
        assert_eq!(ours.header().checksum(), theirs.checksum());
        match (icmpv4::Repr::parse(&ours), theirs.icmp_type()) {
            (Ok(icmpv4::Repr::EchoRequest { id, seq }), Icmpv4Type::EchoRequest(echo))
            | (Ok(icmpv4::Repr::EchoReply { id, seq }), Icmpv4Type::EchoReply(echo)) => {
                assert_eq!((id, seq), (echo.id, echo.seq));
            }
            (Ok(icmpv4::Repr::FragmentationNeeded { mtu }), Icmpv4Type::DestinationUnreachable(why)) => {
                let expected = etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu };
                assert_eq!(why, expected);
            }
            (Ok(icmpv4::Repr::DestUnreachable { code }), Icmpv4Type::DestinationUnreachable(why)) => {
                assert_eq!(code, why.code_u8());
            }
            (Ok(icmpv4::Repr::TimeExceeded { code }), Icmpv4Type::TimeExceeded(why)) => {
                assert_eq!(code, why.code_u8());
            }
            // Here unassigned codes have a value too.
            (Ok(_), theirs) => assert!(matches!(theirs, Icmpv4Type::Unknown { type_u8: 3 | 11, .. }), "{theirs:?}"),
            (Err(_), theirs) => assert!(!matches!(
                theirs,
                Icmpv4Type::EchoRequest(_)
                    | Icmpv4Type::EchoReply(_)
                    | Icmpv4Type::DestinationUnreachable(_)
                    | Icmpv4Type::TimeExceeded(_)
            )),
        }
    }
    match (icmpv6::Message::new(bytes), Icmpv6Slice::from_slice(bytes)) {
        (Ok(ours), Ok(theirs)) => {
            assert_eq!((ours.header().checksum(), ours.payload()), (theirs.checksum(), theirs.payload()));
            let pseudo = Pseudo::v6(ip6(1).into(), ip6(2).into(), IpProtocol::ICMPV6);
            assert_eq!(ours.checksum_ok(pseudo), theirs.is_checksum_valid(ip6(1), ip6(2)));
            match (icmpv6::Repr::parse(&ours), theirs.icmp_type()) {
                (Ok(icmpv6::Repr::EchoRequest { id, seq }), Icmpv6Type::EchoRequest(echo))
                | (Ok(icmpv6::Repr::EchoReply { id, seq }), Icmpv6Type::EchoReply(echo)) => {
                    assert_eq!((id, seq), (echo.id, echo.seq));
                }
                (Ok(icmpv6::Repr::PacketTooBig { mtu }), Icmpv6Type::PacketTooBig { mtu: theirs }) => {
                    assert_eq!(mtu, theirs);
                }
                (Ok(icmpv6::Repr::DestUnreachable { code }), Icmpv6Type::DestinationUnreachable(why)) => {
                    assert_eq!(code, why.code_u8());
                }
                (Ok(icmpv6::Repr::TimeExceeded { code }), Icmpv6Type::TimeExceeded(why)) => {
                    assert_eq!(code, why.code_u8());
                }
                (Ok(icmpv6::Repr::ParameterProblem { code, pointer }), Icmpv6Type::ParameterProblem(theirs)) => {
                    assert_eq!((code, pointer), (theirs.code.code_u8(), theirs.pointer));
                }
                (Ok(icmpv6::Repr::NeighborSolicitation), Icmpv6Type::NeighborSolicitation) => {}
                (Ok(icmpv6::Repr::NeighborAdvertisement { flags }), Icmpv6Type::NeighborAdvertisement(theirs)) => {
                    let expected = [theirs.router, theirs.solicited, theirs.r#override];
                    assert_eq!([0x80, 0x40, 0x20].map(|bit| flags & bit != 0), expected);
                }
                // Here unassigned codes have a value too.
                (Ok(_), theirs) => assert!(matches!(theirs, Icmpv6Type::Unknown { type_u8: 1..=4, .. }), "{theirs:?}"),
                (Err(_), theirs) => assert!(!matches!(
                    theirs,
                    Icmpv6Type::EchoRequest(_)
                        | Icmpv6Type::EchoReply(_)
                        | Icmpv6Type::DestinationUnreachable(_)
                        | Icmpv6Type::PacketTooBig { .. }
                        | Icmpv6Type::TimeExceeded(_)
                        | Icmpv6Type::NeighborSolicitation
                        | Icmpv6Type::NeighborAdvertisement(_)
                )),
            }
        }
        (ours, theirs) => assert!(ours.is_err() && theirs.is_err()),
    }
}

fn compare(bytes: &[u8]) {
    link(bytes);
    arp(bytes);
    ipv4(bytes);
    ipv6(bytes);
    tcp(bytes);
    udp(bytes);
    icmp(bytes);
}

/// Returns each sample from every offset at which a header may start.
fn layers(frame: &[u8]) -> impl Iterator<Item = &[u8]> {
    [0, 14, 18, 22, 34, 38, 54, 58].into_iter().filter_map(|at| frame.get(at..))
}

#[test]
fn samples_compare() {
    samples::frames().iter().for_each(|frame| layers(frame).for_each(compare));
}

#[test]
fn samples_with_any_byte_changed_compare() {
    for mut frame in samples::frames() {
        for at in 0..frame.len() {
            let was = frame[at];
            for value in 0..=u8::MAX {
                frame[at] = value;
                layers(&frame).for_each(compare);
            }
            frame[at] = was;
        }
    }
}

#[test]
fn built_frames_are_right_to_etherparse() {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    for frame in samples::frames() {
        let packet = SlicedPacket::from_ethernet(&frame).unwrap();
        let right = match (&packet.net, &packet.transport) {
            (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) => {
                let header = udp.to_header();
                let ip = ip.header().to_header();
                header.calc_checksum_ipv4(&ip, udp.payload()).unwrap() == header.checksum
            }
            (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Udp(udp))) => {
                let header = udp.to_header();
                let ip = ip.header().to_header();
                header.calc_checksum_ipv6(&ip, udp.payload()).unwrap() == header.checksum
            }
            (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) => {
                let (src, dst) = (ip.header().source(), ip.header().destination());
                tcp.calc_checksum_ipv4(src, dst).unwrap() == tcp.checksum()
            }
            (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Tcp(tcp))) => {
                let (src, dst) = (ip.header().source(), ip.header().destination());
                tcp.calc_checksum_ipv6(src, dst).unwrap() == tcp.checksum()
            }
            (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
                icmp.is_checksum_valid(ip.header().source(), ip.header().destination())
            }
            _ => true,
        };
        assert!(right, "{packet:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_compare(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        compare(&bytes);
    }

    #[test]
    fn mutated_samples_compare(which: prop::sample::Index, at: prop::sample::Index, value: u8, cut: prop::sample::Index,
        small in prop::sample::select(vec![0_u8, 1, 4, 6, 17, 43, 44, 50, 51, 58, 60, 135, 255])) {
        let mut frame = which.get(&samples::frames()).clone();
        let at = at.index(frame.len());
        for value in [value, small] {
            frame[at] = value;
            layers(&frame).for_each(compare);
        }
        frame.truncate(cut.index(frame.len()));
        layers(&frame).for_each(compare);
    }

    #[test]
    fn headers_compare(first in prop::sample::select(vec![0x45_u8, 0x46, 0x4f, 0x60, 0x6f]), length in 0_u8..90,
        next in prop::sample::select(vec![0_u8, 6, 17, 43, 44, 51, 58, 60]),
        mut bytes in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 3, 6, 17, 43, 44, 51, 60]), 40..100)) {
        let at = if first >> 4 == 6 { [4, 5, 6] } else { [2, 3, 9] };
        (bytes[0], bytes[at[0]], bytes[at[1]], bytes[at[2]]) = (first, 0, length, next);
        compare(&bytes);
    }

    #[test]
    fn tcp_options_compare(
        data in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 3, 4, 5, 8, 10, 18]), 40),
    ) {
        let mut bytes = vec![0; 60];
        bytes[12] = 0xf0;
        bytes[20..].copy_from_slice(&data);
        tcp(&bytes);
    }

    #[test]
    fn frames_from_etherparse(payload in prop::collection::vec(any::<u8>(), 0..100), ports: (u16, u16), seq: u32) {
        let ethernet = || PacketBuilder::ethernet2([1; 6], [2; 6]);
        let four = |bytes: &[u8]| {
            assert_eq!(ethernet::Frame::new(bytes).unwrap().header_bytes().len(), size_of::<Ethernet>());
            let packet = ipv4::Packet::new(&bytes[14..]).unwrap();
            assert!(packet.checksum_ok());
            assert_eq!(Ipv4::extent(&bytes[14..]), bytes.len() - 14);
            (packet.pseudo(), bytes.len() - packet.payload().len())
        };
        let six = |bytes: &[u8]| {
            let packet = ipv6::Packet::new(&bytes[14..]).unwrap();
            assert_eq!(Ipv6::extent(&bytes[14..]), bytes.len() - 14);
            (packet.pseudo(), bytes.len() - packet.payload().len())
        };
        let mut frame = Vec::new();
        ethernet().ipv4(A, B, 9).udp(ports.0, ports.1).write(&mut frame, &payload).unwrap();
        let (pseudo, at) = four(&frame);
        prop_assert!(udp::Datagram::new(&frame[at..]).unwrap().checksum_ok(pseudo));
        let mut frame = Vec::new();
        ethernet().ipv4(A, B, 9).tcp(ports.0, ports.1, seq, 99).ack(seq).write(&mut frame, &payload).unwrap();
        let (pseudo, at) = four(&frame);
        prop_assert!(tcp::Segment::new(&frame[at..]).unwrap().checksum_ok(pseudo));
        let mut frame = Vec::new();
        ethernet().ipv4(A, B, 9).icmpv4_echo_request(ports.0, ports.1).write(&mut frame, &payload).unwrap();
        let (_, at) = four(&frame);
        prop_assert!(icmpv4::Message::new(&frame[at..]).unwrap().checksum_ok());
        let mut frame = Vec::new();
        ethernet().ipv6(ip6(1), ip6(2), 9).udp(ports.0, ports.1).write(&mut frame, &payload).unwrap();
        let (pseudo, at) = six(&frame);
        prop_assert!(udp::Datagram::new(&frame[at..]).unwrap().checksum_ok(pseudo));
        let mut frame = Vec::new();
        ethernet().ipv6(ip6(1), ip6(2), 9).icmpv6_echo_reply(ports.0, ports.1).write(&mut frame, &payload).unwrap();
        let (pseudo, at) = six(&frame);
        prop_assert!(icmpv6::Message::new(&frame[at..]).unwrap().checksum_ok(pseudo));
    }
}
