//! Headers: checks, views, values and flows agree, and all ways to compute a checksum give the same result.
#![no_main]

use bondstone_fuzz::FuzzedFrame;
use libfuzzer_sys::arbitrary::{Arbitrary as _, Unstructured};
use libfuzzer_sys::fuzz_target;
use wire::checksum::{self, Delta, Pseudo, Sum};
use wire::{Arp, Ethernet, Header, Icmpv4, Icmpv6, Ipv4, Ipv6, MacAddr, Tcp, Udp, View, Vlan};
use wire::{IpProtocol, arp, ethernet, flow::FiveTuple, icmpv4, icmpv6, ipv4, ipv6, tcp, udp, vlan};

/// Checks the contract of a header type.
fn check_view<H: Header>(bytes: &[u8]) -> Option<View<'_, H>> {
    let (view, extent) = (View::<H>::new(bytes), H::extent(bytes));
    let len = H::check(bytes);
    assert_eq!(view.as_ref().err(), len.as_ref().err());
    let (view, len) = (view.ok()?, len.ok()?);
    assert!(size_of::<H>() <= len && len <= extent && extent <= bytes.len());
    assert_eq!(
        (view.header_bytes(), view.payload(), view.bytes()),
        (&bytes[..len], &bytes[len..extent], &bytes[..extent])
    );
    assert_eq!(H::check(&bytes[..extent]), Ok(len), "the extent of a header is sufficient");
    Some(view)
}

/// Parses a header and emits it over its own bytes; returns those bytes.
macro_rules! round_trip {
    ($module:ident, $view:expr) => {{
        $module::Repr::parse(&$view).ok().map(|repr| {
            let mut bytes = $view.bytes().to_vec();
            repr.emit(&mut bytes).expect("a parsed value fits into its own bytes");
            assert_eq!($module::Repr::parse(&View::new(&bytes).expect("emitted headers are valid")), Ok(repr));
            bytes
        })
    }};
}

/// Parses the same bytes as each kind of header.
fn headers(bytes: &[u8]) {
    let frame = check_view::<Ethernet>(bytes);
    assert!(frame.is_none_or(|frame| round_trip!(ethernet, frame).is_some_and(|now| now == bytes)));
    assert!(check_view::<Vlan>(bytes).is_none_or(|tag| round_trip!(vlan, tag).is_some_and(|now| now == bytes)));
    check_view::<Arp>(bytes).map(|packet| round_trip!(arp, packet));
    check_view::<Icmpv4>(bytes).map(|message| {
        round_trip!(icmpv4, message).map(|now| assert!(icmpv4::Message::new(&now).is_ok_and(|m| m.checksum_ok())))
    });
    check_view::<Icmpv6>(bytes).map(|message| round_trip!(icmpv6, message));
    check_view::<Udp>(bytes).map(|datagram| round_trip!(udp, datagram));
    if let Some(segment) = check_view::<Tcp>(bytes) {
        if round_trip!(tcp, segment).is_some() {
            let list: Vec<_> =
                segment.options().map(|option| option.expect("the parsed value has valid options")).collect();
            let options = tcp::options(&list).expect("the options fitted before");
            let mut now = vec![0; 60];
            tcp::Repr { options, ..tcp::Repr::new(1, 2) }.emit(&mut now).unwrap();
            assert!(tcp::Segment::new(&now).unwrap().options().eq(list.into_iter().map(Ok)));
        }
        assert!(segment.options().count() <= 41);
    }
    if let Some(packet) = check_view::<Ipv4>(bytes) {
        if let Some(now) = round_trip!(ipv4, packet) {
            let list: Vec<_> =
                packet.options().map(|option| option.expect("the parsed value has valid options")).collect();
            let options = ipv4::options(&list).expect("the options fitted before");
            let mut short = vec![0; 60];
            ipv4::Repr { options, payload_len: 0, ..ipv4::Repr::parse(&packet).unwrap() }.emit(&mut short).unwrap();
            assert!(ipv4::Packet::new(&short).unwrap().options().eq(list.into_iter().map(Ok)));
            let now = ipv4::Packet::new(&now).unwrap();
            assert!(now.checksum_ok());
            check_ttl_decrement(*now.header(), now.header_bytes());
        }
        for upper in [Pseudo::v4(packet.header().src(), packet.header().dst(), IpProtocol::UDP), packet.pseudo()] {
            check_view::<Udp>(packet.payload()).map(|datagram| datagram.checksum_ok(upper));
        }
    }
    if let Some(packet) = check_view::<Ipv6>(bytes) {
        let extensions = packet.extensions().map(|extension| extension.bytes.len()).sum::<usize>();
        assert_eq!(40 + extensions, packet.header_bytes().len());
        assert!(packet.extensions().count() <= ipv6::MAX_EXTENSIONS);
        assert!(packet.upper().1 || !packet.upper().0.is_extension());
        assert_eq!(round_trip!(ipv6, packet).as_deref(), Some(packet.bytes()));
    }
}

