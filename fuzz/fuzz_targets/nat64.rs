//! `nat64`: sessions of a few hosts with replies, ICMP errors and fragments, some of them mutated. Every packet is
//! accounted for, well-formed packets stay well-formed, ports and hosts do not leak, and most packets reach the session
//! table.
#![no_main]

use bondstone_fuzz::Batches;
use graph::{Blueprint, BuildContext, CommonDrop, Graph, Hop, HopPlan, Named, NodePlan, Sink, Target};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use packet::{Batch, HeapPool};
use std::sync::Arc;
use std::time::Duration;
use wire::{EtherType, IpProtocol, TcpFlags, build, ethernet, icmpv4, icmpv6, ipv4, ipv6};

const SETTINGS: [&str; 4] = [
    "",
    "prefix = \"2001:db8:64::/48\"\nmtu = 1300\ninside = [\"2001:db8:1::/64\"]",
    "filtering = \"address-dependent\"\nallocation = \"blocks\"\nblock_size = 8\nmax_blocks = 2",
    "filtering = \"endpoint-independent\"\nhairpin = false",
];
const COMMON: &str = "\
external = [\"203.0.113.1\"]
first_port = 1024
sessions = 48
subscribers = 5
subscriber_sessions = 20
fragments = 6
timers = { udp = 3, tcp_established = 9, tcp_transitory = 2, icmp = 2 }
forward = [\"tcp 203.0.113.1:1030 -> [2001:db8:1::2]:80\"]
";

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
                match frame.header().ether_type() {
                    EtherType::IPV4 => assert!(ipv4::Packet::new(frame.payload()).expect("IPv4").checksum_ok()),
                    other => {
                        assert_eq!(other, EtherType::IPV6);
                        ipv6::Packet::new(frame.payload()).expect("IPv6");
                    }
                }
            }
        }
    }
}

/// Embeds an IPv4 address in the prefix of the settings.
fn embed(which: usize, [a, b, c, d]: [u8; 4]) -> [u8; 16] {
    match which {
        1 => [0x20, 1, 0xd, 0xb8, 0, 0x64, a, b, 0, c, d, 0, 0, 0, 0, 0],
        _ => [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d],
    }
}

