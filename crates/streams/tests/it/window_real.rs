//! Streams of real captures: what the window shows is what Wireshark's follow-stream prints.

use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use packet::{Batch, HeapPool, Pool};
use pcap::{LinkType, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use streams::window::{Direction, Event, Flow, Inspect, Lost, Settings, Transport, Verdict, window_with};
use wire::{IpProtocol, Tcp, Udp};

/// No group of captures is begun after that: on a busy machine tshark takes its time.
const ENOUGH: Duration = Duration::from_secs(30);

/// A run of bytes, or a gap of so many.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Item {
    Bytes(Vec<u8>),
    Gap(u32),
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Run(Vec<Item>);

impl Run {
    fn bytes(&mut self, new: &[u8]) {
        match self.0.last_mut() {
            _ if new.is_empty() => {}
            Some(Item::Bytes(bytes)) => bytes.extend(new),
            _ => self.0.push(Item::Bytes(new.to_vec())),
        }
    }

    fn gap(&mut self, n: u32) {
        match self.0.last_mut() {
            Some(Item::Gap(gap)) => *gap += n,
            _ => self.0.push(Item::Gap(n)),
        }
    }

    fn len(&self) -> usize {
        self.0.iter().map(|item| if let Item::Bytes(bytes) = item { bytes.len() } else { 0 }).sum()
    }
}

/// The two ends of a flow, in order.
type Ends = [SocketAddr; 2];
/// Bytes sent from one end to the other, all flows with the same ends in sequence.
type Streams = BTreeMap<(SocketAddr, SocketAddr), Run>;

/// Collects inspected bytes. Behind an unacknowledged gap it collects nothing, as tshark prints nothing.
struct Keep(Arc<Mutex<Streams>>);

impl Inspect for Keep {
    /// True if a direction has reached such a gap.
    type State = [bool; 2];

    fn inspect(&mut self, flow: &Flow<'_>, over: &mut [bool; 2], event: Event<'_>) -> Verdict {
        let over = &mut over[usize::from(flow.direction() == Direction::ToServer)];
        let t = flow.tuple();
        let key = (SocketAddr::new(t.src, t.src_port), SocketAddr::new(t.dst, t.dst_port));
        let mut streams = self.0.lock().unwrap();
        let run = streams.entry(key).or_default();
        match event {
            Event::Gap { why, .. } if why != Lost::Acknowledged => *over = true,
            _ if *over => {}
            Event::Gap { bytes, .. } => run.gap(bytes),
            Event::Window(window) => run.bytes(window.fresh()),
            Event::End(_) => {}
        }
        Verdict::Forward
    }
}

struct Nowhere;

impl Sink for Nowhere {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        batch.clear();
    }
}

/// Returns the events of the window for some frames, and the number of flows.
fn shown<T: Transport>(frames: &[Vec<u8>]) -> (Streams, u64) {
    let streams = Arc::default();
    let settings = Settings { idle: 1_000_000, half_open: 1_000_000, ..Settings::default() };
    let node = window_with::<T, _>(&settings, Keep(Arc::clone(&streams))).unwrap();
    let blueprint = Blueprint {
        nodes: vec![NodePlan { name: "window".into(), edges: vec![Target::Unconnected] }],
        hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
    };
    let pool = Arc::new(HeapPool::new(64));
    let mut graph = Graph::new(&blueprint, vec![Box::new(node)], pool.clone());
    for burst in frames.chunks(packet::BURST) {
        let mut batch = Batch::new();
        for frame in burst {
            batch.push(pool.alloc_from(frame).unwrap()).unwrap();
        }
        graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut Nowhere);
    }
    assert_eq!(graph.finish(), []);
    let stats = graph.stats().next().unwrap().1.clone();
    assert_eq!((stats.dropped(), pool.in_use()), (0, 0));
    let count = |name| stats.counters().iter().find(|c| c.0 == name).unwrap().1.get();
    assert_eq!(count("memory_bytes"), 0);
    (std::mem::take(&mut *streams.lock().unwrap()), count("new"))
}

/// Classification of a frame.
enum Seen {
    /// Whole, of a flow.
    Flow(Ends),
    /// Of a flow, but a fragment, cut short by the capture, or a reset with data.
    Part(Ends),
    Other,
}

