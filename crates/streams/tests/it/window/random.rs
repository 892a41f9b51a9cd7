//! Whatever comes: no packet is lost from the accounts, no bound is broken, and nothing passes unseen that must not.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use streams::window::{Direction, Fail, Lost, Overlap, Settings, Transport, Verdict, WhenFull};
use wire::{Tcp, TcpFlags, Udp, build};

use crate::window::kit::{ACK, Bench, Conn, FIN, Note, RST, Told};

const MEMORY: u64 = 12_000;

fn settings() -> impl Strategy<Value = Settings> {
    let policy = prop_oneof![Just(Overlap::First), Just(Overlap::Last), Just(Overlap::Linux)];
    let shape = prop_oneof![Just((0, 0)), Just((16, 0)), Just((64, 64)), Just((100, 30))];
    let limits = (1..40u32, 1..6u32, 1..10u32, 1..3u32);
    (shape, policy, any::<[bool; 4]>(), limits).prop_map(
        |((size, increment), overlap, [midstream, hold, closed, evict], (flows, flow_held, held, idle))| Settings {
            size,
            increment,
            timeout: 200,
            overlap,
            midstream,
            checksums: false,
            hold,
            fail: if closed { Fail::Closed } else { Fail::Open },
            flow_held,
            held,
            flows,
            idle,
            half_open: 1,
            flow_memory: 4096,
            memory: MEMORY,
            full: if evict { WhenFull::Evict } else { WhenFull::Pass },
        },
    )
}

fn flags() -> impl Strategy<Value = TcpFlags> {
    prop_oneof![
        8 => Just(ACK),
        1 => Just(FIN),
        1 => Just(RST),
        1 => Just(TcpFlags::SYN),
        1 => Just(TcpFlags::SYN_ACK),
        1 => any::<u8>().prop_map(TcpFlags),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Segment { port: u16, back: bool, seq: u32, ack: u32, flags: TcpFlags, len: usize },
    Damaged { at: prop::sample::Index, byte: u8, cut: prop::sample::Index },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let seq = prop_oneof![6 => 0..2000u32, 1 => any::<u32>()];
    let segment = (0..4u16, any::<bool>(), seq.clone(), seq, flags(), prop_oneof![0..40usize, 0..1800usize]);
    prop_oneof![
        20 => segment.prop_map(|(port, back, seq, ack, flags, len)| Step::Segment { port, back, seq, ack, flags, len }),
        2 => (any::<prop::sample::Index>(), any::<u8>(), any::<prop::sample::Index>())
            .prop_map(|(at, byte, cut)| Step::Damaged { at, byte, cut }),
        1 => (1..400u64).prop_map(Step::Wait),
    ]
}

/// The frame of a segment. What a byte is, its number says.
fn frame(port: u16, back: bool, seq: u32, ack: u32, flags: TcpFlags, len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..len as u32).map(|n| seq.wrapping_add(n) as u8).collect();
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let frame = if back { build::tcp4(b, a, 80, port) } else { build::tcp4(a, b, port, 80) };
    frame.seq(seq).ack(ack).flags(flags).window(500).payload(&payload).to_vec()
}

/// Takes the steps; what was told.
fn run<T: Transport>(
    settings: &Settings,
    steps: &[Step],
    mut verdicts: impl FnMut() -> Verdict + Send + 'static,
) -> Vec<Note> {
    let mut bench = Bench::of::<T>(settings, Box::new(move |_| verdicts()));
    let mut frames: Vec<Vec<u8>> = vec![];
    for step in steps {
        match step {
            Step::Segment { port, back, seq, ack, flags, len } => {
                frames.push(frame(*port, *back, *seq, *ack, *flags, *len));
            }
            Step::Damaged { at, byte, cut } => {
                if let Some(last) = frames.last_mut().filter(|last| !last.is_empty()) {
                    let at = at.index(last.len());
                    last[at] = *byte;
                    last.truncate(cut.index(2 * last.len()).max(1));
                }
            }
            Step::Wait(ms) => {
                bench.send(&std::mem::take(&mut frames));
                bench.wait(*ms);
                assert!(bench.read("memory_bytes") <= MEMORY);
                assert!(bench.held() <= u64::from(settings.held));
                assert!(settings.hold || bench.held() == 0);
            }
        }
    }
    bench.send(&frames);
    assert!(bench.held() <= u64::from(settings.held));
    // all of it is forgotten in the end
    bench.wait(5000);
    assert_eq!(["flows", "memory_bytes", "waiting_streams"].map(|name| bench.read(name)), [0; 3]);
    assert_eq!(bench.held(), 0);
    bench.finish();
    bench.notes()
}

