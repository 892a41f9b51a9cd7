//! What is kept: ports, blocks, limits, memory.

use super::*;

#[test]
fn ports_are_used_again_and_never_leak() {
    for mapping in ["endpoint-independent", "endpoint-dependent"] {
        // four ports
        let mut nat =
            Nat::new(&format!("first_port = 65520\nblock_size = 8\nmapping = \"{mapping}\"\ntimers = {{ udp = 5 }}"));
        for round in 0..200u32 {
            let src = address(0x0a00_0000 + round);
            let mut known = std::collections::HashSet::new();
            for n in 0..16 {
                let port = nat.out(&udp(src, 40_000 + n, WORLD, 53)).unwrap().src_port;
                assert!(port >= 65_520 && known.insert(port), "each its own");
            }
            assert_eq!(nat.out(&udp(src, 50_000, WORLD, 53)), Err("no_port"));
            (0..3).for_each(|_| drop(nat.0.advance(Duration::from_secs(3))));
            (0..400).for_each(|_| drop(nat.0.advance(Duration::from_millis(10))));
            let left = ["sessions", "mappings", "ports"].map(|gauge| nat.0.counter(gauge));
            assert_eq!(left, [0; 3], "round {round}");
        }
    }
}

#[test]
fn blocks_are_given_out_and_come_back() {
    let mut nat = Nat::new("allocation = \"blocks\"\nblock_size = 8\nmax_blocks = 2\ntimers = { udp = 5 }");
    let mut ports: Vec<u16> = (0..16).map(|n| nat.out(&udp(A, 100 + n, WORLD, 53)).unwrap().src_port).collect();
    assert_eq!(nat.0.counter("blocks"), 2);
    assert_eq!(nat.out(&udp(A, 200, WORLD, 53)), Err("no_port"), "the next would be a third");
    // another protocol has the same blocks
    let tcp_port = nat.out(&tcp(A, 100, WORLD, 80, TcpFlags::SYN)).unwrap().src_port;
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 16);
    let blocks: std::collections::BTreeSet<u16> = ports.iter().map(|port| (port - 1024) / 8).collect();
    assert!(blocks.len() == 2 && blocks.contains(&((tcp_port - 1024) / 8)));
    let other = nat.out(&udp(B, 100, WORLD, 53)).unwrap().src_port;
    assert!(!blocks.contains(&((other - 1024) / 8)));
    assert_eq!(nat.0.counter("blocks"), 3);
    nat.after(10);
    assert_eq!(nat.0.counter("blocks"), 1, "only that of the connection is left");
    nat.after(300);
    assert_eq!((nat.0.counter("blocks"), nat.0.counter("subscribers")), (0, 0));
}

#[test]
fn ports_are_computed() {
    let settings = "external = [\"203.0.113.0/31\"]\ninside = [\"100.64.0.0/25\"]\nallocation = \"deterministic\"\nblock_size = 1000";
    let mut nat = Nat::new(settings);
    let of = |nat: &mut Nat, n: u32, port: u16| nat.out(&udp(address(0x6440_0000 + n), port, WORLD, 53)).unwrap();
    // 64 blocks of each address
    for (n, external, first) in [(0, 0, 1024), (1, 0, 2024), (63, 0, 64_024), (64, 1, 1024), (127, 1, 64_024)] {
        let out = of(&mut nat, n, 7);
        assert_eq!(out.src, [203, 0, 113, external], "subscriber {n}");
        assert!((first..first + 1000).contains(&u32::from(out.src_port)), "{out:?}");
        // whoever comes later finds the same
        assert_eq!(of(&mut Nat::new(settings), n, 7).src, out.src);
    }
    for port in 1000..1999 {
        of(&mut nat, 5, port);
    }
    of(&mut nat, 5, 1999);
    assert_eq!(nat.out(&udp(address(0x6440_0005), 2000, WORLD, 53)), Err("no_port"), "a thousand, no more");
}

#[test]
fn every_limit_holds_and_is_counted() {
    let mut nat = Nat::new("sessions = 20");
    for n in 0..30 {
        let _ = nat.out(&udp(A, 5000 + n, WORLD, 53));
    }
    assert_eq!((nat.0.counter("sessions"), nat.0.dropped("table_full")), (20, 10));
    assert_eq!((nat.0.counter("mappings"), nat.0.counter("subscribers")), (20, 1));

    let mut nat = Nat::new("subscribers = 3");
    for n in 0..5 {
        let _ = nat.out(&udp([10, 0, 1, n], 5000, WORLD, 53));
    }
    assert_eq!((nat.0.counter("sessions"), nat.0.dropped("too_many_subscribers")), (3, 2));

    let mut nat = Nat::new("subscriber_sessions = 4");
    for n in 0..6 {
        let _ = nat.out(&udp(A, 5000 + n, WORLD, 53));
    }
    assert!(nat.out(&udp(B, 5000, WORLD, 53)).is_ok(), "others are not concerned");
    assert_eq!(nat.0.dropped("too_many_sessions"), 2);

    let mut nat = Nat::new("fragments = 10");
    for id in 0..50 {
        let first =
            build::ipv4(A, WORLD, IpProtocol::UDP).id(id).fragment(0, true).payload(&udp(A, 5, WORLD, 53)[34..58]);
        nat.out(&first.to_vec()).unwrap();
    }
    assert_eq!(nat.0.counter("fragments"), 10);
    for id in 100..400 {
        let _ = nat.out(&build::ipv4(A, WORLD, IpProtocol::UDP).id(id).fragment(64, false).payload(&[0; 30]).to_vec());
    }
    assert_eq!((nat.0.held(), nat.0.dropped("unknown_fragment")), (128, 172));
    nat.after(20);
    assert_eq!((nat.0.held(), nat.0.counter("fragments"), nat.0.dropped("unknown_fragment")), (0, 0, 300));
}

