use proptest::prelude::*;
use std::net::IpAddr;
use wire::{Header, MacAddr, ethernet, ipv4, ipv6, tcp, udp};

use super::*;
use crate::probe::{MIN_SIZE, Reading};
use crate::stack::{Encapsulation, Shim, Tags};
use crate::{Flow, Order};

mod dissected;

fn settings(v4: bool, transport: Transport, count: u32) -> FlowSettings {
    let base = if v4 { FlowSettings::v4() } else { FlowSettings::v6() };
    FlowSettings { count, transport, ttl: 17, order: Order::Uniform, ..base }
}

const STACKS: [(Transport, bool); 4] =
    [(Transport::Udp, true), (Transport::Udp, false), (Transport::Tcp, true), (Transport::Tcp, false)];

/// Asserts that `frame` is what it should be, by parsing it with `wire`.
fn check(template: &Template, frame: &[u8], flow: u32, probe: Option<Probe>) {
    let flows = template.flows();
    assert_eq!(wire::flow::FiveTuple::of_frame(frame), flows.tuple(flow));
    let ethernet = ethernet::Frame::new(frame).unwrap();
    let (upper, pseudo) = if flows.is_ipv4() {
        let ip = ipv4::Packet::new(ethernet.payload()).unwrap();
        assert!(ip.checksum_ok());
        assert_eq!((ip.header().ttl(), wire::Ipv4::extent(ethernet.payload())), (17, frame.len() - 14));
        (ip.payload(), ip.pseudo())
    } else {
        let ip = ipv6::Packet::new(ethernet.payload()).unwrap();
        assert_eq!((ip.header().hop_limit(), wire::Ipv6::extent(ethernet.payload())), (17, frame.len() - 14));
        (ip.payload(), ip.pseudo())
    };
    let payload = if flows.settings().transport == Transport::Tcp {
        let segment = tcp::Segment::new(upper).unwrap();
        assert!(segment.checksum_ok(pseudo));
        segment.payload()
    } else {
        let datagram = udp::Datagram::new(upper).unwrap();
        assert!(datagram.checksum_ok(pseudo));
        assert_eq!(datagram.header().checksum() == 0, flows.is_ipv4());
        datagram.payload()
    };
    assert_eq!(payload.len(), frame.len() - template.probe_at());
    let start = if probe.is_some() { probe::LEN } else { 0 };
    assert_eq!(payload[start..], PATTERN[start..payload.len()]);
    if let Some(probe) = probe {
        assert_eq!(Probe::read_at(frame, template.probe_at()), (Reading::Probe(probe), template.probe_at()));
    }
}

#[test]
fn smallest_frames() {
    for ((transport, v4), smallest) in STACKS.into_iter().zip(MIN_SIZE) {
        let flows = Flows::new(settings(v4, transport, 5)).unwrap();
        let mix = Mix::fixed(FrameSize::new(smallest).unwrap());
        assert!(Template::new(&flows, &mix, true).is_ok());
        let below = FrameSize::new(smallest - 1);
        let why = below.map(|size| Template::new(&flows, &Mix::fixed(size), true).unwrap_err());
        assert!(why.is_err() || why.is_ok_and(|why| why.needed == smallest && why.to_string().contains("probe")));
        let bare = smallest.saturating_sub(18).max(64);
        assert!(Template::new(&flows, &Mix::fixed(FrameSize::new(bare).unwrap()), false).is_ok());
    }
}

