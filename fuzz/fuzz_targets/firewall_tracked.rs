//! The firewall with connection tracking: few hosts and ports, so that packets hit connections. Every packet is
//! accounted for and unchanged, and the tables stay within their limits.
#![no_main]

use graph::{Blueprint, BuildContext, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use packet::{BURST, Batch, HeapPool, Pool as _};
use std::sync::Arc;
use std::time::Duration;
use wire::{IpProtocol, TcpFlags, build, icmpv4, icmpv6, tcp};

const SETTINGS: &str = "\
rules = [\"accept src 10.0.0.0/31\", \"accept src fd00::/16\", \"drop state established dport 9\", \"accept state invalid dport 7\"]
track = { connections = 8, fragments = 4, tcp_established = 100, tcp_transitory = 10, udp = 20 }
";

struct Count(u64, Vec<Vec<u8>>);

impl Sink for Count {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        for packet in batch.drain() {
            self.0 += 1;
            let at = self.1.iter().position(|sent| sent == packet.data());
            self.1.swap_remove(at.expect("packets come out unchanged"));
        }
    }
}

/// Returns a packet between two of a few hosts; an ICMP error may quote the previous packet.
fn frame(u: &mut Unstructured<'_>, last: &[u8]) -> Result<Vec<u8>> {
    let (a, b) = (u.int_in_range(0..=3u8)?, u.int_in_range(0..=3u8)?);
    let (src, dst) = ([10, 0, 0, a], [10, 0, 0, b]);
    let ipv6 = |n: u8| [0xfd - (n >> 1), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n];
    let (sport, dport) = (u.int_in_range(7..=9u16)?, u.int_in_range(7..=9u16)?);
    let payload = [0; 100];
    let payload = &payload[..u.int_in_range(0..=100)?];
    let id = u.int_in_range(0..=3u16)?;
    let v4 = u.ratio(3, 4)?;
    Ok(match u.int_in_range(0..=9u8)? {
        0..=4 => {
            let any = u.arbitrary()?;
            let flags = TcpFlags(*u.choose(&[2, 18, 16, 16, 24, 17, 4, 20, any])?);
            let seq =
                u.int_in_range(0..=300u32)?.wrapping_sub(100).wrapping_mul(*u.choose(&[1, 1, 1, 70_000, 1 << 24])?);
            let ack = u.int_in_range(0..=300u32)?.wrapping_sub(100);
            let (window, scale): (u16, Option<u8>) = (u.arbitrary()?, u.arbitrary()?);
            let list = scale.map(tcp::TcpOption::WindowScale);
            let options = tcp::options(list.as_slice()).unwrap_or_default();
            if v4 {
                let mut f =
                    build::tcp4(src, dst, sport, dport).ack(ack).flags(flags).seq(seq).window(window).payload(payload);
                f = f.tcp_options(options).id(id);
                if u.ratio(1, 8)? { f.fragment(0, true).to_vec() } else { f.to_vec() }
            } else {
                build::tcp6(ipv6(a), ipv6(b), sport, dport)
                    .ack(ack)
                    .flags(flags)
                    .seq(seq)
                    .window(window)
                    .payload(payload)
                    .to_vec()
            }
        }
        5 if v4 => build::udp4(src, dst, sport, dport).payload(payload).to_vec(),
        5 => build::udp6(ipv6(a), ipv6(b), sport, dport).payload(payload).to_vec(),
        6 if v4 => build::udp4(src, dst, sport, dport).payload(payload).id(id).fragment(0, true).to_vec(),
        6 => build::udp6(ipv6(a), ipv6(b), sport, dport).payload(payload).fragment(0, true, id.into()).to_vec(),
        7 => {
            let protocol = *u.choose(&[IpProtocol::TCP, IpProtocol::UDP])?;
            let offset = u.int_in_range(0..=20u16)? * 8;
            build::ipv4(src, dst, protocol).payload(payload).id(id).fragment(offset, u.arbitrary()?).to_vec()
        }
        8 => {
            let quoted = last.get(14..).unwrap_or_default();
            let quoted = &quoted[..u.int_in_range(0..=quoted.len().min(80))?];
            if v4 {
                build::icmp4(src, dst, icmpv4::Repr::TimeExceeded { code: 0 }).payload(quoted).to_vec()
            } else {
                build::icmp6(ipv6(a), ipv6(b), icmpv6::Repr::PacketTooBig { mtu: 1280 }).payload(quoted).to_vec()
            }
        }
        _ if u.arbitrary()? => build::echo4(src, dst, id, 1).to_vec(),
        _ => build::icmp4(src, dst, icmpv4::Repr::EchoReply { id, seq: 1 }).to_vec(),
    })
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let registry = nf::registry();
    let kind = registry.get("firewall").expect("a shipped NF");
    let more = *u.choose(&["", "loose = true, ", "full = \"evict\", "])?;
    let settings = SETTINGS.replace("track = { ", &format!("track = {{ {more}"));
    let settings = config::settings(&settings).expect("TOML");
    let node = kind.parse(settings).expect("settings").build(&BuildContext::default()).expect("a firewall");
    let hops = vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }];
    let blueprint =
        Blueprint { nodes: vec![NodePlan { name: "firewall".to_owned(), edges: vec![Target::Unconnected] }], hops };
    let pool = Arc::new(HeapPool::new(1024));
    let mut graph = Graph::new(&blueprint, vec![node], pool.clone());
    let stats = graph.stats().next().expect("one node").1.clone();
    let (mut received, mut out, mut now, mut last) = (0, Count(0, vec![]), 0, vec![]);
    while !u.is_empty() {
        now += u64::from(u.arbitrary::<u16>()?) % 5000;
        graph.run_timers(Duration::from_millis(now), &mut out);
        let mut batch = Batch::new();
        for _ in 0..u.int_in_range(1..=BURST)? {
            let mut bytes = frame(u, &last)?;
            last.clone_from(&bytes);
            if u.ratio(1, 16)? {
                let at = u.choose_index(bytes.len())?;
                bytes[at] = u.arbitrary()?;
            }
            if let Some(packet) = pool.alloc_from(&bytes) {
                received += 1;
                out.1.push(bytes);
                batch.push(packet).expect("a burst");
            }
        }
        graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
        let (vanished, held) = (stats.vanished(), stats.held.get());
        // held packets may come out later
        if held == 0 {
            out.1.clear();
        }
        assert_eq!((received, vanished), (out.0 + held + stats.dropped(), 0));
        assert_eq!(pool.in_use() as u64, held);
        graph.run_timers(Duration::from_millis(now + 1), &mut out);
        let connections =
            stats.counters().into_iter().find(|(name, _)| name == "connections").map_or(0, |(_, n)| n.get());
        // 8 for each IP version
        assert!(connections <= 16, "{connections} connections");
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    // exhausted input is not an error
    let _ = run(&mut Unstructured::new(data));
});
