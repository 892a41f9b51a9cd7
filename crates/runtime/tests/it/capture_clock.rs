//! Captures that give the time: the same drops in every run, at any speed, and those of a model.

use crate::{Folder, alone};
use config::ChainFile;
use diagnostics::Diagnostic;
use graph::{BuildContext, Context, MeterSettings, MeterTable, Nf, NoSettings, Node, Operator, frame};
use packet::Batch;
use pcap::{LinkType, Reader, Writer};
use runtime::{Engine, Summary};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time limit of a run.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Times since the Unix epoch at which [`Ticks`] received packets and its timer ran.
static TICKS: Mutex<Vec<Duration>> = Mutex::new(vec![]);

/// Limits the rate of frames by their first byte.
struct Police;

impl Nf for Police {
    type Settings = MeterSettings;
    const KIND: &'static str = "police";
    const ABOUT: &'static str = "Limits the rate of frames by their first byte.";
    fn build(settings: &MeterSettings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(frame().meter(MeterTable::new(settings)?, |packet| u64::from(packet.bytes()[0])).compose())
    }
}

/// Records the times of its packets and of its timer.
struct Ticks;

impl Nf for Ticks {
    type Settings = NoSettings;
    const KIND: &'static str = "ticks";
    const ABOUT: &'static str = "Records the times of its packets and of its timer.";
    fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(TicksNode)
    }
}

struct TicksNode;

impl Node for TicksNode {
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        TICKS.lock().unwrap().extend(vec![cx.unix_time(); batch.len()]);
    }
    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
    fn on_timer(&mut self, cx: &mut Context<'_>) {
        TICKS.lock().unwrap().push(cx.unix_time());
    }
}

/// A captured frame: time in ns, and bytes.
type Row = (u64, Vec<u8>);

/// Returns frames of several keys with irregular gaps, of which some go back.
fn frames(n: usize, keys: u8, mut random: u64) -> Vec<Row> {
    let mut ns = 1_700_000_000_000_000_000;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let row = |_| {
        ns += match next(100) {
            0 => next(60_000_000),
            1..20 => next(2_000_000),
            _ => next(40_000),
        };
        let early = if next(50) == 0 { next(3_000_000) } else { 0 };
        (ns - early, vec![next(keys.into()) as u8; 60 + next(1400) as usize])
    };
    (0..n).map(row).collect()
}

fn write(path: &Path, rows: &[Row]) {
    let mut writer = Writer::create(path, LinkType::ETHERNET).unwrap();
    rows.iter().for_each(|(ns, frame)| writer.write(*ns, frame.len() as u32, frame).unwrap());
    writer.finish().unwrap();
}

fn read(path: &Path) -> Vec<Row> {
    let (mut reader, mut rows) = (Reader::open(path).unwrap(), vec![]);
    while let Some(record) = reader.next().unwrap() {
        rows.push((record.timestamp_ns, record.frame.to_vec()));
    }
    rows
}

/// Runs a chain file until its captures are read.
fn run(folder: &Folder, text: &str) -> Summary {
    let _alone = alone();
    let registry = nf::registry().with::<Police>().with::<Ticks>();
    let file = ChainFile::parse(text, &folder.path("clock.toml"), &registry).unwrap_or_else(|e| panic!("{e:?}"));
    let (engine, deadline) = (Engine::start(&file).unwrap(), Instant::now() + TIMEOUT);
    while !engine.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    let summary = engine.stop();
    assert!(summary.balanced && summary.errors.is_empty(), "{summary:?}");
    summary
}

/// Returns the frames that the meter passes, in exact arithmetic: the time is that of the millisecond since the first
/// frame, and never goes back.
fn model(rows: &[Row], rate: u128, size: u128) -> Vec<Row> {
    let (mut buckets, mut latest, first) = (BTreeMap::<u8, (u128, u64)>::new(), 0, rows[0].0);
    let passes = |(ns, frame): &&Row| {
        latest = latest.max((ns.saturating_sub(first)) / 1_000_000);
        let (tokens, at) = buckets.entry(frame[0]).or_insert((size * 1000, latest));
        *tokens = (*tokens + u128::from(latest - *at) * rate).min(size * 1000); // in thousandths of a bit
        *at = latest;
        let passes = *tokens >= frame.len() as u128 * 8000;
        *tokens -= if passes { frame.len() as u128 * 8000 } else { 0 };
        passes
    };
    rows.iter().filter(passes).cloned().collect()
}

