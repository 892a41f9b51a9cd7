//! Captures through chains: packets, counters and the end of a run.

use crate::common::{Running, Scratch, Summary};
use flate2::Compression;
use flate2::write::GzEncoder;
use pcap::{LinkType, Reader, Writer};
use rustix::process::Signal;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum frame length, bytes.
const MAX_FRAME_LEN: usize = 2048;

/// Returns the captures of `dpi` in the shared data of the project; empty, with a message, if the data is missing.
fn captures() -> Vec<PathBuf> {
    let data = std::env::var_os("BONDSTONE_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let Ok(dir) = data.join("dpi").read_dir() else {
        eprintln!("skipped: no data in {} (set BONDSTONE_DATA)", data.display());
        return vec![];
    };
    let files = dir.map(|entry| entry.unwrap().path().canonicalize().unwrap());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|e| e == "pcap" || e == "pcapng")).collect();
    files.sort();
    assert!(!files.is_empty(), "the directory has no captures");
    files
}

/// The parts of a record that a chain preserves.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    time: u64,
    original: u32,
    link: LinkType,
    frame: Vec<u8>,
}

fn read(path: &Path) -> Vec<Row> {
    let mut reader = Reader::open(path).unwrap();
    let mut rows = vec![];
    while let Some(r) = reader.next().unwrap() {
        let row = Row { time: r.timestamp_ns, original: r.original_len, link: r.link_type, frame: r.frame.to_vec() };
        rows.push(row);
    }
    rows
}

/// Returns Ethernet frames of these lengths, 1 ms apart.
fn synthetic(lengths: &[usize]) -> Vec<Row> {
    let frame = |n: usize, length| (0..length).map(|i| (i + n) as u8).collect::<Vec<_>>();
    let rows = lengths.iter().enumerate().map(|(n, &length)| Row {
        time: 1_700_000_000_123_456_789 + n as u64 * 1_000_000,
        original: length as u32 + n as u32 % 3,
        link: LinkType::ETHERNET,
        frame: frame(n, length),
    });
    rows.collect()
}

fn write(path: &Path, rows: &[Row]) {
    let mut writer = Writer::create(path, LinkType::ETHERNET).unwrap();
    rows.iter().for_each(|r| writer.write(r.time, r.original, &r.frame).unwrap());
    writer.finish().unwrap();
}

/// Runs a chain file in `scratch` to its end.
#[track_caller]
fn run(scratch: &Scratch, chains: &str) -> Summary {
    Running::run(&scratch.write("chain.toml", chains), &[]).end().summary(0)
}

/// Returns a chain file with an input, `nf` and an output.
fn simple(input: &str, nf: &str, output: &str) -> String {
    format!(
        "bondstone = 1\n[port.in]\n{input}\n[port.out]\ndevice = \"{output}\"\n[[chain]]\npath = [\"in\", \"{nf}\", \"out\"]\n"
    )
}

fn frames(rows: &[Row]) -> Vec<&[u8]> {
    rows.iter().map(|r| &r.frame[..]).collect()
}

/// Returns the output of a chain without changes, and the numbers of records dropped as too long and for their link
/// type.
fn expected(rows: &[Row]) -> (Vec<Row>, u64, u64) {
    let first = rows.first().map(|r| r.link);
    let (same, other): (Vec<Row>, Vec<Row>) = rows.iter().cloned().partition(|r| Some(r.link) == first);
    let (forwarded, long): (Vec<Row>, Vec<Row>) = same.into_iter().partition(|r| r.frame.len() <= MAX_FRAME_LEN);
    (forwarded, long.len() as u64, other.len() as u64)
}