#[test]
fn nothing_is_written_where_it_does_not_fit() {
    let flows = Flows::new(FlowSettings::v4()).unwrap();
    let template = Template::new(&flows, &Mix::imix(), true).unwrap();
    let mut frame = [7; 100];
    assert_eq!(template.fill(1, 0, Probe::default(), &mut frame), 0, "594 bytes");
    assert_eq!(template.fill(0, 1, Probe::default(), &mut frame), 0, "flow 1 of 1");
    assert_eq!(template.fill(3, 0, Probe::default(), &mut frame), 0, "size 3 of 3");
    assert_eq!(template.fill(0, 0, Probe::default(), &mut frame[..59]), 0);
    assert_eq!(frame, [7; 100]);
    assert_eq!(template.fill(0, 0, Probe::default(), &mut frame), 60);
    assert_eq!(frame[60..], [7; 40]);
    assert_eq!((template.frame_len(0), template.frame_len(3)), (60, 0));
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    // Over IPv6 0 would mean none (RFC 8200 §8.1); search for a number whose sum is 0.
    let flows = Flows::new(settings(false, Transport::Udp, 1)).unwrap();
    let template = Template::new(&flows, &Mix::fixed(FrameSize::new(84).unwrap()), true).unwrap();
    let mut frame = [0; 80];
    let hit = (0..1_000_000).find(|stamp| {
        let probe = Probe { stamp: *stamp, ..Probe::default() };
        template.fill(0, 0, probe, &mut frame);
        frame[60..62] == [0xff; 2]
    });
    assert!(hit.is_some());
    check(&template, &frame, 0, Some(Probe { stamp: hit.unwrap_or(0), ..Probe::default() }));
}

proptest! {
    #[test]
    fn frames_are_right(
        stack in 0_usize..4, size in 96_u16..=16_000, probed: bool, flow in 0_u32..1000,
        stream: u8, sequence in 0_u64..1 << 40, stamp in 0_u64..1 << 48,
    ) {
        let (transport, v4) = STACKS[stack];
        let flows = Flows::new(settings(v4, transport, 1000)).unwrap();
        let mix = Mix::weighted(&[(FrameSize::new(96).unwrap(), 1), (FrameSize::new(size).unwrap(), 1)]).unwrap();
        let template = Template::new(&flows, &mix, probed).unwrap();
        let probe = Probe { stream, sequence, stamp };
        let mut frame = vec![0xee; 16_100];
        for size in 0..mix.entries().len() {
            let len = template.fill(size, flow, probe, &mut frame);
            prop_assert_eq!(len, mix.entries()[size].0.without_fcs());
            check(&template, &frame[..len], flow, probed.then_some(probe));
        }
        // A buffer painted by a large frame serves for a small one.
        let mut painted = vec![0xee; 16_100];
        template.fill(mix.entries().len() - 1, 3, Probe::default(), &mut painted);
        let len = template.fill_head(0, flow, probe, &mut painted);
        check(&template, &painted[..len], flow, probed.then_some(probe));
    }
}

const FRONTS: [&str; 11] = [
    "",
    "/vlan:7",
    "/vlan:9/vlan:7",
    "/vlan:7/mpls:16/mpls:1048561",
    "/vlan:7/pppoe:9",
    "vxlan:5@192.0.2.7-192.0.2.8",
    "eth/vlan:3/vxlan:77@2001:db8::7-2001:db8::8",
    "eth/vlan:3/gtpu:5@192.0.2.7-192.0.2.8",
    "gtpu:5@2001:db8::7-2001:db8::8",
    "srv6@2001:db8::1-2001:db8::2",
    "eth/vlan:3/srv6@2001:db8::1-2001:db8::2,2001:db8::3,2001:db8::4",
];

/// Returns a stack around flows of `transport` and version.
fn stack(front: &str, tags: &str, v4: bool, transport: Transport) -> Stack {
    let (ip, upper) = (if v4 { "ipv4" } else { "ipv6" }, if transport == Transport::Tcp { "tcp" } else { "udp" });
    let text = match front {
        _ if front.contains("vxlan") => format!("{front}(eth{tags}/{ip}/{upper})"),
        _ if front.contains("gtpu") || front.contains("srv6") => format!("{front}({ip}/{upper})"),
        _ => format!("eth{front}{tags}/{ip}/{upper}"),
    };
    text.parse().unwrap()
}

