use proptest::prelude::*;
use wire::{Header, ethernet, ipv4, ipv6, tcp, udp};

use super::*;
use crate::probe::{MIN_SIZE, Reading};
use crate::{FlowSettings, Order};

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
