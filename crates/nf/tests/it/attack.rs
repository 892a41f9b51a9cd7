//! Malformed and adversarial packets in large numbers: no panics, every packet is accounted for, memory does not grow,
//! and at least half of the packets reach the logic of the NF.
//!
//! `ATTACK_PACKETS` is the number of packets for each NF, 200,000 by default; `ATTACK_SESSIONS` the number of short
//! sessions through one external address, 100,000 by default. `native-bench --only adversarial` measures the cost of
//! valid packets under attack.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use testkit::{AdversarialTraffic, Harness, HarnessBuilder};
use wire::{TcpFlags, build};

fn env_number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.replace('_', "").parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// An NF and the traffic for it.
struct Target {
    kind: &'static str,
    settings: &'static str,
    /// Destination of replies from outside; `None`: the source of the request.
    reply_address: Option<[u8; 4]>,
    /// Drop reasons of packets that are dropped before the connection look-up.
    rejected_early: &'static [&'static str],
    /// Drop reasons that occur.
    required: &'static [&'static str],
}

const TARGETS: [Target; 10] = [
    Target {
        kind: "nat44",
        settings: "external = [\"203.0.113.1\"]\nsessions = 20000\nsubscribers = 5000\nsubscriber_sessions = 200\nfragments = 500\n\
                   timers = { udp = 20, tcp_established = 60, tcp_transitory = 10, icmp = 5 }\n\
                   forward = [\"tcp 203.0.113.1:8080 -> 10.0.0.5:80\"]",
        reply_address: Some([203, 0, 113, 1]),
        rejected_early: &["malformed_ip", "unsupported_protocol", "tiny_fragment", "bad_icmp_error"],
        required: &[],
    },
    Target {
        kind: "nat64",
        settings: "external = [\"203.0.113.1\"]\nsessions = 20000\nsubscribers = 5000\nsubscriber_sessions = 200\nfragments = 500\n\
                   timers = { udp = 20, tcp_established = 60, tcp_transitory = 10, icmp = 5 }\n\
                   forward = [\"tcp 203.0.113.1:8080 -> [2001:db8::5]:80\"]",
        reply_address: Some([203, 0, 113, 1]),
        rejected_early: &["malformed_ip", "unsupported_protocol", "tiny_fragment", "bad_icmp_error"],
        required: &[],
    },
    Target {
        kind: "firewall",
        settings: "rules = [\"accept src 10.0.0.0/16\", \"accept proto udp dport 53\"]\n\
                   track = { connections = 20000, fragments = 500, udp = 20, udp_one_way = 10, tcp_established = 60 }",
        reply_address: None,
        rejected_early: &["malformed_ip", "malformed_l4", "tiny_fragment", "not_ip"],
        required: &[],
    },
    Target {
        kind: "maglev",
        settings: "connections = 20000\nfragments = 500\nidle = 20\n[service.web]\nvip = [\"tcp 198.18.0.1:80\", \"udp 198.18.0.1:53\"]\n\
                   forward = \"nat\"\nbackend.a = { address = \"172.16.0.1\" }\nbackend.b = { address = \"172.16.0.2\" }\n\
                   [service.tunnel]\nvip = [\"tcp 198.18.0.2:80\"]\nforward = \"l3dsr\"\ndscp = 9\nbackend.c = { address = \"172.16.0.3\" }",
        reply_address: None,
        rejected_early: &["malformed"],
        required: &[],
    },
    Target { kind: "monitor", settings: "flows = 20000", reply_address: None, rejected_early: &[], required: &[] },
    Target {
        kind: "dpi",
        settings: "flows = 20000\nguess = true",
        reply_address: None,
        rejected_early: &[],
        required: &[],
    },
    Target {
        kind: "ids",
        settings: "mode = \"prevent\"\nflows = 20000\nstream_memory = 16777216\nchecksums = false\ninline = [\n\
                   'alert tcp any any -> any any (flow:to_server; content:\"GET \"; startswith; content:\"HTTP/1.\"; distance:0; flowbits:set,get; sid:1;)',\n\
                   'drop tcp any any -> any any (flow:to_client; flowbits:isset,get; content:\"|07 07|\"; isdataat:4,relative; sid:2;)',\n\
                   'alert udp any any -> any 53 (byte_extract:1,0,n; byte_jump:1,0,relative; content:\"|07|\"; within:n; pcre:\"/\\x07+[a-z]?/R\"; sid:3;)',\n\
                   'alert ip any any -> any any (ttl:<5; fragbits:M; ipopts:any; threshold:type both,track by_src,count 5,seconds 10; sid:4;)',\n\
                   'alert tcp any any -> any any (flags:S; detection_filter:track by_dst,count 10,seconds 5,unique_on dst_port; xbits:set,syn,track ip_pair,expire 10; sid:5;)',\n\
                   'alert http any any -> any any (http.uri; content:\"index\"; http.header; content:\"agent\"; nocase; file.data; content:!\"x\"; sid:7;)',\n\
                   'alert tls any any -> any any (tls.version; content:\"1\"; ja3.string; content:\"77\"; sid:8;)',\n\
                   'drop udp any any -> any any (content:\"INVITE\"; startswith; sid:10;)',\n\
                   'alert dns any any -> any any (dns.query; dotprefix; content:\".example\"; endswith; sid:9;)',\n\
                   'reject icmp any any -> any any (itype:>3; xbits:isset,syn,track ip_pair; sid:6;)',\n]",
        reply_address: None,
        rejected_early: &[],
        required: &["drop_rule"],
    },
    Target {
        kind: "police",
        settings: "subscribers = 5000\nclasses = [{ name = \"all\", per = \"source\", cir = \"1 kbps\", cbs = 2000, ebs = 2000 }]",
        reply_address: None,
        rejected_early: &[],
        required: &["policed"],
    },
    Target {
        kind: "shape",
        settings: "classes = [{ name = \"all\", rate = \"2 Mbps\", burst = 3000 }]",
        reply_address: None,
        rejected_early: &[],
        required: &["queue_full"],
    },
    Target {
        kind: "schedule",
        settings: "rate = \"4 Mbps\"\nper = \"destination\"\nsubscriber_rate = \"2 Mbps\"\nsubscribers = 5000\npackets = 500\nclasses = [{ name = \"voice\", match = [{ dscp = [\"ef\"] }] }, { name = \"rest\", priority = 1 }]",
        reply_address: None,
        rejected_early: &[],
        required: &["buffer_full"],
    },
];

