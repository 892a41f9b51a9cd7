//! Ports, blocks, limits and memory.

use super::*;

#[test]
fn ports_are_reused_and_do_not_leak() {
    for mapping in ["endpoint-independent", "endpoint-dependent"] {
        // four ports
        let mut nat =
            Nat::new(&format!("first_port = 65520\nblock_size = 8\nmapping = \"{mapping}\"\ntimers = {{ udp = 5 }}"));
        for round in 0..200u32 {
            let src = address(0x0a00_0000 + round);
            let mut known = std::collections::HashSet::new();
            for n in 0..16 {
                let port = nat.outbound(&udp(src, 40_000 + n, REMOTE, 53)).unwrap().src_port;
                assert!(port >= 65_520 && known.insert(port), "ports are distinct");
            }
            assert_eq!(nat.outbound(&udp(src, 50_000, REMOTE, 53)), Err("no_port"));
            (0..3).for_each(|_| drop(nat.0.advance(Duration::from_secs(3))));
            (0..400).for_each(|_| drop(nat.0.advance(Duration::from_millis(10))));
            let left = ["sessions", "mappings", "ports"].map(|gauge| nat.0.counter(gauge));
            assert_eq!(left, [0; 3], "round {round}");
        }
    }
}

#[test]
fn blocks_are_allocated_and_freed() {
    let mut nat = Nat::new("allocation = \"blocks\"\nblock_size = 8\nmax_blocks = 2\ntimers = { udp = 5 }");
    let mut ports: Vec<u16> = (0..16).map(|n| nat.outbound(&udp(A, 100 + n, REMOTE, 53)).unwrap().src_port).collect();
    assert_eq!(nat.0.counter("blocks"), 2);
    assert_eq!(nat.outbound(&udp(A, 200, REMOTE, 53)), Err("no_port"), "the third block is not permitted");
    // all protocols share the blocks
    let tcp_port = nat.outbound(&tcp(A, 100, REMOTE, 80, TcpFlags::SYN)).unwrap().src_port;
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 16);
    let blocks: std::collections::BTreeSet<u16> = ports.iter().map(|port| (port - 1024) / 8).collect();
    assert!(blocks.len() == 2 && blocks.contains(&((tcp_port - 1024) / 8)));
    let other = nat.outbound(&udp(B, 100, REMOTE, 53)).unwrap().src_port;
    assert!(!blocks.contains(&((other - 1024) / 8)));
    assert_eq!(nat.0.counter("blocks"), 3);
    nat.advance_seconds(10);
    assert_eq!(nat.0.counter("blocks"), 1, "only the block of the connection remains");
    nat.advance_seconds(300);
    assert_eq!((nat.0.counter("blocks"), nat.0.counter("subscribers")), (0, 0));
}

#[test]
fn deterministic_allocation() {
    let settings = "external = [\"203.0.113.0/31\"]\ninside = [\"100.64.0.0/25\"]\nallocation = \"deterministic\"\nblock_size = 1000";
    let mut nat = Nat::new(settings);
    let of = |nat: &mut Nat, n: u32, port: u16| nat.outbound(&udp(address(0x6440_0000 + n), port, REMOTE, 53)).unwrap();
    // 64 blocks per address
    for (n, external, first) in [(0, 0, 1024), (1, 0, 2024), (63, 0, 64_024), (64, 1, 1024), (127, 1, 64_024)] {
        let out = of(&mut nat, n, 7);
        assert_eq!(out.src, [203, 0, 113, external], "subscriber {n}");
        assert!((first..first + 1000).contains(&u32::from(out.src_port)), "{out:?}");
        // the result does not depend on the order
        assert_eq!(of(&mut Nat::new(settings), n, 7).src, out.src);
    }
    for port in 1000..1999 {
        of(&mut nat, 5, port);
    }
    of(&mut nat, 5, 1999);
    assert_eq!(nat.outbound(&udp(address(0x6440_0005), 2000, REMOTE, 53)), Err("no_port"), "a thousand, no more");
}

