use super::Substitute;
use std::time::Duration;
use testkit::proptest::prelude::*;
use testkit::{Harness, HarnessBuilder, packets};
use wire::tcp::{Segment, TcpOption, options};
use wire::{TcpFlags, build, ethernet, ipv4};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const RULES: &str =
    "ports = [80]\nrules = [{ find = \"cat\", replace = \"horse\" }, { find = '\\x00', replace = \"\" }]";

fn from_a() -> build::Frame<ipv4::Repr, wire::tcp::Repr> {
    build::tcp4(A, B, 40_000, 80).flags(TcpFlags::ACK).window(60_000)
}

fn from_b() -> build::Frame<ipv4::Repr, wire::tcp::Repr> {
    build::tcp4(B, A, 80, 40_000).flags(TcpFlags::ACK).window(60_000)
}

/// Returns sequence number, acknowledgment number and payload of a frame.
fn tcp_fields(frame: &[u8]) -> (u32, u32, Vec<u8>) {
    let frame = ethernet::Frame::new(frame).unwrap();
    let ip = ipv4::Packet::new(frame.payload()).unwrap();
    let tcp = Segment::new(ip.payload()).unwrap();
    assert!(ip.checksum_ok() && tcp.checksum_ok(ip.pseudo()));
    (tcp.header().seq(), tcp.header().ack(), tcp.payload().to_vec())
}

/// Returns a node with an open connection; the next sequence numbers are 1001 and 2001.
fn with_connection(settings: &str) -> Harness {
    let mut nf = HarnessBuilder::new::<Substitute>(settings).paths(2).build().unwrap();
    let list = [TcpOption::Mss(1460), TcpOption::SackPermitted, TcpOption::WindowScale(7)];
    let syn = from_a().flags(TcpFlags::SYN).seq(1000).tcp_options(options(&list).unwrap());
    let out = nf.feed_one(&syn.to_vec()).unwrap();
    let kept: Vec<_> = Segment::new(&out[34..]).unwrap().options().map(Result::unwrap).collect();
    // windows of at most 128 KiB are advertised
    assert_eq!(kept, [TcpOption::Mss(1460), TcpOption::WindowScale(2)]);
    let answer = from_b().flags(TcpFlags::SYN_ACK).seq(2000).ack(1001).tcp_options(options(&list[..1]).unwrap());
    nf.feed_input(1, &[answer.to_vec()]);
    nf.feed_input(0, &[from_a().seq(1001).ack(2001).to_vec()]);
    nf
}

#[test]
fn replaces_bytes_and_adjusts_sequence_numbers() {
    let mut nf = with_connection(RULES);
    let out = nf.feed(&[from_a().seq(1001).ack(2001).payload(b"a cat and a ca").flags(TcpFlags(0x18)).to_vec()]);
    assert_eq!(out.iter().map(|f| tcp_fields(f)).collect::<Vec<_>>(), [(1001, 2001, b"a horse and a ".to_vec())]);
    let out = nf.feed(&[from_a().seq(1015).ack(2001).payload(b"t\0!").flags(TcpFlags(0x18)).to_vec()]);
    assert_eq!(out.iter().map(|f| tcp_fields(f)).collect::<Vec<_>>(), [(1015, 2001, b"horse!".to_vec())]);
    // the receiver acknowledges the first segment, then all
    let out = nf.feed_input(1, &[from_b().seq(2001).ack(1015).to_vec()]);
    assert_eq!(tcp_fields(&out[1][0]), (2001, 1013, vec![]));
    let out = nf.feed_input(1, &[from_b().seq(2001).ack(1021).payload(b"well, cat").to_vec()]);
    assert_eq!(tcp_fields(&out[1][0]), (2001, 1018, b"well, horse".to_vec()));
    nf.jump_to(Duration::from_millis(4));
    assert_eq!((nf.counter("replaced"), nf.counter("input_bytes"), nf.counter("output_bytes")), (4, 26, 31));
}

#[test]
fn withheld_bytes_are_sent_after_the_timeout() {
    let mut nf = with_connection(&format!("{RULES}\ntcp.timeout = 500"));
    assert!(nf.feed(&[from_a().seq(1001).ack(2001).payload(b"ca").to_vec()]).is_empty());
    assert_eq!(nf.dropped("taken"), 1);
    // first the data is acknowledged, then it is sent
    let out = nf.advance(Duration::from_millis(490));
    assert_eq!(
        (out[0].len(), out[1].iter().map(|f| tcp_fields(f)).collect::<Vec<_>>()),
        (0, vec![(2001, 1003, vec![])])
    );
    let out = nf.advance(Duration::from_millis(20));
    assert_eq!(out[0].iter().map(|f| tcp_fields(f)).collect::<Vec<_>>(), [(1001, 2001, b"ca".to_vec())]);
    // the node retransmits it, because the sender does not
    assert_eq!(nf.advance(Duration::from_millis(300))[0].len(), 1);
    nf.feed_input(1, &[from_b().seq(2001).ack(1003).to_vec()]);
    assert!(nf.advance(Duration::from_millis(3000)).iter().all(Vec::is_empty));
}

#[test]
fn passes_other_directions_other_ports_and_existing_connections() {
    let mut nf = with_connection(&format!("{RULES}\ndirection = \"to_client\""));
    let out = nf.feed(&[from_a().seq(1001).ack(2001).payload(b"cat").flags(TcpFlags(0x18)).to_vec()]);
    assert_eq!(tcp_fields(&out[0]).2, b"cat");
    let out = nf.feed_input(1, &[from_b().seq(2001).ack(1004).payload(b"cat").flags(TcpFlags(0x18)).to_vec()]);
    assert_eq!(tcp_fields(&out[1][0]).2, b"horse");

    let mut nf = Harness::new::<Substitute>(RULES);
    let frames: Vec<_> = [
        build::tcp4(A, B, 1, 2).payload(b"cat").to_vec(),
        build::udp4(A, B, 1, 80).payload(b"cat").to_vec(),
        from_a().seq(5).ack(6).payload(b"cat").to_vec(),
    ]
    .into();
    assert_eq!(nf.feed(&frames), frames);
    nf.jump_to(Duration::from_millis(4));
    assert_eq!((nf.counter("midstream"), nf.counter("replaced")), (1, 0));
}

#[test]
fn rejects_invalid_settings() {
    for wrong in [r#"rules = [{ find = '\n', replace = "" }]"#, r#"rules = [{ find = "", replace = "" }]"#] {
        assert!(Harness::try_new::<Substitute>(wrong).is_err(), "{wrong}");
    }
    let error =
        Harness::try_new::<Substitute>("rules = [{ find = 'a', replace = 'bb' }]\ntcp.buffer = 8192").unwrap_err();
    assert_eq!(error.key, Some("buffer"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn arbitrary_frames_are_accounted_for_and_all_state_is_released(
        frames in packets::mixed(300),
        small: bool,
    ) {
        let tight = if small { "tcp.flows = 4\ntcp.half_open = 1\ntcp.idle = 2" } else { "tcp.half_open = 1\ntcp.idle = 2" };
        let mut nf = HarnessBuilder::new::<Substitute>(&format!("rules = [{{ find = 'a', replace = 'bcd' }}]\n{tight}")).paths(2).build().unwrap();
        for (n, part) in frames.chunks(20).enumerate() {
            nf.feed_input(n % 2, part);
            nf.advance(Duration::from_millis(3));
        }
        nf.advance(Duration::from_secs(15));
        for gauge in ["connections", "flows", "memory_bytes", "waiting"] {
            prop_assert_eq!(nf.counter(gauge), 0, "{}", gauge);
        }
    }
}
