use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use wire::flow::FiveTuple;
use wire::{ethernet, ipv4, ipv6};

use super::*;
use crate::probe::Reading;

fn base(is_v4: bool) -> FlowSettings {
    if is_v4 { FlowSettings::v4() } else { FlowSettings::v6() }
}

/// A packet as the far end sees it.
struct Seen {
    tuple: FiveTuple,
    flags: TcpFlags,
    seq: u32,
    ack: u32,
    payload: usize,
    mss: bool,
    probe: Option<Probe>,
}

/// Takes a frame apart; lengths and checksums have to be right.
fn seen(frame: &[u8]) -> Seen {
    let ethernet = ethernet::Frame::new(frame).unwrap();
    let v4 = frame[12..14] == [8, 0];
    let (upper, pseudo) = if v4 {
        let packet = ipv4::Packet::new(ethernet.payload()).unwrap();
        assert!(packet.checksum_ok());
        (packet.payload(), packet.pseudo())
    } else {
        let packet = ipv6::Packet::new(ethernet.payload()).unwrap();
        (packet.payload(), packet.pseudo())
    };
    let segment = tcp::Segment::new(upper).unwrap();
    assert!(segment.checksum_ok(pseudo));
    let header = segment.header();
    let probe = match Probe::read_at(frame, usize::MAX).0 {
        Reading::Probe(probe) => Some(probe),
        _ => None,
    };
    Seen {
        tuple: FiveTuple::of_frame(frame).unwrap(),
        flags: header.flags(),
        seq: header.seq(),
        ack: header.ack(),
        payload: segment.payload().len(),
        mss: segment.options().any(|option| matches!(option, Ok(TcpOption::Mss(1460)))),
        probe,
    }
}

#[test]
fn texts() {
    for text in ["10x1024", "2x1", "65536x1048576,syn-data"] {
        assert_eq!(text.parse::<ShortSettings>().unwrap().to_string(), text);
    }
    assert_eq!("10".parse(), Ok(ShortSettings::default()));
    for text in ["", "1", "x", "10x", "10x0", "65537", "10x1048577", "10x5,data", "-3"] {
        assert!(matches!(text.parse::<ShortSettings>(), Err(ShortError::Text(_))), "{text}");
    }
}

#[test]
fn refusals() {
    let few = FlowSettings {
        src: "10.0.0.1".parse().unwrap(),
        dst: vec!["10.0.0.2".parse().unwrap()],
        src_ports: 1..=9,
        ..FlowSettings::v4()
    };
    let mix: Mix = "128".parse().unwrap();
    let settings = ShortSettings { concurrent: 10, ..ShortSettings::default() };
    assert_eq!(Short::new(&few, &mix, settings).unwrap_err(), ShortError::Few { concurrent: 10, possible: 9 });
    assert!(Short::new(&few, &mix, ShortSettings { concurrent: 9, ..settings }).is_ok());
    let small = Short::new(&FlowSettings::v4(), &"75".parse().unwrap(), settings).unwrap_err();
    assert!(matches!(small, ShortError::Small(TooSmall { needed: 76, .. })), "{small}");
    let none = FlowSettings { dst: vec![], ..FlowSettings::v4() };
    assert!(matches!(Short::new(&none, &mix, settings), Err(ShortError::Flows(_))));
    let never = ShortSettings { packets: 1, ..settings };
    assert!(matches!(Short::new(&FlowSettings::v4(), &mix, never), Err(ShortError::Text(_))));
}

#[test]
fn nothing_is_written_where_it_does_not_fit() {
    let short = Short::new(&FlowSettings::v4(), &"128".parse().unwrap(), "3x1".parse().unwrap()).unwrap();
    let mut connections = short.connections(0, 1);
    let mut frame = [7; 200];
    let syn = connections.next_turn(0);
    assert_eq!(connections.fill(syn, Probe::default(), &mut frame[..59]), 0);
    let data = connections.next_turn(0);
    assert_eq!(connections.fill(data, Probe::default(), &mut frame[..123]), 0);
    let none = connections.next_turn(9);
    assert_eq!((none.len(), connections.fill(none, Probe::default(), &mut frame)), (0, 0));
    assert_eq!(frame, [7; 200]);
}

