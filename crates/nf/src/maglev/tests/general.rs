//! Answers, fragments, ICMP, lengths, health.

use super::*;
use std::net::{TcpListener, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::Setup;
use wire::{build, icmpv4, icmpv6};

const CLIENT: [u8; 4] = [10, 1, 0, 7];
const CLIENT6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

fn bench(settings: &str) -> Bench {
    Setup::of::<Maglev>(settings).build().unwrap()
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
fn answers_seem_to_come_from_the_virtual_address() {
    let settings = service("nat", false)
        .replace("b3 = { address = \"10.0.0.3\" }", "b3 = { address = \"10.0.0.3\", port = 8080 }")
        .replace(", \"udp 192.0.2.10:53\"", "");
    let mut nat = bench(&settings);
    for port in 1..100 {
        let came = seen(&nat.one(&build::tcp4(CLIENT, VIP, port, 80).to_vec()).unwrap());
        let backend = v4(came.dst);
        assert_eq!(came.ports, (port, if backend[3] == 3 { 8080 } else { 80 }));
        let answer = build::tcp4(backend, CLIENT, came.ports.1, port).payload(b"x");
        for frame in [answer.clone().to_vec(), answer.vlan(5).to_vec()] {
            let out = nat.feed_by(1, &[frame]).remove(0).remove(0);
            let bytes = if out[12] == 0x81 { [&out[..12], &out[16..]].concat() } else { out };
            let back = seen(&bytes);
            assert_eq!((back.src, back.dst, back.ports), (VIP.into(), CLIENT.into(), (80, port)));
        }
    }
    // what is no service's answer stays
    for frame in
        [build::tcp4([10, 0, 0, 3], CLIENT, 80, 9).to_vec(), build::udp4([10, 0, 0, 1], CLIENT, 80, 9).to_vec()]
    {
        assert_eq!(nat.feed_by(1, &[&frame])[0], [frame]);
    }
    assert_eq!(nat.counter("answers"), 198);

    let mut nat = bench(&service("nat", true));
    let came = seen(&nat.one(&build::udp6(CLIENT6, VIP6, 9, 53).to_vec()).unwrap());
    let back = nat.feed_by(1, &[build::udp6(v6(came.dst), CLIENT6, 53, 9).payload(b"abc").to_vec()]).remove(0);
    let back = seen(&back[0]);
    assert_eq!((back.src, back.dst, back.ports), (VIP6.into(), CLIENT6.into(), (53, 9)));
}

#[test]
fn udp_without_a_checksum_has_none_after() {
    let mut frame = build::udp4(CLIENT, VIP, 9, 53).payload(b"abc").to_vec();
    frame[40..42].fill(0);
    let out = bench(&service("nat", false)).one(&frame).unwrap();
    assert_eq!((&out[40..42], v4(seen_address(&out))[..3].to_vec()), (&[0, 0][..], vec![10, 0, 0]));
}

fn seen_address(frame: &[u8]) -> IpAddr {
    let frame = ethernet::Frame::new(frame).unwrap();
    ipv4::Packet::new(frame.payload()).unwrap().header().dst().into()
}

#[test]
fn fragments_follow_the_first() {
    let whole: Vec<u8> = (0..200).collect();
    for forward in ["gre", "ipip", "l3dsr", "nat"] {
        let mut b = bench(&service(forward, false));
        for port in 1..30u16 {
            let datagram = build::udp4(CLIENT, VIP, port, 53).payload(&whole).to_vec();
            let part = |from: usize, to: usize, more| {
                build::ipv4(CLIENT, VIP, IpProtocol::UDP)
                    .id(port)
                    .fragment(from as u16, more)
                    .payload(&datagram[34 + from..34 + to])
                    .to_vec()
            };
            let parts = [part(0, 64, true), part(64, 128, true), part(128, 208, false)];
            // the second comes first
            assert!(b.feed(&[&parts[1]]).is_empty());
            let out = b.feed(&[&parts[0], &parts[2]]);
            assert_eq!((out.len(), b.held()), (3, 0));
            let out = [out[0].clone(), out[2].clone(), out[1].clone()];
            let to = seen_address(&out[0]);
            assert!(out.iter().all(|f| seen_address(f) == to), "{forward}");
            // as the connection's whole packets
            assert_eq!(seen_address(&b.one(&datagram).unwrap()), to);
            if forward == "nat" {
                let all: Vec<u8> = out.iter().flat_map(|f| f[34..].to_vec()).collect();
                let joined = build::ipv4(CLIENT, v4(to), IpProtocol::UDP).payload(&all).to_vec();
                assert_eq!(seen(&joined).ports, (port, 53), "put together again the checksum is right");
                let answer = build::udp4(v4(to), CLIENT, 53, port).payload(&whole).to_vec();
                for (from, more) in [(0usize, true), (104, false)] {
                    let part = &answer[34 + from..(34 + from + 104).min(answer.len())];
                    let f =
                        build::ipv4(v4(to), CLIENT, IpProtocol::UDP).id(port).fragment(from as u16, more).payload(part);
                    let out = b.feed_by(1, &[f.to_vec()]).remove(0);
                    let ip = ipv4::Packet::new(&out[0][14..]).unwrap();
                    assert_eq!((ip.header().src(), ip.checksum_ok()), (VIP.into(), true));
                }
            }
        }
        // forgotten after a while
        b.advance(Duration::from_secs(29));
        (0..4000).for_each(|_| drop(b.advance(Duration::from_millis(1))));
        let late = build::ipv4(CLIENT, VIP, IpProtocol::UDP).id(1).fragment(64, false).payload(&[0; 8]).to_vec();
        assert!(b.feed(&[&late]).is_empty());
        b.advance(Duration::from_secs(3));
        assert_eq!((b.held(), b.dropped("unknown_fragment")), (0, 1));
    }
    let mut b = bench(&service("ipip", true));
    let part = |from, more| {
        build::ipv6(CLIENT6, VIP6, IpProtocol::UDP)
            .fragment(from, more, 77)
            .payload(&[0, 9, 0, 53, 0, 16, 1, 1])
            .to_vec()
    };
    let all = b.feed(&[part(8, false), part(0, true), part(8, false)]);
    let to: Vec<_> = all.iter().map(|f| seen(f).dst).collect();
    assert_eq!(to, [to[0]; 3]);
}

#[test]
fn fragments_by_which_a_header_is_hidden_are_dropped() {
    let tiny = build::ipv4(CLIENT, VIP, IpProtocol::TCP).fragment(0, true).payload(&[0, 9, 0, 80, 0, 0, 0, 0]).to_vec();
    assert_eq!(bench(&service("nat", false)).one(&tiny), Err("malformed"));
}

#[test]
fn errors_reach_the_backend_that_they_are_about() {
    for forward in ["gre", "ipip", "l3dsr", "nat"] {
        let (mut b, shared) = balancer(&service(forward, false));
        let to: Vec<IpAddr> =
            (1..40).map(|port| seen_address(&b.one(&build::tcp4(CLIENT, VIP, port, 80).to_vec()).unwrap())).collect();
        // the ring is another now, and connections are what they were
        shared.0.set(0, Condition::Draining);
        shared.0.set(1, Condition::Draining);
        for (port, to) in (1..40).zip(&to) {
            let answer = build::tcp4(VIP, CLIENT, 80, port).payload(&[1; 60]).dont_fragment().to_vec();
            for quoted in [&answer[14..42], &answer[14..]] {
                let router = [172, 16, 0, 1];
                let error = build::icmp4(router, VIP, icmpv4::Repr::FragmentationNeeded { mtu: 1280 }).payload(quoted);
                let out = b.one(&error.to_vec()).unwrap();
                let s = seen(&out);
                assert_eq!(s.dst, *to, "{forward}");
                if forward == "nat" {
                    let quoted = &s.payload[8..];
                    let mut header = quoted[..20].to_vec();
                    assert!(wire::checksum::verify(&header), "the quoted header's");
                    assert_eq!(header.drain(12..16).collect::<Vec<_>>(), v4(*to));
                    if quoted.len() > 40 {
                        assert_eq!(packet(EtherType::IPV4, quoted).ports, (80, port));
                    }
                }
            }
        }
        let stray = build::icmp4([172, 16, 0, 1], VIP, icmpv4::Repr::DestUnreachable { code: 1 });
        let other = build::tcp4([10, 9, 9, 9], CLIENT, 80, 1).to_vec();
        assert_eq!(b.one(&stray.payload(&other[14..]).to_vec()), Err("unknown_error"));
        assert_eq!(b.counter("icmp_errors"), 39 * 2 + 1);
    }
}

#[test]
fn too_big_of_ipv6_reaches_the_backend_and_errors_of_backends_the_client() {
    let mut b = bench(&service("nat", true));
    let to = seen(&b.one(&build::tcp6(CLIENT6, VIP6, 9, 80).to_vec()).unwrap()).dst;
    let answer = build::tcp6(VIP6, CLIENT6, 80, 9).payload(&[1; 60]).to_vec();
    let error = build::icmp6([0xfe; 16], VIP6, icmpv6::Repr::PacketTooBig { mtu: 1280 }).payload(&answer[14..]);
    let s = seen(&b.one(&error.to_vec()).unwrap());
    assert_eq!((s.dst, packet(EtherType::IPV6, &s.payload[8..]).src), (to, to));

    let asked = build::tcp6(CLIENT6, v6(to), 9, 80).payload(&[1; 60]).to_vec();
    for (from, seems) in [(v6(to), VIP6), ([0xfe; 16], [0xfe; 16])] {
        let error = build::icmp6(from, CLIENT6, icmpv6::Repr::DestUnreachable { code: 1 }).payload(&asked[14..]);
        let s = seen(&b.feed_by(1, &[error.to_vec()])[0][0]);
        let quoted = packet(EtherType::IPV6, &s.payload[8..]);
        assert_eq!((s.src, quoted.dst, quoted.ports), (seems.into(), VIP6.into(), (9, 80)));
    }
}

#[test]
fn echo_reaches_one_backend_and_comes_back() {
    let mut b = bench(&service("nat", false));
    let ask = build::echo4(CLIENT, VIP, 7, 1);
    let to = seen(&b.one(&ask.to_vec()).unwrap()).dst;
    assert_eq!(seen(&b.one(&build::echo4(CLIENT, VIP, 7, 2).to_vec()).unwrap()).dst, to);
    let answer = build::icmp4(v4(to), CLIENT, icmpv4::Repr::EchoReply { id: 7, seq: 1 }).to_vec();
    assert_eq!(seen(&b.feed_by(1, &[answer])[0][0]).src, IpAddr::from(VIP));
    // a backend that asks for itself
    let own = build::echo4(v4(to), CLIENT, 7, 1).to_vec();
    assert_eq!(b.feed_by(1, &[&own])[0], [own]);
    let mut b = bench(&service("nat", true));
    let to = seen(&b.one(&build::echo6(CLIENT6, VIP6, 7, 1).to_vec()).unwrap()).dst;
    let answer = build::icmp6(v6(to), CLIENT6, icmpv6::Repr::EchoReply { id: 7, seq: 1 }).to_vec();
    assert_eq!(seen(&b.feed_by(1, &[answer])[0][0]).src, IpAddr::from(VIP6));
}

#[test]
fn what_is_for_no_service_passes_or_is_dropped() {
    let frames = [
        build::udp4(CLIENT, [192, 0, 2, 11], 9, 53).to_vec(),
        build::udp4(CLIENT, VIP, 9, 54).to_vec(),
        build::udp6(CLIENT6, VIP6, 9, 54).to_vec(),
        build::ipv4(CLIENT, VIP, IpProtocol::SCTP).payload(&[0; 20]).to_vec(),
    ];
    let arp = build::arp_request(CLIENT, VIP).to_vec();
    let mut pass = bench(&service("gre", false));
    let mut none = bench(&format!("other = \"drop\"\n{}", service("gre", false)));
    for frame in &frames {
        assert_eq!((pass.one(frame), none.one(frame)), (Ok(frame.clone()), Err("no_service")));
    }
    assert_eq!((pass.one(&arp), none.one(&arp)), (Ok(arp.clone()), Ok(arp)));
    assert_eq!(none.counter("other"), 5);
}

#[test]
fn what_does_not_fit_in_the_tunnel_is_dropped_or_may_be_cut() {
    for (forward, more) in [("ipip", 20), ("gre", 24)] {
        let mut b = bench(&service(forward, false));
        let frame = |len: usize| build::udp4(CLIENT, VIP, 9, 53).payload(&vec![7; len - 28]);
        assert_eq!(b.one(&frame(1500 - more).dont_fragment().to_vec()).unwrap().len(), 1514);
        assert_eq!(b.one(&frame(1501 - more).dont_fragment().to_vec()), Err("too_big"));
        let out = b.one(&frame(1501 - more).dscp(9).ecn(2).to_vec()).unwrap();
        let ip = ipv4::Packet::new(&out[14..]).unwrap();
        assert_eq!((ip.header().dont_fragment(), ip.header().dscp(), ip.header().ecn()), (false, 9, 2));
        let six = |len: usize| build::udp6(CLIENT6, VIP6, 9, 53).payload(&vec![7; len - 48]).to_vec();
        assert!(b.one(&six(1500 - more)).is_ok());
        assert_eq!(b.one(&six(1501 - more)), Err("too_big"));
        let out = b.one(&build::udp4(CLIENT, VIP, 9, 53).vlan(3).to_vec()).unwrap();
        assert_eq!(
            (out[12..18].to_vec(), ipv4::Packet::new(&out[18..]).unwrap().checksum_ok()),
            (vec![0x81, 0, 0, 3, 8, 0], true)
        );
    }
    let out = bench(&service("gre", true)).one(&build::udp4(CLIENT, VIP, 9, 53).dscp(9).ecn(2).to_vec()).unwrap();
    assert_eq!(ipv6::Packet::new(&out[14..]).unwrap().header().traffic_class(), 9 << 2 | 2);
}

#[test]
fn connections_are_forgotten_when_idle() {
    let mut b = bench(&service("gre", false).replacen("connections", "idle = 2\nconnections", 1));
    (1..50).for_each(|port| drop(b.one(&build::udp4(CLIENT, VIP, port, 53).to_vec())));
    b.advance(Duration::from_millis(1));
    assert_eq!(b.counter("connections"), 49);
    (0..5000).for_each(|_| drop(b.advance(Duration::from_millis(1))));
    assert_eq!((b.counter("connections"), b.counter("forgotten")), (0, 49));
}

#[test]
fn a_draining_backend_gets_no_slots_and_the_table_shows_it() {
    let settings = service("gre", false)
        .replace("b2 = { address = \"10.0.0.2\" }", "b2 = { address = \"10.0.0.2\", drain = true }")
        .replace("b3 = { address = \"10.0.0.3\" }", "b3 = { address = \"10.0.0.3\", weight = 2 }");
    let mut b = bench(&settings);
    for port in 1..100 {
        assert_ne!(
            seen(&b.one(&build::udp4(CLIENT, VIP, port, 53).to_vec()).unwrap()).dst,
            IpAddr::from([10, 0, 0, 2])
        );
    }
    let table = b.table();
    assert_eq!((table.len(), table.iter().map(|row| row[0].parse::<u32>().unwrap()).sum::<u32>()), (5, 99));
    let row = |name: &str| table.iter().find(|row| row[2] == name).unwrap();
    assert_eq!(row("b2")[4..], ["draining", "0.00 %"]);
    assert_eq!(row("b3")[3..], ["10.0.0.3", "up", "40.24 %"]);
}

/// Takes every connection, as one that only listens would not once its queue is full; gone when dropped.
struct Server {
    port: u16,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(at: impl ToSocketAddrs) -> Server {
        let listener = TcpListener::bind(at).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (port, over) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let told = over.clone();
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                if listener.accept().is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Server { port, over, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join).unwrap().unwrap();
    }
}

/// Waits for what the checks find.
#[track_caller]
fn wait(b: &mut Bench, what: &str, until: impl Fn(&mut Bench) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !until(b) {
        assert!(Instant::now() < deadline, "{what}; {:?}", b.counters());
        std::thread::sleep(Duration::from_millis(5));
        let next = b.now().as_secs() + 1;
        b.wake(Duration::from_secs(next));
    }
}

#[test]
fn a_backend_that_no_longer_answers_gets_nothing_and_others_keep_their_connections() {
    let [one, two] = [0, 1].map(|_| Server::start("127.0.0.1:0"));
    // one listener for each backend, told apart by the port; each its own service, but for the first two's
    let (a, b) = (one.port, two.port);
    let settings = format!(
        "idle = 1000000\nconnections = 4000\n[service.web]\nvip = [\"tcp 192.0.2.10:80\"]\nforward = \"nat\"\nhealth = {{ kind = \"tcp\", every = 10, timeout = 60000, fall = 2, rise = 1 }}\n\
         backend.a = {{ address = \"10.0.0.1\", port = {a}, check = \"127.0.0.1\" }}\n\
         backend.b = {{ address = \"10.0.0.2\", port = {b}, check = \"127.0.0.1\" }}"
    );
    let mut lb = bench(&settings);
    let to = |lb: &mut Bench, port| seen(&lb.one(&build::tcp4(CLIENT, VIP, port, 80).to_vec()).unwrap()).dst;
    let before: Vec<_> = (1..500).map(|port| to(&mut lb, port)).collect();
    wait(&mut lb, "both", |lb| lb.counter("backends") == 2);
    drop(two);
    wait(&mut lb, "b gone", |lb| lb.counter("backends") == 1);
    assert_eq!(lb.counter("ring_changes"), 1);
    let (mut moved, a) = (0, IpAddr::from([10, 0, 0, 1]));
    for (port, before) in (1..500).zip(&before) {
        assert_eq!(to(&mut lb, port), a);
        moved += u64::from(*before != a);
    }
    assert!(moved > 100);
    assert_eq!(lb.counter("moved"), moved);
    // back again: who has moved stays, new ones go to both
    let again = Server::start(("127.0.0.1", b));
    wait(&mut lb, "b back", |lb| lb.counter("backends") == 2);
    assert!((1..500).all(|port| to(&mut lb, port) == a));
    assert!((501..600).any(|port| to(&mut lb, port) != a));
    drop((one, again));
    wait(&mut lb, "both gone", |lb| lb.counter("backends") == 0);
    assert_eq!(lb.one(&build::tcp4(CLIENT, VIP, 1, 80).to_vec()), Err("no_backend"));
}

#[test]
fn checks_end_with_the_last_copy() {
    let settings = "[service.web]\nvip = [\"tcp 192.0.2.10:80\"]\nforward = \"nat\"\nhealth = { kind = \"tcp\", every = 3600000 }\n\
         backend.a = { address = \"10.0.0.1\", check = \"127.0.0.1\" }";
    let (bench, shared) = balancer(settings);
    let state = shared.0.clone();
    drop(shared);
    assert!(!state.is_stopped());
    drop(bench);
    let deadline = Instant::now() + Duration::from_secs(60);
    while Arc::strong_count(&state) > 1 {
        assert!(Instant::now() < deadline, "its thread lives on");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(state.is_stopped());
}
