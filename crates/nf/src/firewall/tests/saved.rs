//! State for the process that replaces this one.

use crate::Firewall;
use proptest::prelude::*;
use std::net::Ipv6Addr;
use std::time::Duration;
use testkit::{Damage, Harness};
use wire::{IpProtocol, TcpFlags, build, icmpv4};

const IN: [u8; 4] = [10, 0, 0, 1];
const OUT: [u8; 4] = [192, 0, 2, 7];

fn firewall(track: &str) -> Harness {
    let rules = "rules = [\"accept src 10.0.0.0/8\", \"accept src fd00::/8\"]";
    Harness::new::<Firewall>(&format!("{rules}\ntrack = {{ {track} }}"))
}

/// A packet between two hosts, from the inner one if `out`.
#[derive(Clone, Debug)]
enum Packet {
    Tcp { out: bool, v6: bool, flags: u8, seq: u32, ack: u32, len: usize },
    Udp { out: bool, v6: bool, port: u16 },
    Echo { out: bool, id: u16 },
    Fragment { out: bool, offset: u16, id: u16 },
}

impl Packet {
    fn frame(&self) -> Vec<u8> {
        let inner: Ipv6Addr = "fd00::1".parse().unwrap();
        let outer: Ipv6Addr = "2001:db8::7".parse().unwrap();
        let ends = |out: bool| if out { (IN, OUT) } else { (OUT, IN) };
        let ends6 = |out: bool| if out { (inner, outer) } else { (outer, inner) };
        let ports = |out: bool, port| if out { (port, 80) } else { (80, port) };
        match *self {
            Packet::Tcp { out, v6, flags, seq, ack, len } => {
                let (((a, b), (a6, b6)), (p, q)) = ((ends(out), ends6(out)), ports(out, 5000));
                let (flags, payload) = (TcpFlags(flags), vec![0; len]);
                let tcp6 = || build::tcp6(a6, b6, p, q).flags(flags).seq(seq).ack(ack).window(1000).payload(&payload);
                let tcp4 = || build::tcp4(a, b, p, q).flags(flags).seq(seq).ack(ack).window(1000).payload(&payload);
                if v6 { tcp6().to_vec() } else { tcp4().pad_to(60).to_vec() }
            }
            Packet::Udp { out, v6, port } => {
                let (((a, b), (a6, b6)), (p, q)) = ((ends(out), ends6(out)), ports(out, port));
                if v6 { build::udp6(a6, b6, p, q).to_vec() } else { build::udp4(a, b, p, q).pad_to(60).to_vec() }
            }
            Packet::Echo { out: true, id } => build::echo4(IN, OUT, id, 1).to_vec(),
            Packet::Echo { out: false, id } => build::icmp4(OUT, IN, icmpv4::Repr::EchoReply { id, seq: 1 }).to_vec(),
            Packet::Fragment { out, offset: 0, id } => {
                let ((a, b), (p, q)) = (ends(out), ports(out, 5000));
                build::udp4(a, b, p, q).payload(&[0; 24]).id(id).fragment(0, true).to_vec()
            }
            Packet::Fragment { out, offset, id } => {
                let (a, b) = ends(out);
                build::ipv4(a, b, IpProtocol::UDP).payload(&[0; 32]).id(id).fragment(offset, true).to_vec()
            }
        }
    }
}

fn packets() -> impl Strategy<Value = Packet> {
    let flags = prop_oneof![4 => Just(2), 6 => Just(18), 8 => Just(16), 2 => Just(17), 1 => Just(4), 1 => Just(20)];
    // connections of a few sequence numbers, so that many segments are valid
    let number = prop_oneof![8 => 0..4u32, 1 => Just(900), 1 => Just(5000), 1 => any::<u32>()];
    let tcp = (any::<bool>(), any::<bool>(), flags, number.clone(), number, 0..3usize);
    prop_oneof![
        8 => tcp.prop_map(|(out, v6, flags, seq, ack, len)| Packet::Tcp { out, v6, flags, seq, ack, len }),
        2 => (any::<bool>(), any::<bool>(), 1..4u16).prop_map(|(out, v6, port)| Packet::Udp { out, v6, port }),
        1 => (any::<bool>(), 1..3u16).prop_map(|(out, id)| Packet::Echo { out, id }),
        1 => (any::<bool>(), 0..2u16, 1..3u16).prop_map(|(out, n, id)| Packet::Fragment { out, offset: 32 * n, id }),
    ]
}

