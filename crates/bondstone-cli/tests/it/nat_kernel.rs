//! `nat44` compared with nftables: the same packets give the same output, byte for byte.

use crate::common::alone;
use crate::common::namespace::{Namespace, done, possible};
use crate::common::{Running, Scratch};
use std::time::Duration;
use testkit::HarnessBuilder;
use wire::{TcpFlags, build, icmpv4, ipv4};

const OUR: [u8; 4] = [203, 0, 113, 1];
/// MAC addresses of the two kernel interfaces and of the hosts behind them.
const INSIDE: &str = "02:00:00:00:0a:01";
const OUTSIDE: &str = "02:00:00:00:0b:01";

/// The kernel as a translating router between two veth pairs whose other ends are in one namespace.
struct Kernel {
    _kernel: Namespace,
    ends: Namespace,
    scratch: Scratch,
}

/// Side from which a packet is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    In,
    Out,
}

impl Kernel {
    fn new() -> Kernel {
        let [kernel, ends] = ["k", "e"].map(|n| Namespace::new(&format!("natk-{n}")));
        ends.mute();
        for (near, far, mac) in [("in0", "in1", INSIDE), ("out0", "out1", OUTSIDE)] {
            kernel.link(near, &ends, far);
            kernel.ip(&format!("link set {near} address {mac}"));
            ends.raise(far);
        }
        kernel.configure("in0", &["10.0.0.254/24"]);
        kernel.configure("out0", &["203.0.113.1/24"]);
        kernel.ip("route add 198.18.0.0/24 dev out0");
        for n in 1..=6 {
            kernel.ip(&format!("neigh add 10.0.0.{n} lladdr 02:00:00:00:00:01 dev in0 nud permanent"));
            kernel.ip(&format!("neigh add 198.18.0.{n} lladdr 02:00:00:00:00:02 dev out0 nud permanent"));
        }
        let rules = "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv6.conf.all.disable_ipv6=1 \
                     net.ipv4.conf.in0.send_redirects=0 net.netfilter.nf_conntrack_tcp_be_liberal=1 || exit 1
            nft -f - <<'EOF'
            table ip nat {
              chain post { type nat hook postrouting priority 100; oifname out0 ip saddr 10.0.0.0/8 snat to 203.0.113.1; }
            }
            table ip own {
              chain input { type filter hook input priority 0; policy drop; }
              chain forward { type filter hook forward priority 0; policy drop;
                iifname in0 accept; ct state established,related accept; }
            }
EOF";
        done(kernel.command("sh").args(["-c", rules]));
        Kernel { _kernel: kernel, ends, scratch: Scratch::new() }
    }

    /// Sends frames from a side and returns the frames received inside and outside.
    fn feed(&self, side: Side, frames: &[Vec<u8>]) -> [Vec<Vec<u8>>; 2] {
        let path = self.scratch.path("sent");
        let mut writer = pcap::Writer::create(&path, pcap::LinkType::ETHERNET).unwrap();
        for (n, frame) in (0u64..).zip(frames) {
            writer.write(n * 1000, frame.len() as u32, frame).unwrap();
        }
        writer.finish().unwrap();
        let to = if side == Side::In { "inside" } else { "outside" };
        let text = format!(
            "bondstone = 1\nport.sent.device = \"pcap:sent\"\nport.a.device = \"pcap:a\"\nport.b.device = \"pcap:b\"\n\
             port.inside.device = \"af_packet:in1\"\nport.outside.device = \"af_packet:out1\"\n\
             chain = [{{ path = [\"sent\", {to:?}], cores = [0] }}, {{ path = [\"inside\", \"a\"], cores = [0] }}, \
             {{ path = [\"outside\", \"b\"], cores = [0] }}]\n"
        );
        let file = self.scratch.write("feed.toml", text);
        let mut command = self.ends.command(env!("CARGO_BIN_EXE_bondstone"));
        let mut feeding = Running::start(command.arg("run").arg(file).arg("--json"));
        feeding.quiet();
        feeding.terminate().summary(130);
        ["a", "b"].map(|name| {
            let mut reader = pcap::Reader::open(self.scratch.path(name)).unwrap();
            let mut got = vec![];
            while let Some(record) = reader.next().unwrap() {
                got.push(record.frame.to_vec());
            }
            // ignore ARP of the kernel itself
            got.retain(|frame| frame[12..14] == [8, 0]);
            got
        })
    }
}