/// Runs four chains for each of five captures, the limit of a chain file.
#[test]
fn real_captures_are_forwarded_unchanged() {
    let _one = crate::common::alone();
    let (mut files, mut records, mut long, mut other, mut runts, mut dropped) = (0, 0, 0, 0, 0, 0);
    for batch in captures().chunks(5) {
        let scratch = Scratch::new();
        let mut chains = "bondstone = 1\n[port.nowhere]\ndevice = \"null\"\n".to_owned();
        for (n, capture) in batch.iter().enumerate() {
            for (variant, path) in [
                ("pass", format!("\"count-{n}\", \"pass-{n}-out\"")),
                ("swap", format!("\"swap-{n}\", \"back-{n}\", \"swap-{n}-out\"")),
                ("ttl", format!("\"ttl-{n}\", \"nowhere\"")),
                ("cells", format!("\"cells-{n}\", \"nowhere\"")),
            ] {
                std::fs::copy(capture, scratch.path(format!("{variant}-{n}"))).unwrap();
                chains += &format!("[port.{variant}-{n}-in]\ndevice = \"pcap:{variant}-{n}\"\n");
                if path.ends_with("-out\"") {
                    chains += &format!("[port.{variant}-{n}-out]\ndevice = \"pcap:{variant}-{n}.out\"\n");
                }
                chains += &format!("[[chain]]\npath = [\"{variant}-{n}-in\", {path}]\n");
            }
            for (nf, kind) in
                [("count", "count"), ("swap", "l2fwd"), ("back", "l2fwd"), ("ttl", "ttl"), ("cells", "cells")]
            {
                chains += &format!("[nf.{nf}-{n}]\nkind = \"{kind}\"\n");
            }
        }
        let summary = run(&scratch, &chains);
        let mut through = 0;
        for (n, capture) in batch.iter().enumerate() {
            let rows = read(capture);
            let (forwarded, too_long, other_link_type) = expected(&rows);
            let name = capture.display();
            for variant in ["pass", "swap", "ttl", "cells"] {
                let port = summary.port(&format!("{variant}-{n}-in"));
                assert_eq!(port.number("/received"), rows.len() as u64, "{name}: {variant}");
                assert_eq!(port.number("/drops/too_long"), too_long, "{name}: {variant}");
                assert_eq!(port.number("/drops/link_type_mismatch"), other_link_type, "{name}: {variant}");
                assert_eq!(port.dropped(), too_long + other_link_type, "{name}: {variant}");
            }
            let out = read(&scratch.path(format!("pass-{n}.out")));
            assert_eq!(out.len(), forwarded.len(), "{name}");
            for (record, (actual, expected)) in out.iter().zip(&forwarded).enumerate() {
                assert_eq!(actual, expected, "{name}: record {}", record + 1);
            }
            // frames shorter than an Ethernet header are dropped
            let (whole, short): (Vec<Row>, Vec<Row>) = forwarded.iter().cloned().partition(|r| r.frame.len() >= 14);
            assert!(read(&scratch.path(format!("swap-{n}.out"))) == whole, "{name}: swapped twice");
            assert_eq!(
                summary.nf(&format!("swap-{n}")).number("/drops/malformed_ethernet"),
                short.len() as u64,
                "{name}"
            );
            for nf in ["count", "swap", "ttl", "cells"] {
                assert_eq!(summary.nf(&format!("{nf}-{n}")).number("/packets"), forwarded.len() as u64, "{name}: {nf}");
            }
            for nf in ["ttl", "cells"] {
                let lost = summary.nf(&format!("{nf}-{n}")).dropped();
                (dropped, through) = (dropped + lost, through + forwarded.len() as u64 - lost);
            }
            runts += short.len();
            (files, records) = (files + 1, records + rows.len());
            (long, other) = (long + too_long, other + other_link_type);
        }
        assert_eq!(summary.port("nowhere").number("/sent"), through);
    }
    eprintln!(
        "{files} captures, {records} records: {long} too long, {other} of another link type, {runts} shorter than a header; \
         ttl and cells dropped {dropped}"
    );
}

#[test]
fn gzipped_captures_are_read_and_written() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let rows = synthetic(&[60, 1514, 2048, 14, 700]);
    write(&scratch.path("plain"), &rows);
    let mut gzip = GzEncoder::new(File::create(scratch.path("zipped")).unwrap(), Compression::fast());
    gzip.write_all(&std::fs::read(scratch.path("plain")).unwrap()).unwrap();
    gzip.finish().unwrap();
    let summary = run(&scratch, &simple("device = \"pcap:zipped\"", "count", "pcap:out.pcap.gz"));
    assert_eq!(summary.number("/totals/sent"), rows.len() as u64);
    assert_eq!(read(&scratch.path("out.pcap.gz")), rows);
    assert_eq!(std::fs::read(scratch.path("out.pcap.gz")).unwrap()[..2], [0x1f, 0x8b]);
}

