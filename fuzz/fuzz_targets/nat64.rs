//! The translation between IPv6 and IPv4: sessions of a few hosts, their answers, errors and fragments, bent in places. Every
//! packet is accounted for, what went on is well formed where it was before, no port and no host leaks, and most packets reach
//! the sessions.
#![no_main]

use bondstone_fuzz::Batches;
use graph::{Blueprint, BuildContext, Graph, Hop, HopPlan, NodePlan, NodeStats, Sink, Target};
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

/// Packets that came out. Sound ones are still sound.
struct Count {
    packets: u64,
    sound: bool,
}

impl Sink for Count {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        for packet in batch.drain() {
            self.packets += 1;
            if self.sound {
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

/// An IPv4 address behind the prefix of these settings.
fn behind(which: usize, [a, b, c, d]: [u8; 4]) -> [u8; 16] {
    match which {
        1 => [0x20, 1, 0xd, 0xb8, 0, 0x64, a, b, 0, c, d, 0, 0, 0, 0, 0],
        _ => [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d],
    }
}

/// A packet that belongs to some session, and by which input it comes.
fn belongs(u: &mut Unstructured<'_>, which: usize) -> Result<(u8, Vec<u8>)> {
    let (host, far): (u8, u8) = (u.int_in_range(1..=6)?, u.int_in_range(1..=3)?);
    let (port, service) = (1024 + u16::from(u.int_in_range(0..=9u8)?), 50 + u16::from(u.int_in_range(0..=3u8)?));
    let outwards = u.int_in_range(0..=3u8)? < 2;
    let (our, world) = ([203, 0, 113, 1], [198, 18, 0, far]);
    let mut inside = [0; 16];
    inside[..6].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 1]);
    inside[15] = host;
    // now and then to a neighbour, by our address
    let to = behind(which, if u.int_in_range(0..=9u8)? == 0 { our } else { world });
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
    let piece = [&[4, 0, 0, 50][..], &[0, 30, 1, 1], &payload].concat();
    let frame = if outwards {
        match kind {
            0..=2 => build::tcp6(inside, to, port, service).flags(flags).ttl(hops).payload(&payload).to_vec(),
            3..=5 => build::udp6(inside, to, port, service).ttl(hops).payload(&payload).to_vec(),
            6 => {
                let protocol = if router { IpProtocol::UDP } else { IpProtocol::ICMPV6 };
                let echo = [&[128, 0, 0, 0][..], &port.to_be_bytes(), &piece].concat();
                let upper = if router { &piece } else { &echo };
                build::ipv6(inside, to, protocol).fragment(from, more, id.into()).payload(upper).to_vec()
            }
            7..=8 => {
                // about what the other side has sent
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
            0..=2 => {
                build::tcp4(world, our, service, port).flags(flags).ttl(hops).payload(&payload).pad_to(60).to_vec()
            }
            3..=5 => build::udp4(world, our, service, port).id(id).ttl(hops).payload(&payload).to_vec(),
            6 => {
                let protocol = if router { IpProtocol::UDP } else { IpProtocol::ICMPV4 };
                let echo = [&[0, 0, 0, 0][..], &port.to_be_bytes(), &piece].concat();
                let upper = if router { &piece } else { &echo };
                build::ipv4(world, our, protocol).id(id).fragment(from, more).payload(upper).to_vec()
            }
            7..=8 => {
                let about = build::udp4(our, world, port, service).payload(&payload).to_vec();
                let cut = u.int_in_range(28..=about.len() - 14)?;
                let from = if router { world } else { [172, 16, 0, 1] };
                let error = icmpv4::Repr::FragmentationNeeded { mtu: 1280 };
                build::icmp4(from, our, error).payload(&about[14..14 + cut]).to_vec()
            }
            9 => build::udp4(world, our, service, port).dont_fragment().payload(&payload).to_vec(),
            _ => build::icmp4(world, our, icmpv4::Repr::EchoReply { id: port, seq: 1 }).payload(&payload).to_vec(),
        }
    };
    Ok((u8::from(!outwards), frame))
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let registry = nf::registry();
    let kind = registry.get("nat64").expect("it is shipped");
    let which = u.choose_index(SETTINGS.len())?;
    let text = format!("{COMMON}{}", SETTINGS[which]);
    let settings = config::settings(&text).expect("TOML");
    let node = kind.read(settings).expect("settings").build(&BuildContext::default()).expect("a translation");
    let hops = (0..2).map(|input| HopPlan { node: 0, input, next: Target::Port(0), open: false }).collect();
    let blueprint = Blueprint { nodes: vec![NodePlan { name: "nat".to_owned(), edges: vec![Target::Nowhere] }], hops };
    let pool = Arc::new(HeapPool::new(1024));
    let mut graph = Graph::new(&blueprint, vec![node], pool.clone());
    let stats = graph.stats().next().expect("one node").1.clone();
    let (mut received, mut bent, mut out, mut now) = (0, 0, Count { packets: 0, sound: true }, 0);
    while !u.is_empty() {
        now += u64::from(u.arbitrary::<u16>()? % 500);
        graph.wake(Duration::from_millis(now), &mut out);
        let mut came = Batches::fill(u, &pool, |u| belongs(u, which))?;
        received += came.packets;
        bent += came.bent;
        // what is held may come out later
        out.sound = bent == 0;
        for (input, batch) in came.batches.iter_mut().enumerate() {
            graph.run::<false>(Target::Hop(Hop(input as u16)), batch, &mut out);
            assert!(batch.is_empty());
        }
        assert_eq!(pool.in_use() as u64, stats.held.get(), "a packet was leaked");
        let made = stats.created.get();
        assert_eq!(received + made, out.packets + stats.held.get() + stats.dropped(), "accounting");
    }
    // all sessions end, and nothing of them is left
    out.sound = false;
    for _ in 0..2000 {
        now += 20;
        graph.wake(Duration::from_millis(now), &mut out);
    }
    for (name, count) in stats.counters() {
        let none = ["sessions", "ports", "blocks", "subscribers", "fragments"].contains(&name.as_str());
        // a forward keeps its mapping
        let most = if name == "mappings" { 1 } else { 0 };
        assert!(!(none || name == "mappings") || count.get() <= most, "{} {name} are left", count.get());
    }
    for (reason, count) in stats.reasons.iter().zip(&stats.drops) {
        assert!(!NodeStats::EVERY.contains(reason) || count.get() == 0, "{} packets: {reason}", count.get());
        // what is not bent is read: it is judged by sessions, not by its form
        let unread = ["malformed_ip", "other_protocol", "bad_icmp_error"].contains(reason);
        assert!(!unread || count.get() <= bent, "{} packets: {reason}, of {bent} bent ones", count.get());
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // what is too short to be anything is nothing
    let _ = run(&mut Unstructured::new(data));
});