/// Unit of the clock of the tables.
const UNIT: Duration = Duration::from_millis(1024);

/// Packets, each after some units of time.
fn traffic() -> impl Strategy<Value = Vec<(u32, Packet)>> {
    let pause = prop_oneof![20 => Just(0u32), 2 => 1..20u32, 1 => 20..400u32];
    prop::collection::vec((pause, packets()), 0..60)
}

/// Feeds a packet in the middle of a unit of time, after a scan of all tables, and returns what has become of it.
fn feed(f: &mut Harness, unit: u32, packet: &Packet) -> (Vec<Vec<u8>>, Vec<&'static str>, u64) {
    f.jump_to(UNIT * unit);
    f.advance(UNIT / 2);
    let before = f.drops();
    let passed = f.feed(&[packet.frame()]);
    let dropped = f.drops().into_iter().filter(|drop| !before.contains(drop)).map(|(reason, _)| reason).collect();
    f.advance(Duration::from_millis(2));
    (passed, dropped, f.counter("connections"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn a_firewall_continues_with_the_state_of_another(
        before in traffic(), after in traffic(), start in 0..20_000_000u32
    ) {
        let (mut old, mut unit) = (firewall("connections = 100"), start);
        old.jump_to(UNIT * unit);
        for (pause, packet) in &before {
            unit += 1 + pause;
            feed(&mut old, unit, packet);
            // packets that wait are not saved
            if old.held() > 0 {
                unit += 4;
                old.jump_to(UNIT * unit);
            }
        }
        let mut new = firewall("connections = 100");
        new.restore(&old.save(), old.now()).unwrap();
        let created = old.counter("connections_new");
        for (pause, packet) in &after {
            unit += 1 + pause;
            prop_assert_eq!(feed(&mut new, unit, packet), feed(&mut old, unit, packet), "{:?}", packet);
            prop_assert_eq!(new.counter("connections_new"), old.counter("connections_new") - created);
            for table in ["connections_ipv4", "connections_ipv6"] {
                prop_assert_eq!(new.occupancy(table), old.occupancy(table));
            }
        }
    }

    #[test]
    fn damaged_state_is_rejected_or_harmless(
        before in traffic(), after in traffic(), damage in Damage::any()
    ) {
        let mut old = firewall("connections = 100");
        before.iter().for_each(|(_, packet)| drop(old.feed(&[packet.frame()])));
        let mut state = old.save();
        let end = damage.apply(&mut state);
        let mut new = firewall("connections = 100");
        let restored = new.restore(&state, Duration::from_secs(1));
        prop_assert!(matches!(end, None | Some(0)) || restored.is_err());
        for (n, (_, packet)) in after.iter().enumerate() {
            new.feed(&[packet.frame()]);
            new.advance(Duration::from_millis(n as u64));
        }
        new.jump_to(Duration::from_secs(10_000));
        new.advance(Duration::from_secs(5));
        prop_assert!(new.counter("connections") <= 200);
    }
}

#[test]
fn a_smaller_table_takes_what_fits() {
    let out = |port| build::udp4(IN, OUT, port, 53).to_vec();
    let back = |port| build::udp4(OUT, IN, 53, port).to_vec();
    let mut old = firewall("connections = 1000");
    (0..1000).for_each(|port| drop(old.feed(&[out(port)])));
    for full in ["refuse", "evict"] {
        let mut new = firewall(&format!("connections = 100, full = \"{full}\""));
        new.restore(&old.save(), old.now()).unwrap();
        new.advance(Duration::from_millis(2));
        assert_eq!((new.occupancy("connections_ipv4"), new.counter("connections_new")), ((100, 100), 0));
        assert_eq!((0..1000).filter(|port| new.feed_one(&back(*port)).is_ok()).count(), 100);
    }
}
