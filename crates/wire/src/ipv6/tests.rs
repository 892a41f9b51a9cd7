use super::*;
use crate::Ipv4;
use crate::samples::ip6;
use crate::{Icmpv6, Tcp, Udp, build};
use proptest::prelude::*;

/// Builds UDP behind hop-by-hop, routing, destination options, authentication and atomic fragment headers.
fn chain() -> Vec<u8> {
    build::udp6(ip6(1), ip6(2), 1, 2)
        .extension(IpProtocol::HOP_BY_HOP, &[0; 14])
        .extension(IpProtocol::ROUTING, &[0; 6])
        .extension(IpProtocol::DESTINATION_OPTIONS, &[])
        .extension(IpProtocol::AH, &[0; 22])
        .fragment(0, false, 7)
        .extension(IpProtocol::MOBILITY, &[0; 6])
        .payload(b"abc")
        .to_vec()[14..]
        .to_vec()
}

#[test]
fn fields() {
    let mut bytes = vec![0x6b, 0x9a, 0xbc, 0xde, 0, 3, 59, 64];
    bytes.extend(ip6(1));
    bytes.extend(ip6(2));
    bytes.extend(*b"abcd");
    let packet = Packet::new(&bytes).unwrap();
    let repr = Repr::parse(&packet).unwrap();
    let expected = Repr {
        traffic_class: 0xb9,
        flow_label: 0xabcde,
        ..Repr::new(ip6(1).into(), ip6(2).into(), IpProtocol::NO_NEXT, 3)
    };
    assert_eq!((repr, packet.payload()), (expected, &b"abc"[..]));
    assert_eq!((packet.header().dscp(), packet.header().ecn()), (46, 1));
    assert_eq!((packet.header().src_octets(), packet.header().dst_octets()), (ip6(1), ip6(2)));
    let mut out = [0xff; 40];
    repr.emit(&mut out).unwrap();
    assert_eq!(out, bytes[..40]);
    assert_eq!(repr.emit(&mut out[..39]), Err(Malformed::Short));
    assert_eq!(Repr { flow_label: 1 << 20, ..repr }.emit(&mut out), Err(Malformed::Range));
}

#[test]
fn refused() {
    let good = build::udp6(ip6(1), ip6(2), 1, 2).to_vec()[14..].to_vec();
    assert_eq!(Ipv6::check(&good), Ok(40));
    assert_eq!(Ipv6::check(&good[..39]), Err(Malformed::Short));
    assert_eq!(Ipv6::check(&good[..47]), Err(Malformed::Short));
    let mut four = good.clone();
    four[0] = 0x45;
    assert_eq!(Ipv6::check(&four), Err(Malformed::Version));
}

#[test]
fn extension_headers() {
    let bytes = chain();
    let packet = Packet::new(&bytes).unwrap();
    let found = packet.extensions().map(|e| (e.kind.0, e.bytes.len(), e.next_header().0)).collect::<Vec<_>>();
    assert_eq!(found, [(0, 16, 43), (43, 8, 60), (60, 8, 51), (51, 24, 44), (44, 8, 135), (135, 8, 17)]);
    assert_eq!(packet.header_bytes().len(), 40 + 72);
    assert_eq!((packet.upper(), packet.payload().len()), ((IpProtocol::UDP, false), 11));
    let fragment = packet.extensions().find_map(|e| e.fragment());
    assert_eq!(fragment, Some(Fragment { offset: 0, more: false, id: 7 }));
    assert!(<Udp as Follows<Ipv6>>::announced_by(packet.header_bytes()));
    assert!(!<Tcp as Follows<Ipv6>>::announced_by(packet.header_bytes()));
    assert!(crate::udp::Datagram::new(packet.payload()).unwrap().checksum_ok(packet.pseudo()));
}

#[test]
fn extension_headers_stay_inside_the_payload() {
    let bytes = chain();
    let end = bytes.len() as u16 - 40;
    for payload in 0..=end {
        let mut bytes = bytes.clone();
        bytes[4..6].copy_from_slice(&payload.to_be_bytes());
        let expected = if payload < 72 { Err(Malformed::Option) } else { Ok(112) };
        assert_eq!(Ipv6::check(&bytes), expected, "{payload}");
    }
}

#[test]
fn authentication_headers_have_a_minimum() {
    let mut bytes = build::udp6(ip6(1), ip6(2), 1, 2).extension(IpProtocol::AH, &[0; 14]).to_vec()[14..].to_vec();
    let mut with = |units| {
        bytes[41] = units;
        Ipv6::check(&bytes)
    };
    assert_eq!((with(0), with(1), with(2)), (Err(Malformed::Option), Ok(52), Ok(56)));
}