/// Checks that decrementing the TTL updates the checksum correctly.
fn check_ttl_decrement(mut header: Ipv4, whole: &[u8]) {
    if header.ttl() != 0 {
        header.decrement_ttl();
        let recomputed = changed(whole, |bytes| {
            bytes[8] = header.ttl();
            bytes[10..12].fill(0);
        });
        assert_eq!(header.checksum(), checksum::of(&recomputed));
    }
}

fn changed(bytes: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    change(&mut bytes);
    bytes
}

fn checksums(bytes: &[u8]) {
    let pair = |i: usize, b: &[u8]| b.get(i..i + 2).map(|p| u16::from_be_bytes([p[0], p[1]]));
    let plain = bytes.chunks(2).map(|p| u64::from(p[0]) << 8 | u64::from(*p.get(1).unwrap_or(&0))).sum::<u64>();
    let folded = if plain == 0 { 0 } else { (plain - 1) % 0xffff + 1 };
    assert_eq!(checksum::of(bytes), !(folded as u16));
    let (front, back) = bytes.split_at(bytes.len() / 4 * 2);
    assert_eq!(Sum::ZERO.bytes(front).bytes(back).finish(), checksum::of(bytes));
    // change one field to a value from elsewhere
    let (at, from) = (bytes.len() / 3 & !1, bytes.len() / 2);
    if let (Some(old), Some(new)) = (pair(at, bytes), pair(from, bytes)) {
        let after = changed(bytes, |b| b[at..at + 2].copy_from_slice(&new.to_be_bytes()));
        if after.iter().any(|b| *b != 0) {
            let full = checksum::of(&after);
            assert_eq!(checksum::update16(checksum::of(bytes), old, new), full);
            let udp = Sum::ZERO.bytes(bytes).finish_udp();
            assert_eq!(Delta::ZERO.u16(old, new).apply_udp(udp), Sum::ZERO.bytes(&after).finish_udp());
            assert_eq!(Delta::ZERO.u16(old, new).apply_udp(0), 0);
        }
    }
}

/// Checks the flow of a frame, and the headers at their offsets.
fn frame(made: &FuzzedFrame) {
    let bytes = &made.bytes[..];
    if let Some(flow) = FiveTuple::of_frame(bytes) {
        assert_eq!(flow.symmetric_hash(), flow.reversed().symmetric_hash());
        assert_eq!(flow.reversed().reversed(), flow);
        assert_eq!(flow.src.is_ipv4(), flow.dst.is_ipv4());
    }
    let Ok(ethernet) = ethernet::Frame::new(bytes) else { return };
    let (mut kind, mut rest) = (ethernet.header().ether_type(), ethernet.payload());
    while let (true, Some(tag)) = (kind.is_vlan(), check_view::<Vlan>(rest)) {
        (kind, rest) = (tag.header().ether_type(), tag.payload());
    }
    headers(rest);
    let v4 = ipv4::Packet::new(rest).map(|ip| {
        let header = ip.header();
        (ip.payload(), header.protocol(), header.is_fragment(), ip.pseudo(), ip.checksum_ok())
    });
    let v6 = ipv6::Packet::new(rest).map(|ip| {
        let fragment = ip.extensions().any(|e| e.fragment().is_some());
        (ip.payload(), ip.upper().0, fragment, ip.pseudo(), true)
    });
    let Ok((upper, protocol, fragment, pseudo, right)) = v4.or(v6) else { return };
    headers(upper);
    if made.well_formed && kind != wire::EtherType::ARP {
        assert!(right);
        assert!(FiveTuple::of_frame(bytes).is_some_and(|flow| flow.protocol == protocol));
        assert!(
            fragment
                || match protocol {
                    IpProtocol::TCP => tcp::Segment::new(upper).is_ok_and(|segment| segment.checksum_ok(pseudo)),
                    _ => udp::Datagram::new(upper).is_ok_and(|datagram| datagram.checksum_ok(pseudo)),
                }
        );
    }
}

fuzz_target!(|bytes: &[u8]| {
    headers(bytes);
    checksums(bytes);
    frame(&FuzzedFrame { bytes: bytes.to_vec(), well_formed: false });
    let mut u = Unstructured::new(bytes);
    if let Ok(made) = FuzzedFrame::arbitrary(&mut u) {
        frame(&made);
        headers(&made.bytes);
    }
    if let Ok(Ok(mac)) = std::str::from_utf8(bytes).map(str::parse::<MacAddr>) {
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }
});
