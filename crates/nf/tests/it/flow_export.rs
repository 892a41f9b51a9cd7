//! IPFIX export of `monitor`, decoded by Wireshark and nfdump, next to counts by a map.

use crate::ipfix::{collect, dissect};
use nf::Monitor;
use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::HarnessBuilder;
use wire::flow::FiveTuple;
use wire::{MacAddr, TcpFlags, build};

/// Packets, bytes and TCP flags of a flow.
type Counts = (u64, u64, u8);
/// Counts by source, destination, their ports and protocol.
type Flows = BTreeMap<[String; 5], Counts>;

fn key(t: &FiveTuple) -> [String; 5] {
    [t.src.to_string(), t.dst.to_string(), t.src_port.to_string(), t.dst_port.to_string(), t.protocol.0.to_string()]
}

/// Returns packets of flows over IPv4 and IPv6, of which some have tags.
fn frames() -> Vec<Vec<u8>> {
    let mut frames = vec![];
    for n in 0..300u16 {
        let (host, port) = ((n % 7) as u8 + 1, 2000 + n);
        let [near, far] = [host, 99].map(|last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        for k in 0..=n % 5 {
            let flags = if k == 0 { TcpFlags::SYN } else { TcpFlags::ACK };
            frames.push(match n % 4 {
                0 => build::udp4([10, 0, 0, host], [198, 18, 0, 1], port, 53).pad_to(60 + usize::from(k)).to_vec(),
                1 => build::tcp4([10, 0, 0, host], [198, 18, 0, 1], port, 80).flags(flags).to_vec(),
                2 => build::tcp6(near, far, port, 80).flags(flags).to_vec(),
                _ => build::tcp4([10, 0, 0, host], [198, 18, 0, 1], port, 80).flags(flags).vlan(5).to_vec(),
            });
        }
    }
    frames
}

/// Counts frames by a map.
fn reference(frames: &[Vec<u8>]) -> Flows {
    let mut flows = Flows::new();
    for frame in frames {
        let (tuple, upper) = FiveTuple::of_frame_with_upper(frame).unwrap();
        let counts = flows.entry(key(&tuple)).or_default();
        counts.0 += 1;
        counts.1 += frame.len() as u64;
        counts.2 |= if tuple.protocol == wire::IpProtocol::TCP { upper[13] } else { 0 };
    }
    flows
}

/// Feeds frames to a monitor that exports to a server, and lets all flows end.
fn export(to: &str, settings: &str, frames: &[Vec<u8>]) -> u64 {
    let settings = format!("idle = 2\ntop = 0\n[export]\nto = \"{to}\"\n{settings}");
    let mut monitor = HarnessBuilder::new::<Monitor>(&settings).build().unwrap();
    for part in frames.chunks(32) {
        assert_eq!(monitor.feed(part).len(), part.len(), "all packets pass");
    }
    (0..500).for_each(|_| drop(monitor.advance(Duration::from_millis(10))));
    assert_eq!((monitor.counter("flows"), monitor.counter("export_lost")), (0, 0));
    monitor.counter("exported")
}

/// Returns the records as Wireshark decodes them: the values of each field in the order of the records of each message.
fn records(frames: &[Vec<u8>], settings: &str, fields: &[&str]) -> Option<(u64, Vec<Vec<Vec<String>>>)> {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap().to_string();
    let messages = collect(server);
    let exported = export(&to, settings, frames);
    let messages = messages.join().unwrap();
    Some((exported, dissect(&messages, fields)?))
}

#[test]
fn wireshark_decodes_the_counts_of_each_flow() {
    let frames = frames();
    let fields = [
        "cflow.srcaddr",
        "cflow.srcaddrv6",
        "cflow.dstaddr",
        "cflow.dstaddrv6",
        "cflow.srcport",
        "cflow.dstport",
        "cflow.protocol",
        "cflow.packets",
        "cflow.octets",
        "cflow.tcpflags",
        "cflow.flow_end_reason",
        "_ws.malformed",
        "cflow.sequence_analysis.expected_sn",
    ];
    let Some((exported, messages)) = records(&frames, "", &fields) else { return };
    let mut flows = Flows::new();
    for message in &messages {
        assert!(message[11].is_empty() && message[12].is_empty(), "{message:?}");
        let either = |n: usize| if message[n].is_empty() { &message[n + 1] } else { &message[n] };
        let (sources, destinations) = (either(0), either(2));
        for n in 0..sources.len() {
            let number = |field: usize| {
                let text = &message[field][n];
                text.strip_prefix("0x")
                    .map_or_else(|| text.parse().unwrap(), |hex| u64::from_str_radix(hex, 16).unwrap())
            };
            let key = [&sources[n], &destinations[n], &message[4][n], &message[5][n], &message[6][n]].map(Clone::clone);
            assert_eq!(flows.insert(key, (number(7), number(8), number(9) as u8)), None, "each flow once");
            assert_eq!(number(10), 1, "idle timeout");
        }
    }
    assert_eq!(flows, reference(&frames));
    assert_eq!(exported, flows.len() as u64);
}

#[test]
fn biflows_have_the_counts_of_both_directions() {
    let mut frames = vec![];
    for n in 0..100u16 {
        let (client, server, port) = ([10, 0, 0, n as u8], [9, 0, 0, 1], 2000 + n);
        frames.push(build::tcp4(client, server, port, 80).flags(TcpFlags::SYN).to_vec());
        let answer = build::tcp4(server, client, 80, port).flags(TcpFlags::SYN | TcpFlags::ACK);
        frames.extend(vec![answer.pad_to(100).to_vec(); usize::from(n % 3)]);
    }
    let fields = ["cflow.srcaddr", "cflow.srcport", "cflow.packets", "cflow.octets", "cflow.tcpflags"];
    let Some((exported, messages)) = records(&frames, "biflows = true", &fields) else { return };
    let mut seen = 0;
    for message in &messages {
        // fields of the reverse direction have the same names
        for (n, source) in message[0].iter().enumerate() {
            let of = usize::from(message[1][n].parse::<u16>().unwrap() - 2000);
            assert_eq!(*source, format!("10.0.0.{of}"), "the direction of the first packet");
            let both = |field: usize| [&message[field][2 * n], &message[field][2 * n + 1]].map(|text| text.clone());
            let answers = of % 3;
            assert_eq!(both(2), ["1".to_owned(), answers.to_string()]);
            assert_eq!(both(3)[1], (100 * answers).to_string());
            seen += 1;
        }
    }
    assert_eq!((seen, exported), (100, 100));
}

#[test]
fn flows_end_by_timeouts_and_resets() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let settings = format!("idle = 10\n[export]\nto = \"{}\"\nactive = 3", server.local_addr().unwrap());
    let messages = collect(server);
    let mut monitor = HarnessBuilder::new::<Monitor>(&settings).build().unwrap();
    let udp = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).pad_to(60).to_vec();
    let reset = build::tcp4([10, 0, 0, 3], [10, 0, 0, 2], 1, 2).flags(TcpFlags::RST).to_vec();
    monitor.feed(&[reset]);
    for _ in 0..9 {
        monitor.feed(&[&udp[..]]);
        (0..1000).for_each(|_| drop(monitor.advance(Duration::from_millis(1))));
    }
    // the run ends
    monitor.table();
    drop(monitor);
    let fields = ["cflow.srcaddr", "cflow.packets", "cflow.flow_end_reason"];
    let Some(messages) = dissect(&messages.join().unwrap(), &fields) else { return };
    let of = |source: &str| -> (Vec<u64>, Vec<u64>) {
        let records = messages.iter().flat_map(|m| (0..m[0].len()).map(move |n| (&m[0][n], &m[1][n], &m[2][n])));
        let own = records.filter(|(from, ..)| *from == source);
        own.map(|(_, packets, reason)| (packets.parse::<u64>().unwrap(), reason.parse::<u64>().unwrap())).unzip()
    };
    assert_eq!(of("10.0.0.3"), (vec![1], vec![3]), "closed");
    let (packets, reasons) = of("10.0.0.1");
    assert_eq!(packets.iter().sum::<u64>(), 9);
    // active timeouts, and the end of the run
    assert_eq!(reasons.split_last(), Some((&4, &[2, 2][..])), "{packets:?}");
}