#[test]
fn copies_have_addresses_of_their_own_and_packets_find_them() {
    let settings = "external = [\"203.0.113.0/30\"]\nforward = [\"udp 203.0.113.3:53 -> 10.0.0.9:53\"]";
    let mut copies: Vec<Nat> = testkit::Setup::of::<Nat44>(settings).copies(2).unwrap().into_iter().map(Nat).collect();
    let registry = graph::Registry::new().with::<Nat44>();
    let table = toml::de::DeTable::parse(settings).unwrap();
    let lane = registry.get("nat44").unwrap().read(table).unwrap().lane(2).unwrap();
    let mut shares = [0; 2];
    for n in 0..200u32 {
        let (src, frame) = (address(0x0a00_0000 + n), udp(address(0x0a00_0000 + n), 5000, WORLD, 53));
        let at = lane(0, &frame);
        shares[at] += 1;
        let out = copies[at].out(&frame).unwrap();
        assert_eq!(usize::from(out.src[3]) % 2, at, "an address of its own");
        let back = udp(WORLD, 53, out.src, out.src_port);
        assert_eq!(lane(1, &back), at);
        assert_eq!(copies[at].inn(&back).map(|t| t.dst), Ok(src));
        // an error about it, from either side, and fragments
        let quoted = build::icmp4(OTHER, out.src, icmpv4::Repr::TimeExceeded { code: 0 });
        let sent = build::udp4(out.src, WORLD, out.src_port, 53).to_vec();
        assert_eq!(lane(1, &quoted.payload(&sent[14..42]).to_vec()), at);
        let came = build::udp4(WORLD, src, 53, 5000).to_vec();
        let inner = build::icmp4([10, 9, 9, 9], WORLD, icmpv4::Repr::TimeExceeded { code: 0 }).payload(&came[14..42]);
        assert_eq!(lane(0, &inner.to_vec()), at);
        let later = |from, to| build::ipv4(from, to, IpProtocol::UDP).fragment(64, false).payload(&[0; 8]).to_vec();
        assert_eq!((lane(0, &later(src, WORLD)), lane(1, &later(WORLD, out.src))), (at, at));
    }
    assert!(shares.iter().all(|n| *n > 60), "{shares:?}");
    // who has a forward is where that address is
    assert_eq!(lane(0, &udp([10, 0, 0, 9], 53, WORLD, 9)), 1);
    assert_eq!(lane(1, &udp(WORLD, 9, [203, 0, 113, 3], 53)), 1);
    assert_eq!(copies[1].inn(&udp(WORLD, 9, [203, 0, 113, 3], 53)).map(|t| t.dst), Ok([10, 0, 0, 9]));
}

#[test]
fn what_begins_and_ends_is_told() {
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let log = format!("log = \"{}\"\ntimers = {{ udp = 5 }}\n", server.local_addr().unwrap());
    let next = || {
        let mut buffer = [0; 2000];
        let n = server.recv(&mut buffer).expect("a message");
        String::from_utf8(buffer[..n].to_vec()).unwrap()
    };
    let mut nat = Nat::new(&log);
    nat.out(&udp(A, 5000, WORLD, 53)).unwrap();
    let line = next();
    assert!(line.starts_with("<134>1 20") && line.contains(" nat44 SESSION-BEGIN "), "{line}");
    let fields =
        "[nat@32473 protocol=\"udp\" inside=\"10.0.0.1:5000\" external=\"203.0.113.1:5000\" outside=\"198.18.0.1:53\"]";
    assert!(line.ends_with(fields), "{line}");
    nat.after(6);
    assert!(next().contains(" SESSION-END "));

    let mut nat = Nat::new(&format!("{log}allocation = \"blocks\""));
    nat.out(&udp(A, 5000, WORLD, 53)).unwrap();
    nat.out(&udp(A, 5001, WORLD, 53)).unwrap();
    let line = next();
    assert!(line.contains(" BLOCK-BEGIN [nat@32473 inside=\"10.0.0.1\" external=\"203.0.113.1\" ports=\""), "{line}");
    nat.after(6);
    assert!(next().contains(" BLOCK-END "), "nothing of sessions");
    assert_eq!(nat.0.counter("log_lost"), 0);
}

#[test]
fn half_open_connections_make_way_where_there_is_no_room() {
    let mut nat = Nat::new("sessions = 200\nforward = [\"tcp 203.0.113.1:80 -> 10.0.0.2:80\"]");
    nat.out(&tcp(A, 4000, WORLD, 80, TcpFlags::SYN)).unwrap();
    nat.inn(&tcp(WORLD, 80, OUR, 4000, TcpFlags::SYN_ACK)).unwrap();
    nat.out(&tcp(A, 4000, WORLD, 80, TcpFlags::ACK)).unwrap();
    for n in 0..300 {
        let _ = nat.inn(&tcp([198, 18, 7, 7], 1000 + n, OUR, 80, TcpFlags::SYN));
    }
    assert_eq!(nat.out(&udp(A, 5000, WORLD, 53)), Err("table_full"), "they have just come");
    // far less than their time
    (0..7).for_each(|_| drop(nat.0.advance(Duration::from_secs(1))));
    let tries = (0..60).filter(|n| nat.out(&udp(A, 6000 + n, WORLD, 53)).is_ok()).count();
    assert!(tries > 40 && nat.0.counter("made_way") > 0, "{tries}, {}", nat.0.counter("made_way"));
    assert!(nat.inn(&tcp(WORLD, 80, OUR, 4000, TcpFlags::ACK)).is_ok(), "one that is open stays");
}