proptest! {
    #[test]
    fn accounts_and_bounds_hold(settings in settings(), steps in prop::collection::vec(step(), 0..120)) {
        // bytes come one behind the other; a stream begins anew only behind an end, and bytes may go on behind a reset
        let mut streams: BTreeMap<(u32, Direction), (u64, bool)> = BTreeMap::new();
        for note in run::<Tcp>(&settings, &steps, || Verdict::Forward) {
            let (next, ended) = streams.entry((note.number, note.direction)).or_insert((0, false));
            prop_assert!(note.offset == *next || (*ended && note.offset == 0), "{:?} at {}", note, next);
            let ended_before = *ended;
            (*next, *ended) = match note.told {
                Told::Bytes(_, new) => (note.offset + new.len() as u64, ended_before),
                Told::Gap(n, _) => (note.offset + u64::from(n), ended_before),
                Told::End(_) => (note.offset, true),
            };
        }
    }

    #[test]
    fn whatever_the_verdicts(
        settings in settings(),
        steps in prop::collection::vec(step(), 0..80),
        verdicts in prop::collection::vec(0..20u8, 1..30),
    ) {
        let mut at = 0;
        run::<Tcp>(&settings, &steps, move || {
            at += 1;
            match verdicts[at % verdicts.len()] {
                0 => Verdict::Drop,
                1 => Verdict::Pass,
                _ => Verdict::Forward,
            }
        });
    }

    #[test]
    fn datagrams_too(settings in settings(), lens in prop::collection::vec((0..3u16, any::<bool>(), 0..1500usize), 0..60)) {
        let mut bench = Bench::of::<Udp>(&settings, Box::new(|_| Verdict::Forward));
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        for (port, back, len) in lens {
            let frame = if back { build::udp4(b, a, 53, port) } else { build::udp4(a, b, port, 53) };
            bench.send(&[frame.payload(&vec![7; len]).to_vec()]);
        }
        bench.wait(5000);
        prop_assert_eq!(["flows", "memory_bytes"].map(|name| bench.read(name)), [0; 2]);
        prop_assert_eq!(bench.held(), 0);
    }

    /// A connection that both sides open; then segments at random, of which every byte has the value that its number says.
    /// With fail-closed, no byte leaves without inspection; inspected bytes are always the right ones.
    #[test]
    fn nothing_passes_unseen_where_it_must_not(
        mut settings in settings(),
        segments in prop::collection::vec((any::<bool>(), 0..3000u32, 0..600usize, 0..40u8, 0..60u64), 0..80),
    ) {
        settings.hold = true;
        settings.fail = Fail::Closed;
        settings.midstream = false;
        (settings.flows, settings.idle, settings.half_open) = (100, 1000, 1000);
        let shown = Arc::new(Mutex::new([vec![false; 5000], vec![false; 5000]]));
        let told = Arc::clone(&shown);
        let mut bench = Bench::of::<Tcp>(&settings, Box::new(move |note| {
            let way = usize::from(note.direction == Direction::ToClient);
            let first = [1u64, 501][way];
            match &note.told {
                Told::Bytes(old, new) => {
                    for (n, byte) in (first + note.offset - old.len() as u64..).zip(old.iter().chain(new)) {
                        assert_eq!(*byte, n as u8, "a byte out of its place");
                        told.lock().unwrap()[way][n as usize] = true;
                    }
                }
                Told::Gap(bytes, why) => {
                    // the receiver has them, so they are nothing new to it
                    assert_eq!(*why, Lost::Acknowledged);
                    let from = (first + note.offset) as usize;
                    told.lock().unwrap()[way][from..from + *bytes as usize].fill(true);
                }
                Told::End(_) => {}
            }
            Verdict::Forward
        }));
        let conn = Conn { port: 9 };
        bench.send(&conn.handshake());
        for (back, offset, len, odd, ms) in segments {
            let first = if back { 501 } else { 1 };
            let flags = match odd { 0 => FIN, 1 => RST, _ => ACK };
            let ack = if odd == 2 { first + offset } else { 502 - first };
            let out = bench.send(&[frame(9, back, first + offset, ack, flags, len)]);
            let late = bench.wait(ms);
            for frame in out.iter().chain(&late) {
                let way = usize::from(frame[26..30] == [10, 0, 0, 2]);
                let seq = u32::from_be_bytes(frame[38..42].try_into().unwrap()) as usize;
                let shown = shown.lock().unwrap();
                for n in seq..seq + frame.len() - 54 {
                    prop_assert!(shown[way][n], "byte {} of way {} left unseen", n, way);
                }
            }
        }
        prop_assert!(bench.count("memory_bytes") <= MEMORY);
    }
}