/// First bytes of the payloads of some protocols.
const PAYLOADS: [&[u8]; 6] = [
    &[7; 18],
    b"GET /index.html HTTP/1.1\r\nHost: www.example\r\nUser-Agent: x\r\n\r\n",
    b"\x16\x03\x01\x00\x30\x01\x00\x00\x2c\x03\x03rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr\x00\x00\x02\x13\x01\x01\x00",
    b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x00\x00\x01\x00\x01",
    b"\xc3\x00\x00\x00\x01\x08abcdefgh\x00\x00\x44\x9e\x00\x00\x00\x01rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr",
    b"INVITE sip:a@example SIP/2.0\r\nVia: SIP/2.0/UDP x\r\n\r\n",
];

/// Returns a packet of one of `flows` connections, and its input.
fn valid_packet(target: &Target, random: &mut AdversarialTraffic, flows: u64) -> (usize, Vec<u8>) {
    let flow = random.below(flows);
    let near = [10, 0, (flow >> 8) as u8, flow as u8];
    let far = [198, 18, 0, 1 + (flow % 3) as u8];
    let (port, service) = (2000 + (flow / 7 % 50_000) as u16, if flow.is_multiple_of(2) { 80 } else { 53 });
    let inbound = target.reply_address.is_some() && random.one_in(3);
    let ((src, sport), (dst, dport)) = match target.reply_address {
        Some(ours) if inbound => ((far, service), (ours, port)),
        _ => ((near, port), (far, service)),
    };
    let flags = [TcpFlags::SYN, TcpFlags::ACK, TcpFlags::ACK, TcpFlags::SYN_ACK, TcpFlags::FIN, TcpFlags::RST];
    let flags = flags[random.below(6) as usize];
    let inspects = matches!(target.kind, "ids" | "dpi");
    let payload = PAYLOADS[if inspects { flow as usize / 4 % PAYLOADS.len() } else { 0 }];
    let data = if inspects && flags == TcpFlags::ACK { payload } else { &[] };
    let frame = match flow % 4 {
        0 if is_ipv6(target, inbound) => build::tcp6(inside6(src), outside6(dst), sport, dport).flags(flags).to_vec(),
        0 => build::tcp4(src, dst, sport, dport).flags(flags).payload(data).pad_to(60).to_vec(),
        _ if is_ipv6(target, inbound) => {
            build::udp6(inside6(src), outside6(dst), sport, dport).payload(payload).to_vec()
        }
        _ => build::udp4(src, dst, sport, dport).payload(payload).to_vec(),
    };
    (usize::from(inbound), frame)
}

/// Returns true if packets of this direction are IPv6.
fn is_ipv6(target: &Target, inbound: bool) -> bool {
    target.kind == "nat64" && !inbound
}

