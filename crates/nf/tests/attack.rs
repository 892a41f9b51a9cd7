//! Hostile packets, by the million: nothing panics, nothing is lost track of, no memory grows, and half of them at least get
//! as far as the NF's own logic.
//!
//! `ATTACK_PACKETS` for each NF, 200,000 by default; `ATTACK_SESSIONS` short sessions through one address of the NAT, 100,000
//! by default. With `ATTACK_CYCLES=1` what packets cost among hostile ones is measured as well: build with optimisation then.

use kit::{Bench, Cycles, Setup};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::{IpProtocol, TcpFlags, build, icmpv4, icmpv6};

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.replace('_', "").parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

/// Numbers at random, the same each time (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// An NF under attack, and where its traffic goes.
struct Target {
    kind: &'static str,
    settings: &'static str,
    /// What those outside answer to; `None`: to whoever has sent.
    answers_to: Option<[u8; 4]>,
    /// Reasons for which a packet is dropped before its connection is looked for.
    unread: &'static [&'static str],
}

const TARGETS: [Target; 4] = [
    Target {
        kind: "nat44",
        settings: "external = [\"203.0.113.1\"]\nsessions = 20000\nsubscribers = 5000\nsubscriber_sessions = 200\nfragments = 500\n\
                   timers = { udp = 20, tcp_established = 60, tcp_transitory = 10, icmp = 5 }\n\
                   forward = [\"tcp 203.0.113.1:8080 -> 10.0.0.5:80\"]",
        answers_to: Some([203, 0, 113, 1]),
        unread: &["malformed_ip", "other_protocol", "tiny_fragment", "bad_icmp_error"],
    },
    Target {
        kind: "nat64",
        settings: "external = [\"203.0.113.1\"]\nsessions = 20000\nsubscribers = 5000\nsubscriber_sessions = 200\nfragments = 500\n\
                   timers = { udp = 20, tcp_established = 60, tcp_transitory = 10, icmp = 5 }\n\
                   forward = [\"tcp 203.0.113.1:8080 -> [2001:db8::5]:80\"]",
        answers_to: Some([203, 0, 113, 1]),
        unread: &["malformed_ip", "other_protocol", "tiny_fragment", "bad_icmp_error"],
    },
    Target {
        kind: "firewall",
        settings: "rules = [\"accept src 10.0.0.0/16\", \"accept proto udp dport 53\"]\n\
                   track = { connections = 20000, fragments = 500, udp = 20, udp_one_way = 10, tcp_established = 60 }",
        answers_to: None,
        unread: &["malformed_ip", "malformed_upper", "tiny_fragment", "not_ip"],
    },
    Target {
        kind: "maglev",
        settings: "connections = 20000\nfragments = 500\nidle = 20\n[service.web]\nvip = [\"tcp 198.18.0.1:80\", \"udp 198.18.0.1:53\"]\n\
                   forward = \"nat\"\nbackend.a = { address = \"172.16.0.1\" }\nbackend.b = { address = \"172.16.0.2\" }\n\
                   [service.tunnel]\nvip = [\"tcp 198.18.0.2:80\"]\nforward = \"l3dsr\"\ndscp = 9\nbackend.c = { address = \"172.16.0.3\" }",
        answers_to: None,
        unread: &["malformed"],
    },
];