/// Returns a pcapng file with these link types of interfaces, and frames by interface.
fn pcapng(links: &[u16], frames: &[(u32, &[u8])]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let padded = body.len().next_multiple_of(4);
        let length = (padded as u32 + 12).to_le_bytes();
        let mut block = [&kind.to_le_bytes()[..], &length, body].concat();
        block.resize(8 + padded, 0);
        block.extend(length);
        block
    };
    let mut file =
        block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &u64::MAX.to_le_bytes()].concat());
    for link in links {
        file.extend(block(1, &[&link.to_le_bytes()[..], &[0; 6]].concat()));
    }
    for (n, (interface, frame)) in frames.iter().enumerate() {
        let length = (frame.len() as u32).to_le_bytes();
        let words = [interface.to_le_bytes(), [0; 4], (n as u32).to_le_bytes(), length, length].concat();
        file.extend(block(6, &[&words[..], frame].concat()));
    }
    file
}

#[test]
fn drops_and_counts_other_link_types() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let (a, b) = ([1; 60], [2; 61]);
    scratch.write("in", pcapng(&[101, 1], &[(0, &a), (1, &b), (0, &b), (1, &a), (1, &b)]));
    let summary = run(&scratch, &simple("device = \"pcap:in\"", "count", "pcap:out"));
    let port = summary.port("in");
    assert_eq!((port.number("/received"), port.number("/drops/link_type_mismatch")), (5, 3));
    let out = read(&scratch.path("out"));
    assert_eq!(frames(&out), [&a[..], &b[..]]);
    assert_eq!(out.iter().map(|r| (r.time, r.link.0)).collect::<Vec<_>>(), [(0, 101), (2000, 101)]);
}

#[test]
fn output_has_the_link_type_of_the_input() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let mut chains = "bondstone = 1\n".to_owned();
    for (name, link) in [("ethernet", 1), ("raw", 101)] {
        scratch.write(name, pcapng(&[link], &[(0, &[9; 60])]));
        chains +=
            &format!("[port.{name}]\ndevice = \"pcap:{name}\"\n[port.{name}-out]\ndevice = \"pcap:{name}.out\"\n");
        chains += &format!("[[chain]]\npath = [\"{name}\", \"count\", \"{name}-out\"]\n");
    }
    run(&scratch, &chains);
    assert_eq!(read(&scratch.path("ethernet.out"))[0].link.0, 1);
    assert_eq!(read(&scratch.path("raw.out"))[0].link.0, 101);
}

#[test]
fn repeat_reads_a_capture_several_times() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let rows = synthetic(&[60, 2049, 61, 62, 9000, 63]);
    write(&scratch.path("in"), &rows);
    let summary = run(&scratch, &simple("device = \"pcap:in\"\nrepeat = 3", "count", "pcap:out"));
    let port = summary.port("in");
    assert_eq!((port.number("/received"), port.number("/drops/too_long")), (18, 6));
    let (forwarded, ..) = expected(&rows);
    assert_eq!(read(&scratch.path("out")), [forwarded.clone(), forwarded.clone(), forwarded].concat());
}

#[test]
fn jumbo_frames_are_forwarded_through_sandboxes() {
    let _one = crate::common::alone();
    let (lengths, too_long) = ([60, 2049, 9014, 64, 9710, 1514], 17_000);
    for (sandbox, longest) in [
        ("", 15_996),
        ("[nf.far]\nkind = \"count\"\nisolation = \"process\"\n", 9710),
        ("[nf.far]\nkind = \"count\"\nisolation = \"process\"\n[sandbox.far]\ntransport = \"memif\"\n", 15_996),
        ("[nf.far]\nkind = \"count\"\nisolation = \"process\"\n[sandbox.far]\ntransport = \"rings\"\n", 15_996),
    ] {
        if !sandbox.is_empty() && !crate::common::sandboxed_run::possible("process") {
            continue;
        }
        let scratch = Scratch::new();
        let rows = synthetic(&[&lengths[..], &[longest, too_long]].concat());
        write(&scratch.path("in"), &rows);
        let nf = if sandbox.is_empty() { "count" } else { "far" };
        let chain = simple("device = \"pcap:in\"", nf, "pcap:out");
        let chain = chain
            .replacen("\n", &format!("\nmax_frame = {longest}\n"), 1)
            .replace("[[chain]]", &format!("{sandbox}[[chain]]"));
        let summary = run(&scratch, &chain);
        let port = summary.port("in");
        assert_eq!((port.number("/received"), port.number("/drops/too_long")), (8, 1), "{sandbox}");
        assert_eq!(summary.number("/totals/sent"), 7, "{sandbox}");
        // timestamps do not cross the boundary of a sandbox
        assert!(frames(&read(&scratch.path("out"))) == frames(&rows[..7]), "{sandbox}");
    }
}

