mod saved;

use super::Bridge;
use std::collections::HashMap;
use std::time::Duration;
use testkit::proptest::prelude::*;
use testkit::{Harness, HarnessBuilder};

const PORTS: &str = "ports = [\"a\", \"b\", \"c\"]\n";

/// Returns a frame from one host to another; 0xff is the broadcast address.
fn frame(from: u8, to: u8) -> Vec<u8> {
    let dst = if to == 0xff { [0xff; 6] } else { [2, 0, 0, 0, 0, to] };
    [&dst[..], &[2, 0, 0, 0, 0, from], &[8, 0, from, to, 1, 2]].concat()
}

/// Returns the numbers of the outputs that received frames: 0 is `control`, the ports follow.
fn outputs(out: &[Vec<Vec<u8>>]) -> Vec<usize> {
    (0..out.len()).filter(|&n| !out[n].is_empty()).collect()
}

#[test]
fn floods_until_the_destination_is_learned() {
    let mut bridge = Harness::new::<Bridge>(PORTS);
    assert_eq!(outputs(&bridge.feed_input(0, &[frame(1, 2)])), [2, 3]);
    assert_eq!(outputs(&bridge.feed_input(1, &[frame(2, 1)])), [1]);
    assert_eq!(outputs(&bridge.feed_input(0, &[frame(1, 2)])), [2]);
    // a broadcast is always flooded
    assert_eq!(outputs(&bridge.feed_input(2, &[frame(3, 0xff)])), [1, 2]);
    // a host that moves is learned at its new port from its first frame
    assert_eq!(outputs(&bridge.feed_input(2, &[frame(1, 2)])), [2]);
    assert_eq!(outputs(&bridge.feed_input(1, &[frame(2, 1)])), [3]);
    assert_eq!((bridge.counter("moved"), bridge.counter("learned"), bridge.counter("flooded")), (1, 3, 2));
}

#[test]
fn drops_have_reasons() {
    let mut bridge = Harness::new::<Bridge>(PORTS);
    bridge.feed_input(0, &[frame(1, 0xff), frame(2, 0xff)]);
    // both are at the same port
    assert_eq!(outputs(&bridge.feed_input(0, &[frame(1, 2)])), [] as [usize; 0]);
    let mut group = frame(1, 2);
    group[6] |= 1;
    assert_eq!(outputs(&bridge.feed_input(1, &[group])), [] as [usize; 0]);
    assert_eq!(outputs(&bridge.feed_input(1, &[vec![2; 13]])), [] as [usize; 0]);
    assert_eq!(bridge.drops(), [("same_port", 1), ("source_group", 1), ("malformed_ethernet", 1)]);
    // reserved addresses leave by the output `control`
    let mut spanning = frame(9, 2);
    spanning[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0]);
    assert_eq!(outputs(&bridge.feed_input(1, &[spanning])), [0]);
}

#[test]
fn silent_addresses_age_out() {
    let mut bridge = Harness::new::<Bridge>(&format!("{PORTS}ageing_time = 30"));
    bridge.feed_input(0, &[frame(1, 0xff)]);
    for second in 0..50 {
        bridge.advance(Duration::from_secs(1));
        // host 2 keeps sending; frames to host 1 do not refresh its entry
        bridge.feed_input(1, &[frame(2, 1)]);
        // the whole table is searched every four seconds
        match second {
            0..29 => assert_eq!(bridge.counter("aged_out"), 0, "{second}"),
            36.. => assert_eq!(bridge.counter("aged_out"), 1, "{second}"),
            _ => {}
        }
    }
    assert_eq!((bridge.counter("mac_entries"), outputs(&bridge.feed_input(1, &[frame(2, 1)]))), (1, vec![1, 3]));
}