/// A packet of one of so many connections, and by which input it comes.
fn good(target: &Target, random: &mut Random, flows: u64) -> (usize, Vec<u8>) {
    let flow = random.below(flows);
    let near = [10, 0, (flow >> 8) as u8, flow as u8];
    let far = [198, 18, 0, 1 + (flow % 3) as u8];
    let (port, service) = (2000 + (flow / 7 % 50_000) as u16, if flow.is_multiple_of(2) { 80 } else { 53 });
    let inwards = target.answers_to.is_some() && random.one_in(3);
    let ((src, sport), (dst, dport)) = match target.answers_to {
        Some(ours) if inwards => ((far, service), (ours, port)),
        _ => ((near, port), (far, service)),
    };
    let flags = [TcpFlags::SYN, TcpFlags::ACK, TcpFlags::ACK, TcpFlags::SYN_ACK, TcpFlags::FIN, TcpFlags::RST];
    let flags = flags[random.below(6) as usize];
    let frame = match flow % 4 {
        0 if six(target, inwards) => build::tcp6(near6(src), far6(dst), sport, dport).flags(flags).to_vec(),
        0 => build::tcp4(src, dst, sport, dport).flags(flags).pad_to(60).to_vec(),
        _ if six(target, inwards) => build::udp6(near6(src), far6(dst), sport, dport).payload(&[7; 18]).to_vec(),
        _ => build::udp4(src, dst, sport, dport).payload(&[7; 18]).to_vec(),
    };
    (usize::from(inwards), frame)
}

/// Whether what comes by this input is IPv6.
fn six(target: &Target, inwards: bool) -> bool {
    target.kind == "nat64" && !inwards
}

fn near6([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
}

fn far6([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
}

/// A packet of IPv6 that nobody should send, made of a good one.
fn hostile6(random: &mut Random, mut frame: Vec<u8>) -> Vec<u8> {
    let (src, dst) = (*frame[22..].first_chunk::<16>().unwrap(), *frame[38..].first_chunk::<16>().unwrap());
    match random.below(12) {
        0 | 1 => {
            let (a, b) = (random.next(), random.next());
            let far = far6([198, 18, 0, (b >> 8) as u8]);
            let near = near6([10, (a >> 8) as u8, a as u8, 1]);
            return build::tcp6(near, far, (a >> 16) as u16, b as u16).flags(TcpFlags::SYN).to_vec();
        }
        2 => frame.truncate(random.below(frame.len() as u64) as usize + 1),
        3 | 4 => {
            for _ in 0..=random.below(3) {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] ^= 1 << random.below(8);
            }
        }
        5 => {
            let protocol = [IpProtocol::TCP, IpProtocol::UDP, IpProtocol::ICMPV6][random.below(3) as usize];
            let most = if random.one_in(2) { 3 } else { 8000 };
            let offset = 8 * random.below(most) as u16;
            let body = vec![random.next() as u8; 8 * (1 + random.below(9) as usize)];
            let (id, more) = (random.below(2000) as u32, random.one_in(2));
            let piece = build::ipv6(src, dst, protocol).fragment(offset, more, id).payload(&body);
            frame = piece.try_to_vec().unwrap_or(frame);
        }
        6 | 7 => {
            let mut quoted = frame[14..frame.len().min(14 + 48 + random.below(20) as usize)].to_vec();
            if random.one_in(2) {
                quoted[8..40].rotate_left(16);
            }
            let error = icmpv6::Repr::PacketTooBig { mtu: random.next() as u32 };
            frame = build::icmp6(src, dst, error).payload(&quoted).to_vec();
        }
        8 => {
            let mut udp = build::udp6(src, dst, 1, 2);
            for _ in 0..random.below(12) {
                let kind = [0, 43, 60, 44, 51][random.below(5) as usize];
                udp = udp.extension(IpProtocol(kind), &[random.next() as u8; 7]);
            }
            frame = udp.try_to_vec().unwrap_or(frame);
        }
        9 => frame = (0..=random.below(200)).map(|_| random.next() as u8).collect(),
        10 => frame[21] = random.below(3) as u8,
        _ => {}
    }
    frame
}

/// A packet that nobody should send.
fn hostile(target: &Target, random: &mut Random) -> (usize, Vec<u8>) {
    // spoofed: anybody inside, to anybody
    let (input, mut frame) = good(target, random, 1 << 24);
    if six(target, input == 1) {
        return (input, hostile6(random, frame));
    }
    let ends = (*frame[26..].first_chunk::<4>().unwrap(), *frame[30..].first_chunk::<4>().unwrap());
    match random.below(12) {
        // a flood of beginnings
        0 | 1 => {
            let (a, b) = (random.next(), random.next());
            let (near, far) = ([10, 0, a as u8, (a >> 8) as u8], [198, 18, 0, (b >> 8) as u8]);
            let syn = build::tcp4(near, far, (a >> 16) as u16, b as u16).flags(TcpFlags::SYN);
            return (0, syn.pad_to(60).to_vec());
        }
        2 => frame.truncate(random.below(frame.len() as u64) as usize + 1),
        3 | 4 => {
            for _ in 0..=random.below(3) {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] ^= 1 << random.below(8);
            }
        }
        5 => {
            // pieces: tiny ones, overlapping ones, the last without the first
            let protocol = if random.one_in(2) { IpProtocol::TCP } else { IpProtocol::UDP };
            let most = if random.one_in(2) { 3 } else { 8000 };
            let offset = 8 * random.below(most) as u16;
            let body = vec![random.next() as u8; 8 * (1 + random.below(9) as usize)];
            let (id, more) = (random.below(2000) as u16, random.one_in(2));
            let piece = build::ipv4(ends.0, ends.1, protocol).id(id).fragment(offset, more).payload(&body);
            frame = piece.try_to_vec().unwrap_or(frame);
        }
        6 | 7 => {
            // errors about what was or was not sent
            let mut quoted = frame[14..frame.len().min(14 + 28 + random.below(20) as usize)].to_vec();
            if random.one_in(2) {
                quoted[12..20].rotate_left(4);
            }
            let error = icmpv4::Repr::FragmentationNeeded { mtu: random.next() as u16 };
            frame = build::icmp4(ends.0, ends.1, error).payload(&quoted).to_vec();
        }
        8 => frame.resize(1500 + random.below(500) as usize, 0xaa),
        9 => frame = (0..=random.below(200)).map(|_| random.next() as u8).collect(),
        10 => frame[14] = (random.next() as u8 & 15) | 0x40,
        _ => {}
    }
    (input, frame)
}