const METER: &str = "[nf.police]\nkind = \"police\"\nrate = \"500 kbit\"\nburst = 100\n";
const RATE: u128 = 500_000;
const SIZE: u128 = RATE * 100 / 1000;

#[test]
fn a_rate_limit_drops_the_same_packets_in_every_run() {
    let folder = Folder::new();
    let rows = frames(6000, 12, 1);
    write(&folder.path("in.pcap"), &rows);
    let expected = model(&rows, RATE, SIZE);
    assert!((1000..5000).contains(&expected.len()), "{}", expected.len());
    for path in ["\"police\"", "\"police\"", "\"slow\", \"police\"", "\"police\", \"slow\""] {
        let slow = if path.contains("slow") { "[nf.slow]\nkind = \"work\"\ncycles = 100000\n" } else { "" };
        let summary = run(
            &folder,
            &format!(
                "bondstone = 1\nclock = \"capture\"\n[port.in]\ndevice = \"pcap:in.pcap\"\n\
             [port.out]\ndevice = \"pcap:out.pcap\"\n{slow}{METER}\
             [[chain]]\npath = [\"in\", {path}, \"out\"]\n"
            ),
        );
        assert_eq!(summary.totals.received, 6000);
        assert!(read(&folder.path("out.pcap")) == expected, "through {path}");
    }
}

#[test]
fn captures_are_merged_by_timestamp() {
    let folder = Folder::new();
    // in each, times do not go back
    let sorted = |mut rows: Vec<Row>| {
        rows.sort_by_key(|(ns, _)| *ns);
        rows
    };
    let (a, b) = (sorted(frames(3000, 5, 2)), sorted(frames(2000, 5, 3)));
    write(&folder.path("a.pcap"), &a);
    write(&folder.path("b.pcap"), &b);
    let expected = model(&sorted([a, b].concat()), RATE, SIZE);
    let text = format!(
        "bondstone = 1\nclock = \"capture\"\n[port.a]\ndevice = \"pcap:a.pcap\"\n[port.b]\ndevice = \"pcap:b.pcap\"\n\
         [port.out]\ndevice = \"pcap:out.pcap\"\n{METER}\
         [[chain]]\npath = [\"a\", \"police\", \"out\"]\n[[chain]]\npath = [\"b\", \"count\", \"police\", \"out\"]\n"
    );
    run(&folder, &text);
    assert!(read(&folder.path("out.pcap")) == expected);
}

#[test]
fn timers_run_at_every_millisecond_between_packets() {
    let folder = Folder::new();
    let ms = |ms: u64| (5_000_000_000 + ms * 1_000_000, vec![1; 60]);
    // the second packet is 4 ms later; the third and last is an hour later
    write(&folder.path("in.pcap"), &[ms(0), ms(4), ms(3_600_000)]);
    TICKS.lock().unwrap().clear();
    run(
        &folder,
        "bondstone = 1\nclock = \"capture\"\n[port.in]\ndevice = \"pcap:in.pcap\"\nrepeat = 2\n\
         [port.out]\ndevice = \"null\"\n[[chain]]\npath = [\"in\", \"ticks\", \"out\"]\n",
    );
    let ticks = core::mem::take(&mut *TICKS.lock().unwrap());
    let hour = 3_600_000;
    // every millisecond for ten minutes, then at once; the second repetition continues where the first one ended
    let once = |start: u64| (start + 1..=start + 600_004).chain([start + hour]);
    let mut expected: Vec<u64> = once(0).chain(once(hour)).chain([0, 4, hour, hour, hour + 4, 2 * hour]).collect();
    expected.sort();
    assert_eq!(ticks, expected.into_iter().map(|ms| Duration::from_millis(5000 + ms)).collect::<Vec<_>>());
}

#[test]
fn packets_held_by_nfs_are_released_when_all_buffers_are_held() {
    let folder = Folder::new();
    // all packets at one time, more than the pool has buffers, each held for 5 ms
    let rows: Vec<Row> = vec![(7_000_000_000, vec![3; 60]); 60_000];
    write(&folder.path("in.pcap"), &rows);
    let summary = run(
        &folder,
        "bondstone = 1\nclock = \"capture\"\n[port.in]\ndevice = \"pcap:in.pcap\"\n[port.out]\ndevice = \"null\"\n\
         [nf.line]\nkind = \"impair\"\ndelay = 5\nqueue = 1000000\n[[chain]]\npath = [\"in\", \"line\", \"out\"]\n",
    );
    assert_eq!(summary.totals.received, 60_000);
    assert!(summary.totals.sent > 0, "{summary:?}");
}
