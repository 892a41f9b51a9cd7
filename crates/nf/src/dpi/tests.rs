use super::*;
use testkit::proptest::prelude::*;
use testkit::wire::build;
use testkit::{Harness, packets};
use wire::TcpFlags;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 1];
const SSH: &[u8] = b"SSH-2.0-OpenSSH_9.6\r\n";

fn request(host: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n\r\n").into_bytes()
}

fn tcp(port: u16, seq: u32, payload: &[u8]) -> Vec<u8> {
    build::tcp4(CLIENT, SERVER, 40_000, port).flags(TcpFlags::ACK).seq(seq).payload(payload).to_vec()
}

fn reply(port: u16, payload: &[u8]) -> Vec<u8> {
    build::tcp4(SERVER, CLIENT, port, 40_000).flags(TcpFlags::ACK).payload(payload).to_vec()
}

/// Returns packets and flows of an application in the statistics table.
fn counts(dpi: &mut Harness, application: &str) -> [u64; 2] {
    let rows = dpi.table();
    let row = rows.iter().find(|row| row[3] == application);
    row.map_or([0; 2], |row| [1, 2].map(|column| row[column].parse().unwrap()))
}

#[test]
fn a_flow_is_recognised_in_both_directions_and_counted_with_its_first_packets() {
    let mut dpi = Harness::new::<Dpi>("idle = 1");
    dpi.feed(&[tcp(22, 0, b""), reply(22, b""), reply(22, SSH), tcp(22, 0, SSH), tcp(22, 21, b"more")]);
    assert_eq!(counts(&mut dpi, "ssh"), [5, 1]);
    assert_eq!(["recognised", "unknown", "flows"].map(|name| dpi.counter(name)), [1, 0, 1]);
}

#[test]
fn flows_without_a_decision_are_unknown_or_guessed() {
    for (settings, application, counter) in
        [("idle = 1", "unknown", "unknown"), ("idle = 1\nguess = true", "ssh", "guessed")]
    {
        let mut dpi = Harness::new::<Dpi>(settings);
        let frames: Vec<_> = (0..22).map(|n| tcp(22, n * 4, b"\x01\x02\x03\x04")).collect();
        dpi.feed(&frames);
        dpi.advance(Duration::from_millis(5));
        assert_eq!((dpi.counter(counter), dpi.counter("inspected")), (1, 0));
        assert_eq!(counts(&mut dpi, application), [22, 1]);
        assert_eq!((dpi.counter(counter), dpi.counter("inspected")), (1, 0));
    }
}

#[test]
fn payloads_of_one_direction_do_not_end_the_inspection_of_the_other() {
    let mut dpi = Harness::new::<Dpi>("packets_max = 3");
    let frames: Vec<_> = (0..5).map(|n| tcp(2222, n, b"S")).collect();
    dpi.feed(&frames);
    dpi.feed(&[reply(2222, SSH)]);
    assert_eq!((counts(&mut dpi, "ssh"), dpi.counter("recognised")), ([6, 1], 1));
}

#[test]
fn applications_and_groups_of_hosts_are_dropped_and_marked() {
    let settings = "drop = [\"ssh\", \"video\"]\nmark = { http = \"af41\", unknown = 1 }\n\
                    hosts = { video = [\"*.youtube.com\", \"Example.org\"] }";
    let mut dpi = Harness::new::<Dpi>(settings);
    assert_eq!(dpi.feed_one(&tcp(22, 0, SSH)), Err("application"));
    assert_eq!(dpi.feed_one(&tcp(81, 0, &request("www.YouTube.com:80"))), Err("application"));
    assert_eq!(dpi.feed_one(&tcp(82, 0, &request("example.org"))), Err("application"));
    let marked = |port, payload: &[u8], dscp| {
        build::tcp4(CLIENT, SERVER, 40_000, port).flags(TcpFlags::ACK).payload(payload).dscp(dscp).to_vec()
    };
    let page = request("www.example.org");
    assert_eq!(dpi.feed_one(&tcp(83, 0, &page)), Ok(marked(83, &page, 34)));
    assert_eq!(dpi.feed_one(&tcp(84, 0, b"?")), Ok(marked(84, b"?", 1)));
    assert_eq!((dpi.dropped("application"), dpi.counter("marked")), (3, 2));
}

