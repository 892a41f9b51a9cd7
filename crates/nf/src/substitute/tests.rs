use super::Substitute;
use std::time::Duration;
use testkit::proptest::prelude::*;
use testkit::{Bench, Setup, packets};
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

/// What a frame says: sequence number, acknowledgment, payload.
fn said(frame: &[u8]) -> (u32, u32, Vec<u8>) {
    let frame = ethernet::Frame::new(frame).unwrap();
    let ip = ipv4::Packet::new(frame.payload()).unwrap();
    let tcp = Segment::new(ip.payload()).unwrap();
    assert!(ip.checksum_ok() && tcp.checksum_ok(ip.pseudo()));
    (tcp.header().seq(), tcp.header().ack(), tcp.payload().to_vec())
}

/// A connection that has been begun: both ends are at 1001 and 2001.
fn begun(settings: &str) -> Bench {
    let mut nf = Setup::of::<Substitute>(settings).paths(2).build().unwrap();
    let list = [TcpOption::Mss(1460), TcpOption::SackPermitted, TcpOption::WindowScale(7)];
    let syn = from_a().flags(TcpFlags::SYN).seq(1000).tcp_options(options(&list).unwrap());
    let out = nf.one(&syn.to_vec()).unwrap();
    let kept: Vec<_> = Segment::new(&out[34..]).unwrap().options().map(Result::unwrap).collect();
    // windows of 128 KiB at most are told
    assert_eq!(kept, [TcpOption::Mss(1460), TcpOption::WindowScale(2)]);
    let answer = from_b().flags(TcpFlags::SYN_ACK).seq(2000).ack(1001).tcp_options(options(&list[..1]).unwrap());
    nf.feed_by(1, &[answer.to_vec()]);
    nf.feed_by(0, &[from_a().seq(1001).ack(2001).to_vec()]);
    nf
}

#[test]
fn words_are_replaced_and_numbers_follow() {
    let mut nf = begun(RULES);
    let out = nf.feed(&[from_a().seq(1001).ack(2001).payload(b"a cat and a ca").flags(TcpFlags(0x18)).to_vec()]);
    assert_eq!(out.iter().map(|f| said(f)).collect::<Vec<_>>(), [(1001, 2001, b"a horse and a ".to_vec())]);
    let out = nf.feed(&[from_a().seq(1015).ack(2001).payload(b"t\0!").flags(TcpFlags(0x18)).to_vec()]);
    assert_eq!(out.iter().map(|f| said(f)).collect::<Vec<_>>(), [(1015, 2001, b"horse!".to_vec())]);
    // the receiver has the first, and then all
    let out = nf.feed_by(1, &[from_b().seq(2001).ack(1015).to_vec()]);
    assert_eq!(said(&out[1][0]), (2001, 1013, vec![]));
    let out = nf.feed_by(1, &[from_b().seq(2001).ack(1021).payload(b"well, cat").to_vec()]);
    assert_eq!(said(&out[1][0]), (2001, 1018, b"well, horse".to_vec()));
    nf.wake(Duration::from_millis(4));
    assert_eq!((nf.counter("replaced"), nf.counter("input_bytes"), nf.counter("output_bytes")), (4, 26, 31));
}

#[test]
fn what_waits_for_more_goes_in_the_end() {
    let mut nf = begun(&format!("{RULES}\ntcp.timeout = 500"));
    assert!(nf.feed(&[from_a().seq(1001).ack(2001).payload(b"ca").to_vec()]).is_empty());
    assert_eq!(nf.dropped("taken"), 1);
    // first the sender hears that it has arrived, then it goes
    let out = nf.advance(Duration::from_millis(490));
    assert_eq!((out[0].len(), out[1].iter().map(|f| said(f)).collect::<Vec<_>>()), (0, vec![(2001, 1003, vec![])]));
    let out = nf.advance(Duration::from_millis(20));
    assert_eq!(out[0].iter().map(|f| said(f)).collect::<Vec<_>>(), [(1001, 2001, b"ca".to_vec())]);
    // it is repeated from here, as the sender will not
    assert_eq!(nf.advance(Duration::from_millis(300))[0].len(), 1);
    nf.feed_by(1, &[from_b().seq(2001).ack(1003).to_vec()]);
    assert!(nf.advance(Duration::from_millis(3000)).iter().all(Vec::is_empty));
}

#[test]
fn one_direction_other_ports_and_old_connections_pass() {
    let mut nf = begun(&format!("{RULES}\ndirection = \"to_client\""));
    let out = nf.feed(&[from_a().seq(1001).ack(2001).payload(b"cat").flags(TcpFlags(0x18)).to_vec()]);
    assert_eq!(said(&out[0]).2, b"cat");
    let out = nf.feed_by(1, &[from_b().seq(2001).ack(1004).payload(b"cat").flags(TcpFlags(0x18)).to_vec()]);
    assert_eq!(said(&out[1][0]).2, b"horse");

    let mut nf = Bench::of::<Substitute>(RULES);
    let frames: Vec<_> = [
        build::tcp4(A, B, 1, 2).payload(b"cat").to_vec(),
        build::udp4(A, B, 1, 80).payload(b"cat").to_vec(),
        from_a().seq(5).ack(6).payload(b"cat").to_vec(),
    ]
    .into();
    assert_eq!(nf.feed(&frames), frames);
    nf.wake(Duration::from_millis(4));
    assert_eq!((nf.counter("midstream"), nf.counter("replaced")), (1, 0));
}

#[test]
fn what_is_no_pattern_is_refused() {
    for wrong in [r#"rules = [{ find = '\n', replace = "" }]"#, r#"rules = [{ find = "", replace = "" }]"#] {
        assert!(Bench::try_of::<Substitute>(wrong).is_err(), "{wrong}");
    }
    let fault = Bench::try_of::<Substitute>("rules = [{ find = 'a', replace = 'bb' }]\ntcp.buffer = 8192").unwrap_err();
    assert_eq!(fault.key, Some("buffer"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_comes_is_accounted_for_and_nothing_is_kept(
        frames in packets::mixed(300),
        small: bool,
    ) {
        let tight = if small { "tcp.flows = 4\ntcp.half_open = 1\ntcp.idle = 2" } else { "tcp.half_open = 1\ntcp.idle = 2" };
        let mut nf = Setup::of::<Substitute>(&format!("rules = [{{ find = 'a', replace = 'bcd' }}]\n{tight}")).paths(2).build().unwrap();
        for (n, part) in frames.chunks(20).enumerate() {
            nf.feed_by(n % 2, part);
            nf.advance(Duration::from_millis(3));
        }
        nf.advance(Duration::from_secs(15));
        for gauge in ["connections", "flows", "memory_bytes", "waiting"] {
            prop_assert_eq!(nf.counter(gauge), 0, "{}", gauge);
        }
    }
}
