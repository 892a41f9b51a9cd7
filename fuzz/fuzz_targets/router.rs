//! The router between two networks: every packet is accounted for, whatever arrives and when.
#![no_main]

use bondstone_fuzz::FuzzedFrame;
use graph::{Blueprint, BuildContext, CommonDrop, Graph, Hop, HopPlan, Named, NodePlan, Sink, Target};
use libfuzzer_sys::arbitrary::{Arbitrary as _, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use packet::{BURST, Batch, HeapPool, Pool as _};
use std::sync::Arc;
use std::time::Duration;
use wire::{EtherType, ethernet, ipv4, ipv6};

const SETTINGS: &str = "\
interface.lan = { addresses = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"], mac = \"02:00:00:00:00:02\" }
interface.wan = { addresses = [\"192.0.2.2/24\", \"2001:db8:2::2/64\"], mac = \"02:00:00:00:00:03\", mtu = 300 }
route = [
  { prefix = \"0.0.0.0/0\", via = [\"192.0.2.1\", \"192.0.2.3\"] },
  { prefix = \"::/0\", via = [\"2001:db8:2::1\"] },
  { prefix = \"203.0.113.0/24\", to = \"unreachable\" },
]
neighbour = { \"192.0.2.1\" = \"02:00:00:00:00:04\" }
neighbour_queue = 3
neighbours_max = 8
reachable_time = 1
";
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];

/// Counts the packets that come out and checks IP packets.
struct Count(u64);

impl Sink for Count {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        for packet in batch.drain() {
            self.0 += 1;
            // local packets are not changed
            if port == 0 {
                continue;
            }
            let frame = ethernet::Frame::new(packet.data()).expect("an Ethernet header");
            match frame.header().ether_type() {
                EtherType::IPV4 => {
                    let ip = ipv4::Packet::new(frame.payload()).expect("an IPv4 header");
                    assert!(ip.checksum_ok() && ip.header().ttl() != 0);
                }
                EtherType::IPV6 => {
                    let ip = ipv6::Packet::new(frame.payload()).expect("an IPv6 header");
                    assert!(ip.header().hop_limit() != 0);
                }
                EtherType::ARP => {}
                other => panic!("{other:?} came out of a router"),
            }
        }
    }
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let registry = nf::registry();
    let kind = registry.get("l3fwd").expect("a shipped NF");
    let settings = config::settings(SETTINGS).expect("TOML");
    let node = kind.parse(settings).expect("settings").build(&BuildContext::default()).expect("a router");
    let edges = (0..3).map(Target::Port).collect();
    let hops = (0..2).map(|input| HopPlan { node: 0, input, next: Target::Port(0), fail_open: false }).collect();
    let blueprint = Blueprint { nodes: vec![NodePlan { name: "router".to_owned(), edges }], hops };
    let pool = Arc::new(HeapPool::new(256));
    let mut graph = Graph::new(&blueprint, vec![node], pool.clone());
    let stats = graph.stats().next().expect("one node").1.clone();
    let (mut received, mut out, mut now) = (0, Count(0), 0);
    while !u.is_empty() {
        now += u64::from(u.arbitrary::<u16>()? % 2000);
        graph.run_timers(Duration::from_millis(now), &mut out);
        let input = u.int_in_range(0..=1u8)?;
        let mut batch = Batch::new();
        for _ in 0..u.int_in_range(1..=BURST)? {
            let mut made = FuzzedFrame::arbitrary(u)?;
            if let (true, Some(dst)) = (u.ratio(3, 4)?, made.bytes.get_mut(..6)) {
                dst.copy_from_slice(&MACS[usize::from(input)]);
            }
            if let Some(packet) = pool.alloc_from(&made.bytes) {
                received += 1;
                batch.push(packet).expect("a burst");
            }
            if u.is_empty() {
                break;
            }
        }
        graph.run::<false>(Target::Hop(Hop(input.into())), &mut batch, &mut out);
        assert!(batch.is_empty());
        assert_eq!(pool.in_use() as u64, stats.held.get(), "a packet was leaked");
        assert_eq!(received + stats.created.get(), out.0 + stats.held.get() + stats.dropped(), "accounting");
    }
    for (reason, count) in stats.reasons.iter().zip(&stats.drops) {
        assert!(!CommonDrop::NAMES.contains(reason) || count.get() == 0, "{} packets: {reason}", count.get());
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // what is too short to be anything is nothing
    let _ = run(&mut Unstructured::new(data));
});