/// One test at a time: the memory that has grown is that of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of memory in use.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn bench(target: &Target) -> Bench {
    let registry = nf::registry();
    Setup::of_kind(registry.get(target.kind).unwrap(), target.settings).build().unwrap()
}

/// Feeds it; the bench sees that no packet is missing. What the run showed.
fn attack(target: &Target, packets: u64) -> String {
    let mut bench = bench(target);
    let mut random = Random(0x00a7_7ac4);
    // making each anew would take most of the time: they are drawn from many, and one in eight is bent once more
    let made: Vec<(usize, Vec<u8>)> = (0..1 << 16)
        .map(|n| if n % 2 == 0 { hostile(target, &mut random) } else { good(target, &mut random, 4000) })
        .collect();
    let (mut fed, mut passed, mut after_a_tenth) = (0u64, 0u64, None);
    let start = Instant::now();
    while fed < packets {
        let mut by_input: [Vec<Cow<'_, [u8]>>; 2] = Default::default();
        for _ in 0..512 {
            let (input, frame) = &made[random.below(made.len() as u64) as usize];
            let mut frame = Cow::from(frame);
            if random.one_in(8) {
                let at = random.below(frame.len() as u64) as usize;
                frame.to_mut()[at] ^= random.next() as u8;
            }
            by_input[*input.min(&(bench.inputs() - 1))].push(frame);
        }
        for (input, frames) in by_input.iter().enumerate().filter(|(_, frames)| !frames.is_empty()) {
            fed += frames.len() as u64;
            passed += bench.feed_by(input, frames).iter().map(Vec::len).sum::<usize>() as u64;
        }
        passed += bench.advance(Duration::from_millis(10)).iter().map(Vec::len).sum::<usize>() as u64;
        if fed >= packets / 10 {
            after_a_tenth.get_or_insert_with(resident);
        }
    }
    let rate = fed as f64 / start.elapsed().as_secs_f64();
    let grown = resident().saturating_sub(after_a_tenth.unwrap_or(0));
    assert!(grown < 64 << 20, "{}: memory has grown by {grown} bytes", target.kind);
    let unread: u64 = target.unread.iter().map(|reason| bench.dropped(reason)).sum();
    assert!(unread * 2 < fed, "{}: {unread} of {fed} packets were not even looked up", target.kind);
    let drops = bench.drops();
    for never in ["vanished", "no_edge", "nf_panic"] {
        assert!(!drops.iter().any(|(reason, _)| *reason == never), "{}: {never}", target.kind);
    }
    let mut told = format!("{}: {fed} packets, {rate:.0} a second, {passed} passed, {unread} unreadable", target.kind);
    drops.iter().for_each(|(reason, n)| write!(told, ", {reason} {n}").unwrap());
    told
}

#[test]
fn nothing_breaks_under_attack() {
    let _one = alone();
    let packets = setting("ATTACK_PACKETS", 200_000);
    for target in &TARGETS {
        println!("{}", attack(target, packets));
    }
}

#[test]
fn ports_last_for_any_number_of_short_sessions() {
    /// Sessions of a round: nearly all ports of the address.
    const ROUND: u64 = 60_000;
    let _one = alone();
    let sessions = setting("ATTACK_SESSIONS", 100_000).next_multiple_of(ROUND);
    let settings = "external = [\"203.0.113.1\"]\ntimers = { udp = 5 }";
    let mut nat = Setup::of_kind(nf::registry().get("nat44").unwrap(), settings).build().unwrap();
    let mut begun = 0;
    while begun < sessions {
        let round = begun / ROUND;
        for burst in 0..ROUND / 500 {
            let frame = |n: u64| {
                let n = burst * 500 + n;
                let src = [10, round as u8, (n >> 8) as u8, n as u8];
                build::udp4(src, [198, 18, 0, 1], 2000 + (n % 50_000) as u16, 53).pad_to(60).to_vec()
            };
            let frames: Vec<_> = (0..500).map(frame).collect();
            begun += nat.feed_by(0, &frames).iter().map(Vec::len).sum::<usize>() as u64;
        }
        assert_eq!(begun, (round + 1) * ROUND, "every session had a port: {:?}", nat.drops());
        nat.advance(Duration::from_secs(6));
        (0..400).for_each(|_| drop(nat.advance(Duration::from_millis(10))));
        assert_eq!([nat.counter("sessions"), nat.counter("ports")], [0, 0], "after {begun}");
    }
    println!("nat44: {begun} sessions through one address, no port missing");
}

#[test]
fn good_packets_among_hostile_ones() {
    if setting("ATTACK_CYCLES", 0) == 0 {
        println!("skipped: ATTACK_CYCLES=1 measures it");
        return;
    }
    let _one = alone();
    for target in &TARGETS {
        let mut random = Random(7);
        let mut outwards = |hostile_ones: bool| -> Vec<Vec<u8>> {
            let mut frames = vec![];
            while frames.len() < 32_768 {
                let bad = hostile_ones && random.one_in(2);
                let (input, frame) = if bad { hostile(target, &mut random) } else { good(target, &mut random, 4000) };
                if input == 0 {
                    frames.push(frame);
                }
            }
            frames
        };
        let cost = |frames: &[Vec<u8>]| Cycles::on(frames).nf(target.kind, bench(target)).measure().all()[1].median;
        let (alone, among) = (cost(&outwards(false)), cost(&outwards(true)));
        let rate = alone / among * 100.0;
        println!(
            "{}: {alone:.0} cycles a packet, {among:.0} where half are hostile: {rate:.0} % of the rate",
            target.kind
        );
    }
}
