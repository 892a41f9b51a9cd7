//! Comparison of counts with a `HashMap`.

use crate::Monitor;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Harness, HarnessBuilder};
use wire::build;
use wire::flow::FiveTuple;

type Flows = HashMap<Vec<String>, (u64, u64)>;

/// Reference implementation.
fn reference(frames: &[Vec<u8>]) -> Flows {
    let mut flows = Flows::new();
    for frame in frames {
        let Some(t) = FiveTuple::of_frame(frame) else { continue };
        let protocol = match t.protocol.0 {
            1 => "icmp".to_owned(),
            6 => "tcp".to_owned(),
            17 => "udp".to_owned(),
            58 => "icmpv6".to_owned(),
            n => n.to_string(),
        };
        let key = vec![t.src.to_string(), t.src_port.to_string(), t.dst.to_string(), t.dst_port.to_string(), protocol];
        let flow = flows.entry(key).or_default();
        flow.0 += frame.len() as u64;
        flow.1 += 1;
    }
    flows
}

fn table(monitor: &mut Harness) -> Flows {
    let number = |text: &String| text.parse::<u64>().unwrap();
    let rows = monitor.table();
    assert!(rows.is_sorted_by(|a, b| number(&a[0]) >= number(&b[0])), "largest first");
    assert!(rows.iter().all(|row| row[1] == "0"), "no error with few keys");
    rows.into_iter().map(|row| (row[3..].to_vec(), (number(&row[0]), number(&row[2])))).collect()
}

#[test]
fn agrees_with_a_hash_map_on_every_capture() {
    let data = std::env::var_os("BONDSTONE_DATA").map_or_else(|| PathBuf::from("../../../shared/data"), PathBuf::from);
    let folder = data.join("dpi");
    let Ok(files) = std::fs::read_dir(&folder) else {
        println!("skipped: no captures in {}", folder.display());
        return;
    };
    let mut captures = 0;
    for file in files.map(|f| f.unwrap().path()).filter(|p| p.to_string_lossy().contains(".pcap")) {
        let frames = frames(&file);
        let mut monitor = HarnessBuilder::new::<Monitor>("flows = 40000\ntop = 100000").buffers(64).build().unwrap();
        for part in frames.chunks(32) {
            assert_eq!(monitor.feed(part), part);
        }
        assert_eq!(table(&mut monitor), reference(&frames), "{}", file.display());
        captures += 1;
    }
    assert!(captures > 200, "{captures} captures");
}

/// Ethernet frames that fit in a buffer.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let mut frames = vec![];
    if let Ok(mut reader) = pcap::Reader::open(path) {
        while let Ok(Some(record)) = reader.next() {
            if record.link_type == pcap::LinkType::ETHERNET && record.frame.len() <= 2048 {
                frames.push(record.frame.to_vec());
            }
        }
    }
    frames
}

fn flow(n: u32) -> Vec<u8> {
    build::udp4(n, [10, 0, 0, 1], 1, 2).pad_to(60).to_vec()
}

#[test]
fn only_idle_flows_expire() {
    let mut monitor = Harness::new::<Monitor>("idle = 2\nflows = 1000");
    let frames: Vec<_> = (0..500).map(flow).collect();
    monitor.feed(&frames);
    for ms in 1..1900 {
        monitor.jump_to(Duration::from_millis(ms));
    }
    monitor.feed(&frames[..100]);
    for ms in 1900..2900 {
        monitor.jump_to(Duration::from_millis(ms));
    }
    let counts: HashMap<_, _> = monitor.counters().into_iter().collect();
    assert_eq!((counts["flows"], counts["expired"], counts["new"]), (100, 400, 500));
    assert_eq!(["flows_ipv4", "flows_ipv6"].map(|table| monitor.occupancy(table)), [(100, 1000), (0, 1000)]);
}

#[test]
fn the_largest_flows_include_evicted_ones() {
    let mut monitor = Harness::new::<Monitor>("flows = 100\ntop = 5000");
    let frames: Vec<_> = (0..5000).map(flow).collect();
    for (ms, part) in frames.chunks(100).enumerate() {
        monitor.jump_to(Duration::from_millis(ms as u64));
        monitor.feed(part);
    }
    assert!(monitor.counter("evicted") > 0);
    assert_eq!(table(&mut monitor), reference(&frames));
}

#[test]
fn lists_only_the_largest_flows() {
    let mut monitor = Harness::new::<Monitor>("top = 3");
    for n in 1..=10u32 {
        monitor.feed(&vec![flow(n); n as usize]);
    }
    let mut packets: Vec<u64> = table(&mut monitor).values().map(|f| f.1).collect();
    packets.sort_unstable();
    assert_eq!(packets, [8, 9, 10]);
}

#[test]
fn bounds_of_many_flows_contain_their_counts() {
    let mut monitor = Harness::new::<Monitor>("flows = 1000\ntop = 20");
    // flow n has 1 packet, the first ten have 500 more
    let frames: Vec<_> = (0..20_000u32).map(|n| flow(if n % 4 == 0 { n / 4 % 10 } else { n })).collect();
    let all = reference(&frames);
    for (ms, part) in frames.chunks(100).enumerate() {
        monitor.jump_to(Duration::from_millis(10 * ms as u64));
        monitor.feed(part);
    }
    let rows = monitor.table();
    assert_eq!(rows.len(), 20);
    for (n, row) in rows.iter().enumerate() {
        let [bytes, error, packets] = [0, 1, 2].map(|n| row[n].parse::<u64>().unwrap());
        let (true_bytes, true_packets) = all[&row[3..]];
        assert!((bytes - error..=bytes).contains(&true_bytes) && packets <= true_packets, "{row:?} {true_bytes}");
        assert!(error <= 20_000 * 60 / 1024 && (true_packets >= 500 || n >= 10), "{row:?}");
    }
}

#[test]
fn lists_the_largest_sources_and_destinations() {
    let frames: Vec<_> = (0..100u32).map(|n| build::udp4(n % 4, n % 10, n as u16, 2).pad_to(60).to_vec()).collect();
    for (by, key, hosts, packets) in [("source", 0, 4, "25"), ("destination", 2, 10, "10")] {
        let mut monitor = Harness::new::<Monitor>(&format!("top = 50\ntop_by = \"{by}\""));
        monitor.feed(&frames);
        let rows = monitor.table();
        assert_eq!(rows.len(), hosts);
        let model = reference(&frames);
        for row in &rows {
            let bytes: u64 = model.iter().filter(|(flow, _)| flow[key] == row[3]).map(|(_, counts)| counts.0).sum();
            assert_eq!(row[..3], [bytes.to_string(), "0".to_owned(), packets.to_owned()]);
        }
    }
}

#[test]
fn counts_and_passes_other_frames() {
    let mut monitor = Harness::new::<Monitor>("");
    let arp = build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).pad_to(60).to_vec();
    assert_eq!(monitor.feed(&[arp.clone(), vec![1; 3]]), [arp, vec![1; 3]]);
    assert!(monitor.counters().contains(&("not_ip".to_owned(), 2)));
}
