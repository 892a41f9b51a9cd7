//! Runs a capture through the NF and compares the result with another capture. Add captures of real
//! traffic and the expected results beside `in.pcap`, and test them in the same way.

use std::path::Path;
use testkit::wire::{build, ethernet, ipv4};
use testkit::{Harness, capture};

use my_nf::MyNf;

/// The capture that chain.toml reads.
const IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/in.pcap");

#[test]
fn forwards_five_packets_of_each_source() {
    let mut nf = Harness::new::<MyNf>("packets = 5");
    let sent = capture::read(IN).unwrap();
    let got = nf.feed(&sent);

    // the expected frames, determined in another way
    let mut sources = vec![];
    let mut expected = sent.clone();
    expected.retain(|frame| {
        let frame = ethernet::Frame::new(frame).unwrap();
        match ipv4::Packet::new(frame.payload()) {
            Ok(packet) => {
                let source = packet.header().src();
                sources.push(source);
                sources.iter().filter(|other| **other == source).count() <= 5
            }
            Err(_) => frame.header().ether_type().0 != 0x0800,
        }
    });
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("expected.pcap");
    capture::write(&path, &expected).unwrap();
    capture::assert_matches(&path, &got);
    assert_eq!(nf.dropped("too_many_packets"), 15);
    assert_eq!(nf.dropped("malformed"), 1);
}

#[test]
fn forwards_frames_unchanged() {
    let mut nf = Harness::new::<MyNf>("");
    let frame = build::tcp4([10, 0, 0, 1], [10, 1, 0, 1], 1000, 80);
    let frames = [
        frame.clone().payload(b"GET /").to_vec(),
        frame.pad_to(60).to_vec(),
    ];
    let difference = capture::compare(&frames, &nf.feed(&frames));
    assert_eq!(difference, Ok(()));
}