#[test]
fn extension_headers_are_bounded() {
    let with = |count| {
        let frame = build::udp6(ip6(1), ip6(2), 1, 2);
        let frame = (0..count).fold(frame, |frame, _| frame.extension(IpProtocol::DESTINATION_OPTIONS, &[]));
        Ipv6::check(&frame.to_vec()[14..])
    };
    assert_eq!(with(MAX_EXTENSIONS), Ok(40 + 8 * MAX_EXTENSIONS));
    assert_eq!(with(MAX_EXTENSIONS + 1), Err(Malformed::Option));
}

#[test]
fn fragments() {
    let upper = |offset, more| {
        let frame = build::ipv6(ip6(1), ip6(2), IpProtocol::UDP).fragment(offset, more, 1).payload(&[0; 9]).to_vec();
        let packet = Packet::new(&frame[14..]).unwrap();
        assert_eq!((packet.header_bytes().len(), packet.payload().len()), (48, 9));
        (packet.upper(), flow_protocol(packet.header_bytes()))
    };
    assert_eq!(upper(0, false), ((IpProtocol::UDP, false), (IpProtocol::UDP, false)));
    assert_eq!(upper(0, true), ((IpProtocol::UDP, false), (IpProtocol::UDP, true)));
    assert_eq!(upper(8, true), ((IpProtocol::UDP, true), (IpProtocol::UDP, true)));
    assert_eq!(upper(65528, false), ((IpProtocol::UDP, true), (IpProtocol::UDP, true)));
}

#[test]
fn nothing_is_read_behind_a_later_fragment() {
    // The payload would be an impossible destination options header.
    let frame = build::ipv6(ip6(1), ip6(2), IpProtocol::DESTINATION_OPTIONS).fragment(8, false, 1).payload(&[17, 255]);
    let frame = frame.to_vec();
    assert_eq!(Ipv6::check(&frame[14..]), Ok(48));
    assert_eq!(Packet::new(&frame[14..]).unwrap().upper(), (IpProtocol::DESTINATION_OPTIONS, true));
    let first = build::ipv6(ip6(1), ip6(2), IpProtocol::DESTINATION_OPTIONS).fragment(0, true, 1).payload(&[17, 255]);
    assert_eq!(Ipv6::check(&first.to_vec()[14..]), Err(Malformed::Option));
}

#[test]
fn announcements() {
    for (protocol, is) in [(6, 0), (17, 1), (58, 2), (4, 3), (41, 4), (59, 5), (50, 5), (255, 5)] {
        let frame = build::ipv6(ip6(1), ip6(2), IpProtocol(protocol)).to_vec();
        let later = build::ipv6(ip6(1), ip6(2), IpProtocol(protocol)).fragment(8, true, 1).to_vec();
        let announced = |below: &[u8]| {
            [
                <Tcp as Follows<Ipv6>>::announced_by(below),
                <Udp as Follows<Ipv6>>::announced_by(below),
                <Icmpv6 as Follows<Ipv6>>::announced_by(below),
                <Ipv4 as Follows<Ipv6>>::announced_by(below),
                <Ipv6 as Follows<Ipv6>>::announced_by(below),
            ]
        };
        assert_eq!(announced(&frame[14..]), core::array::from_fn(|at| at == is));
        assert_eq!(announced(&later[14..]), [false; 5]);
    }
    assert_eq!(Ipv6::upper(&[]), (IpProtocol::NO_NEXT, false));
}

#[test]
fn setters_leave_the_rest() {
    let mut header = *fixed::<Ipv6>(&[0xff; 40]).unwrap();
    header.set_traffic_class(0);
    assert_eq!((header.version(), header.traffic_class(), header.flow_label()), (15, 0, FLOW_LABEL));
    header.set_traffic_class(0xff);
    header.set_flow_label(0xfff0_0001);
    header.set_version();
    assert_eq!((header.version(), header.traffic_class(), header.flow_label()), (6, 0xff, 1));
    header.decrement_hop_limit();
    assert_eq!(header.hop_limit(), 254);
    header.set_src_octets(ip6(1));
    header.set_dst(Ipv6Addr::LOCALHOST);
    header.swap_addrs();
    assert_eq!((header.src(), header.dst()), (Ipv6Addr::LOCALHOST, ip6(1).into()));
}

proptest! {
    #[test]
    fn value_round_trip(traffic_class: u8, flow_label in 0..=FLOW_LABEL, hop_limit: u8, src: u128, dst: u128,
        next in prop::sample::select(vec![4_u8, 6, 17, 41, 50, 58, 59, 132, 255]), payload_len in 0_u16..300) {
        let (src, dst) = (Ipv6Addr::from_bits(src), Ipv6Addr::from_bits(dst));
        let repr = Repr { traffic_class, flow_label, next_header: IpProtocol(next), hop_limit, src, dst, payload_len };
        let mut bytes = vec![0xff; repr.len() + usize::from(payload_len) + 3];
        repr.emit(&mut bytes).unwrap();
        let packet = Packet::new(&bytes).unwrap();
        prop_assert_eq!(Repr::parse(&packet), Ok(repr));
        prop_assert_eq!(packet.payload().len(), usize::from(payload_len));
    }
}