/// Returns the part of a frame that is compared: the IP packet, with the TTL before forwarding.
fn essence(frame: &[u8], forwarded: u8) -> Vec<u8> {
    let packet = ipv4::Packet::new(&frame[14..]).unwrap();
    assert!(packet.checksum_ok());
    let mut bytes = packet.bytes().to_vec();
    bytes[8] += forwarded;
    bytes[10..12].fill(0);
    bytes
}

/// A deterministic random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn host(n: u64) -> [u8; 4] {
    [10, 0, 0, 1 + n as u8]
}

fn remote(n: u64) -> [u8; 4] {
    [198, 18, 0, 1 + n as u8]
}

/// A flow: subscriber, its port, remote host, its port.
type Flow = (u64, u16, u64, u16);

fn tcp(src: ([u8; 4], u16), dst: ([u8; 4], u16), flags: TcpFlags, seq: u32) -> Vec<u8> {
    let data: &[u8] = if flags.contains(TcpFlags::SYN) { &[] } else { &[3; 9] };
    build::tcp4(src.0, dst.0, src.1, dst.1).ack(1).flags(flags).seq(seq).payload(data).pad_to(60).to_vec()
}

#[test]
fn output_equals_that_of_nftables() {
    let _one = alone();
    if !possible(&["nft"]) {
        return;
    }
    let kernel = Kernel::new();
    let settings = "external = [\"203.0.113.1\"]\ninside = [\"10.0.0.0/8\"]\nmapping = \"endpoint-dependent\"";
    let registry = nf::registry();
    let mut ours = HarnessBuilder::from_kind(registry.get("nat44").unwrap(), settings).build().unwrap();
    let mut random = Random(44);
    // the ports of subscribers do not collide, because both preserve a free port
    let flows: Vec<Flow> =
        (0..60u16).map(|n| (random.below(5), 2000 + n * 7, random.below(5), 53 + random.below(400) as u16)).collect();
    let (udp, streams) = flows.split_at(30);

    // each round sends packets from one side; inbound packets depend on earlier outbound ones
    let out_udp = |(a, p, b, q): &Flow, n: u8| {
        build::udp4(host(*a), remote(*b), *p, *q).payload(&vec![n; 3 + usize::from(n)]).pad_to(60).to_vec()
    };
    let back_udp = |(_, p, b, q): &Flow, n: u8| build::udp4(remote(*b), OUR, *q, *p).payload(&[n; 40]).to_vec();
    let out_tcp = |(a, p, b, q): &Flow, flags, seq| tcp((host(*a), *p), (remote(*b), *q), flags, seq);
    let back_tcp = |(_, p, b, q): &Flow, flags, seq| tcp((remote(*b), *q), (OUR, *p), flags, seq);
    let echoes = |n: u16| build::echo4(host(u64::from(n % 5)), remote(1), 3000 + n, n).payload(&[1; 30]).to_vec();
    let answers = |n: u16| {
        let reply = icmpv4::Repr::EchoReply { id: 3000 + n, seq: n };
        build::icmp4(remote(1), OUR, reply).payload(&[1; 30]).to_vec()
    };
    let error = |repr: icmpv4::Repr, from: [u8; 4], to: [u8; 4], about: &[u8], len: usize| {
        build::icmp4(from, to, repr).payload(&about[14..about.len().min(14 + len)]).to_vec()
    };
    let exceeded = icmpv4::Repr::TimeExceeded { code: 0 };
    let unreachable = icmpv4::Repr::DestUnreachable { code: 3 };
    let translated = |frame: Vec<u8>| {
        // as seen outside: from the external address
        let mut bench = HarnessBuilder::from_kind(registry.get("nat44").unwrap(), settings).build().unwrap();
        bench.feed_input(0, &[frame]).concat().pop().expect("it begins a session")
    };
    let rounds: Vec<(Side, Vec<Vec<u8>>)> = vec![
        (
            Side::In,
            udp.iter().map(|f| out_udp(f, 1)).chain(streams.iter().map(|f| out_tcp(f, TcpFlags::SYN, 0))).collect(),
        ),
        (
            Side::Out,
            udp.iter()
                .flat_map(|f| {
                    [back_udp(f, 1), back_udp(&(f.0, f.1 + 1, f.2, f.3), 2), back_udp(&(f.0, f.1, f.2, f.3 + 1), 3)]
                })
                .chain(streams.iter().map(|f| back_tcp(f, TcpFlags::SYN_ACK, 0)))
                .collect(),
        ),
        (
            Side::In,
            streams
                .iter()
                .map(|f| out_tcp(f, TcpFlags::ACK, 1))
                .chain((0..20).map(echoes))
                // about a packet from outside
                .chain(udp.iter().take(5).map(|f| {
                    let came = build::udp4(remote(f.2), host(f.0), f.3, f.1).payload(&[1; 40]).to_vec();
                    error(unreachable, host(f.0), remote(f.2), &came, 28)
                }))
                .collect(),
        ),
        (
            Side::Out,
            (0..25)
                .map(answers)
                .chain(
                    udp.iter().take(10).map(|f| error(exceeded, [198, 18, 0, 6], OUR, &translated(out_udp(f, 1)), 28)),
                )
                .chain(
                    streams
                        .iter()
                        .take(10)
                        .map(|f| error(exceeded, [198, 18, 0, 6], OUR, &translated(out_tcp(f, TcpFlags::SYN, 0)), 60)),
                )
                // about an unknown packet
                .chain([error(exceeded, [198, 18, 0, 6], OUR, &build::udp4(OUR, remote(1), 9, 9).to_vec(), 28)])
                .chain(streams.iter().map(|f| back_tcp(f, TcpFlags::ACK | TcpFlags::PSH, 1)))
                .collect(),
        ),
        (Side::In, streams.iter().map(|f| out_tcp(f, TcpFlags::FIN | TcpFlags::ACK, 10)).collect()),
        (Side::Out, streams.iter().map(|f| back_tcp(f, TcpFlags::FIN | TcpFlags::ACK, 10)).collect()),
    ];
    let mac = |side: Side, mut frame: Vec<u8>| {
        let to = if side == Side::In { INSIDE } else { OUTSIDE };
        let to: wire::MacAddr = to.parse().unwrap();
        frame[..6].copy_from_slice(&to.0);
        frame
    };
    let mut compared = 0;
    for (number, (side, frames)) in rounds.into_iter().enumerate() {
        let frames: Vec<_> = frames.into_iter().map(|frame| mac(side, frame)).collect();
        let theirs = kernel.feed(side, &frames);
        // packets are received only on the other side
        let theirs: Vec<_> = theirs[if side == Side::In { 1 } else { 0 }].iter().map(|f| essence(f, 1)).collect();
        let input = if side == Side::In { 0 } else { 1 };
        let mine: Vec<_> = ours.feed_input(input, &frames).concat().iter().map(|f| essence(f, 0)).collect();
        ours.advance(Duration::from_millis(10));
        for (n, (a, b)) in mine.iter().zip(&theirs).enumerate() {
            assert_eq!(a, b, "round {number}, packet {n}: nat44 and nftables");
        }
        assert_eq!(mine.len(), theirs.len(), "round {number}, of {}", frames.len());
        assert!(
            !mine.is_empty() && (side == Side::In || number == 5 || mine.len() < frames.len()),
            "some packets are dropped"
        );
        compared += mine.len();
    }
    assert!(compared > 200, "{compared}");
}