#[test]
fn forwards_when_the_table_is_full() {
    let mut bridge = Harness::new::<Bridge>(&format!("{PORTS}mac_entries = 4"));
    for host in 1..=6 {
        bridge.feed_input(0, &[frame(host, 0xff)]);
    }
    bridge.advance(Duration::from_millis(2));
    assert_eq!((bridge.counter("mac_entries"), bridge.counter("table_full")), (4, 2));
    assert_eq!(bridge.occupancy("mac_entries"), (4, 4));
    assert_eq!(outputs(&bridge.feed_input(1, &[frame(9, 1)])), [1]);
    assert_eq!(outputs(&bridge.feed_input(1, &[frame(9, 6)])), [1, 3]);
}

#[test]
fn copies_share_learned_addresses() {
    let mut both = HarnessBuilder::new::<Bridge>(&format!("{PORTS}ageing_time = 40")).build_copies(2).unwrap();
    both[0].feed_input(0, &[frame(1, 0xff)]);
    both[1].feed_input(1, &[frame(2, 0xff)]);
    // each sees one direction only
    for second in 0..200 {
        assert_eq!(outputs(&both[0].feed_input(0, &[frame(1, 2)])), [2], "{second}");
        assert_eq!(outputs(&both[1].feed_input(1, &[frame(2, 1)])), [1], "{second}");
        both.iter_mut().for_each(|copy| drop(copy.advance(Duration::from_secs(1))));
    }
}

#[test]
fn rejects_invalid_settings() {
    for (settings, key) in [
        ("ports = [\"a\"]", "ports"),
        ("ports = [\"a\", \"a\"]", "ports"),
        ("ports = [\"a\", \"b\"]\nageing_time = 0", "ageing_time"),
        ("ports = [\"a\", \"b\"]\nmac_entries = 0", "mac_entries"),
    ] {
        assert_eq!(Harness::try_new::<Bridge>(settings).unwrap_err().key, Some(key), "{settings}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Compares with a map that learns burst by burst. Frames come in runs of equal addresses, some of them malformed,
    /// from group addresses or to reserved addresses.
    #[test]
    fn forwards_as_a_map_does(bursts in prop::collection::vec((0u8..3, prop::collection::vec((1u8..14, 1u8..15, 1usize..9), 1..30)), 1..40)) {
        /// Destinations.
        const BROADCAST: u8 = 13;
        const CONTROL: u8 = 14;
        /// Sources.
        const GROUP: u8 = 12;
        const SHORT: u8 = 13;
        let mut bridge = Harness::new::<Bridge>(PORTS);
        let mut known: HashMap<u8, u8> = HashMap::new();
        for (port, runs) in bursts {
            let addresses = runs.iter().flat_map(|&(from, to, n)| std::iter::repeat_n((from, to), n));
            let frames: Vec<Vec<u8>> = addresses.map(|(from, to)| {
                let mut frame = frame(from, if to == BROADCAST { 0xff } else { to });
                if to == CONTROL {
                    frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 2]);
                }
                match from {
                    GROUP => frame[6] |= 1,
                    SHORT => frame.truncate(13),
                    _ => {}
                }
                frame
            }).collect();
            let mut expected = vec![vec![]; 4];
            for burst in frames.chunks(packet::BURST) {
                let valid: Vec<_> = burst.iter().filter(|frame| frame.len() > 13 && frame[6] & 1 == 0).collect();
                known.extend(valid.iter().map(|frame| (frame[11], port)));
                for frame in valid {
                    if frame[0] == 1 {
                        expected[0].push(frame.clone());
                        continue;
                    }
                    let to = known.get(&frame[5]).filter(|_| frame[0] != 0xff);
                    for other in (0..3u8).filter(|other| *other != port && to.is_none_or(|to| to == other)) {
                        expected[usize::from(other) + 1].push(frame.clone());
                    }
                }
            }
            let mut got = bridge.feed_input(port.into(), &frames);
            // flooded frames may be reordered with respect to others
            got.iter_mut().chain(&mut expected).for_each(|frames| frames.sort());
            prop_assert_eq!(got, expected);
        }
    }
}