/// Looks at Ethernet, VLAN and IP without what is tested.
fn look(frame: &[u8], protocol: IpProtocol) -> Seen {
    let word = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let mut at = 12;
    while matches!(word(at), Some(0x8100 | 0x88a8 | 0x9100)) {
        at += 4;
    }
    let (kind, ip) = (word(at), frame.get(at + 2..).unwrap_or_default());
    let (src, dst, head, len, fragment): (IpAddr, IpAddr, usize, usize, bool) = match kind {
        Some(0x0800) if ip.len() >= 20 && ip[0] >> 4 == 4 && ip[9] == protocol.0 => {
            let address = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).unwrap().into();
            let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
            let len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            (address(12), address(16), usize::from(ip[0] & 15) * 4, len, fragment)
        }
        Some(0x86dd) if ip.len() >= 40 && ip[6] == protocol.0 => {
            let address = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).unwrap().into();
            (address(8), address(24), 40, 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])), false)
        }
        _ => return Seen::Other,
    };
    let ports = ip
        .get(head..head + 4)
        .filter(|_| !fragment)
        .map_or([0, 0], |b| [u16::from_be_bytes([b[0], b[1]]), u16::from_be_bytes([b[2], b[3]])]);
    let mut ends = [SocketAddr::new(src, ports[0]), SocketAddr::new(dst, ports[1])];
    ends.sort_unstable();
    let tcp = |at: usize| ip.get(head + at).copied().filter(|_| protocol == IpProtocol::TCP).unwrap_or(0);
    // tshark takes what a reset says for bytes of the stream; no receiver does (RFC 1122 §4.2.2.12)
    let says = tcp(13) & 4 != 0 && len > head + usize::from(tcp(12) >> 4) * 4;
    if fragment || len > ip.len() || len < head + 8 || says { Seen::Part(ends) } else { Seen::Flow(ends) }
}

/// A frame, and how long it was before the capture cut it.
type Captured = (Vec<u8>, u32);

/// The frames of a capture as Ethernet frames, those that were cut short too; none when its link layer is another.
fn frames(path: &Path) -> Vec<Captured> {
    let mut all = vec![];
    let mut reader = Reader::open(path).unwrap();
    while let Ok(Some(record)) = reader.next() {
        let (frame, was) = (record.frame, record.original_len);
        let with = |kind: [u8; 2], rest: &[u8]| [&[2; 12], &kind[..], rest].concat();
        let ethernet = match record.link_type {
            LinkType::ETHERNET => frame.to_vec(),
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => match frame.first().map(|b| b >> 4) {
                Some(6) => with([0x86, 0xdd], frame),
                _ => with([0x08, 0x00], frame),
            },
            LinkType::LINUX_SLL if frame.len() > 16 => with([frame[14], frame[15]], &frame[16..]),
            LinkType::C_HDLC if frame.len() > 4 => with([frame[2], frame[3]], &frame[4..]),
            LinkType::NULL if frame.len() > 4 => match frame[4] >> 4 {
                6 => with([0x86, 0xdd], &frame[4..]),
                _ => with([0x08, 0x00], &frame[4..]),
            },
            _ => continue,
        };
        let was = (was.max(frame.len() as u32) + ethernet.len() as u32) - frame.len() as u32;
        all.push((ethernet, was));
    }
    all
}