#[test]
fn limits_are_enforced_and_counted() {
    let mut nat = Nat::new("sessions = 20");
    for n in 0..30 {
        let _ = nat.outbound(&udp(A, 5000 + n, REMOTE, 53));
    }
    assert_eq!((nat.0.counter("sessions"), nat.0.dropped("table_full")), (20, 10));
    assert_eq!((nat.0.counter("mappings"), nat.0.counter("subscribers")), (20, 1));
    assert_eq!(nat.0.occupancy("sessions"), (20, 20));

    let mut nat = Nat::new("subscribers = 3");
    for n in 0..5 {
        let _ = nat.outbound(&udp([10, 0, 1, n], 5000, REMOTE, 53));
    }
    assert_eq!((nat.0.counter("sessions"), nat.0.dropped("too_many_subscribers")), (3, 2));

    let mut nat = Nat::new("subscriber_sessions = 4");
    for n in 0..6 {
        let _ = nat.outbound(&udp(A, 5000 + n, REMOTE, 53));
    }
    assert!(nat.outbound(&udp(B, 5000, REMOTE, 53)).is_ok(), "other subscribers are not affected");
    assert_eq!(nat.0.dropped("too_many_sessions"), 2);

    let mut nat = Nat::new("fragments = 10");
    for id in 0..50 {
        let first =
            build::ipv4(A, REMOTE, IpProtocol::UDP).id(id).fragment(0, true).payload(&udp(A, 5, REMOTE, 53)[34..58]);
        nat.outbound(&first.to_vec()).unwrap();
    }
    assert_eq!(nat.0.counter("fragments"), 10);
    for id in 100..400 {
        let _ = nat
            .outbound(&build::ipv4(A, REMOTE, IpProtocol::UDP).id(id).fragment(64, false).payload(&[0; 30]).to_vec());
    }
    assert_eq!((nat.0.held(), nat.0.dropped("unknown_fragment")), (128, 172));
    nat.advance_seconds(20);
    assert_eq!((nat.0.held(), nat.0.counter("fragments"), nat.0.dropped("unknown_fragment")), (0, 0, 300));
}

#[test]
fn copies_have_separate_addresses_and_receive_their_packets() {
    let settings = "external = [\"203.0.113.0/30\"]\nforward = [\"udp 203.0.113.3:53 -> 10.0.0.9:53\"]";
    let mut copies: Vec<Nat> =
        testkit::HarnessBuilder::new::<Nat44>(settings).build_copies(2).unwrap().into_iter().map(Nat).collect();
    let registry = graph::Registry::new().with::<Nat44>();
    let table = toml::de::DeTable::parse(settings).unwrap();
    let lane = registry.get("nat44").unwrap().parse(table).unwrap().steering(2).unwrap();
    let mut shares = [0; 2];
    for n in 0..200u32 {
        let (src, frame) = (address(0x0a00_0000 + n), udp(address(0x0a00_0000 + n), 5000, REMOTE, 53));
        let at = lane(0, &frame);
        shares[at] += 1;
        let out = copies[at].outbound(&frame).unwrap();
        assert_eq!(usize::from(out.src[3]) % 2, at, "an address of this copy");
        let back = udp(REMOTE, 53, out.src, out.src_port);
        assert_eq!(lane(1, &back), at);
        assert_eq!(copies[at].inbound(&back).map(|t| t.dst), Ok(src));
        // ICMP errors from either side, and fragments
        let quoted = build::icmp4(OTHER_REMOTE, out.src, icmpv4::Repr::TimeExceeded { code: 0 });
        let sent = build::udp4(out.src, REMOTE, out.src_port, 53).to_vec();
        assert_eq!(lane(1, &quoted.payload(&sent[14..42]).to_vec()), at);
        let came = build::udp4(REMOTE, src, 53, 5000).to_vec();
        let inner = build::icmp4([10, 9, 9, 9], REMOTE, icmpv4::Repr::TimeExceeded { code: 0 }).payload(&came[14..42]);
        assert_eq!(lane(0, &inner.to_vec()), at);
        let later = |from, to| build::ipv4(from, to, IpProtocol::UDP).fragment(64, false).payload(&[0; 8]).to_vec();
        assert_eq!((lane(0, &later(src, REMOTE)), lane(1, &later(REMOTE, out.src))), (at, at));
    }
    assert!(shares.iter().all(|n| *n > 60), "{shares:?}");
    // packets of the router itself, which pass, are on one core in both directions, for other NFs of the chain
    for external in 0..4 {
        let router = [203, 0, 113, external];
        assert_eq!(lane(0, &udp(router, 5000, REMOTE, 53)), lane(1, &udp(REMOTE, 53, router, 5000)), "{router:?}");
    }
    // a host with a forward belongs to the copy of the external address
    assert_eq!(lane(0, &udp([10, 0, 0, 9], 53, REMOTE, 9)), 1);
    assert_eq!(lane(1, &udp(REMOTE, 9, [203, 0, 113, 3], 53)), 1);
    assert_eq!(copies[1].inbound(&udp(REMOTE, 9, [203, 0, 113, 3], 53)).map(|t| t.dst), Ok([10, 0, 0, 9]));
}