#[test]
fn marks_keep_ecn_and_apply_to_ipv6() {
    let payload = b"OPTIONS sip:a@example.com SIP/2.0\r\n\r\n";
    let mut dpi = Harness::new::<Dpi>("mark = { sip = \"ef\" }");
    let v4 = |dscp| build::udp4(CLIENT, SERVER, 5060, 5060).payload(payload).dscp(dscp).ecn(1).vlan(5).to_vec();
    assert_eq!(dpi.feed_one(&v4(3)), Ok(v4(46)));
    let v6 =
        |dscp: u8| build::udp6([7; 16], [9; 16], 5060, 5060).payload(payload).traffic_class(dscp << 2 | 2).to_vec();
    assert_eq!(dpi.feed_one(&v6(3)), Ok(v6(46)));
}

#[test]
fn a_message_that_spans_segments_is_joined() {
    let mut dpi = Harness::new::<Dpi>("hosts = { video = [\"*.youtube.com\"] }\ndrop = [\"video\"]");
    let page = request("www.youtube.com");
    let (first, rest) = page.split_at(3);
    let (second, third) = rest.split_at(20);
    assert!(dpi.feed_one(&tcp(80, 1000, first)).is_ok());
    assert!(dpi.feed_one(&tcp(80, 1003, second)).is_ok());
    assert_eq!(dpi.feed_one(&tcp(80, 1023, third)), Err("application"));
    assert_eq!(dpi.feed_one(&reply(80, b"HTTP/1.1 200 OK\r\n")), Err("application"));
}

#[test]
fn memory_is_bounded_and_freed() {
    let mut dpi = Harness::new::<Dpi>("inspected = 2\nreassembled = 1\nidle = 1");
    let frames: Vec<_> = (1..=4).map(|port| tcp(port, 0, b"GE")).collect();
    dpi.feed(&frames);
    dpi.advance(Duration::from_millis(5));
    assert_eq!(["inspected", "not_inspected"].map(|name| dpi.counter(name)), [2, 2]);
    assert!(dpi.counter("not_reassembled") >= 1);
    dpi.advance(Duration::from_secs(4));
    assert_eq!(["inspected", "unknown", "flows"].map(|name| dpi.counter(name)), [0, 4, 0]);
    dpi.feed(&frames[..2]);
    dpi.advance(Duration::from_millis(5));
    assert_eq!(["inspected", "not_inspected"].map(|name| dpi.counter(name)), [2, 2]);
}

#[test]
fn settings_are_checked() {
    let key = |settings: &str| Harness::try_new::<Dpi>(settings).unwrap_err().key;
    assert_eq!(key("drop = [\"bitorrent\"]"), Some("drop"));
    assert_eq!(key("mark = { nothing = \"ef\" }"), Some("mark"));
    assert_eq!(key("hosts = { video = [\"a/b\"] }"), Some("hosts"));
    assert_eq!(key("hosts = { tls = [\"example.com\"] }"), Some("hosts"));
    assert_eq!(key("packets_max = 0"), Some("packets_max"));
    assert_eq!(key("idle = 0"), Some("idle"));
    assert_eq!(key("flows = 0"), Some("flows"));
    assert!(Harness::try_new::<Dpi>("mark = { sip = \"af99\" }").is_err());
    assert!(Harness::try_new::<Dpi>("mark = { sip = 64 }").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn survives_arbitrary_frames(frames in packets::mixed(100)) {
        let mut dpi = Harness::new::<Dpi>("flows = 16\ninspected = 4\nreassembled = 2\nhosts = { all = [\"*.com\"] }\nmark = { unknown = \"ef\" }");
        dpi.feed(&frames);
        dpi.advance(Duration::from_millis(5));
    }
}
