use proptest::prelude::*;
use wire::{Header, MacAddr, ethernet, ipv4, ipv6, tcp, udp};

use super::*;
use crate::probe::{MIN_SIZE, Reading};
use crate::stack::Tags;
use crate::{Flow, Order};

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
        stack in 0_usize..4, size in 96_u16..=9216, probed: bool, flow in 0_u32..1000,
        stream: u8, sequence in 0_u64..1 << 40, stamp in 0_u64..1 << 48,
    ) {
        let (transport, v4) = STACKS[stack];
        let flows = Flows::new(settings(v4, transport, 1000)).unwrap();
        let mix = Mix::weighted(&[(FrameSize::new(96).unwrap(), 1), (FrameSize::new(size).unwrap(), 1)]).unwrap();
        let template = Template::new(&flows, &mix, probed).unwrap();
        let probe = Probe { stream, sequence, stamp };
        let mut frame = vec![0xee; 9300];
        for size in 0..mix.entries().len() {
            let len = template.fill(size, flow, probe, &mut frame);
            prop_assert_eq!(len, mix.entries()[size].0.without_fcs());
            check(&template, &frame[..len], flow, probed.then_some(probe));
        }
        // A buffer painted by a large frame serves for a small one.
        let mut painted = vec![0xee; 9300];
        template.fill(mix.entries().len() - 1, 3, Probe::default(), &mut painted);
        let len = template.fill_head(0, flow, probe, &mut painted);
        check(&template, &painted[..len], flow, probed.then_some(probe));
    }
}

const FRONTS: [&str; 5] =
    ["", "/vlan:7", "/vlan:9/vlan:7", "vxlan:5@192.0.2.7-192.0.2.8", "eth/vlan:3/vxlan:77@2001:db8::7-2001:db8::8"];

/// Returns a stack around flows of `transport` and version.
fn stack(front: &str, tags: &str, v4: bool, transport: Transport) -> Stack {
    let (ip, upper) = (if v4 { "ipv4" } else { "ipv6" }, if transport == Transport::Tcp { "tcp" } else { "udp" });
    let text = match front.split_once("vxlan") {
        Some(_) => format!("{front}(eth{tags}/{ip}/{upper})"),
        None => format!("eth{front}{tags}/{ip}/{upper}"),
    };
    text.parse().unwrap()
}

/// Removes and checks the headers that the stack puts in front of a frame.
fn bare(frame: &[u8], stack: &Stack, macs: (MacAddr, MacAddr)) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if let Some(tunnel) = stack.tunnel {
        let tags = tunnel.tags.len();
        let outer = wire::flow::FiveTuple::of_frame(&frame).unwrap();
        assert_eq!((outer.src, outer.dst, outer.dst_port), (tunnel.src, tunnel.dst, 4789));
        assert!(outer.src_port >= 49_152);
        let ip = &frame[14 + tags..];
        let datagram = if tunnel.src.is_ipv4() {
            let packet = ipv4::Packet::new(ip).unwrap();
            assert!(packet.checksum_ok());
            udp::Datagram::new(packet.payload()).unwrap()
        } else {
            udp::Datagram::new(ipv6::Packet::new(ip).unwrap().payload()).unwrap()
        };
        assert_eq!(datagram.header().checksum(), 0);
        let vxlan = datagram.payload();
        assert_eq!(vxlan[..8], [8, 0, 0, 0, 0, 0, tunnel.vni as u8, 0]);
        assert_eq!(vxlan.len(), frame.len() - tunnel.len() + 8);
        frame.drain(..tunnel.len());
    }
    let ethernet = ethernet::Frame::new(&frame).unwrap();
    assert_eq!((ethernet.header().src(), ethernet.header().dst()), macs);
    let tags = stack.tags.len();
    match stack.tags {
        Tags::None => {}
        Tags::One(vid) => assert_eq!(frame[12..16], [0x81, 0, 0, vid as u8]),
        Tags::Two(outer, inner) => assert_eq!(frame[12..20], [0x88, 0xa8, 0, outer as u8, 0x81, 0, 0, inner as u8]),
    }
    frame.drain(12..12 + tags);
    frame
}

#[test]
fn stacks_have_a_smallest_frame() {
    for (front, needed) in [("", 64), ("/vlan:7", 68), ("/vlan:9/vlan:7", 72), ("vxlan", 114)] {
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
        of in 0_usize..4, front in 0_usize..5, tagged: bool, size in 200_u16..=9216, probed: bool, flow in 0_u32..50,
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
        let mix = Mix::weighted(&[(FrameSize::new(200).unwrap(), 1), (FrameSize::new(size).unwrap(), 1)]).unwrap();
        let template = Template::stacked(&flows, &mix, probed, &stack).unwrap();
        let plain = Template::new(&flows, &mix, probed).unwrap();
        let probe = Probe { stream: 1, sequence, stamp: 77 };
        let mut frame = vec![0xee; 9300];
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
        let mut painted = vec![0xee; 9300];
        template.fill(mix.entries().len() - 1, 3, Probe::default(), &mut painted);
        let len = template.fill_head(0, flow, probe, &mut painted);
        let within = bare(&painted[..len], &stack, flows.macs(flow).unwrap());
        check(&plain, &within, flow, probed.then_some(probe));
        prop_assert_eq!(template.fill(0, 50, probe, &mut frame), 0);
        prop_assert_eq!(template.fill(9, 0, probe, &mut frame), 0);
        prop_assert_eq!(template.fill(0, 0, probe, &mut frame[..195]), 0);
    }
}
