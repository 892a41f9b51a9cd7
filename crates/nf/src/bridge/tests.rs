use super::Bridge;
use std::collections::HashMap;
use std::time::Duration;
use testkit::proptest::prelude::*;
use testkit::{Bench, Setup};

const PORTS: &str = "ports = [\"a\", \"b\", \"c\"]\n";

/// A frame from one host to another; 0xff is all.
fn frame(from: u8, to: u8) -> Vec<u8> {
    let dst = if to == 0xff { [0xff; 6] } else { [2, 0, 0, 0, 0, to] };
    [&dst[..], &[2, 0, 0, 0, 0, from], &[8, 0, from, to, 1, 2]].concat()
}

/// Outputs that got one frame, by number: 0 is control, the ports follow.
fn went(out: &[Vec<Vec<u8>>]) -> Vec<usize> {
    (0..out.len()).filter(|&n| !out[n].is_empty()).collect()
}

#[test]
fn frames_go_to_all_ports_until_it_is_known_where() {
    let mut bridge = Bench::of::<Bridge>(PORTS);
    assert_eq!(went(&bridge.feed_by(0, &[frame(1, 2)])), [2, 3]);
    assert_eq!(went(&bridge.feed_by(1, &[frame(2, 1)])), [1]);
    assert_eq!(went(&bridge.feed_by(0, &[frame(1, 2)])), [2]);
    // to all, whoever is known
    assert_eq!(went(&bridge.feed_by(2, &[frame(3, 0xff)])), [1, 2]);
    // a host that moves is found at once where it speaks
    assert_eq!(went(&bridge.feed_by(2, &[frame(1, 2)])), [2]);
    assert_eq!(went(&bridge.feed_by(1, &[frame(2, 1)])), [3]);
    assert_eq!((bridge.counter("moved"), bridge.counter("learnt"), bridge.counter("flooded")), (1, 3, 2));
}

#[test]
fn frames_that_go_nowhere_have_their_reasons() {
    let mut bridge = Bench::of::<Bridge>(PORTS);
    bridge.feed_by(0, &[frame(1, 0xff), frame(2, 0xff)]);
    // both are at the same port
    assert_eq!(went(&bridge.feed_by(0, &[frame(1, 2)])), [] as [usize; 0]);
    let mut group = frame(1, 2);
    group[6] |= 1;
    assert_eq!(went(&bridge.feed_by(1, &[group])), [] as [usize; 0]);
    assert_eq!(went(&bridge.feed_by(1, &[vec![2; 13]])), [] as [usize; 0]);
    assert_eq!(bridge.drops(), [("same_port", 1), ("source_group", 1), ("malformed_ethernet", 1)]);
    // what is for bridges is for its owner
    let mut spanning = frame(9, 2);
    spanning[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0]);
    assert_eq!(went(&bridge.feed_by(1, &[spanning])), [0]);
}

#[test]
fn who_says_nothing_is_forgotten() {
    let mut bridge = Bench::of::<Bridge>(&format!("{PORTS}age = 30"));
    bridge.feed_by(0, &[frame(1, 0xff)]);
    for second in 0..50 {
        bridge.advance(Duration::from_secs(1));
        // one of both goes on; to be spoken to does not count
        bridge.feed_by(1, &[frame(2, 1)]);
        // all of the table is looked through every four seconds
        match second {
            0..29 => assert_eq!(bridge.counter("forgotten"), 0, "{second}"),
            36.. => assert_eq!(bridge.counter("forgotten"), 1, "{second}"),
            _ => {}
        }
    }
    assert_eq!((bridge.counter("addresses"), went(&bridge.feed_by(1, &[frame(2, 1)]))), (1, vec![1, 3]));
}

#[test]
fn a_full_table_forwards_still() {
    let mut bridge = Bench::of::<Bridge>(&format!("{PORTS}addresses = 4"));
    for host in 1..=6 {
        bridge.feed_by(0, &[frame(host, 0xff)]);
    }
    bridge.advance(Duration::from_millis(2));
    assert_eq!((bridge.counter("addresses"), bridge.counter("table_full")), (4, 2));
    assert_eq!(went(&bridge.feed_by(1, &[frame(9, 1)])), [1]);
    assert_eq!(went(&bridge.feed_by(1, &[frame(9, 6)])), [1, 3]);
}

#[test]
fn copies_tell_each_other() {
    let mut both = Setup::of::<Bridge>(&format!("{PORTS}age = 40")).copies(2).unwrap();
    both[0].feed_by(0, &[frame(1, 0xff)]);
    both[1].feed_by(1, &[frame(2, 0xff)]);
    // each sees one direction only
    for second in 0..200 {
        assert_eq!(went(&both[0].feed_by(0, &[frame(1, 2)])), [2], "{second}");
        assert_eq!(went(&both[1].feed_by(1, &[frame(2, 1)])), [1], "{second}");
        both.iter_mut().for_each(|copy| drop(copy.advance(Duration::from_secs(1))));
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for (settings, key) in [
        ("ports = [\"a\"]", "ports"),
        ("ports = [\"a\", \"a\"]", "ports"),
        ("ports = [\"a\", \"b\"]\nage = 0", "age"),
        ("ports = [\"a\", \"b\"]\naddresses = 0", "addresses"),
    ] {
        assert_eq!(Bench::try_of::<Bridge>(settings).unwrap_err().key, Some(key), "{settings}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Beside a map that learns frame by frame: what is learnt in a batch may be known to its first frame already. Frames
    /// come in trains, among them such as nobody sends and such as are for bridges.
    #[test]
    fn it_does_what_a_map_does(bursts in prop::collection::vec((0u8..3, prop::collection::vec((1u8..14, 1u8..15, 1usize..9), 1..30)), 1..40)) {
        const ALL: u8 = 13;
        const CONTROL: u8 = 14;
        const GROUP: u8 = 12;
        const SHORT: u8 = 13;
        let mut bridge = Bench::of::<Bridge>(PORTS);
        let mut known: HashMap<u8, u8> = HashMap::new();
        for (port, trains) in bursts {
            let each = trains.iter().flat_map(|&(from, to, n)| std::iter::repeat_n((from, to), n));
            let made: Vec<Vec<u8>> = each.map(|(from, to)| {
                let mut frame = frame(from, if to == ALL { 0xff } else { to });
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
            for burst in made.chunks(32) {
                let right: Vec<_> = burst.iter().filter(|frame| frame.len() > 13 && frame[6] & 1 == 0).collect();
                known.extend(right.iter().map(|frame| (frame[11], port)));
                for frame in right {
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
            let mut got = bridge.feed_by(port.into(), &made);
            // those that go to all may come before or behind those of others
            got.iter_mut().chain(&mut expected).for_each(|frames| frames.sort());
            prop_assert_eq!(got, expected);
        }
    }
}
