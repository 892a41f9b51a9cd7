//! IPFIX export of `nat44` and `nat64`, dissected by Wireshark: the records match the sessions and blocks.

use pcap::{LinkType, Writer};
use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;
use testkit::HarnessBuilder;
use wire::flow::FiveTuple;
use wire::{TcpFlags, build};

/// Largest message in bytes.
const MAX_MESSAGE_LEN: usize = 1232;

/// Collects messages until none arrives for three seconds.
pub(crate) fn collect(server: UdpSocket) -> std::thread::JoinHandle<Vec<Vec<u8>>> {
    server.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    std::thread::spawn(move || {
        let mut messages = vec![];
        let mut buffer = [0; 4000];
        while let Ok(n) = server.recv(&mut buffer) {
            messages.push(buffer[..n].to_vec());
        }
        messages
    })
}

/// Returns the values of the fields of each message as dissected by tshark, or `None` without tshark.
pub(crate) fn dissect(messages: &[Vec<u8>], fields: &[&str]) -> Option<Vec<Vec<Vec<String>>>> {
    let file = std::env::temp_dir().join(format!("ipfix-{}-{:p}.pcap", std::process::id(), messages));
    let mut writer = Writer::create(&file, LinkType::ETHERNET).unwrap();
    for (n, message) in messages.iter().enumerate() {
        let frame = build::udp4([127, 0, 0, 1], [127, 0, 0, 2], 50_000, 4739).payload(message).to_vec();
        writer.write(n as u64 * 1000, frame.len() as u32, &frame).unwrap();
    }
    writer.finish().unwrap();
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&file).args(["-d", "udp.port==4739,cflow", "-T", "fields", "-E", "separator=;"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.output();
    let _ = std::fs::remove_file(&file);
    let Ok(output) = output else {
        println!("skipped: tshark is not installed");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let list = |cell: &str| cell.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
    Some(text.lines().map(|line| line.split(';').map(list).collect()).collect())
}

/// A logged event: natEvent and the requested fields.
type NatEvent = (u8, Vec<String>);

/// Runs sessions until they expire; returns the messages, and the inside endpoint, external endpoint and destination of
/// each session.
fn run(kind: &str, more: &str) -> (Vec<Vec<u8>>, Vec<Vec<String>>) {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let settings = format!(
        "external = [\"203.0.113.1\"]\nlog = \"ipfix://{to}\"\n{more}\n\
         timers = {{ udp = 2, tcp_transitory = 2 }}\nsubscriber_sessions = 0"
    );
    let mut nat = HarnessBuilder::from_kind(nf::registry().get(kind).unwrap(), &settings).build().unwrap();
    let messages = collect(server);
    let mut sessions = vec![];
    for n in 0..300u16 {
        let (host, far) = ((n % 7) as u8 + 1, (n % 5) as u8 + 1);
        let (port, service) = (2000 + n, 80 + n % 3);
        let far4 = [198, 18, 0, far];
        let mut near6 = [0; 16];
        near6[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        near6[15] = host;
        let far6 = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 198, 18, 0, far];
        let frame = match (kind, n % 2) {
            ("nat44", 0) => build::udp4([10, 0, 0, host], far4, port, service).pad_to(60).to_vec(),
            ("nat44", _) => build::tcp4([10, 0, 0, host], far4, port, service).flags(TcpFlags::SYN).to_vec(),
            (_, 0) => build::udp6(near6, far6, port, service).to_vec(),
            _ => build::tcp6(near6, far6, port, service).flags(TcpFlags::SYN).to_vec(),
        };
        let out = nat.feed_input(0, &[&frame]).concat().concat();
        let (before, behind) = (FiveTuple::of_frame(&frame).unwrap(), FiveTuple::of_frame(&out).unwrap());
        let texts = |list: &[&dyn ToString]| list.iter().map(|one| one.to_string()).collect::<Vec<_>>();
        sessions.push(texts(&[
            &before.protocol.0,
            &before.src,
            &before.src_port,
            &behind.src,
            &behind.src_port,
            &behind.dst,
            &behind.dst_port,
        ]));
    }
    (0..1000).for_each(|_| drop(nat.advance(Duration::from_millis(10))));
    assert_eq!((nat.counter("sessions"), nat.counter("log_lost")), (0, 0));
    // the last records are sent when the node is dropped
    drop(nat);
    (messages.join().unwrap(), sessions)
}

/// Returns the records of all messages after checking the sequence numbers.
fn records(messages: &[Vec<u8>], fields: &[&str]) -> Option<Vec<NatEvent>> {
    assert!(messages.iter().all(|message| message.len() <= MAX_MESSAGE_LEN));
    assert!((2..60).contains(&messages.len()), "records are batched: {}", messages.len());
    let common = ["cflow.sequence", "cflow.od_id", "_ws.malformed", "cflow.sequence_analysis.expected_sn"];
    let time = "cflow.observation_time_milliseconds";
    let all_fields = [&common[..], &[time, "cflow.nat_event"], fields].concat();
    let (mut events, mut before) = (vec![], 0);
    for message in dissect(messages, &all_fields)? {
        assert_eq!(message[0], [before.to_string()], "the sequence number counts earlier records");
        assert_eq!(message[1], ["1"]);
        assert!(message[2].is_empty() && message[3].is_empty(), "{message:?}");
        let count = message[5].len();
        // a formatted time contains a comma
        assert_eq!(message[4].len(), 2 * count);
        for n in 0..count {
            let values = message[6..].iter().map(|list| list[n].clone()).collect();
            events.push((message[5][n].parse().unwrap(), values));
        }
        before += count;
    }
    Some(events)
}

/// Checks that each session or block has exactly one begin and one end.
fn check(events: &[NatEvent], begin: u8, expected: &BTreeSet<Vec<String>>) {
    for event in [begin, begin + 1] {
        let of: Vec<_> = events.iter().filter(|(e, _)| *e == event).map(|(_, values)| values.clone()).collect();
        assert_eq!(of.len(), expected.len(), "event {event}, each once");
        assert_eq!(&BTreeSet::from_iter(of), expected, "event {event}");
    }
    assert_eq!(events.len(), 2 * expected.len());
}

#[test]
fn session_records() {
    for (kind, event, inside, outside) in [
        ("nat44", 4, "cflow.srcaddr", "cflow.dstaddr"),
        ("nat64", 6, "cflow.srcaddrv6", "cflow.post_natdestination_ipv4_address"),
    ] {
        let (messages, sessions) = run(kind, "");
        let fields = [
            "cflow.protocol",
            inside,
            "cflow.srcport",
            "cflow.post_natsource_ipv4_address",
            "cflow.post_naptsource_transport_port",
            outside,
            "cflow.dstport",
        ];
        let Some(events) = records(&messages, &fields) else { return };
        check(&events, event, &sessions.into_iter().collect());
    }
}

#[test]
fn block_records() {
    for (kind, inside) in [("nat44", "cflow.srcaddr"), ("nat64", "cflow.srcaddrv6")] {
        let (messages, sessions) = run(kind, "allocation = \"blocks\"\nblock_size = 8\nmax_blocks = 16");
        let fields = [inside, "cflow.post_natsource_ipv4_address", "cflow.port_range_start", "cflow.port_range_end"];
        let Some(events) = records(&messages, &fields) else { return };
        let blocks: BTreeSet<_> = events.iter().filter(|(e, _)| *e == 16).map(|(_, values)| values.clone()).collect();
        check(&events, 16, &blocks);
        // the port of each session is in a block of its subscriber
        for session in sessions {
            let (host, port): (&str, u16) = (&session[1], session[4].parse().unwrap());
            let has = |b: &&Vec<String>| {
                let (first, last): (u16, u16) = (b[2].parse().unwrap(), b[3].parse().unwrap());
                b[0] == host && b[1] == session[3] && (first..=last).contains(&port) && last - first == 7
            };
            assert!(blocks.iter().any(|b| has(&b)), "{session:?}");
        }
        assert!(blocks.iter().all(|b| b[0].parse::<IpAddr>().is_ok_and(|a| a.is_ipv6() == (kind == "nat64"))));
    }
}
