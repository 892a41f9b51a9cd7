use super::*;
use crate::Ipv6;
use crate::{Icmpv4, Tcp, Udp, build};
use proptest::prelude::*;

/// From RFC-era captures everywhere: TTL 64, UDP, 192.168.0.1 to 192.168.0.199, checksum 0xb861.
const HEADER: [u8; 20] =
    [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];

fn bytes() -> Vec<u8> {
    let mut bytes = HEADER.to_vec();
    bytes.resize(0x73, 9);
    bytes
}

#[test]
fn fields() {
    let mut bytes = bytes();
    bytes.extend([0; 5]);
    let packet = Packet::new(&bytes).unwrap();
    assert!(packet.checksum_ok());
    assert_eq!((packet.header_bytes(), packet.payload().len()), (&HEADER[..], 0x73 - 20));
    let expected = Repr {
        dont_fragment: true,
        ..Repr::new(Ipv4Addr::new(192, 168, 0, 1), Ipv4Addr::new(192, 168, 0, 199), IpProtocol::UDP, 0x73 - 20)
    };
    assert_eq!(Repr::parse(&packet), Ok(expected));
    let header = packet.header();
    assert_eq!((header.src_bits(), header.dst_bits(), header.checksum()), (0xc0a8_0001, 0xc0a8_00c7, 0xb861));
    let mut out = [0xff; 20];
    expected.emit(&mut out).unwrap();
    assert_eq!(out, HEADER);
}

#[test]
fn refused() {
    let with = |at: usize, value: u8| {
        let mut bytes = bytes();
        bytes[at] = value;
        Ipv4::check(&bytes)
    };
    assert_eq!(with(0, 0x65), Err(Malformed::Version));
    assert_eq!(with(0, 0x55), Err(Malformed::Version));
    assert_eq!(with(0, 0x44), Err(Malformed::HeaderLength));
    assert_eq!(with(0, 0x40), Err(Malformed::HeaderLength));
    assert_eq!(with(3, 19), Err(Malformed::TotalLength));
    assert_eq!(with(0, 0x4f), Ok(60));
    assert_eq!((with(3, 20), with(3, 0x73)), (Ok(20), Ok(20)));
    assert_eq!(with(3, 0x74), Err(Malformed::Short));
    assert_eq!(Ipv4::check(&HEADER[..19]), Err(Malformed::Short));
    assert_eq!(Ipv4::check(&[0x46; 22]), Err(Malformed::Short));
}

#[test]
fn setters_leave_the_rest() {
    let mut header = *fixed::<Ipv4>(&[0xff; 20]).unwrap();
    header.set_dscp(0);
    assert_eq!((header.dscp(), header.ecn()), (0, 3));
    header.set_dscp(63);
    header.set_ecn(0);
    assert_eq!((header.dscp(), header.ecn()), (63, 0));
    header.set_fragment_offset(8);
    assert!(header.dont_fragment() && header.more_fragments() && header.is_later_fragment());
    header.set_dont_fragment(false);
    header.set_more_fragments(false);
    assert!(!header.dont_fragment() && !header.more_fragments() && header.is_fragment());
    assert_eq!(header.fragment_offset(), 8);
    header.set_fragment_offset(0);
    assert!(!header.is_fragment());
    header.set_more_fragments(true);
    assert!(header.is_fragment() && !header.is_later_fragment());
    header.set_header_len(24);
    assert_eq!((header.version(), header.header_len()), (4, 24));
    header.set_src_bits(1);
    header.set_dst(Ipv4Addr::LOCALHOST);
    header.swap_addrs();
    assert_eq!((header.src(), header.dst_bits()), (Ipv4Addr::LOCALHOST, 1));
}

#[test]
fn announcements() {
    let header = |protocol: IpProtocol, offset: u16, more: bool| {
        build::ipv4([1; 4], [2; 4], protocol).fragment(offset, more).to_vec()[14..].to_vec()
    };
    for (offset, more, announced) in [(0, false, true), (0, true, true), (8, true, false), (65528, false, false)] {
        let of = |protocol| header(protocol, offset, more);
        assert_eq!(<Tcp as Follows<Ipv4>>::announced_by(&of(IpProtocol::TCP)), announced);
        assert_eq!(<Udp as Follows<Ipv4>>::announced_by(&of(IpProtocol::UDP)), announced);
        assert_eq!(<Icmpv4 as Follows<Ipv4>>::announced_by(&of(IpProtocol::ICMPV4)), announced);
        assert_eq!(<Ipv4 as Follows<Ipv4>>::announced_by(&of(IpProtocol::IPV4)), announced);
        assert_eq!(<Ipv6 as Follows<Ipv4>>::announced_by(&of(IpProtocol::IPV6)), announced);
        assert!(!<Tcp as Follows<Ipv4>>::announced_by(&of(IpProtocol::UDP)));
    }
}