/// Returns a packet that session_packet to some session, and its input.
fn session_packet(u: &mut Unstructured<'_>, which: usize) -> Result<(u8, Vec<u8>)> {
    let (host, far): (u8, u8) = (u.int_in_range(1..=6)?, u.int_in_range(1..=3)?);
    let (port, service) = (1024 + u16::from(u.int_in_range(0..=9u8)?), 50 + u16::from(u.int_in_range(0..=3u8)?));
    let outbound = u.int_in_range(0..=3u8)? < 2;
    let (external, remote) = ([203, 0, 113, 1], [198, 18, 0, far]);
    let mut inside = [0; 16];
    inside[..6].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 1]);
    inside[15] = host;
    // sometimes to another inside host through the external address
    let to = embed(which, if u.int_in_range(0..=9u8)? == 0 { external } else { remote });
    let most = if u.int_in_range(0..=7u8)? == 0 { 1450 } else { 40 };
    let len = u.int_in_range(0..=most)?;
    let mut payload = vec![7; len];
    let given = len.min(20).min(u.len());
    payload[..given].copy_from_slice(u.bytes(given)?);
    let id: u16 = u.int_in_range(0..=3)?;
    let flags =
        *u.choose(&[TcpFlags::SYN, TcpFlags::SYN, TcpFlags::SYN_ACK, TcpFlags::ACK, TcpFlags::FIN, TcpFlags::RST])?;
    let later = 8 + (u16::from(u.arbitrary::<u8>()?) << 3);
    let (from, more) = if u.arbitrary()? { (0, true) } else { (later, u.arbitrary()?) };
    let kind = u.int_in_range(0..=10u8)?;
    let router = u.arbitrary::<bool>()?;
    let hops = if u.int_in_range(0..=15u8)? == 0 { 1 } else { 64 };
    let udp = [&[4, 0, 0, 50][..], &[0, 30, 1, 1], &payload].concat();
    let frame = if outbound {
        match kind {
            0..=2 => build::tcp6(inside, to, port, service).flags(flags).ttl(hops).payload(&payload).to_vec(),
            3..=5 => build::udp6(inside, to, port, service).ttl(hops).payload(&payload).to_vec(),
            6 => {
                let protocol = if router { IpProtocol::UDP } else { IpProtocol::ICMPV6 };
                let echo = [&[128, 0, 0, 0][..], &port.to_be_bytes(), &udp].concat();
                let upper = if router { &udp } else { &echo };
                build::ipv6(inside, to, protocol).fragment(from, more, id.into()).payload(upper).to_vec()
            }
            7..=8 => {
                // about a packet of the other side
                let about = build::udp6(to, inside, service, port).payload(&payload).to_vec();
                let cut = u.int_in_range(48..=about.len() - 14)?;
                let mut from = inside;
                from[14] = router.into();
                let error = icmpv6::Repr::PacketTooBig { mtu: 1280 };
                build::icmp6(from, to, error).payload(&about[14..14 + cut]).to_vec()
            }
            9 => build::udp6(inside, to, port, service).extension(IpProtocol::HOP_BY_HOP, &[1, 4, 0, 0, 0, 0]).to_vec(),
            _ => build::echo6(inside, to, port, 1).payload(&payload).to_vec(),
        }
    } else {
        match kind {
            0..=2 => build::tcp4(remote, external, service, port)
                .flags(flags)
                .ttl(hops)
                .payload(&payload)
                .pad_to(60)
                .to_vec(),
            3..=5 => build::udp4(remote, external, service, port).id(id).ttl(hops).payload(&payload).to_vec(),
            6 => {
                let protocol = if router { IpProtocol::UDP } else { IpProtocol::ICMPV4 };
                let echo = [&[0, 0, 0, 0][..], &port.to_be_bytes(), &udp].concat();
                let upper = if router { &udp } else { &echo };
                build::ipv4(remote, external, protocol).id(id).fragment(from, more).payload(upper).to_vec()
            }
            7..=8 => {
                let about = build::udp4(external, remote, port, service).payload(&payload).to_vec();
                let cut = u.int_in_range(28..=about.len() - 14)?;
                let from = if router { remote } else { [172, 16, 0, 1] };
                let error = icmpv4::Repr::FragmentationNeeded { mtu: 1280 };
                build::icmp4(from, external, error).payload(&about[14..14 + cut]).to_vec()
            }
            9 => build::udp4(remote, external, service, port).dont_fragment().payload(&payload).to_vec(),
            _ => {
                build::icmp4(remote, external, icmpv4::Repr::EchoReply { id: port, seq: 1 }).payload(&payload).to_vec()
            }
        }
    };
    Ok((u8::from(!outbound), frame))
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let registry = nf::registry();
    let kind = registry.get("nat64").expect("a shipped NF");
    let which = u.choose_index(SETTINGS.len())?;
    let text = format!("{COMMON}{}", SETTINGS[which]);
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
        let mut batches_in = Batches::fill(u, &pool, |u| session_packet(u, which))?;
        received += batches_in.packets;
        mutated += batches_in.mutated;
        // held packets may come out later
        out.well_formed = mutated == 0;
        for (input, batch) in batches_in.batches.iter_mut().enumerate() {
            graph.run::<false>(Target::Hop(Hop(input as u16)), batch, &mut out);
            assert!(batch.is_empty());
        }
        assert_eq!(pool.in_use() as u64, stats.held.get(), "a packet was leaked");
        let made = stats.created.get();
        assert_eq!(received + made, out.packets + stats.held.get() + stats.dropped(), "accounting");
    }
    // all sessions expire and leave nothing behind
    out.well_formed = false;
    for _ in 0..2000 {
        now += 20;
        graph.run_timers(Duration::from_millis(now), &mut out);
    }
    for (name, count) in stats.counters() {
        let none = ["sessions", "ports", "blocks", "subscribers", "fragments"].contains(&name.as_str());
        // the mapping of a forward remains
        let most = if name == "mappings" { 1 } else { 0 };
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