#[test]
fn timed_capture_keeps_its_gaps() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let mut rows = synthetic(&[60; 5]);
    rows.iter_mut().enumerate().for_each(|(n, row)| row.time = 1_000_000_000 + n as u64 * 100_000_000);
    write(&scratch.path("in"), &rows);
    let start = Instant::now();
    let summary = run(&scratch, &simple("device = \"pcap:in\"\ntimed = true", "count", "pcap:out"));
    assert!(start.elapsed().as_secs_f64() >= 0.4 && summary.0["seconds"].as_f64().unwrap() >= 0.4);
    assert_eq!(read(&scratch.path("out")), rows);
}

#[test]
fn tee_copies_to_a_second_port() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let (rows, others) = (synthetic(&[60; 100]), synthetic(&[200; 50]));
    write(&scratch.path("in"), &rows);
    write(&scratch.path("in2"), &others);
    let summary = run(
        &scratch,
        r#"bondstone = 1
        port.in.device = "pcap:in"
        port.in2.device = "pcap:in2"
        port.out.device = "pcap:out"
        port.out2.device = "pcap:out2"
        port.copies.device = "pcap:copies"
        nf.tee = { kind = "tee", every = 4 }
        chain = [{ path = ["in", "tee", "out"], cores = [0] }, { path = ["in2", "count", "out2"], cores = [1] }]
        edge = [{ from = "tee.copy", to = "copies" }]
        "#,
    );
    assert_eq!(read(&scratch.path("out")), rows);
    assert_eq!(read(&scratch.path("out2")), others);
    let every_fourth: Vec<Row> = rows.into_iter().skip(3).step_by(4).collect();
    let copies = read(&scratch.path("copies"));
    assert_eq!(frames(&copies), frames(&every_fourth));
    assert_eq!((summary.nf("tee").number("/created"), summary.number("/totals/sent")), (25, 175));
}

/// On one core and on two: the run ends after the rings are drained.
#[test]
fn chains_joined_by_a_ring_end_with_the_capture() {
    let _one = crate::common::alone();
    for core in 0..2 {
        let scratch = Scratch::new();
        let rows = synthetic(&[60; 10_000]);
        write(&scratch.path("in"), &rows);
        let chains = r#"bondstone = 1
        port.in.device = "pcap:in"
        port.middle.device = "ring:middle"
        port.out.device = "pcap:out"
        chain = [{ path = ["in", "first", "middle"], cores = [0] }, { path = ["middle", "second", "out"], cores = [CORE] }]
        nf.first.kind = "count"
        nf.second.kind = "l2fwd"
        "#;
        let summary = run(&scratch, &chains.replace("CORE", &core.to_string()));
        let mut out = read(&scratch.path("out"));
        out.iter_mut().for_each(|r| r.frame[..12].rotate_left(6));
        assert_eq!(frames(&out), frames(&rows));
        assert_eq!(summary.number("/totals/received"), 20_000);
    }
}

#[test]
fn chain_on_two_cores_drains_and_ends() {
    let _one = crate::common::alone();
    let Some(capture) = captures().into_iter().find(|c| c.ends_with("443-safari.pcap")) else { return };
    let scratch = Scratch::new();
    let device = format!("device = {:?}\nrepeat = 50", format!("pcap:{}", capture.display()));
    let summary = run(&scratch, &(simple(&device, "count", "pcap:out") + "cores = [0, 1]"));
    let (forwarded, long, _) = expected(&read(&capture));
    let (mut sent, mut received): (Vec<_>, Vec<_>) = (forwarded.iter().map(|r| r.frame.clone()).collect(), vec![]);
    received.extend(read(&scratch.path("out")).into_iter().map(|r| r.frame));
    sent = (0..50).flat_map(|_| sent.clone()).collect();
    sent.sort();
    received.sort();
    assert!(sent == received, "received {} frames of {}", received.len(), sent.len());
    assert_eq!(summary.number("/totals/received"), sent.len() as u64 + 50 * long);
    assert_eq!(summary.0["workers"].as_object().unwrap().len(), 2);
}

