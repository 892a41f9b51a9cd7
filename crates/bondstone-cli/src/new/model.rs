//! Property tests: the NF compared with a simple model, and random packets.

use std::time::Duration;
use testkit::proptest::prelude::*;
use testkit::wire::build;
use testkit::{Harness, packets};

use my_nf::MyNf;

/// A step of a test.
#[derive(Clone, Debug)]
enum Event {
    /// A packet from this host.
    Packet(u8),
    /// A frame that is not IPv4.
    Other,
    /// The end of the interval.
    IntervalEnd,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        // few hosts, so that they send several packets
        8 => (0..5u8).prop_map(Event::Packet),
        1 => Just(Event::Other),
        1 => Just(Event::IntervalEnd),
    ]
}

/// The model: the source of each packet forwarded in this interval.
#[derive(Default)]
struct Model(Vec<u8>);

impl Model {
    fn check(&mut self, host: u8, packets: usize, sources: usize) -> Result<(), &'static str> {
        let mut hosts = self.0.clone();
        hosts.sort();
        hosts.dedup();
        if !hosts.contains(&host) && hosts.len() >= sources {
            return Err("too_many_sources");
        }
        if self.0.iter().filter(|source| **source == host).count() >= packets {
            return Err("too_many_packets");
        }
        self.0.push(host);
        Ok(())
    }
}

proptest! {
    #[test]
    fn matches_the_model(
        events in prop::collection::vec(event(), 0..200),
        packets in 1..4usize,
        sources in 0..4usize,
    ) {
        let settings = format!("interval = 10\npackets = {packets}\nsources = {sources}");
        let (mut nf, mut model) = (Harness::new::<MyNf>(&settings), Model::default());
        for event in events {
            match event {
                Event::Packet(host) => {
                    let frame = build::udp4([10, 0, 0, host], [10, 1, 0, 1], 1, 2).to_vec();
                    let expected = model.check(host, packets, sources).map(|()| frame.clone());
                    prop_assert_eq!(nf.feed_one(&frame), expected);
                }
                Event::Other => {
                    let frame = build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec();
                    prop_assert_eq!(nf.feed_one(&frame), Ok(frame));
                }
                Event::IntervalEnd => {
                    nf.advance(Duration::from_millis(10));
                    model.0.clear();
                }
            }
        }
    }

    /// The harness checks after every call that no packet is lost.
    #[test]
    fn survives_random_packets(frames in packets::mixed(100)) {
        Harness::new::<MyNf>("packets = 2\nsources = 20").feed(&frames);
    }
}