/// Cuts a TCP segment that a network card would have cut, so that it fits into a packet.
fn cut(frame: Vec<u8>) -> Vec<Vec<u8>> {
    const MOST: usize = 1400;
    let word = |at: usize| frame.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let mut ip = 14;
    while matches!(word(ip - 2), 0x8100 | 0x88a8 | 0x9100) {
        ip += 4;
    }
    // of the IP header: where its length stands, what that does not count, where TCP begins
    let (len_at, uncounted, head) = match (word(ip - 2), frame.len() > 1600) {
        (0x0800, true) if frame[ip + 9] == 6 => (ip + 2, 0, ip + usize::from(frame[ip] & 15) * 4),
        (0x86dd, true) if frame[ip + 6] == 6 => (ip + 4, 40, ip + 40),
        _ => return vec![frame],
    };
    let data = head + usize::from(frame[head + 12] >> 4) * 4;
    let end = (ip + uncounted + usize::from(word(len_at))).min(frame.len());
    if data >= end {
        return vec![frame];
    }
    let seq = u32::from_be_bytes(frame[head + 4..head + 8].try_into().unwrap());
    let parts = frame[data..end].chunks(MOST);
    let last = parts.len() - 1;
    let part = |(n, payload): (usize, &[u8])| {
        // checksums are not looked at
        let mut part = [&frame[..data], payload].concat();
        let len = (part.len() - ip - uncounted) as u16;
        part[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
        part[head + 4..head + 8].copy_from_slice(&(seq.wrapping_add((n * MOST) as u32)).to_be_bytes());
        if n < last {
            part[head + 13] &= !1;
        }
        part
    };
    parts.enumerate().map(part).collect()
}

/// Returns the output of tshark for the first `n` streams, and the flows whose packets carry others of their kind.
fn followed(path: &Path, transport: &str, n: u64) -> (Streams, BTreeSet<Ends>) {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(path).args(["-T", "fields", "-E", "separator=;", "-E", "aggregator=,"]);
    for field in ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst"] {
        command.args(["-e", field]);
    }
    command.args(["-e", &format!("{transport}.srcport"), "-e", &format!("{transport}.dstport")]);
    for stream in 0..n {
        command.args(["-z", &format!("follow,{transport},raw,{stream}")]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut streams, mut tunnels, mut nodes) = (Streams::new(), BTreeSet::new(), vec![]);
    let mut following = false;
    for line in text.lines() {
        if line.starts_with("====") {
            following = true;
            nodes.clear();
        } else if !following {
            tunnels.extend(tunnel(line));
        } else if let Some(node) = line.strip_prefix("Node ") {
            let (ip, port) = node.split_once(": ").unwrap().1.rsplit_once(':').unwrap();
            let ip: Option<IpAddr> = ip.trim_matches(['[', ']']).parse().ok();
            nodes.push(ip.map(|ip| SocketAddr::new(ip, port.parse().unwrap())));
        } else if let [Some(first), Some(second)] = nodes[..] {
            let (key, hex) = match line.strip_prefix('\t') {
                Some(hex) => ((second, first), hex),
                None => ((first, second), line),
            };
            let digit = |d: &[u8]| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap();
            let bytes: Vec<u8> = hex.as_bytes().chunks(2).map(digit).collect();
            let run = streams.entry(key).or_default();
            match missing(&bytes) {
                Some(n) => run.gap(n),
                None => run.bytes(&bytes),
            }
        }
    }
    (streams, tunnels)
}

/// The outer flow of a packet with two headers of the transport: tshark follows the inner one.
fn tunnel(fields: &str) -> Option<Ends> {
    let mut firsts = fields.split(';').map(|field| field.split(',').next().unwrap_or_default());
    let (v4, v6) = ([firsts.next()?, firsts.next()?], [firsts.next()?, firsts.next()?]);
    let ports = [firsts.next()?, firsts.next()?];
    if !fields.rsplit(';').next()?.contains(',') {
        return None;
    }
    let ips = if v4[0].is_empty() { v6 } else { v4 };
    let end = |n: usize| Some(SocketAddr::new(ips[n].parse().ok()?, ports[n].parse().ok()?));
    let mut ends = [end(0)?, end(1)?];
    ends.sort_unstable();
    Some(ends)
}

/// The words that stand for missing bytes.
fn missing(line: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(line.strip_suffix(b"\0").unwrap_or(line)).ok()?;
    text.strip_prefix('[')?.strip_suffix(" bytes missing in capture file]")?.parse().ok()
}

fn captures() -> Vec<PathBuf> {
    let data = std::env::var_os("BONDSTONE_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let mut files: Vec<PathBuf> = vec![];
    for folder in ["dpi", "ids"] {
        let Ok(dir) = data.join(folder).read_dir() else {
            eprintln!("skipped: no data in {} (set BONDSTONE_DATA)", data.display());
            return vec![];
        };
        files.extend(dir.map(|entry| entry.unwrap().path()).map(|p| if p.is_dir() { p.join("input.pcap") } else { p }));
    }
    files.retain(|f| f.extension().is_some_and(|e| e == "pcap" || e == "pcapng"));
    files.sort();
    files
}

/// Captures one behind the other, as if they were one: tshark takes long to start. No two have hosts that talk to each
/// other in common, so that nothing of one is taken for a part of the other.
#[derive(Default)]
struct Group {
    captures: usize,
    frames: Vec<Captured>,
    pairs: BTreeSet<[IpAddr; 2]>,
    /// Flows, and those of which a frame is not whole.
    flows: BTreeSet<Ends>,
    parts: BTreeSet<Ends>,
}

impl Group {
    fn of(frames: Vec<Captured>, protocol: IpProtocol) -> Self {
        let mut group = Group { captures: 1, ..Group::default() };
        for (frame, _) in &frames {
            let (ends, set) = match look(frame, protocol) {
                Seen::Flow(ends) => (ends, &mut group.flows),
                Seen::Part(ends) => (ends, &mut group.parts),
                Seen::Other => continue,
            };
            set.insert(ends);
            group.pairs.insert(hosts(&ends));
        }
        group.frames = frames;
        group
    }

    /// Puts captures together, up to so many flows.
    fn join(captures: &[PathBuf], protocol: IpProtocol) -> Vec<Group> {
        const MOST: usize = 150;
        let mut groups: Vec<Group> = vec![];
        for path in captures {
            let one = Group::of(frames(path), protocol);
            if one.flows.is_empty() {
                continue;
            }
            let fits =
                |group: &&mut Group| group.flows.len() + one.flows.len() <= MOST && group.pairs.is_disjoint(&one.pairs);
            match groups.iter_mut().find(fits) {
                Some(group) => {
                    group.captures += 1;
                    group.frames.extend(one.frames);
                    group.pairs.extend(one.pairs);
                    group.flows.extend(one.flows);
                    group.parts.extend(one.parts);
                }
                None => groups.push(one),
            }
        }
        groups
    }

    /// True if no packet of a flow was truncated or may be a fragment.
    fn is_whole(&self, ends: &Ends) -> bool {
        let part_of = |part: &Ends| part == ends || (part[0].port() == 0 && hosts(part) == hosts(ends));
        self.flows.contains(ends) && !self.parts.iter().any(part_of)
    }

    fn write(&self, path: &Path) {
        let mut writer = Writer::create(path, LinkType::ETHERNET).unwrap();
        for (n, (frame, was)) in self.frames.iter().enumerate() {
            writer.write(n as u64 * 1_000_000, *was, frame).unwrap();
        }
        writer.finish().unwrap();
    }
}

/// The addresses of a flow.
fn hosts(ends: &Ends) -> [IpAddr; 2] {
    let mut hosts = [ends[0].ip(), ends[1].ip()];
    hosts.sort_unstable();
    hosts
}

/// Counts of the comparison.
#[derive(Default)]
struct Sum {
    captures: usize,
    streams: usize,
    bytes: usize,
    gaps: usize,
    left_out: usize,
    differ: Vec<String>,
}

fn compare<T: Transport>(group: &Group, file: &Path, transport: &str, sum: &mut Sum) {
    let pieces = group.frames.iter().flat_map(|(frame, _)| cut(frame.clone())).filter(|frame| frame.len() <= 2048);
    let (ours, new) = shown::<T>(&pieces.collect::<Vec<_>>());
    group.write(file);
    // it counts the flows in tunnels too
    let (theirs, tunnels) = followed(file, transport, 2 * new + 64);
    let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).copied().collect();
    sum.captures += group.captures;
    for key in keys {
        let mut ends = [key.0, key.1];
        ends.sort_unstable();
        let empty = Run::default();
        let (own, their) = (ours.get(&key).unwrap_or(&empty), theirs.get(&key).unwrap_or(&empty));
        if own.0.is_empty() && their.0.is_empty() {
            continue;
        }
        if !group.is_whole(&ends) || tunnels.contains(&ends) {
            sum.left_out += 1;
            continue;
        }
        sum.streams += 1;
        sum.bytes += own.len();
        sum.gaps += own.0.iter().filter(|item| matches!(item, Item::Gap(_))).count();
        if own != their {
            let short = |run: &Run| -> Vec<String> {
                let item = |item: &Item| match item {
                    Item::Bytes(bytes) => format!("{} bytes", bytes.len()),
                    Item::Gap(n) => format!("gap of {n}"),
                };
                run.0.iter().map(item).collect()
            };
            sum.differ.push(format!("{key:?}: {:?}, tshark {:?}", short(own), short(their)));
        }
    }
}

/// Compares all flows of the captures, group by group, as far as time allows.
fn compare_all<T: Transport>(captures: &[PathBuf], protocol: IpProtocol, transport: &str) {
    let (began, mut sum) = (Instant::now(), Sum::default());
    let file = std::env::temp_dir().join(format!("bondstone-window-{transport}-{}.pcap", std::process::id()));
    let groups = Group::join(captures, protocol);
    for group in &groups {
        if began.elapsed() < ENOUGH {
            compare::<T>(group, &file, transport, &mut sum);
        }
    }
    let _ = std::fs::remove_file(&file);
    let Sum { captures, streams, bytes, gaps, left_out, differ } = sum;
    eprintln!(
        "{transport}: {captures} of {} captures, {streams} streams, {bytes} bytes, {gaps} gaps compared; \
         {left_out} streams left out; {} differ",
        groups.iter().map(|group| group.captures).sum::<usize>(),
        differ.len(),
    );
    assert!(groups.is_empty() || streams > 50);
    assert!(differ.is_empty(), "{} streams differ:\n{}", differ.len(), differ.join("\n"));
}

#[test]
#[cfg_attr(miri, ignore = "runs tshark")]
fn streams_are_those_that_tshark_follows() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: no tshark (Wireshark) on this machine");
        return;
    }
    let files = captures();
    compare_all::<Tcp>(&files, IpProtocol::TCP, "tcp");
    // a part of them is enough for what hardly can go wrong
    compare_all::<Udp>(&files[..files.len() / 4], IpProtocol::UDP, "udp");
}
