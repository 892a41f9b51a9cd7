//! `nat44`: sessions of a few subscribers with replies, ICMP errors and fragments, some of them mutated. Every packet
//! is accounted for, well-formed packets stay well-formed, ports do not leak, and most packets reach the session table.
#![no_main]

use bondstone_fuzz::Batches;
use graph::{Blueprint, BuildContext, CommonDrop, Graph, Hop, HopPlan, Named, NodePlan, Sink, Target};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use packet::{Batch, HeapPool};
use std::sync::Arc;
use std::time::Duration;
use wire::{EtherType, IpProtocol, TcpFlags, build, ethernet, icmpv4, ipv4};

const SETTINGS: [&str; 4] = [
    "",
    "mapping = \"endpoint-dependent\"\nunmatched = \"pass\"",
    "filtering = \"address-dependent\"\nallocation = \"blocks\"\nblock_size = 8\nmax_blocks = 2",
    "filtering = \"endpoint-independent\"\nallocation = \"deterministic\"\nblock_size = 3000\ninside = [\"10.0.0.0/29\"]",
];
const COMMON: &str = "\
external = [\"203.0.113.1\"]
first_port = 1024
sessions = 48
subscribers = 5
subscriber_sessions = 20
fragments = 6
timers = { udp = 3, tcp_established = 9, tcp_transitory = 2, icmp = 2 }
";
const FORWARD: &str = "forward = [\"tcp 203.0.113.1:1030 -> 10.0.0.2:80\"]\n";

/// Counts the packets that come out; checks them if all inputs were well-formed.
struct Count {
    packets: u64,
    well_formed: bool,
}

impl Sink for Count {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        for packet in batch.drain() {
            self.packets += 1;
            if self.well_formed {
                let frame = ethernet::Frame::new(packet.data()).expect("an Ethernet header");
                assert_eq!(frame.header().ether_type(), EtherType::IPV4);
                assert!(ipv4::Packet::new(frame.payload()).expect("an IPv4 header").checksum_ok());
            }
        }
    }
}

