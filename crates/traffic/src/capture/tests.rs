use std::path::PathBuf;

use pcap::Writer;
use proptest::prelude::*;
use wire::{build, ethernet, tcp, udp};

use super::*;

/// Returns a capture file of whole frames, a microsecond apart.
fn file(link: LinkType, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), link).unwrap();
    for (i, frame) in frames.iter().enumerate() {
        writer.write(1_000 * (i as u64 + 1), frame.len() as u32, frame).unwrap();
    }
    writer.finish().unwrap()
}

fn read(file: &[u8], settings: CaptureSettings) -> Result<Capture, CaptureError> {
    Capture::read(Reader::new(file)?, settings)
}

fn frames() -> Vec<Vec<u8>> {
    let (a4, b4, a6, b6) = ([10, 0, 0, 1], [10, 0, 0, 2], [1; 16], [2; 16]);
    let route = IpProtocol::ROUTING;
    vec![
        build::udp4(a4, b4, 1, 2).payload(&[9; 30]).to_vec(),
        build::udp4(a4, b4, 1, 2).payload(&[9; 17]).to_vec(),
        build::udp6(a6, b6, 1, 2).vlan(5).payload(&[9; 31]).to_vec(),
        build::tcp4(a4, b4, 1, 2).payload(&[9; 18]).pad_to(90).to_vec(),
        build::tcp6(a6, b6, 1, 2).payload(&[9; 1000]).to_vec(),
        build::arp_request(a4, b4).to_vec(),
        build::udp4(a4, b4, 1, 2).fragment(0, true).payload(&[9; 30]).to_vec(),
        build::udp6(a6, b6, 1, 2).extension(route, &[0; 6]).payload(&[9; 30]).to_vec(),
    ]
}

/// Returns true if the transport checksum of a frame is right, for UDP and TCP.
fn checksum_ok(frame: &[u8]) -> bool {
    let place = probe::payload(frame).unwrap();
    let packet = &frame[place.network..];
    let (upper, pseudo) = match packet[0] >> 4 {
        4 => ipv4::Packet::new(packet).map(|ip| (ip.payload(), ip.pseudo())).unwrap(),
        _ => ipv6::Packet::new(packet).map(|ip| (ip.payload(), ip.pseudo())).unwrap(),
    };
    if place.checksum + 2 == place.start {
        udp::Datagram::new(upper).unwrap().checksum_ok(pseudo)
    } else {
        tcp::Segment::new(upper).unwrap().checksum_ok(pseudo)
    }
}

#[test]
fn frames_come_out_as_they_went_in() {
    let capture = read(&file(LinkType::ETHERNET, &frames()), CaptureSettings::default()).unwrap();
    assert_eq!((capture.len(), capture.end(), capture.skipped().sum()), (8, End::Whole, 0));
    // UDP and TCP over both, and a fragment; ARP has none
    assert_eq!(capture.flows(), 5);
    let mut out = [0xee; 2000];
    for (i, frame) in frames().into_iter().enumerate() {
        let len = capture.fill(i, None, &mut out);
        assert_eq!(len, frame.len().max(60));
        assert_eq!(out[..frame.len()], frame);
        assert!(out[frame.len()..len].iter().all(|byte| *byte == 0));
        assert_eq!(capture.frame(i), &out[..len]);
    }
    assert_eq!(capture.fill(8, None, &mut out), 0);
    assert_eq!(capture.fill(4, None, &mut out[..100]), 0);
    assert_eq!(capture.frame(8), &[][..]);
    let bytes: usize = frames().iter().map(|frame| frame.len().max(60) + 4).sum();
    assert!((capture.mean_size() - bytes as f64 / 8.0).abs() < 1e-9);
}

#[test]
fn probes_where_there_is_room() {
    let mac = MacAddr([2, 1, 1, 1, 1, 1]);
    let settings = CaptureSettings { src_mac: Some(mac), dst_mac: Some(MacAddr([4; 6])), ..CaptureSettings::default() };
    let capture = read(&file(LinkType::ETHERNET, &frames()), settings).unwrap();
    let which: Vec<usize> = (0..8).filter(|i| capture.has_room(*i)).collect();
    assert_eq!(which, [0, 2, 3, 4]);
    assert_eq!(capture.first_with_room(), Some(0));
    let mut out = [0; 2000];
    for i in 0..8 {
        let probe = Probe { stream: 7, sequence: 1 + i as u64, stamp: 99 };
        let len = capture.fill(i, Some(probe), &mut out);
        let frame = ethernet::Frame::new(&out[..len]).unwrap();
        assert_eq!((frame.header().src(), frame.header().dst()), (mac, MacAddr([4; 6])));
        if capture.has_room(i) {
            assert_eq!(Probe::read_at(&out[..len], usize::MAX).0, Reading::Probe(probe));
            assert!(checksum_ok(&out[..len]), "frame {i}");
            // all else is as it was
            let place = probe::payload(&out[..len]).unwrap();
            let original = &capture.frame(i)[place.start + probe::LEN..];
            assert_eq!(&out[place.start + probe::LEN..len], original);
        } else {
            assert_eq!(&out[..len], capture.frame(i));
        }
    }
}