#[test]
fn option_list() {
    let list = [
        Ipv4Option::RouterAlert(0),
        Ipv4Option::RecordRoute { pointer: 4, route: &[1, 2, 3, 4] },
        Ipv4Option::LooseSourceRoute { pointer: 8, route: &[5; 4] },
        Ipv4Option::StrictSourceRoute { pointer: 4, route: &[] },
        Ipv4Option::Unknown { kind: 68, data: &[5, 0, 9, 9, 9, 9] },
    ];
    let options = options(&list).unwrap();
    let repr = Repr { options, ..Repr::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, IpProtocol::UDP, 0) };
    let mut bytes = vec![0xff; repr.len()];
    repr.emit(&mut bytes).unwrap();
    let packet = Packet::new(&bytes).unwrap();
    assert!(packet.options().eq(list.map(Ok)));
    assert_eq!(Repr::parse(&packet), Ok(repr));
    bytes[21] = 3;
    let packet = Packet::new(&bytes).unwrap();
    assert!(packet.options().eq([Err(Malformed::Option)]));
    assert_eq!(Repr::parse(&packet), Err(Malformed::Option));
}

#[test]
fn options_that_do_not_fit() {
    let long = [0; 40];
    assert_eq!(options(&[Ipv4Option::RecordRoute { pointer: 4, route: &long }]), Err(Malformed::Range));
    assert_eq!(options(&[Ipv4Option::RecordRoute { pointer: 4, route: &long[..38] }]), Err(Malformed::Range));
    assert!(options(&[Ipv4Option::RecordRoute { pointer: 4, route: &long[..36] }]).is_ok());
}

#[test]
fn values_that_do_not_fit() {
    let repr = Repr::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, IpProtocol::UDP, 0);
    let mut out = [0; 20];
    assert_eq!(repr.emit(&mut out[..19]), Err(Malformed::Short));
    for bad in [
        Repr { dscp: 64, ..repr },
        Repr { ecn: 4, ..repr },
        Repr { fragment_offset: 7, ..repr },
        Repr { payload_len: 65516, ..repr },
    ] {
        assert_eq!(bad.emit(&mut out), Err(Malformed::Range));
    }
}

proptest! {
    #[test]
    fn value_round_trip(dscp in 0_u8..64, ecn in 0_u8..4, id: u16, flags: (bool, bool), blocks in 0_u16..8192, ttl: u8,
        protocol: u8, src: u32, dst: u32, data in prop::collection::vec(any::<u8>(), 0..39),
        payload_len in 0_u16..300) {
        let repr = Repr {
            dscp,
            ecn,
            id,
            dont_fragment: flags.0,
            more_fragments: flags.1,
            fragment_offset: blocks * 8,
            ttl,
            protocol: IpProtocol(protocol),
            src: Ipv4Addr::from_bits(src),
            dst: Ipv4Addr::from_bits(dst),
            options: options(&[Ipv4Option::Unknown { kind: 68, data: &data }]).unwrap(),
            payload_len,
        };
        let mut bytes = vec![0xff; repr.len() + usize::from(payload_len) + 3];
        repr.emit(&mut bytes).unwrap();
        let packet = Packet::new(&bytes).unwrap();
        prop_assert_eq!(Repr::parse(&packet), Ok(repr));
        prop_assert!(packet.checksum_ok());
        prop_assert!(packet.payload().iter().all(|byte| *byte == 0xff));
        let ttl = packet.header().ttl();
        if ttl > 0 {
            fixed_mut::<Ipv4>(&mut bytes).unwrap().decrement_ttl();
            let packet = Packet::new(&bytes).unwrap();
            prop_assert!(packet.checksum_ok());
            prop_assert_eq!(packet.header().ttl(), ttl - 1);
        }
    }
}