#[test]
fn one_of_ten_packets_is_sampled() {
    let frames = vec![build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).pad_to(60).to_vec(); 1000];
    let fields = ["cflow.packets", "cflow.appl_name"];
    let Some((exported, messages)) = records(&frames, "sample = 10", &fields) else { return };
    let packets: Vec<&String> = messages.iter().flat_map(|message| &message[0]).collect();
    assert_eq!((exported, packets), (1, vec![&"100".to_owned()]));
    let names: Vec<&String> = messages.iter().flat_map(|message| &message[1]).collect();
    assert!(names.iter().any(|name| *name == "tls") && names.len() == nf::Application::ALL.len(), "{names:?}");
}

/// A collector of nfdump.
struct Nfcapd {
    process: Child,
    folder: PathBuf,
}

impl Drop for Nfcapd {
    fn drop(&mut self) {
        // ignore errors: it has ended
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Exports flows to nfcapd and returns what nfdump prints of them in a format.
fn nfdump(frames: &[Vec<u8>], settings: &str, format: &str) -> Option<(u64, String)> {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = std::env::temp_dir().join(format!("bondstone-nfcapd-{}-{port}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new("nfcapd");
    command.args(["-b", "127.0.0.1", "-p", &port.to_string(), "-w"]).arg(&folder);
    let Ok(process) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        let _ = std::fs::remove_dir_all(&folder);
        println!("skipped: nfdump is not installed");
        return None;
    };
    let mut collector = Nfcapd { process, folder };
    // it listens once the port cannot be bound
    let deadline = Instant::now() + Duration::from_secs(30);
    while UdpSocket::bind(("127.0.0.1", port)).is_ok() {
        assert!(Instant::now() < deadline, "nfcapd does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    let exported = export(&format!("127.0.0.1:{port}"), settings, frames);
    std::thread::sleep(Duration::from_secs(1));
    // it closes its file when it ends
    Command::new("kill").arg(collector.process.id().to_string()).status().unwrap();
    collector.process.wait().unwrap();
    let mut nfdump = Command::new("nfdump");
    nfdump.arg("-R").arg(&collector.folder).args(["-q", "-N", "-6", "-o"]).arg(format!("fmt:{format}"));
    Some((exported, String::from_utf8(nfdump.output().unwrap().stdout).unwrap()))
}

#[test]
fn nfdump_decodes_the_counts_of_each_flow() {
    let frames = frames();
    let Some((exported, text)) = nfdump(&frames, "", "%sa %da %sp %dp %pr %pkt %byt %flg") else { return };
    let mut flows = Flows::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let flags = cells[7].bytes().rev().enumerate().filter(|(_, flag)| *flag != b'.').map(|(bit, _)| 1 << bit).sum();
        let protocol = match cells[4] {
            "TCP" | "6" => "6",
            "UDP" | "17" => "17",
            other => panic!("{other}: {line}"),
        };
        let key = [cells[0], cells[1], cells[2], cells[3], protocol].map(str::to_owned);
        assert_eq!(flows.insert(key, (cells[5].parse().unwrap(), cells[6].parse().unwrap(), flags)), None, "{line}");
    }
    assert_eq!(exported, flows.len() as u64, "{text}");
    assert_eq!(flows, reference(&frames));
}

/// Packets and bytes of flows by source, destination, EtherType and VLAN ID.
type FrameFlows = BTreeMap<(String, String, u16, u16), (u64, u64)>;

/// Returns frames without IP of several hosts and types, and their flows.
fn frames_without_ip() -> (Vec<Vec<u8>>, FrameFlows) {
    let (mut frames, mut flows) = (vec![], FrameFlows::new());
    for n in 0..200u16 {
        let (host, vlan) = ((n % 40) as u8, n % 3 * 7);
        let src = MacAddr([2, 0, 0, 0, 0, host + 1]);
        let request = build::arp_request([10, 0, 0, host], [10, 0, 0, 99]).src_mac(src);
        let mut frame = if vlan == 0 { request } else { request.vlan(vlan) }.pad_to(60 + usize::from(n)).to_vec();
        let type_at = if vlan == 0 { 12 } else { 16 };
        let ether_type = if n % 2 == 0 { 0x0806 } else { 0x88cc };
        frame[type_at..type_at + 2].copy_from_slice(&u16::to_be_bytes(ether_type));
        let counts = flows.entry((src.to_string(), MacAddr::BROADCAST.to_string(), ether_type, vlan)).or_default();
        *counts = (counts.0 + 1, counts.1 + frame.len() as u64);
        frames.push(frame);
    }
    (frames, flows)
}

#[test]
fn wireshark_decodes_flows_of_frames_without_ip() {
    let (frames, expected) = frames_without_ip();
    let fields = [
        "cflow.srcmac",
        "cflow.dstmac",
        "cflow.ethernet_type",
        "cflow.vlanid",
        "cflow.packets",
        "cflow.octets",
        "_ws.malformed",
        "cflow.sequence_analysis.expected_sn",
    ];
    for settings in ["", "sample = 1\nbiflows = true"] {
        let Some((exported, messages)) = records(&frames, settings, &fields) else { return };
        let counts = if settings.is_empty() { 1 } else { 2 };
        let mut flows = FrameFlows::new();
        for message in &messages {
            assert!(message[6].is_empty() && message[7].is_empty(), "{message:?}");
            for n in 0..message[0].len() {
                let number = |field: usize, n: usize| message[field][n].parse::<u64>().unwrap();
                let [ether_type, vlan] = [2, 3].map(|field| number(field, n) as u16);
                let key = (message[0][n].clone(), message[1][n].clone(), ether_type, vlan);
                assert_eq!(flows.insert(key, (number(4, counts * n), number(5, counts * n))), None, "each flow once");
            }
        }
        assert_eq!((exported, flows), (expected.len() as u64, expected.clone()));
    }
}

#[test]
fn nfdump_decodes_flows_of_frames_without_ip() {
    let (frames, expected) = frames_without_ip();
    let Some((exported, text)) = nfdump(&frames, "", "%ismc %idmc %svln %pkt %byt") else { return };
    // it does not decode the EtherType
    let mut without_type = BTreeMap::new();
    for ((src, dst, _, vlan), (packets, bytes)) in expected {
        *without_type.entry([src, dst, vlan.to_string(), packets.to_string(), bytes.to_string()]).or_insert(0) += 1;
    }
    let mut flows = BTreeMap::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let cells: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        *flows.entry(<[String; 5]>::try_from(cells).unwrap()).or_insert(0) += 1;
    }
    assert_eq!((exported, flows), (without_type.values().sum::<u64>(), without_type));
}

#[test]
fn handshakes_have_round_trip_times() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let settings = format!("idle = 2\ntop = 100\n[export]\nto = \"{}\"\nbiflows = true", server.local_addr().unwrap());
    let messages = collect(server);
    let mut monitor = HarnessBuilder::new::<Monitor>(&settings).build().unwrap();
    let (client, far) = ([10, 0, 0, 1], [9, 0, 0, 1]);
    let from = |port: u16, flags: TcpFlags| build::tcp4(client, far, port, 80).flags(flags).to_vec();
    let back = |port: u16, flags: TcpFlags| build::tcp4(far, client, 80, port).flags(flags).to_vec();
    for n in 0..50u16 {
        let port = 2000 + n;
        monitor.feed(&[from(port, TcpFlags::SYN)]);
        monitor.advance(Duration::from_millis(n.into()));
        monitor.feed(&[back(port, TcpFlags::SYN_ACK)]);
        monitor.advance(Duration::from_millis(4));
        // every tenth does not complete
        if n % 10 != 9 {
            monitor.feed(&[from(port, TcpFlags::ACK), back(port, TcpFlags::ACK)]);
        }
    }
    (0..500).for_each(|_| drop(monitor.advance(Duration::from_millis(10))));
    let rows = monitor.table();
    drop(monitor);
    assert_eq!(rows.len(), 50);
    for row in &rows {
        let n = row[4].parse::<u64>().unwrap() - 2000;
        let client = if n % 10 == 9 { "-" } else { "4000" };
        assert_eq!(row[8..], [client.to_owned(), (n * 1000).to_string()], "{row:?}");
    }
    let fields = [
        "cflow.srcport",
        "cflow.pie.ntop.client_nw_latency_ms",
        "cflow.pie.server_nw_latency_ms",
        "cflow.pie.fastip.tcp_handshake_rtt_usec",
        "_ws.malformed",
    ];
    let Some(messages) = dissect(&messages.join().unwrap(), &fields) else { return };
    let mut seen = 0;
    for message in &messages {
        assert!(message[4].is_empty(), "{message:?}");
        for (at, port) in message[0].iter().enumerate() {
            let n = port.parse::<u64>().unwrap() - 2000;
            let [client, server, both] = [1, 2, 3].map(|field: usize| message[field][at].parse::<u64>().unwrap());
            let expected = if n % 10 == 9 { (0, 0) } else { (2, n * 1000 + 4000) };
            // half the time, rounded
            assert_eq!((server, (client, both)), (n.div_ceil(2), expected), "{n}");
            seen += 1;
        }
    }
    assert_eq!(seen, 50);
}

#[test]
fn nfdump_decodes_biflows_with_round_trip_times() {
    let mut frames = vec![];
    for n in 0..100u16 {
        let (client, server, port) = ([10, 0, 0, n as u8], [9, 0, 0, 1], 2000 + n);
        let answer = build::tcp4(server, client, 80, port);
        frames.push(build::tcp4(client, server, port, 80).flags(TcpFlags::SYN).to_vec());
        frames.push(answer.flags(TcpFlags::SYN_ACK).to_vec());
        frames.push(build::tcp4(client, server, port, 80).flags(TcpFlags::ACK).to_vec());
    }
    let Some((exported, text)) = nfdump(&frames, "biflows = true", "%sa %sp %ipkt %opkt") else { return };
    let lines: BTreeSet<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected: Vec<[String; 4]> =
        (0..100).map(|n| [format!("10.0.0.{n}"), (2000 + n).to_string(), "2".to_owned(), "1".to_owned()]).collect();
    assert!(expected.iter().all(|line| lines.contains(&line.iter().map(String::as_str).collect::<Vec<_>>())), "{text}");
    assert_eq!(exported, 100);
}
