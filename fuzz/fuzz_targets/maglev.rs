//! The load balancer: connections, fragments and ICMP errors of a few clients, servers and virtual addresses, bent in places.
//! Every packet is accounted for, and what went on is well formed where it was before.
#![no_main]

use bondstone_fuzz::Batches;
use graph::{Blueprint, BuildContext, Graph, Hop, HopPlan, NodePlan, NodeStats, Sink, Target};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use packet::{Batch, HeapPool};
use std::sync::Arc;
use std::time::Duration;
use wire::{EtherType, IpProtocol, build, ethernet, icmpv4, icmpv6, ipv4, ipv6};

const SETTINGS: &str = "\
table = 31
connections = 24
fragments = 8
idle = 2
mtu = 1280
source = [\"10.9.9.9\", \"fd09::9\"]
service.nat = { vip = [\"tcp 192.0.2.1:80\", \"udp 192.0.2.1:53\"], forward = \"nat\", backend = { a = { address = \"10.0.0.1\", port = 8080 }, b = { address = \"10.0.0.2\", weight = 3 } } }
service.nat6 = { vip = [\"tcp [2001:db8::1]:80\"], forward = \"nat\", backend = { a = { address = \"fd00::1\" }, b = { address = \"fd00::2\", drain = true } } }
service.gre = { vip = [\"tcp 192.0.2.2:80\", \"tcp [2001:db8::2]:80\"], forward = \"gre\", backend = { a = { address = \"10.0.0.1\" }, b = { address = \"fd00::2\" } } }
service.ipip = { vip = [\"udp 192.0.2.3:53\", \"udp [2001:db8::3]:53\"], forward = \"ipip\", backend = { a = { address = \"10.0.0.1\" }, b = { address = \"fd00::2\" } } }
service.dsr = { vip = [\"tcp 192.0.2.4:80\"], forward = \"l3dsr\", dscp = 9, backend = { a = { address = \"10.0.0.1\" } } }
service.none = { vip = [\"tcp 192.0.2.5:80\"], forward = \"nat\", backend = { a = { address = \"10.0.0.3\", drain = true } } }
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
            if !self.sound {
                continue;
            }
            let frame = ethernet::Frame::new(packet.data()).expect("an Ethernet header");
            match frame.header().ether_type() {
                EtherType::IPV4 => {
                    assert!(ipv4::Packet::new(frame.payload()).expect("an IPv4 header").checksum_ok());
                }
                EtherType::IPV6 => drop(ipv6::Packet::new(frame.payload()).expect("an IPv6 header")),
                other => panic!("{other:?} came out"),
            }
        }
    }
}

/// A packet that belongs to some connection, and by which input it comes.
fn belongs(u: &mut Unstructured<'_>) -> Result<(u8, Vec<u8>)> {
    let (client, server, vip): (u8, u8, u8) = (u.int_in_range(1..=6)?, u.int_in_range(1..=3)?, u.int_in_range(1..=6)?);
    let (port, service) = (u16::from(u.int_in_range(1..=4u8)?), *u.choose(&[80u16, 53, 8080])?);
    let six = |net: [u8; 4], n: u8| {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&net);
        address[15] = n;
        address
    };
    let (clients, vips, servers) = ([0xfd, 1, 0, 0], [0x20, 1, 0x0d, 0xb8], [0xfd, 0, 0, 0]);
    let input = u.int_in_range(0..=3u8)? / 3;
    let v6: bool = u.arbitrary()?;
    // whence and whither, and what ports
    let (src, dst) =
        if input == 0 { ([10, 1, 0, client], [192, 0, 2, vip]) } else { ([10, 0, 0, server], [10, 1, 0, client]) };
    let (src6, dst6) =
        if input == 0 { (six(clients, client), six(vips, vip)) } else { (six(servers, server), six(clients, client)) };
    let (sport, dport) = if input == 0 { (port, service) } else { (service, port) };
    let len = u.int_in_range(0..=40)?.min(u.len());
    let payload = u.bytes(len)?;
    let id: u16 = u.int_in_range(0..=3)?;
    let frame = match (u.int_in_range(0..=9u8)?, v6) {
        (0..=2, false) => build::tcp4(src, dst, sport, dport).payload(payload).pad_to(60).to_vec(),
        (0..=2, true) => build::tcp6(src6, dst6, sport, dport).payload(payload).to_vec(),
        (3..=4, false) => build::udp4(src, dst, sport, dport).payload(payload).to_vec(),
        (3..=4, true) => build::udp6(src6, dst6, sport, dport).payload(payload).to_vec(),
        (5..=6, v6) => {
            let (from, more) =
                if u.arbitrary()? { (0, true) } else { (u16::from(u.arbitrary::<u8>()?) << 3, u.arbitrary()?) };
            let upper = [&sport.to_be_bytes()[..], &dport.to_be_bytes(), &[0, 30, 1, 1], payload].concat();
            if v6 {
                build::ipv6(src6, dst6, IpProtocol::UDP).fragment(from, more, id.into()).payload(&upper).to_vec()
            } else {
                build::ipv4(src, dst, IpProtocol::UDP).id(id).fragment(from, more).payload(&upper).to_vec()
            }
        }
        (7..=8, false) => {
            // about what the other side has sent
            let about = build::tcp4(dst, if input == 0 { [10, 1, 0, client] } else { src }, dport, sport)
                .payload(payload)
                .to_vec();
            let cut = u.int_in_range(28..=about.len() - 14)?;
            let from = if u.arbitrary()? { src } else { [172, 16, 0, 1] };
            build::icmp4(from, dst, icmpv4::Repr::FragmentationNeeded { mtu: 1280 })
                .payload(&about[14..14 + cut])
                .to_vec()
        }
        (7..=8, true) => {
            let about = build::tcp6(dst6, src6, dport, sport).payload(payload).to_vec();
            build::icmp6(src6, dst6, icmpv6::Repr::PacketTooBig { mtu: 1280 }).payload(&about[14..]).to_vec()
        }
        (_, false) => build::echo4(src, dst, id, 1).payload(payload).to_vec(),
        (_, true) => build::echo6(src6, dst6, id, 1).payload(payload).to_vec(),
    };
    Ok((input, frame))
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let registry = nf::registry();
    let kind = registry.get("maglev").expect("it is shipped");
    let settings = config::settings(SETTINGS).expect("TOML");
    let node = kind.read(settings).expect("settings").build(&BuildContext::default()).expect("a load balancer");
    let hops = (0..2).map(|input| HopPlan { node: 0, input, next: Target::Port(0), open: false }).collect();
    let blueprint = Blueprint { nodes: vec![NodePlan { name: "lb".to_owned(), edges: vec![Target::Nowhere] }], hops };
    let pool = Arc::new(HeapPool::new(1024));
    let mut graph = Graph::new(&blueprint, vec![node], pool.clone());
    let stats = graph.stats().next().expect("one node").1.clone();
    let (mut received, mut out, mut now) = (0, Count { packets: 0, sound: true }, 0);
    while !u.is_empty() {
        now += u64::from(u.arbitrary::<u16>()? % 500);
        graph.wake(Duration::from_millis(now), &mut out);
        let mut came = Batches::fill(u, &pool, belongs)?;
        received += came.packets;
        // what is held may come out now
        out.sound = stats.held.get() == 0 && came.bent == 0;
        for (input, batch) in came.batches.iter_mut().enumerate() {
            graph.run::<false>(Target::Hop(Hop(input as u16)), batch, &mut out);
            assert!(batch.is_empty());
        }
        assert_eq!(pool.in_use() as u64, stats.held.get(), "a packet was leaked");
        assert_eq!(received, out.packets + stats.held.get() + stats.dropped(), "accounting");
    }
    for (reason, count) in stats.reasons.iter().zip(&stats.drops) {
        assert!(!NodeStats::EVERY.contains(reason) || count.get() == 0, "{} packets: {reason}", count.get());
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // what is too short to be anything is nothing
    let _ = run(&mut Unstructured::new(data));
});
