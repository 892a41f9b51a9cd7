//! Synthetic results for tests and for viewing reports; no number in them was measured.

use report::{
    Axis, Calibration, Dut, Environment, Frames, Goal, Histogram, Latency, LatencyAnatomy, LatencyPart, LimitedBy,
    Method, Mix, MixPart, NfInstance, Node, PartKind, PollTimes, Port, Quantity, Result, Series, Summary, Tool,
    Traffic, Trial, Version, hdr, rate, sha256,
};
use std::collections::BTreeMap;

const CHAIN: &str = "bondstone = 1\n\n[port.lan]\ndevice = \"memif:lan\"\n[port.wan]\ndevice = \"memif:wan\"\n\n\
    [nf.guard]\nkind = \"ttl\"\n\n[[chain]]\npath = [\"lan\", \"guard\", \"wan\"]\ncores = [1]\n";

/// Returns the sizes of RFC 2544 §9.1 and a mix.
pub(crate) fn sizes() -> Vec<Frames> {
    let part = |(frame_bytes, weight)| MixPart { frame_bytes, weight };
    let mix = Mix { name: "IMIX".to_owned(), parts: [(64, 7), (594, 4), (1518, 1)].map(part).to_vec() };
    let sizes = [64, 128, 256, 512, 1024, 1280, 1518].map(Frames::FrameBytes);
    sizes.into_iter().chain([Frames::Mix(mix)]).collect()
}

/// Returns a result with an id, for a kind of DUT, frames, and cycles per packet.
pub(crate) fn result(kind: &str, frames: Frames, cycles: f64) -> Result {
    let tsc_hz = 2_900_000_000u64;
    let bytes = frames.mean_bytes();
    let line = rate::line_pps(rate::TEN_GBE_BPS, bytes);
    // cost per byte
    let cycles = cycles + bytes * 0.06;
    let capacity = tsc_hz as f64 / cycles;
    let (lower, limited_by) = if capacity > line { (line, LimitedBy::LineRate) } else { (capacity, LimitedBy::Dut) };
    let lower = lower.round();
    let upper = (limited_by == LimitedBy::Dut).then(|| (lower * 1.02).round());
    let loads = [1.0, 0.5, 0.75, 0.9, lower / line, upper.unwrap_or(lower) / line];
    let trials = loads.iter().enumerate().map(|(n, share)| trial((line * share).round(), capacity, n)).collect();
    let mut result = Result {
        schema: Version::V2,
        id: String::new(),
        tool: Tool {
            name: "bondstone".to_owned(),
            version: "0.1.0".to_owned(),
            command: Some("bondstone bench scenarios/sample.toml --seed 7".to_owned()),
        },
        study: "sample: synthetic numbers".to_owned(),
        cell: BTreeMap::from([("isolation".to_owned(), "inproc".to_owned())]),
        method: Method { name: "throughput".to_owned(), standard: Some("RFC 2544 §26.1".to_owned()), quick: true },
        dut: Dut {
            kind: kind.to_owned(),
            version: Some("0.1.0".to_owned()),
            file: Some("sample.toml".to_owned()),
            chain: Some(CHAIN.to_owned()),
            chain_sha256: Some(sha256(CHAIN.as_bytes())),
            isolation: Some("inproc".to_owned()),
            nfs: vec![
                NfInstance { name: "guard".to_owned(), kind: "ttl".to_owned() },
                NfInstance { name: "router".to_owned(), kind: "lpm".to_owned() },
            ],
            ports: ["lan", "wan"].map(port).to_vec(),
            cores: vec![1],
        },
        traffic: Traffic {
            frames,
            flows: 10_000,
            protocol: "udp4".to_owned(),
            burst: 4,
            directions: 1,
            trace_sha256: Some(sha256(b"a trace")),
            reverse_trace_sha256: None,
            vary: vec![],
            tcp: None,
            profile: None,
            seed: Some(7),
        },
        goal: Goal {
            name: Some("quick".to_owned()),
            trial_duration_s: 1.0,
            duration_sum_s: 21.0,
            loss_ratio: 0.0,
            exceed_ratio: 0.5,
            width: 0.02,
            search: "mlrsearch".to_owned(),
            initial_trial_duration_s: Some(1.0),
            min_load_pps: Some(2e3),
            max_load_pps: Some(150e6),
        },
        environment: Environment {
            date: "2026-02-28T12:00:00Z".to_owned(),
            cpu: "Imaginary CPU at 2.90 GHz".to_owned(),
            tsc_hz,
            kernel: "Linux 6.18".to_owned(),
            hugepages: 1024,
            memory: "huge pages".to_owned(),
            isolated_cpus: vec![],
            cpus_used: vec![0, 1],
            steal_share: Some(0.0031),
            dpdk_version: Some("22.11.11".to_owned()),
            hypervisor: Some("KVM".to_owned()),
            extra: BTreeMap::from([("governor".to_owned(), "performance".to_owned())]),
        },
        calibration: Some(Calibration {
            loopback_lower_pps: line * 1.4,
            load_pps: lower * 0.5,
            p50_ns: 2100.0,
            p99_ns: 3900.0,
            p999_ns: 7800.0,
            id: None,
        }),
        limited_by,
        deviations: vec!["synthetic numbers".to_owned()],
        trials,
        summary: Summary { lower_pps: lower, upper_pps: upper, conditional_pps: Some(lower) },
        anatomy: vec![anatomy(lower, cycles)],
        latency: [0.1, 0.5, 0.9].map(|share| latency(lower, share, cycles, bytes)).to_vec(),
        quantities: Quantity::mean("back-to-back frames", "frames", &[4096.0, 4100.0, 4111.0]).into_iter().collect(),
        series: vec![Series {
            name: "loss over load".to_owned(),
            x: Axis { name: "load".to_owned(), unit: "pps".to_owned() },
            y: Axis { name: "loss".to_owned(), unit: "ratio".to_owned() },
            points: vec![[lower, 0.0], [lower * 1.1, 0.09], [lower * 1.2, 0.16]],
        }],
        streams: vec![],
        nodes: nodes(kind, cycles, (lower * 21.0) as u64),
    };
    result.assign_id().expect("valid samples");
    result
}