#[test]
fn run_ends_after_its_duration() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    write(&scratch.path("in"), &synthetic(&[60; 10]));
    let chains = simple("device = \"pcap:in\"\nrepeat = 0", "count", "null");
    let file = scratch.write("chain.toml", chains);
    let summary = Running::run(&file, &["--for", "300ms"]).end().summary(0);
    assert!(summary.0["seconds"].as_f64().unwrap() >= 0.3);
    assert!(summary.number("/totals/sent") > 0);
}

/// SIGINT and SIGTERM.
#[test]
fn signals_stop_a_run_with_a_summary() {
    let _one = crate::common::alone();
    for signal in [Signal::INT, Signal::TERM] {
        let scratch = Scratch::new();
        let file = scratch.write("chain.toml", simple("device = \"null\"", "count", "pcap:out.pcap.gz"));
        let mut running = Running::run(&file, &[]);
        running.wait_for("a second", |line| line.trim_start().starts_with("1 s"));
        running.signal(signal);
        let summary = running.end().summary(130);
        let sent = summary.number("/totals/sent");
        assert!(sent > 0);
        // the file was closed properly
        let mut reader = Reader::open(scratch.path("out.pcap.gz")).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!(reader.records_read(), sent);
        // with text output
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bondstone"));
        let mut running = Running::start(command.arg("run").arg(&file));
        running.started();
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.status, Some(130), "{}", ended.err);
        assert!(ended.err.contains("interrupted") && ended.out.contains("received"), "{}\n{}", ended.err, ended.out);
    }
}

/// `timeout -s INT` interrupts the process and then its group.
#[test]
fn two_interrupts_in_quick_succession_are_one() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let file = scratch.write("chain.toml", simple("device = \"null\"", "count", "null"));
    let mut running = Running::run(&file, &[]);
    running.started();
    running.signal(Signal::INT);
    running.wait_for("the first interrupt", |line| line.starts_with("note: interrupted: stopping"));
    running.signal(Signal::INT);
    running.end().summary(130);
}

/// Suspended and resumed, as by Ctrl-Z and `fg`: the watchdog does not report an NF.
#[test]
fn suspended_run_continues() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let file = scratch.write("chain.toml", simple("device = \"null\"", "count", "null"));
    let mut running = Running::run(&file, &[]);
    running.started();
    for _ in 0..3 {
        running.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(1200));
        running.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(running.interrupt().summary(130).number("/totals/sent") > 0);
}

/// Packets in a ring without a reader are reported as held.
#[test]
fn packets_left_in_a_ring_are_held() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    write(&scratch.path("in"), &synthetic(&[60; 5]));
    let summary = run(&scratch, &simple("device = \"pcap:in\"", "count", "ring"));
    assert_eq!((summary.number("/totals/sent"), summary.number("/totals/held")), (5, 5));
    assert_eq!(summary.port("out").number("/held"), 5);
}

/// A worker drops packets for a full ring that it drains itself, instead of waiting.
#[test]
fn worker_does_not_wait_for_its_own_ring() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    write(&scratch.path("in"), &synthetic(&[60; 20_000]));
    let summary = run(
        &scratch,
        r#"bondstone = 1
        port.in.device = "pcap:in"
        port.middle.device = "ring"
        port.out.device = "null"
        chain = [{ path = ["in", "tee", "middle"], cores = [0] }, { path = ["middle", "out"], cores = [0] }]
        edge = [{ from = "tee.copy", to = "middle" }]
        "#,
    );
    let out = summary.port("out").number("/sent");
    assert_eq!(out + summary.dropped(), 40_000);
    assert!(out > 20_000 && summary.0["seconds"].as_f64().unwrap() < 30.0);
}

/// Timestamps beyond the range of the format are clamped.
#[test]
fn timestamps_out_of_range_are_clamped() {
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let block = |kind: u32, body: &[u8]| {
        let length = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let packet = |high: u32, low: u32| {
        let words = [0, high, low, 60, 60].map(u32::to_le_bytes).concat();
        block(6, &[&words[..], &[7; 60]].concat())
    };
    let section = block(0x0a0d_0d0a, &[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    let interface = block(1, &[1, 0, 0, 0, 0, 0, 4, 0]);
    let file = [section, interface, packet(5, 0), packet(u32::MAX, u32::MAX), packet(5, 1)].concat();
    std::fs::write(scratch.path("in"), file).unwrap();
    let summary = run(&scratch, &simple("device = \"pcap:in\"", "count", "pcap:out"));
    assert_eq!((summary.number("/totals/sent"), read(&scratch.path("out")).len()), (3, 3));
}