#[test]
fn logs_begin_and_end_of_blocks_and_sessions() {
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let log = format!("log = \"{}\"\ntimers = {{ udp = 5 }}\n", server.local_addr().unwrap());
    let next = || {
        let mut buffer = [0; 2000];
        let n = server.recv(&mut buffer).expect("a message");
        String::from_utf8(buffer[..n].to_vec()).unwrap()
    };
    let mut nat = Nat::new(&log);
    nat.outbound(&udp(A, 5000, REMOTE, 53)).unwrap();
    let line = next();
    assert!(line.starts_with("<134>1 20") && line.contains(" nat44 SESSION-BEGIN "), "{line}");
    let fields =
        "[nat@32473 protocol=\"udp\" inside=\"10.0.0.1:5000\" external=\"203.0.113.1:5000\" outside=\"198.18.0.1:53\"]";
    assert!(line.ends_with(fields), "{line}");
    nat.advance_seconds(6);
    assert!(next().contains(" SESSION-END "));

    let mut nat = Nat::new(&format!("{log}allocation = \"blocks\""));
    nat.outbound(&udp(A, 5000, REMOTE, 53)).unwrap();
    nat.outbound(&udp(A, 5001, REMOTE, 53)).unwrap();
    let line = next();
    assert!(line.contains(" BLOCK-BEGIN [nat@32473 inside=\"10.0.0.1\" external=\"203.0.113.1\" ports=\""), "{line}");
    nat.advance_seconds(6);
    assert!(next().contains(" BLOCK-END "), "sessions are not logged");
    assert_eq!(nat.0.counter("log_lost"), 0);
}

#[test]
fn half_open_connections_are_evicted_from_a_full_table() {
    let mut nat = Nat::new("sessions = 200\nforward = [\"tcp 203.0.113.1:80 -> 10.0.0.2:80\"]");
    nat.outbound(&tcp(A, 4000, REMOTE, 80, TcpFlags::SYN)).unwrap();
    nat.inbound(&tcp(REMOTE, 80, EXTERNAL, 4000, TcpFlags::SYN_ACK)).unwrap();
    nat.outbound(&tcp(A, 4000, REMOTE, 80, TcpFlags::ACK)).unwrap();
    for n in 0..300 {
        let _ = nat.inbound(&tcp([198, 18, 7, 7], 1000 + n, EXTERNAL, 80, TcpFlags::SYN));
    }
    assert_eq!(nat.outbound(&udp(A, 5000, REMOTE, 53)), Err("table_full"), "they are too recent");
    // much less than their timeout
    (0..7).for_each(|_| drop(nat.0.advance(Duration::from_secs(1))));
    let tries = (0..60).filter(|n| nat.outbound(&udp(A, 6000 + n, REMOTE, 53)).is_ok()).count();
    assert!(tries > 40 && nat.0.counter("evicted") > 0, "{tries}, {}", nat.0.counter("evicted"));
    assert!(nat.inbound(&tcp(REMOTE, 80, EXTERNAL, 4000, TcpFlags::ACK)).is_ok(), "an open connection stays");
}