fn port(name: &str) -> Port {
    Port { name: name.to_owned(), device: format!("memif:{name}"), driver: Some("net_memif".to_owned()) }
}

fn trial(load: f64, capacity: f64, n: usize) -> Trial {
    let intended = load as u64;
    let unsent = if n == 2 { 3 } else { 0 };
    let sent = intended - unsent;
    let received = sent.min(capacity.round() as u64);
    let host_interference = n == 3;
    let received = if host_interference { received - 1800 } else { received };
    let (gap_ns, off_cpu_ns) = if host_interference { (3_412_000, 3_398_000) } else { (18_000 + 977 * n as u64, 0) };
    Trial {
        load_pps: load,
        duration_s: 1.0,
        intended,
        sent,
        unsent,
        received,
        lost: sent - received,
        poll_gap_max_ns: gap_ns,
        generator: Some(PollTimes { gap_max_ns: 18_000, ..PollTimes::default() }),
        dut: Some(PollTimes { gap_max_ns: gap_ns, gap_sum_ns: off_cpu_ns, off_cpu_ns, off_cpu_max_ns: off_cpu_ns }),
        host_interference,
        ..Trial::default()
    }
}

fn anatomy(lower: f64, cycles: f64) -> LatencyAnatomy {
    let part = |kind, name: &str, mean_ns: f64| LatencyPart {
        kind,
        name: name.to_owned(),
        probes: 2000,
        mean_ns,
        p50_ns: Some(mean_ns),
        p99_ns: Some(2.0 * mean_ns),
    };
    let parts = vec![
        part(PartKind::Generator, "", 250.0),
        part(PartKind::Queue, "lan", 1500.0),
        part(PartKind::Switch, "", 125.0),
        part(PartKind::Nf, "guard", (cycles * 10.0).round()),
        part(PartKind::Queue, "wan", 750.0),
    ];
    LatencyAnatomy {
        load_pps: (lower * 0.8).round(),
        share_of_throughput: Some(0.8),
        probes: 2000,
        mean_ns: parts.iter().map(|part| part.mean_ns).sum(),
        parts,
        ..LatencyAnatomy::default()
    }
}

fn latency(lower: f64, share: f64, cycles: f64, bytes: f64) -> Latency {
    let mut h = Histogram::<u64>::new(3).expect("three digits");
    let samples = 200_000u64;
    for n in 0..samples {
        // a hash instead of random numbers, for reproducible reports
        let u = ((n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let queue = 1.0 / (1.0 - 0.93 * share);
        let base = 2400.0 + cycles * 9.0 + bytes * 1.7;
        let rare = 0.0007 * share / (1.0 - u).max(1e-5);
        let tail = 1.0 + 0.09 * queue * -(1.0 - u).ln() + rare * queue * (1.0 + 0.3 * (rare * 7.0).sin());
        h.record((base * tail) as u64).expect("all of u64");
    }
    let q = |q: f64| h.value_at_quantile(q) as f64;
    Latency {
        load_pps: (lower * share).round(),
        share_of_throughput: Some(share),
        p50_ns: q(0.5),
        p99_ns: q(0.99),
        p999_ns: q(0.999),
        max_ns: h.max() as f64,
        samples,
        host_interference: false,
        lost: 0,
        latency_hdr: Some(hdr::encode(&h).expect("fits")),
        vnfs: vec![],
    }
}

fn nodes(kind: &str, cycles: f64, packets: u64) -> Vec<Node> {
    let dropped = packets / 1000;
    let node = |(name, node_kind, share): (&str, &str, f64)| Node {
        name: name.to_owned(),
        kind: node_kind.to_owned(),
        packets: if name == "lan" || name == "guard" { packets } else { packets - dropped },
        dropped: if name == "guard" { BTreeMap::from([("ttl_expired".to_owned(), dropped)]) } else { BTreeMap::new() },
        cycles_per_packet: Some(cycles * share),
        packets_per_batch: Some(if kind == "native" { 31.2 } else { 29.4 }),
    };
    [("lan", "receive", 0.26), ("guard", "ttl", 0.12), ("router", "lpm", 0.38), ("wan", "send", 0.24)]
        .map(node)
        .to_vec()
}
