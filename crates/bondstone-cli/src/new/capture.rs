//! A capture through the NF, compared with another frame by frame. Put captures of real traffic
//! beside `in.pcap`, with what has to come out of them, and test them in the same way.

use testkit::wire::{build, ethernet, ipv4};
use testkit::{Bench, capture};
use std::path::Path;

use my_nf::MyNf;

/// The capture that chain.toml reads.
const IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/in.pcap");

#[test]
fn of_the_capture_five_packets_of_each_source_pass() {
    let mut nf = Bench::of::<MyNf>("packets = 5");
    let sent = capture::read(IN).unwrap();
    let got = nf.feed(&sent);

    // what has to come out, told in another way
    let mut seen = vec![];
    let mut expected = sent.clone();
    expected.retain(|frame| {
        let frame = ethernet::Frame::new(frame).unwrap();
        match ipv4::Packet::new(frame.payload()) {
            Ok(packet) => {
                let source = packet.header().src();
                seen.push(source);
                seen.iter().filter(|known| **known == source).count() <= 5
            }
            Err(_) => frame.header().ether_type().0 != 0x0800,
        }
    });
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("expected.pcap");
    capture::write(&path, &expected).unwrap();
    capture::assert_same(&path, &got);
    assert_eq!(nf.dropped("too_many_packets"), 15);
    assert_eq!(nf.dropped("malformed"), 1);
}

#[test]
fn frames_pass_as_they_are() {
    let mut nf = Bench::of::<MyNf>("");
    let frame = build::tcp4([10, 0, 0, 1], [10, 1, 0, 1], 1000, 80);
    let frames = [
        frame.clone().payload(b"GET /").to_vec(),
        frame.pad_to(60).to_vec(),
    ];
    let difference = capture::compare(&frames, &nf.feed(&frames));
    assert_eq!(difference, Ok(()));
}
