//! Replies, fragments, ICMP, MTU and health checks.

use super::*;
use std::net::{TcpListener, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::HarnessBuilder;
use wire::{build, icmpv4, icmpv6};

const CLIENT: [u8; 4] = [10, 1, 0, 7];
const CLIENT6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

fn harness(settings: &str) -> Harness {
    HarnessBuilder::new::<Maglev>(settings).build().unwrap()
}

fn v4(address: IpAddr) -> [u8; 4] {
    let IpAddr::V4(v4) = address else { panic!("{address}") };
    v4.octets()
}

fn v6(address: IpAddr) -> [u8; 16] {
    let IpAddr::V6(v6) = address else { panic!("{address}") };
    v6.octets()
}

#[test]
fn replies_have_the_virtual_address_as_source() {
    let settings = service("nat", false)
        .replace("b3 = { address = \"10.0.0.3\" }", "b3 = { address = \"10.0.0.3\", port = 8080 }")
        .replace(", \"udp 192.0.2.10:53\"", "");
    let mut nat = harness(&settings);
    for port in 1..100 {
        let received = contents(&nat.feed_one(&build::tcp4(CLIENT, VIP, port, 80).to_vec()).unwrap());
        let backend = v4(received.dst);
        assert_eq!(received.ports, (port, if backend[3] == 3 { 8080 } else { 80 }));
        let response = build::tcp4(backend, CLIENT, received.ports.1, port).payload(b"x");
        for frame in [response.clone().to_vec(), response.vlan(5).to_vec()] {
            let out = nat.feed_input(1, &[frame]).remove(0).remove(0);
            let bytes = if out[12] == 0x81 { [&out[..12], &out[16..]].concat() } else { out };
            let reply = contents(&bytes);
            assert_eq!((reply.src, reply.dst, reply.ports), (VIP.into(), CLIENT.into(), (80, port)));
        }
    }
    // packets that are not replies of a service are unchanged
    for frame in
        [build::tcp4([10, 0, 0, 3], CLIENT, 80, 9).to_vec(), build::udp4([10, 0, 0, 1], CLIENT, 80, 9).to_vec()]
    {
        assert_eq!(nat.feed_input(1, &[&frame])[0], [frame]);
    }
    assert_eq!(nat.counter("replies"), 198);

    let mut nat = harness(&service("nat", true));
    let received = contents(&nat.feed_one(&build::udp6(CLIENT6, VIP6, 9, 53).to_vec()).unwrap());
    let reply = nat.feed_input(1, &[build::udp6(v6(received.dst), CLIENT6, 53, 9).payload(b"abc").to_vec()]).remove(0);
    let reply = contents(&reply[0]);
    assert_eq!((reply.src, reply.dst, reply.ports), (VIP6.into(), CLIENT6.into(), (53, 9)));
}

#[test]
fn udp_without_checksum_keeps_none() {
    let mut frame = build::udp4(CLIENT, VIP, 9, 53).payload(b"abc").to_vec();
    frame[40..42].fill(0);
    let out = harness(&service("nat", false)).feed_one(&frame).unwrap();
    assert_eq!((&out[40..42], v4(destination_address(&out))[..3].to_vec()), (&[0, 0][..], vec![10, 0, 0]));
}

fn destination_address(frame: &[u8]) -> IpAddr {
    let frame = ethernet::Frame::new(frame).unwrap();
    ipv4::Packet::new(frame.payload()).unwrap().header().dst().into()
}

#[test]
fn fragments_follow_the_first_fragment() {
    let whole: Vec<u8> = (0..200).collect();
    for forward in ["gre", "ipip", "l3dsr", "nat"] {
        let mut b = harness(&service(forward, false));
        for port in 1..30u16 {
            let datagram = build::udp4(CLIENT, VIP, port, 53).payload(&whole).to_vec();
            let fragment = |from: usize, to: usize, more| {
                build::ipv4(CLIENT, VIP, IpProtocol::UDP)
                    .id(port)
                    .fragment(from as u16, more)
                    .payload(&datagram[34 + from..34 + to])
                    .to_vec()
            };
            let fragments = [fragment(0, 64, true), fragment(64, 128, true), fragment(128, 208, false)];
            // the second fragment is received first
            assert!(b.feed(&[&fragments[1]]).is_empty());
            let out = b.feed(&[&fragments[0], &fragments[2]]);
            assert_eq!((out.len(), b.held()), (3, 0));
            let out = [out[0].clone(), out[2].clone(), out[1].clone()];
            let to = destination_address(&out[0]);
            assert!(out.iter().all(|f| destination_address(f) == to), "{forward}");
            // the same backend as unfragmented packets of the connection
            assert_eq!(destination_address(&b.feed_one(&datagram).unwrap()), to);
            if forward == "nat" {
                let all: Vec<u8> = out.iter().flat_map(|f| f[34..].to_vec()).collect();
                let joined = build::ipv4(CLIENT, v4(to), IpProtocol::UDP).payload(&all).to_vec();
                assert_eq!(contents(&joined).ports, (port, 53), "the reassembled datagram has a valid checksum");
                let response = build::udp4(v4(to), CLIENT, 53, port).payload(&whole).to_vec();
                for (from, more) in [(0usize, true), (104, false)] {
                    let fragment = &response[34 + from..(34 + from + 104).min(response.len())];
                    let f = build::ipv4(v4(to), CLIENT, IpProtocol::UDP)
                        .id(port)
                        .fragment(from as u16, more)
                        .payload(fragment);
                    let out = b.feed_input(1, &[f.to_vec()]).remove(0);
                    let ip = ipv4::Packet::new(&out[0][14..]).unwrap();
                    assert_eq!((ip.header().src(), ip.checksum_ok()), (VIP.into(), true));
                }
            }
        }
        // expires
        b.advance(Duration::from_secs(29));
        (0..4000).for_each(|_| drop(b.advance(Duration::from_millis(1))));
        let late = build::ipv4(CLIENT, VIP, IpProtocol::UDP).id(1).fragment(64, false).payload(&[0; 8]).to_vec();
        assert!(b.feed(&[&late]).is_empty());
        b.advance(Duration::from_secs(3));
        assert_eq!((b.held(), b.dropped("unknown_fragment")), (0, 1));
    }
    let mut b = harness(&service("ipip", true));
    let fragment = |from, more| {
        build::ipv6(CLIENT6, VIP6, IpProtocol::UDP)
            .fragment(from, more, 77)
            .payload(&[0, 9, 0, 53, 0, 16, 1, 1])
            .to_vec()
    };
    let all = b.feed(&[fragment(8, false), fragment(0, true), fragment(8, false)]);
    let to: Vec<_> = all.iter().map(|f| contents(f).dst).collect();
    assert_eq!(to, [to[0]; 3]);
}

#[test]
fn drops_first_fragments_with_incomplete_headers() {
    let tiny = build::ipv4(CLIENT, VIP, IpProtocol::TCP).fragment(0, true).payload(&[0, 9, 0, 80, 0, 0, 0, 0]).to_vec();
    assert_eq!(harness(&service("nat", false)).feed_one(&tiny), Err("malformed"));
}

#[test]
fn forwards_icmp_errors_to_the_backend_of_the_connection() {
    for forward in ["gre", "ipip", "l3dsr", "nat"] {
        let (mut b, shared) = balancer(&service(forward, false));
        let to: Vec<IpAddr> = (1..40)
            .map(|port| destination_address(&b.feed_one(&build::tcp4(CLIENT, VIP, port, 80).to_vec()).unwrap()))
            .collect();
        // the ring changes, connections do not
        shared.0.set(0, BackendState::Draining);
        shared.0.set(1, BackendState::Draining);
        for (port, to) in (1..40).zip(&to) {
            let response = build::tcp4(VIP, CLIENT, 80, port).payload(&[1; 60]).dont_fragment().to_vec();
            for quoted in [&response[14..42], &response[14..]] {
                let router = [172, 16, 0, 1];
                let error = build::icmp4(router, VIP, icmpv4::Repr::FragmentationNeeded { mtu: 1280 }).payload(quoted);
                let out = b.feed_one(&error.to_vec()).unwrap();
                let s = contents(&out);
                assert_eq!(s.dst, *to, "{forward}");
                if forward == "nat" {
                    let quoted = &s.payload[8..];
                    let mut header = quoted[..20].to_vec();
                    assert!(wire::checksum::verify(&header), "checksum of the quoted header");
                    assert_eq!(header.drain(12..16).collect::<Vec<_>>(), v4(*to));
                    if quoted.len() > 40 {
                        assert_eq!(packet(EtherType::IPV4, quoted).ports, (80, port));
                    }
                }
            }
        }
        let stray = build::icmp4([172, 16, 0, 1], VIP, icmpv4::Repr::DestUnreachable { code: 1 });
        let other = build::tcp4([10, 9, 9, 9], CLIENT, 80, 1).to_vec();
        assert_eq!(b.feed_one(&stray.payload(&other[14..]).to_vec()), Err("unknown_icmp_error"));
        assert_eq!(b.counter("icmp_errors"), 39 * 2 + 1);
    }
}

#[test]
fn forwards_icmpv6_errors_to_backends_and_clients() {
    let mut b = harness(&service("nat", true));
    let to = contents(&b.feed_one(&build::tcp6(CLIENT6, VIP6, 9, 80).to_vec()).unwrap()).dst;
    let response = build::tcp6(VIP6, CLIENT6, 80, 9).payload(&[1; 60]).to_vec();
    let error = build::icmp6([0xfe; 16], VIP6, icmpv6::Repr::PacketTooBig { mtu: 1280 }).payload(&response[14..]);
    let s = contents(&b.feed_one(&error.to_vec()).unwrap());
    assert_eq!((s.dst, packet(EtherType::IPV6, &s.payload[8..]).src), (to, to));

    let request = build::tcp6(CLIENT6, v6(to), 9, 80).payload(&[1; 60]).to_vec();
    for (from, rewritten) in [(v6(to), VIP6), ([0xfe; 16], [0xfe; 16])] {
        let error = build::icmp6(from, CLIENT6, icmpv6::Repr::DestUnreachable { code: 1 }).payload(&request[14..]);
        let s = contents(&b.feed_input(1, &[error.to_vec()])[0][0]);
        let quoted = packet(EtherType::IPV6, &s.payload[8..]);
        assert_eq!((s.src, quoted.dst, quoted.ports), (rewritten.into(), VIP6.into(), (9, 80)));
    }
}

#[test]
fn forwards_echo_requests_and_replies() {
    let mut b = harness(&service("nat", false));
    let request = build::echo4(CLIENT, VIP, 7, 1);
    let to = contents(&b.feed_one(&request.to_vec()).unwrap()).dst;
    assert_eq!(contents(&b.feed_one(&build::echo4(CLIENT, VIP, 7, 2).to_vec()).unwrap()).dst, to);
    let response = build::icmp4(v4(to), CLIENT, icmpv4::Repr::EchoReply { id: 7, seq: 1 }).to_vec();
    assert_eq!(contents(&b.feed_input(1, &[response])[0][0]).src, IpAddr::from(VIP));
    // a backend's own echo request
    let own = build::echo4(v4(to), CLIENT, 7, 1).to_vec();
    assert_eq!(b.feed_input(1, &[&own])[0], [own]);
    let mut b = harness(&service("nat", true));
    let to = contents(&b.feed_one(&build::echo6(CLIENT6, VIP6, 7, 1).to_vec()).unwrap()).dst;
    let response = build::icmp6(v6(to), CLIENT6, icmpv6::Repr::EchoReply { id: 7, seq: 1 }).to_vec();
    assert_eq!(contents(&b.feed_input(1, &[response])[0][0]).src, IpAddr::from(VIP6));
}

#[test]
fn passes_or_drops_packets_for_no_service() {
    let frames = [
        build::udp4(CLIENT, [192, 0, 2, 11], 9, 53).to_vec(),
        build::udp4(CLIENT, VIP, 9, 54).to_vec(),
        build::udp6(CLIENT6, VIP6, 9, 54).to_vec(),
        build::ipv4(CLIENT, VIP, IpProtocol::SCTP).payload(&[0; 20]).to_vec(),
    ];
    let arp = build::arp_request(CLIENT, VIP).to_vec();
    let mut pass = harness(&service("gre", false));
    let mut none = harness(&format!("unmatched = \"drop\"\n{}", service("gre", false)));
    for frame in &frames {
        assert_eq!((pass.feed_one(frame), none.feed_one(frame)), (Ok(frame.clone()), Err("no_service")));
    }
    assert_eq!((pass.feed_one(&arp), none.feed_one(&arp)), (Ok(arp.clone()), Ok(arp)));
    assert_eq!(none.counter("unmatched"), 5);
}

#[test]
fn drops_packets_that_exceed_the_mtu_unless_they_may_be_fragmented() {
    for (forward, more) in [("ipip", 20), ("gre", 24)] {
        let mut b = harness(&service(forward, false));
        let frame = |len: usize| build::udp4(CLIENT, VIP, 9, 53).payload(&vec![7; len - 28]);
        assert_eq!(b.feed_one(&frame(1500 - more).dont_fragment().to_vec()).unwrap().len(), 1514);
        assert_eq!(b.feed_one(&frame(1501 - more).dont_fragment().to_vec()), Err("too_big"));
        let out = b.feed_one(&frame(1501 - more).dscp(9).ecn(2).to_vec()).unwrap();
        let ip = ipv4::Packet::new(&out[14..]).unwrap();
        assert_eq!((ip.header().dont_fragment(), ip.header().dscp(), ip.header().ecn()), (false, 9, 2));
        let six = |len: usize| build::udp6(CLIENT6, VIP6, 9, 53).payload(&vec![7; len - 48]).to_vec();
        assert!(b.feed_one(&six(1500 - more)).is_ok());
        assert_eq!(b.feed_one(&six(1501 - more)), Err("too_big"));
        let out = b.feed_one(&build::udp4(CLIENT, VIP, 9, 53).vlan(3).to_vec()).unwrap();
        assert_eq!(
            (out[12..18].to_vec(), ipv4::Packet::new(&out[18..]).unwrap().checksum_ok()),
            (vec![0x81, 0, 0, 3, 8, 0], true)
        );
    }
    let out =
        harness(&service("gre", true)).feed_one(&build::udp4(CLIENT, VIP, 9, 53).dscp(9).ecn(2).to_vec()).unwrap();
    assert_eq!(ipv6::Packet::new(&out[14..]).unwrap().header().traffic_class(), 9 << 2 | 2);
}

#[test]
fn idle_connections_expire() {
    let mut b = harness(&service("gre", false).replacen("connections", "idle = 2\nconnections", 1));
    (1..50).for_each(|port| drop(b.feed_one(&build::udp4(CLIENT, VIP, port, 53).to_vec())));
    b.advance(Duration::from_millis(1));
    assert_eq!(b.counter("connections"), 49);
    assert_eq!(b.occupancy("connections_ipv4"), (49, 100));
    (0..5000).for_each(|_| drop(b.advance(Duration::from_millis(1))));
    assert_eq!((b.counter("connections"), b.counter("expired")), (0, 49));
}

#[test]
fn a_draining_backend_has_no_slots() {
    let settings = service("gre", false)
        .replace("b2 = { address = \"10.0.0.2\" }", "b2 = { address = \"10.0.0.2\", drain = true }")
        .replace("b3 = { address = \"10.0.0.3\" }", "b3 = { address = \"10.0.0.3\", weight = 2 }");
    let mut b = harness(&settings);
    for port in 1..100 {
        assert_ne!(
            contents(&b.feed_one(&build::udp4(CLIENT, VIP, port, 53).to_vec()).unwrap()).dst,
            IpAddr::from([10, 0, 0, 2])
        );
    }
    let table = b.table();
    assert_eq!((table.len(), table.iter().map(|row| row[0].parse::<u32>().unwrap()).sum::<u32>()), (5, 99));
    let row = |name: &str| table.iter().find(|row| row[2] == name).unwrap();
    assert_eq!(row("b2")[4..], ["draining", "0.00 %"]);
    assert_eq!(row("b3")[3..], ["10.0.0.3", "up", "40.24 %"]);
}

/// Server that accepts every connection, so that its backlog never fills, until it is dropped.
struct Server {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(at: impl ToSocketAddrs) -> Server {
        let listener = TcpListener::bind(at).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (port, stop) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if listener.accept().is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Server { port, stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join).unwrap().unwrap();
    }
}

/// Waits until the health checks have changed the state of the load balancer.
#[track_caller]
fn wait(b: &mut Harness, what: &str, until: impl Fn(&mut Harness) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !until(b) {
        assert!(Instant::now() < deadline, "{what}; {:?}", b.counters());
        std::thread::sleep(Duration::from_millis(5));
        let next = b.now().as_secs() + 1;
        b.jump_to(Duration::from_secs(next));
    }
}

#[test]
fn connections_move_only_from_a_failed_backend() {
    let [one, two] = [0, 1].map(|_| Server::start("127.0.0.1:0"));
    // one listener for each backend, distinguished by port
    let (a, b) = (one.port, two.port);
    let settings = format!(
        "idle = 1000000\nconnections = 4000\n[service.web]\nvip = [\"tcp 192.0.2.10:80\"]\nforward = \"nat\"\nhealth = {{ kind = \"tcp\", interval = 10, timeout = 60000, fall = 2, rise = 1 }}\n\
         backend.a = {{ address = \"10.0.0.1\", port = {a}, check_address = \"127.0.0.1\" }}\n\
         backend.b = {{ address = \"10.0.0.2\", port = {b}, check_address = \"127.0.0.1\" }}"
    );
    let mut lb = harness(&settings);
    let to = |lb: &mut Harness, port| contents(&lb.feed_one(&build::tcp4(CLIENT, VIP, port, 80).to_vec()).unwrap()).dst;
    let before: Vec<_> = (1..500).map(|port| to(&mut lb, port)).collect();
    wait(&mut lb, "both up", |lb| lb.counter("backends_up") == 2);
    drop(two);
    wait(&mut lb, "b down", |lb| lb.counter("backends_up") == 1);
    assert_eq!(lb.counter("ring_changes"), 1);
    let (mut moved, a) = (0, IpAddr::from([10, 0, 0, 1]));
    for (port, before) in (1..500).zip(&before) {
        assert_eq!(to(&mut lb, port), a);
        moved += u64::from(*before != a);
    }
    assert!(moved > 100);
    assert_eq!(lb.counter("moved"), moved);
    // b is up again: moved connections stay, new ones are spread over both
    let again = Server::start(("127.0.0.1", b));
    wait(&mut lb, "b up", |lb| lb.counter("backends_up") == 2);
    assert!((1..500).all(|port| to(&mut lb, port) == a));
    assert!((501..600).any(|port| to(&mut lb, port) != a));
    drop((one, again));
    wait(&mut lb, "both down", |lb| lb.counter("backends_up") == 0);
    assert_eq!(lb.feed_one(&build::tcp4(CLIENT, VIP, 1, 80).to_vec()), Err("no_backend"));
}

#[test]
fn health_checks_stop_with_the_last_copy() {
    let settings = "[service.web]\nvip = [\"tcp 192.0.2.10:80\"]\nforward = \"nat\"\nhealth = { kind = \"tcp\", interval = 3600000 }\n\
         backend.a = { address = \"10.0.0.1\", check_address = \"127.0.0.1\" }";
    let (bench, shared) = balancer(settings);
    let state = shared.0.clone();
    drop(shared);
    assert!(!state.is_stopped());
    drop(bench);
    let deadline = Instant::now() + Duration::from_secs(60);
    while Arc::strong_count(&state) > 1 {
        assert!(Instant::now() < deadline, "a health check thread is still running");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(state.is_stopped());
}
