//! The NF against a slow and obvious model of it, and against whatever comes.

use testkit::proptest::prelude::*;
use testkit::wire::build;
use testkit::{Bench, packets};
use std::time::Duration;

use my_nf::MyNf;

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    /// A packet of this host.
    Packet(u8),
    /// A frame that is not IPv4.
    Other,
    /// The interval is over.
    Over,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        // few hosts, so that they come again
        8 => (0..5u8).prop_map(Event::Packet),
        1 => Just(Event::Other),
        1 => Just(Event::Over),
    ]
}

/// The model: all hosts that were let through in this interval, in a list.
#[derive(Default)]
struct Model(Vec<u8>);

impl Model {
    fn judge(&mut self, host: u8, packets: usize, sources: usize) -> Result<(), &'static str> {
        let mut hosts = self.0.clone();
        hosts.sort();
        hosts.dedup();
        if !hosts.contains(&host) && hosts.len() >= sources {
            return Err("too_many_sources");
        }
        if self.0.iter().filter(|known| **known == host).count() >= packets {
            return Err("too_many_packets");
        }
        self.0.push(host);
        Ok(())
    }
}

proptest! {
    #[test]
    fn decides_as_the_model(
        events in prop::collection::vec(event(), 0..200),
        packets in 1..4usize,
        sources in 0..4usize,
    ) {
        let settings = format!("interval = 10\npackets = {packets}\nsources = {sources}");
        let (mut nf, mut model) = (Bench::of::<MyNf>(&settings), Model::default());
        for event in events {
            match event {
                Event::Packet(host) => {
                    let frame = build::udp4([10, 0, 0, host], [10, 1, 0, 1], 1, 2).to_vec();
                    let expected = model.judge(host, packets, sources).map(|()| frame.clone());
                    prop_assert_eq!(nf.one(&frame), expected);
                }
                Event::Other => {
                    let frame = build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec();
                    prop_assert_eq!(nf.one(&frame), Ok(frame));
                }
                Event::Over => {
                    nf.advance(Duration::from_millis(10));
                    model.0.clear();
                }
            }
        }
    }

    /// No panic, and no packet lost: the bench sees to that after every call.
    #[test]
    fn survives_whatever_comes(frames in packets::mixed(100)) {
        Bench::of::<MyNf>("packets = 2\nsources = 20").feed(&frames);
    }
}