/// Returns a packet that session_packet to some session, and its input.
fn session_packet(u: &mut Unstructured<'_>) -> Result<(u8, Vec<u8>)> {
    let (host, far): (u8, u8) = (u.int_in_range(1..=6)?, u.int_in_range(1..=3)?);
    let (port, service) = (1024 + u16::from(u.int_in_range(0..=9u8)?), 50 + u16::from(u.int_in_range(0..=3u8)?));
    let input = u.int_in_range(0..=3u8)? / 2;
    let (inside, external, remote) = ([10, 0, 0, host], [203, 0, 113, 1], [198, 18, 0, far]);
    // sometimes to another inside host through the external address
    let to = if u.int_in_range(0..=9u8)? == 0 { external } else { remote };
    let ((src, sport), (dst, dport)) =
        if input == 0 { ((inside, port), (to, service)) } else { ((remote, service), (external, port)) };
    let len = u.int_in_range(0..=40)?.min(u.len());
    let payload = u.bytes(len)?;
    let id: u16 = u.int_in_range(0..=3)?;
    let frame = match u.int_in_range(0..=9u8)? {
        0..=2 => {
            let flags = *u.choose(&[
                TcpFlags::SYN,
                TcpFlags::SYN,
                TcpFlags::SYN_ACK,
                TcpFlags::ACK,
                TcpFlags::FIN,
                TcpFlags::RST,
            ])?;
            build::tcp4(src, dst, sport, dport).flags(flags).payload(payload).pad_to(60).to_vec()
        }
        3..=5 => build::udp4(src, dst, sport, dport).payload(payload).to_vec(),
        6 => {
            let (from, more) =
                if u.arbitrary()? { (0, true) } else { (u16::from(u.arbitrary::<u8>()?) << 3, u.arbitrary()?) };
            let upper = [&sport.to_be_bytes()[..], &dport.to_be_bytes(), &[0, 30, 1, 1], payload].concat();
            build::ipv4(src, dst, IpProtocol::UDP).id(id).fragment(from, more).payload(&upper).to_vec()
        }
        7..=8 => {
            // about a packet of the other side
            let about = build::udp4(dst, src, dport, sport).payload(payload).to_vec();
            let cut = u.int_in_range(28..=about.len() - 14)?;
            let from = if u.arbitrary()? { src } else { [172, 16, 0, 1] };
            let error = icmpv4::Repr::FragmentationNeeded { mtu: 1280 };
            build::icmp4(from, dst, error).payload(&about[14..14 + cut]).to_vec()
        }
        _ if input == 0 => build::echo4(src, dst, port, 1).payload(payload).to_vec(),
        _ => build::icmp4(src, dst, icmpv4::Repr::EchoReply { id: port, seq: 1 }).payload(payload).to_vec(),
    };
    Ok((input, frame))
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let registry = nf::registry();
    let kind = registry.get("nat44").expect("a shipped NF");
    let which = u.choose_index(SETTINGS.len())?;
    // a computed block may not contain the port of the forward
    let forward = if which == 3 { "" } else { FORWARD };
    let text = format!("{COMMON}{forward}{}", SETTINGS[which]);
    let settings = config::settings(&text).expect("TOML");
    let node = kind.parse(settings).expect("settings").build(&BuildContext::default()).expect("a translator");
    let hops = (0..2).map(|input| HopPlan { node: 0, input, next: Target::Port(0), fail_open: false }).collect();
    let blueprint =
        Blueprint { nodes: vec![NodePlan { name: "nat".to_owned(), edges: vec![Target::Unconnected] }], hops };
    let pool = Arc::new(HeapPool::new(1024));
    let mut graph = Graph::new(&blueprint, vec![node], pool.clone());
    let stats = graph.stats().next().expect("one node").1.clone();
    let (mut received, mut mutated, mut out, mut now) = (0, 0, Count { packets: 0, well_formed: true }, 0);
    while !u.is_empty() {
        now += u64::from(u.arbitrary::<u16>()? % 500);
        graph.run_timers(Duration::from_millis(now), &mut out);
        let mut batches_in = Batches::fill(u, &pool, session_packet)?;
        received += batches_in.packets;
        mutated += batches_in.mutated;
        // held packets may come out later
        out.well_formed = mutated == 0;
        for (input, batch) in batches_in.batches.iter_mut().enumerate() {
            graph.run::<false>(Target::Hop(Hop(input as u16)), batch, &mut out);
            assert!(batch.is_empty());
        }
        assert_eq!(pool.in_use() as u64, stats.held.get(), "a packet was leaked");
        assert_eq!(received, out.packets + stats.held.get() + stats.dropped(), "accounting");
    }
    // all sessions end, and nothing of them is left
    out.well_formed = false;
    for _ in 0..2000 {
        now += 20;
        graph.run_timers(Duration::from_millis(now), &mut out);
    }
    for (name, count) in stats.counters() {
        let none = ["sessions", "ports", "blocks", "subscribers", "fragments"].contains(&name.as_str());
        // a forward keeps its mapping
        let most = if name == "mappings" { u64::from(which != 3) } else { 0 };
        assert!(!(none || name == "mappings") || count.get() <= most, "{} {name} left", count.get());
    }
    for (reason, count) in stats.reasons.iter().zip(&stats.drops) {
        assert!(!CommonDrop::NAMES.contains(reason) || count.get() == 0, "{} packets: {reason}", count.get());
        // unchanged packets parse, so they are never dropped as malformed
        let rejected = ["malformed_ip", "unsupported_protocol", "bad_icmp_error"].contains(reason);
        assert!(!rejected || count.get() <= mutated, "{} packets: {reason}, {mutated} mutated", count.get());
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // exhausted input is not an error
    let _ = run(&mut Unstructured::new(data));
});