fn inside6([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
}

fn outside6([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
}

/// Returns a malformed packet with spoofed addresses.
fn malformed_packet(target: &Target, random: &mut AdversarialTraffic) -> (usize, Vec<u8>) {
    let (input, frame) = valid_packet(target, random, 1 << 24);
    (input, random.next_frame(&frame))
}

/// Serialises the tests, because memory is measured for the whole process.
fn run_alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the resident memory in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn bench(target: &Target) -> Harness {
    let registry = nf::registry();
    HarnessBuilder::from_kind(registry.get(target.kind).unwrap(), target.settings).build().unwrap()
}

/// Feeds packets to the NF, while the bench accounts for each, and returns a report.
fn attack(target: &Target, packets: u64) -> String {
    let mut bench = bench(target);
    let mut random = AdversarialTraffic::new(0x00a7_7ac4);
    // building each packet would take most of the time: they are drawn from a pool, and one in eight is mutated again
    let made: Vec<(usize, Vec<u8>)> =
        (0..1 << 16)
            .map(|n| {
                if n % 2 == 0 { malformed_packet(target, &mut random) } else { valid_packet(target, &mut random, 4000) }
            })
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
                frame.to_mut()[at] ^= random.next_random() as u8;
            }
            by_input[*input.min(&(bench.inputs() - 1))].push(frame);
        }
        for (input, frames) in by_input.iter().enumerate().filter(|(_, frames)| !frames.is_empty()) {
            fed += frames.len() as u64;
            passed += bench.feed_input(input, frames).iter().map(Vec::len).sum::<usize>() as u64;
        }
        passed += bench.advance(Duration::from_millis(10)).iter().map(Vec::len).sum::<usize>() as u64;
        if fed >= packets / 10 {
            after_a_tenth.get_or_insert_with(resident);
        }
    }
    let rate = fed as f64 / start.elapsed().as_secs_f64();
    let grown = resident().saturating_sub(after_a_tenth.unwrap_or(0));
    assert!(grown < 64 << 20, "{}: memory has grown by {grown} bytes", target.kind);
    let rejected_early: u64 = target.rejected_early.iter().map(|reason| bench.dropped(reason)).sum();
    assert!(rejected_early * 2 < fed, "{}: {rejected_early} of {fed} packets were not even looked up", target.kind);
    let drops = bench.drops();
    for never in ["vanished", "no_edge", "nf_panic"] {
        assert!(!drops.iter().any(|(reason, _)| *reason == never), "{}: {never}", target.kind);
    }
    target.required.iter().for_each(|reason| assert!(bench.dropped(reason) > 0, "{}: no {reason}", target.kind));
    let mut report = format!(
        "{}: {fed} packets, {rate:.0} per second, {passed} passed, {rejected_early} dropped early",
        target.kind
    );
    drops.iter().for_each(|(reason, n)| write!(report, ", {reason} {n}").unwrap());
    report
}

/// A test for each NF, so that one can be run alone.
mod survives_malformed_packets {
    macro_rules! tests {
        ($($kind:ident)*) => {
            const KINDS: &[&str] = &[$(stringify!($kind)),*];
            $(#[test]
            fn $kind() {
                let _guard = super::run_alone();
                let target = super::TARGETS.iter().find(|target| target.kind == stringify!($kind)).unwrap();
                println!("{}", super::attack(target, super::env_number("ATTACK_PACKETS", 200_000)));
            })*
        };
    }

    tests!(nat44 nat64 firewall maglev monitor dpi ids police shape schedule);

    #[test]
    fn has_a_test_for_each_target() {
        assert_eq!(KINDS, super::TARGETS.each_ref().map(|target| target.kind));
    }
}

#[test]
fn ports_are_reused_by_any_number_of_short_sessions() {
    /// Uses nearly all ports of the address.
    const SESSIONS_PER_ROUND: u64 = 60_000;
    let _guard = run_alone();
    let sessions = env_number("ATTACK_SESSIONS", 100_000).next_multiple_of(SESSIONS_PER_ROUND);
    let settings = "external = [\"203.0.113.1\"]\ntimers = { udp = 5 }";
    let mut nat = HarnessBuilder::from_kind(nf::registry().get("nat44").unwrap(), settings).build().unwrap();
    let mut sessions_opened = 0;
    while sessions_opened < sessions {
        let round = sessions_opened / SESSIONS_PER_ROUND;
        for burst in 0..SESSIONS_PER_ROUND / 500 {
            let frame = |n: u64| {
                let n = burst * 500 + n;
                let src = [10, round as u8, (n >> 8) as u8, n as u8];
                build::udp4(src, [198, 18, 0, 1], 2000 + (n % 50_000) as u16, 53).pad_to(60).to_vec()
            };
            let frames: Vec<_> = (0..500).map(frame).collect();
            sessions_opened += nat.feed_input(0, &frames).iter().map(Vec::len).sum::<usize>() as u64;
        }
        assert_eq!(sessions_opened, (round + 1) * SESSIONS_PER_ROUND, "every session gets a port: {:?}", nat.drops());
        nat.advance(Duration::from_secs(6));
        (0..400).for_each(|_| drop(nat.advance(Duration::from_millis(10))));
        assert_eq!([nat.counter("sessions"), nat.counter("ports")], [0, 0], "after {sessions_opened}");
    }
    println!("nat44: {sessions_opened} sessions through one address, no port leaked");
}