#[test]
fn turns_go_round_and_one_in_so_many_carries_a_probe() {
    let capture = read(&file(LinkType::ETHERNET, &frames()), CaptureSettings::default()).unwrap();
    let mut turns = capture.turns(0);
    let mut probes = [0_u64; 8];
    let rounds = 20_000;
    for n in 0..8 * rounds {
        let turn = turns.next_turn();
        assert_eq!(turn.frame, n % 8);
        probes[turn.frame] += u64::from(turn.probe);
    }
    for (frame, count) in probes.into_iter().enumerate() {
        assert_eq!(count != 0, capture.has_room(frame), "{probes:?}");
    }
    let all: u64 = probes.iter().sum();
    // waiting for a frame with room makes them a little rarer
    let most = 8 * rounds as u64 / PROBE_EVERY;
    assert!((most * 9 / 10..=most * 11 / 10).contains(&all), "{all} of {most}");
    let again: Vec<_> = std::iter::repeat_with({
        let mut turns = capture.turns(0);
        move || turns.next_turn()
    })
    .take(1000)
    .collect();
    let mut turns = capture.turns(0);
    assert!(again.iter().all(|turn| *turn == turns.next_turn()), "the same seed, the same turns");
}

#[test]
fn probes_of_another_generator_are_replaced() {
    let other = Probe { stream: 0, sequence: 5, stamp: 6 }.to_bytes();
    let udp = || build::udp6([1; 16], [2; 16], 1, 2);
    let mut damaged = other;
    damaged[8] ^= 1;
    let replaced = [udp().payload(&other).to_vec(), udp().payload(&damaged).vlan(7).to_vec()];
    // the checksum cannot be told
    let routed = udp().extension(IpProtocol::ROUTING, &[0; 6]).payload(&other).to_vec();
    let capture = read(
        &file(LinkType::ETHERNET, &[replaced[0].clone(), routed.clone(), replaced[1].clone()]),
        CaptureSettings::default(),
    )
    .unwrap();
    assert_eq!((capture.len(), capture.skipped().probes, capture.skipped().records), (2, 1, 3));
    assert!(capture.turns(0).next_turn().probe, "every time");
    let why = read(&file(LinkType::ETHERNET, &[routed]), CaptureSettings::default()).unwrap_err();
    assert!(why.to_string().contains("1 with a probe of another generator"), "{why}");
}

#[test]
fn what_cannot_be_sent_is_counted() {
    let all = CaptureSettings::default();
    let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET).unwrap();
    writer.write(0, 100, &[1; 60]).unwrap();
    writer.write(0, 10, &[1; 10]).unwrap();
    writer.write(0, 15_997, &[1; 15_997]).unwrap();
    let mut bytes = writer.finish().unwrap();
    let expected = Skipped { records: 3, cut: 1, long: 1, short: 1, ..Skipped::default() };
    assert!(matches!(read(&bytes, all.clone()), Err(CaptureError::Empty(skipped)) if skipped == expected));
    let raw = file(LinkType::RAW, &[vec![0x45; 60]]);
    let why = read(&raw, all.clone()).unwrap_err();
    assert!(why.to_string().contains("no frame of 1 can be sent: 1 not Ethernet;"), "{why}");
    // A file that breaks off serves up to there.
    bytes = file(LinkType::ETHERNET, &frames());
    bytes.truncate(bytes.len() - 5);
    let capture = read(&bytes, all.clone()).unwrap();
    assert_eq!((capture.len(), capture.end()), (7, End::BreaksOff));
    assert!(matches!(read(&bytes[..30], all.clone()), Err(CaptureError::Read(_))));
    let short = CaptureSettings { max_frame: 100, ..all };
    let capture = read(&file(LinkType::ETHERNET, &frames()), short).unwrap();
    assert_eq!((capture.len(), capture.skipped().long, capture.end()), (7, 1, End::Whole));
    assert_eq!(capture.skipped().to_string(), ": 1 too long");
}

