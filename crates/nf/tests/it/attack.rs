//! Hostile packets, by the million: nothing panics, nothing is lost track of, no memory grows, and half of them at least get
//! as far as the NF's own logic.
//!
//! `ATTACK_PACKETS` for each NF, 200,000 by default; `ATTACK_SESSIONS` short sessions through one address of the NAT, 100,000
//! by default. What good packets cost among hostile ones is measured by `native-bench --only hostile`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use testkit::{Bench, Hostile, Setup};
use wire::{TcpFlags, build};

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.replace('_', "").parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
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
fn good(target: &Target, random: &mut Hostile, flows: u64) -> (usize, Vec<u8>) {
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

/// A packet that nobody should send, spoofed: of anybody, to anybody.
fn hostile(target: &Target, random: &mut Hostile) -> (usize, Vec<u8>) {
    let (input, frame) = good(target, random, 1 << 24);
    (input, random.of(&frame))
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
    let mut random = Hostile::new(0x00a7_7ac4);
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
                frame.to_mut()[at] ^= random.number() as u8;
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
