use std::time::Instant;

use pcap::{LinkType, Writer};
use wire::build;

use super::*;
use crate::probe::Reading;
use crate::{Departures, Pace};

/// A file that goes when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("bondstone-stream-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the frame number `n` of a capture: its number is in its first payload bytes.
fn frame(n: u32) -> Vec<u8> {
    let payload = [&n.to_be_bytes()[..], &vec![7; 100 + n as usize % 900]].concat();
    build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(&payload).to_vec()
}

/// Builds a capture of `n` frames, 1 µs apart.
fn capture(frames: u32) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET).unwrap();
    for n in 0..frames {
        let frame = frame(n);
        writer.write(5_000_000_000 + u64::from(n) * 1000, frame.len() as u32, &frame).unwrap();
    }
    writer.finish().unwrap()
}

fn small(rounds: Option<u64>) -> StreamSettings {
    StreamSettings { chunk_bytes: 64 << 10, chunks: 2, rounds, ..StreamSettings::default() }
}

/// Waits for the next frame.
fn next(stream: &mut Stream) -> Option<NextFrame> {
    let patience = Instant::now();
    while !stream.is_ready() && !stream.is_ended() {
        assert!(patience.elapsed() < Duration::from_secs(30), "the reader is stuck");
        thread::yield_now();
    }
    stream.next_turn()
}

#[test]
fn all_frames_come_in_order_round_after_round() {
    // 3.3 MB through 128 KiB.
    let file = Scratch::new("order", &capture(6000));
    let mut stream = Stream::start(&file.0, small(Some(2)));
    let (mut out, mut probes) = ([0; 2048], 0);
    for n in 0..12_000_u32 {
        let turn = next(&mut stream).unwrap();
        let expected = frame(n % 6000);
        let probe = Probe { sequence: n.into(), ..Probe::default() };
        let len = stream.fill(turn, turn.probe.then_some(probe), &mut out);
        assert_eq!((len, len), (expected.len(), stream.frame_len(turn)));
        if turn.probe {
            probes += 1;
            assert_eq!(Probe::read_at(&out[..len], usize::MAX).0, Reading::Probe(probe));
        } else {
            assert_eq!(out[..len], expected);
        }
        assert_eq!(stream.time_ns(turn), Some(u64::from(n) * 1000));
        assert_eq!(stream.rounds(), u64::from(n / 6000));
    }
    assert!(next(&mut stream).is_none() && stream.is_ended() && stream.failed().is_none());
    assert!((250..500).contains(&probes), "{probes} of 12,000");
    let before = stream.starved();
    assert!(stream.next_turn().is_none());
    assert_eq!(stream.starved(), before, "the end is no hunger");
}

#[test]
fn a_sender_that_is_faster_gets_nothing_and_does_not_wait() {
    let file = Scratch::new("hunger", &capture(100));
    let mut stream = Stream::start(&file.0, small(None));
    // Asked at once, before anything can have been read, or after: every answer counts.
    let mut sent = 0;
    let turns: u64 = 200_000;
    for _ in 0..turns {
        sent += u64::from(stream.next_turn().is_some());
    }
    assert_eq!(sent + stream.starved(), turns);
    assert!(stream.starved() > 0 && !stream.is_ended());
}

#[test]
fn own_gaps_through_a_pacer() {
    let file = Scratch::new("gaps", &capture(500));
    let mut stream = Stream::start(&file.0, small(Some(3)));
    assert!(stream.wait(Duration::from_secs(30)));
    let mut pacer = Pacer::follow(Departures::fed(2.0).unwrap(), Pace::new(1.0, 1.0, 1_000_000_000), 0).unwrap();
    let (mut now, mut sent) = (0, 0);
    while !pacer.is_finished() {
        // The clock of the test waits for the reader.
        while !stream.is_ready() && !stream.is_ended() {
            thread::yield_now();
        }
        stream.feed(&mut pacer);
        let unsent = pacer.totals().unsent;
        let due = pacer.due(now);
        stream.skip(pacer.totals().unsent - unsent);
        for _ in 0..due {
            let turn = stream.next_turn().unwrap();
            // Up to a microsecond early.
            assert!(stream.time_ns(turn).unwrap() / 2 <= now + 1000);
            sent += 1;
        }
        pacer.sent(due, now);
        now += 100;
    }
    let totals = pacer.totals();
    assert_eq!((totals.intended, totals.sent, sent), (1500, 1500 - totals.unsent, totals.sent));
    // 1500 packets half a microsecond apart.
    assert!((740_000..780_000).contains(&now), "{now}");
}

#[test]
fn rounds_keep_to_a_period_that_is_given() {
    let file = Scratch::new("period", &capture(3));
    let times = |period_ns| {
        let mut stream = Stream::start(&file.0, StreamSettings { start_ns: 500, period_ns, ..small(Some(2)) });
        (0..6).map(|_| next(&mut stream).and_then(|turn| stream.time_ns(turn)).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(times(None), [500, 1_500, 2_500, 3_500, 4_500, 5_500]);
    assert_eq!(times(Some(10_000)), [500, 1_500, 2_500, 10_500, 11_500, 12_500]);
    assert_eq!(times(Some(1_000))[3], 3_500, "no shorter than the file takes");
}

#[test]
fn what_cannot_be_read_is_told() {
    let missing = Path::new("/nowhere/at-all.pcap");
    let mut stream = Stream::start(missing, small(None));
    assert!(!stream.wait(Duration::from_secs(30)));
    assert!(matches!(stream.failed(), Some(CaptureError::Read(_))) && stream.is_ended());
    let empty = Scratch::new("empty", &capture(0));
    let mut stream = Stream::start(&empty.0, small(None));
    assert!(!stream.wait(Duration::from_secs(30)));
    assert!(matches!(stream.failed(), Some(CaptureError::Empty(_))));
    let cut = capture(10);
    let cut = Scratch::new("cut", &cut[..cut.len() - 5]);
    let mut stream = Stream::start(&cut.0, small(Some(1)));
    let turns = std::iter::from_fn(|| next(&mut stream)).count();
    assert_eq!((turns, stream.failed().is_none()), (9, true));
}

#[test]
fn a_dropped_stream_ends_its_thread() {
    let file = Scratch::new("drop", &capture(6000));
    for _ in 0..20 {
        let mut stream = Stream::start(&file.0, small(None));
        stream.wait(Duration::from_secs(30));
    }
    let name = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
    let running = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks.map(name).filter(|comm| comm.trim() == "capture").count()
    };
    let patience = Instant::now();
    // Those of tests beside this one are few.
    while running() > 8 {
        assert!(patience.elapsed() < Duration::from_secs(30), "{} threads are left", running());
        thread::yield_now();
    }
}