/// Removes and checks the headers that the stack puts in front of a frame. A frame in a tunnel of packets gets the MAC
/// addresses of the tunnel.
fn bare(frame: &[u8], stack: &Stack, macs: (MacAddr, MacAddr)) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let ether_type: &[u8] = if stack.ipv6 { &[0x86, 0xdd] } else { &[0x08, 0x00] };
    if let Some(tunnel) = &stack.tunnel {
        let link = tunnel.link.tags;
        assert!(matches!(link, Tags::None | Tags::One(3)), "{stack}");
        let at = if link == Tags::None { 14 } else { 18 };
        let outer = wire::flow::FiveTuple::of_frame(&frame).unwrap();
        let packet = &frame[at..];
        let (payload, header) = if packet[0] >> 4 == 4 {
            let packet = ipv4::Packet::new(packet).unwrap();
            assert!(packet.checksum_ok());
            (packet.payload().to_vec(), 20)
        } else {
            assert_eq!(packet[0..2], [0x60, packet[1] & 0x0f]);
            assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - 40);
            (packet[40..].to_vec(), 40)
        };
        let datagram = |port: u16, ends: (IpAddr, IpAddr)| {
            assert_eq!((outer.src, outer.dst, outer.dst_port), (ends.0, ends.1, port));
            assert!(outer.src_port >= 49_152);
            let datagram = udp::Datagram::new(&payload).unwrap();
            assert_eq!(datagram.header().checksum(), 0);
            assert_eq!(datagram.payload().len(), payload.len() - 8);
            datagram.payload().to_vec()
        };
        match &tunnel.encapsulation {
            Encapsulation::Vxlan { vni, src, dst } => {
                assert_eq!(datagram(4789, (*src, *dst))[..8], [8, 0, 0, 0, 0, 0, *vni as u8, 0]);
                frame.drain(..at + header + 16);
            }
            Encapsulation::GtpU { teid, src, dst } => {
                let payload = datagram(2152, (*src, *dst));
                let [high, low] = (payload.len() as u16 - 8).to_be_bytes();
                assert_eq!(payload[..8], [0x30, 0xff, high, low, 0, 0, 0, *teid as u8]);
                frame.drain(12..at + header + 16);
                frame.splice(12..12, ether_type.iter().copied());
            }
            Encapsulation::Srv6 { src, segments } => {
                assert_eq!((outer.src, outer.dst), (IpAddr::V6(*src), IpAddr::V6(segments[0])));
                assert_eq!(packet[6], 43);
                let (n, next) = (segments.len() as u8, if stack.ipv6 { 41 } else { 4 });
                assert_eq!(payload[..8], [next, 2 * n, 4, n - 1, n - 1, 0, 0, 0]);
                let list = payload[8..8 + 16 * segments.len()].chunks(16).rev();
                assert!(list.eq(segments.iter().map(std::net::Ipv6Addr::octets)));
                frame.drain(12..at + header + 8 + 16 * segments.len());
                frame.splice(12..12, ether_type.iter().copied());
            }
        }
    }
    assert_eq!((frame[6..12].to_vec(), frame[..6].to_vec()), (macs.0.0.to_vec(), macs.1.0.to_vec()));
    match stack.link.tags {
        Tags::None => {}
        Tags::One(vid) => assert_eq!(frame.drain(12..16).as_slice(), [0x81, 0, 0, vid as u8]),
        Tags::Two(outer, inner) => {
            let tags = [0x88, 0xa8, 0, outer as u8, 0x81, 0, 0, inner as u8];
            assert_eq!(frame.drain(12..20).as_slice(), tags);
        }
    }
    match &stack.link.shim {
        Shim::None => {}
        Shim::Mpls(labels) => {
            assert_eq!((&frame[12..14], &labels[..]), (&[0x88, 0x47][..], &[16, 0xf_fff1][..]));
            assert_eq!(frame.drain(14..22).as_slice(), [0, 1, 0, 64, 0xff, 0xff, 0x11, 64]);
            frame.splice(12..14, ether_type.iter().copied());
        }
        Shim::Pppoe(session) => {
            let [high, low] = (frame.len() as u16 - 20).to_be_bytes();
            let protocol = if stack.ipv6 { 0x57 } else { 0x21 };
            assert_eq!(frame[12..22], [0x88, 0x64, 0x11, 0, 0, *session as u8, high, low, 0, protocol]);
            frame.drain(14..22);
            frame.splice(12..14, ether_type.iter().copied());
        }
    }
    frame
}