#[test]
fn lanes_share_out_the_five_tuples() {
    let short = Short::new(&FlowSettings::v4(), &"128".parse().unwrap(), "2x7".parse().unwrap()).unwrap();
    let mut all = HashSet::new();
    for lane in 0..3 {
        let mut connections = short.connections(lane, 3);
        for _ in 0..2000 {
            let turn = connections.next_turn(0);
            let mut frame = [0; 128];
            let len = connections.fill(turn, Probe::default(), &mut frame);
            let packet = seen(&frame[..len]);
            if packet.flags.contains(TcpFlags::SYN) {
                assert!(all.insert(packet.tuple), "used twice");
            }
        }
    }
    assert!(all.len() >= 3000);
}

/// A middlebox that tracks connections strictly, except for the missing answers.
#[derive(Default)]
struct Tracker {
    /// Next sequence number, acknowledgement number, packets so far.
    open: HashMap<FiveTuple, (u32, Option<u32>, u32)>,
    used: HashSet<FiveTuple>,
    closed: u64,
}

impl Tracker {
    fn take(&mut self, packet: &Seen, settings: ShortSettings) {
        let Seen { tuple, flags, seq, ack, payload, .. } = *packet;
        let data = TcpFlags::ACK | TcpFlags::PSH;
        if flags.contains(TcpFlags::SYN) {
            assert_eq!((flags, ack), (TcpFlags::SYN, 0));
            assert!(self.used.insert(tuple), "no five-tuple comes twice");
            assert_eq!((payload > 0, packet.probe.is_some(), packet.mss).0, settings.data_in_syn);
            assert_eq!((packet.probe.is_some(), packet.mss), (settings.data_in_syn, !settings.data_in_syn));
            self.open.insert(tuple, (seq.wrapping_add(1 + payload as u32), None, 1));
            return;
        }
        let (next, known, packets) = self.open.get_mut(&tuple).expect("data of an open connection");
        assert_eq!(seq, *next);
        assert_eq!(ack, *known.get_or_insert(ack));
        assert!(payload >= probe::LEN && packet.probe.is_some());
        *next = next.wrapping_add(payload as u32);
        *packets += 1;
        let last = *packets == settings.packets;
        assert_eq!(flags, if last { data | TcpFlags::FIN } else { data });
        if last {
            self.open.remove(&tuple);
            self.closed += 1;
        }
    }
}

proptest! {
    #[test]
    fn connections_are_connections(
        is_v4: bool, packets in 2_u32..20, concurrent in 1_u32..60, data_in_syn: bool, seed: u64,
    ) {
        let settings = ShortSettings { packets, concurrent, data_in_syn };
        let mix: Mix = "100:3,594:2,1518:1".parse().unwrap();
        let short = Short::new(&FlowSettings { seed, ..base(is_v4) }, &mix, settings).unwrap();
        let (mut connections, mut sizes) = (short.connections(0, 1), mix.cycle());
        let mut tracker = Tracker::default();
        let rounds = 4 * packets;
        let mut most = 0;
        let mut syns = Vec::new();
        for number in 0..rounds * concurrent {
            let size = sizes.next_index();
            let turn = connections.next_turn(size);
            let mut frame = vec![0xee; 1600];
            let probe = Probe { stream: 2, sequence: number.into(), stamp: 5 };
            let len = connections.fill(turn, probe, &mut frame);
            prop_assert_eq!(len, turn.len());
            prop_assert_eq!(frame[len], 0xee);
            let packet = seen(&frame[..len]);
            prop_assert_eq!(packet.probe, turn.is_numbered().then_some(probe));
            if turn.is_numbered() {
                prop_assert_eq!(len, mix.entries()[size].0.without_fcs());
                prop_assert_eq!(Probe::read_at(&frame[..len], short.probe_at()), (Reading::Probe(probe), short.probe_at()));
            }
            if packet.flags.contains(TcpFlags::SYN) {
                syns.push(number);
            }
            tracker.take(&packet, settings);
            most = most.max(tracker.open.len());
        }
        prop_assert!(most <= concurrent as usize);
        // All are open but those that have just closed and are to be followed by the next.
        prop_assert!(most + (concurrent as usize).div_ceil(packets as usize) >= concurrent as usize);
        prop_assert_eq!(connections.opened(), tracker.closed + tracker.open.len() as u64);
        // Once all have begun, SYNs come evenly: one in so many packets, and never two rounds' worth at once.
        let settled = syns.iter().filter(|number| **number >= 2 * packets * concurrent).count() as u32;
        prop_assert!(settled.abs_diff(2 * concurrent) <= 1 + concurrent.div_ceil(packets), "{settled}");
        let gaps = syns.windows(2).map(|pair| pair[1] - pair[0]);
        prop_assert!(concurrent < 2 * packets || gaps.skip(2 * concurrent as usize).all(|gap| gap <= 2 * packets));
    }
}