#[test]
fn own_gaps_beside_those_of_another() {
    let capture = read(&file(LinkType::ETHERNET, &frames()), CaptureSettings::default()).unwrap();
    assert_eq!((capture.first_ns(), capture.last_ns()), (1_000, 8_000));
    assert_eq!(capture.departures(1.0).unwrap().mean_pps(), Some(1e6));
    assert_eq!(capture.departures_from(500, 16_000, 2.0).unwrap().mean_pps(), Some(1e6));
    assert!(capture.departures_from(500, 7_000, 1.0).is_err(), "it takes longer");
    // what is not held is counted, with its time
    let settings = CaptureSettings { max_bytes: 300, count_all: true, ..CaptureSettings::default() };
    let some = read(&file(LinkType::ETHERNET, &frames()), settings).unwrap();
    assert!(some.len() < 8);
    assert_eq!((some.len() as u64 + some.beyond(), some.last_ns()), (8, 8_000));
}

#[test]
fn what_came_too_late_is_left_out_and_each_trial_begins_anew() {
    let capture = read(&file(LinkType::ETHERNET, &frames()), CaptureSettings::default()).unwrap();
    let mut turns = capture.turns(1);
    let mut next = |skip: u64| {
        turns.skip(skip);
        turns.next_turn().frame
    };
    assert_eq!([next(0), next(2), next(4), next(8), next(17)], [0, 3, 0, 1, 3]);
    turns.rewind();
    assert_eq!(turns.next_turn().frame, 0);
}

#[test]
fn flows_and_counts_are_those_of_what_is_sent() {
    let udp = |n: u8| build::udp4([n, 0, 0, 1], [9, 0, 0, 2], 1, 2).payload(&[9; 30]).to_vec();
    let prefixes = ["10.0.0.0/8=12.0.0.0/8", "11.0.0.0/8=12.0.0.0/8"].map(|text| text.parse().unwrap()).to_vec();
    let rewrite = Rewrite { prefixes, ..Rewrite::default() };
    let settings = CaptureSettings { rewrite, ..CaptureSettings::default() };
    let capture = read(&file(LinkType::ETHERNET, &[udp(10), udp(11), udp(12)]), settings).unwrap();
    assert_eq!((capture.flows(), capture.rewritten(), capture.frame(0)), (1, 2, capture.frame(2)));
}

#[test]
fn memory_is_bounded() {
    let many = vec![vec![7; 976]; 100];
    let settings = CaptureSettings { max_bytes: 10_000, ..CaptureSettings::default() };
    let capture = read(&file(LinkType::ETHERNET, &many), settings).unwrap();
    assert_eq!((capture.len(), capture.end()), (10, End::Full));
    assert!(capture.memory() <= 10_000);
    let settings = CaptureSettings { max_bytes: 100, ..CaptureSettings::default() };
    assert!(matches!(read(&file(LinkType::ETHERNET, &many), settings), Err(CaptureError::Limit(100))));
}

#[test]
fn real_captures() {
    let data = std::env::var_os("BONDSTONE_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let Ok(dir) = data.join("dpi").read_dir() else {
        println!("skipped: no data in {} (set BONDSTONE_DATA)", data.display());
        return;
    };
    let (mut sent, mut probed, mut out) = (0, 0, vec![0; 16_000]);
    for path in dir.map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "pcap" && extension != "pcapng") {
            continue;
        }
        let capture = match Capture::open(&path, CaptureSettings::default()) {
            Ok(capture) => capture,
            Err(CaptureError::Empty(_)) => continue,
            Err(why) => panic!("{why}"),
        };
        for i in 0..capture.len() {
            let probe = Probe { stream: 1, sequence: i as u64, stamp: 3 };
            let len = capture.fill(i, Some(probe), &mut out);
            assert!(len >= 60);
            sent += 1;
            assert_eq!(Probe::read_at(capture.frame(i), usize::MAX).0, Reading::Foreign);
            if capture.has_room(i) {
                probed += 1;
                assert_eq!(Probe::read_at(&out[..len], usize::MAX).0, Reading::Probe(probe), "{} {i}", path.display());
                assert!(checksum_ok(&out[..len]), "{} {i}", path.display());
            }
        }
    }
    println!("{sent} frames, {probed} with a probe");
    assert!(sent > 1_000 && probed > sent / 4);
}

proptest! {
    #[test]
    fn any_frames_are_taken(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20)) {
        if let Ok(capture) = read(&file(LinkType::ETHERNET, &frames), CaptureSettings::default()) {
            let mut out = [0; 300];
            for i in 0..capture.len() {
                prop_assert!(capture.fill(i, Some(Probe::default()), &mut out) >= 60);
            }
        }
    }
}