#[test]
fn stacks_have_a_smallest_frame() {
    for (front, needed) in [
        ("", 64),
        ("/vlan:7", 68),
        ("/vlan:9/vlan:7", 72),
        ("/mpls/mpls", 72),
        ("/pppoe", 72),
        ("vxlan", 114),
        ("gtpu", 100),
        ("srv6", 128),
    ] {
        let stack = stack(front, "", true, Transport::Udp);
        let flows = Flows::new(settings(true, Transport::Udp, 1)).unwrap();
        let made = |size: u16| Template::stacked(&flows, &Mix::fixed(FrameSize::new(size).unwrap()), true, &stack);
        assert!(made(needed).is_ok());
        if needed > 64 {
            let Err(TemplateError::Small(why)) = made(needed - 1) else { panic!("{front}") };
            assert_eq!(why.needed, needed);
            assert!(why.to_string().contains(&stack.to_string()), "{why}");
        }
    }
    let flows = Flows::new(settings(false, Transport::Udp, 1)).unwrap();
    let why = Template::stacked(&flows, &Mix::imix(), true, &Stack::default()).unwrap_err();
    assert!(matches!(why, TemplateError::Unlike { .. }) && why.to_string().contains("eth/ipv6/udp"), "{why}");
}

proptest! {
    #[test]
    fn stacked_frames_are_right(
        of in 0_usize..4, front in 0..FRONTS.len(), tagged: bool, size in 260_u16..=16_000, probed: bool, flow in 0_u32..50,
        sequence in 0_u64..1 << 40, differ: bool,
    ) {
        let (transport, v4) = STACKS[of];
        let tags = if tagged && FRONTS[front].contains("vxlan") { "/vlan:8" } else { "" };
        let stack = stack(FRONTS[front], tags, v4, transport);
        let mut flows = Flows::new(settings(v4, transport, 50)).unwrap();
        if differ {
            let flow = |n: u32| Flow {
                src_mac: MacAddr([2, 0, 0, 0, 1, n as u8]),
                dst_mac: MacAddr([2, 0, 0, 0, 2, n as u8]),
                tuple: flows.tuple(n).unwrap(),
            };
            let list: Vec<Flow> = (0..50).map(flow).collect();
            flows = Flows::listed(&list, flows.settings().clone()).unwrap();
        }
        let mix = Mix::weighted(&[(FrameSize::new(260).unwrap(), 1), (FrameSize::new(size).unwrap(), 1)]).unwrap();
        let template = Template::stacked(&flows, &mix, probed, &stack).unwrap();
        let plain = Template::new(&flows, &mix, probed).unwrap();
        let probe = Probe { stream: 1, sequence, stamp: 77 };
        let mut frame = vec![0xee; 16_100];
        for size in 0..mix.entries().len() {
            let len = template.fill(size, flow, probe, &mut frame);
            prop_assert_eq!((len, len), (mix.entries()[size].0.without_fcs(), template.frame_len(size)));
            prop_assert_eq!(frame[len], 0xee, "nothing behind it is written");
            let within = bare(&frame[..len], &stack, flows.macs(flow).unwrap());
            check(&plain, &within, flow, probed.then_some(probe));
            if probed {
                // A device may take off what is in front, or put something there.
                let found = (Reading::Probe(probe), template.probe_at());
                prop_assert_eq!(Probe::read_at(&frame[..len], template.probe_at()), found);
                prop_assert_eq!(Probe::read_at(&frame[..len], usize::MAX), found);
                prop_assert_eq!(Probe::read_at(&frame[..len], 42), found);
                prop_assert_eq!(Probe::read_at(&within, template.probe_at()).0, Reading::Probe(probe));
                prop_assert_eq!(Probe::read_at(&within, usize::MAX), (Reading::Probe(probe), plain.probe_at()));
            }
            frame.fill(0xee);
        }
        let mut painted = vec![0xee; 16_100];
        template.fill(mix.entries().len() - 1, 3, Probe::default(), &mut painted);
        let len = template.fill_head(0, flow, probe, &mut painted);
        let within = bare(&painted[..len], &stack, flows.macs(flow).unwrap());
        check(&plain, &within, flow, probed.then_some(probe));
        prop_assert_eq!(template.fill(0, 50, probe, &mut frame), 0);
        prop_assert_eq!(template.fill(9, 0, probe, &mut frame), 0);
        prop_assert_eq!(template.fill(0, 0, probe, &mut frame[..255]), 0);
    }
}
