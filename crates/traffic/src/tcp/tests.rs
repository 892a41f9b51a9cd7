use super::*;
use crate::Delays;
use crate::address::AddressRange;
use crate::random::Random;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use wire::build;

const MS: u64 = 1_000_000;

/// Frames that were sent.
#[derive(Default)]
struct Sent {
    frames: VecDeque<Vec<u8>>,
    /// No buffer for the next ones.
    exhausted: usize,
}

impl Transmit for Sent {
    fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.exhausted != 0 {
            self.exhausted -= 1;
            return None;
        }
        self.frames.push_back(vec![0xee; len]);
        self.frames.back_mut().map(Vec::as_mut_slice)
    }
}

fn settings(v6: bool) -> ClientSettings {
    let range = |v4: &str, v6_range: &str| -> AddressRange { if v6 { v6_range } else { v4 }.parse().unwrap() };
    ClientSettings {
        src: range("198.18.0.1-198.18.0.3", "2001:2::1-2001:2::3"),
        src_ports: 1000..=1099,
        pairs: MAX_CONNECTIONS,
        dst: Arc::from([range("198.19.0.1-198.19.0.2", "2001:2:0:1::1-2001:2:0:1::2")]),
        dst_port: 80,
        macs: (build::SRC_MAC, build::DST_MAC),
        request: Arc::from(&b"GET / HTTP/1.1\r\n\r\n"[..]),
        response: Some(5000),
        transactions: 2,
        hold_ns: 0,
        timeout_ns: 20 * MS,
        retries: 12,
        seed: 7,
    }
}

fn response(len: u32) -> ServerSettings {
    ServerSettings { response: (0..len).map(|byte| byte as u8).collect(), seed: 3 }
}

/// A client, a server, and what is between them.
struct Network {
    client: Client,
    server: Server,
    to_server: Sent,
    to_client: Sent,
    now: u64,
    random: Random,
}

impl Network {
    fn new(settings: ClientSettings, seed: u64) -> Self {
        let len = settings.response.unwrap_or(100);
        let (to_server, to_client) = Default::default();
        let (client, server) = (Client::new(settings, 0), Server::new(response(len)));
        Self { client, server, to_server, to_client, now: 0, random: Random::new(seed) }
    }

    /// Delivers all frames for a millisecond; of 1000 frames so many are lost, doubled, damaged and exchanged with the
    /// next.
    fn run(&mut self, faults: [u64; 4]) {
        let [lost, doubled, damaged, swapped] = faults;
        loop {
            let is = |random: &mut Random, of_1000: u64| random.below(1000) < of_1000;
            let from_client = self.random.below(2) == 0;
            let queue = if from_client { &mut self.to_server.frames } else { &mut self.to_client.frames };
            if queue.len() > 1 && is(&mut self.random, swapped) {
                queue.swap(0, 1);
            }
            let Some(mut frame) = queue.pop_front() else {
                if self.to_server.frames.is_empty() && self.to_client.frames.is_empty() {
                    break;
                }
                continue;
            };
            if is(&mut self.random, lost) {
                continue;
            }
            if is(&mut self.random, damaged) {
                let at = 14 + self.random.below(frame.len() as u64 - 14) as usize;
                frame[at] ^= 0x10;
            }
            for _ in 0..1 + usize::from(is(&mut self.random, doubled)) {
                let Ok(segment) = Segment::parse(&frame) else { continue };
                match from_client {
                    true => self.server.receive(&segment, &mut self.to_client),
                    false => self.client.receive(&segment, self.now, &mut self.to_server),
                }
            }
            let counts = self.client.counts();
            assert_eq!(counts.opened, counts.completed + counts.failed.sum() + counts.open());
        }
        self.now += MS;
        self.client.poll(self.now, &mut self.to_server);
    }
}

#[test]
fn connections_complete_without_loss() {
    for v6 in [false, true] {
        for (transactions, hold_ns, response) in
            [(1, 0, 100), (2, 0, 5000), (3, 5 * MS, 64_000), (0, 0, 1), (0, 9 * MS, 1)]
        {
            let settings = ClientSettings { transactions, hold_ns, response: Some(response), ..settings(v6) };
            let mut network = Network::new(settings, 1);
            for _ in 0..1000 {
                let opened = network.client.open(network.now, &mut network.to_server);
                assert!(opened);
                network.run([0; 4]);
            }
            for _ in 0..30 {
                network.run([0; 4]);
            }
            let counts = network.client.counts();
            let all = (counts.opened, counts.established, counts.completed, counts.transactions);
            assert_eq!(all, (1000, 1000, 1000, 1000 * u64::from(transactions)));
            let frames =
                TcpSettings { response, transactions, hold: Duration::from_nanos(hold_ns), ..Default::default() };
            assert_eq!(counts.segments.0, 1000 * u64::from(frames.client_frames()));
            let bytes = u64::from(transactions * response) * 1000;
            assert_eq!(
                (counts.bytes.1, counts.failed, counts.repeated, counts.unexpected),
                (bytes, Failures::default(), 0, 0)
            );
            let server = network.server.counts();
            assert_eq!((server.syns, server.requests, server.fins), (1000, 1000 * u64::from(transactions), 1000));
            assert_eq!(network.client.delays().map(Delays::count), [1000, counts.transactions, counts.transactions]);
            let most = network.client.most_open();
            assert!(if hold_ns == 0 { most == 1 } else { (2..20).contains(&most) }, "{most}");
        }
    }
}

#[test]
fn failures_have_a_cause() {
    // nothing answers
    let mut network = Network::new(ClientSettings { retries: 2, ..settings(false) }, 1);
    network.client.open(0, &mut network.to_server);
    for _ in 0..300 {
        network.to_server.frames.clear();
        network.run([0; 4]);
    }
    let counts = network.client.counts();
    assert_eq!((counts.failed.no_syn_ack, counts.repeated, counts.open()), (1, 2, 0));
    // no more responses
    network.client.open(network.now, &mut network.to_server);
    let syn = network.to_server.frames.pop_front().unwrap();
    network.server.receive(&Segment::parse(&syn).unwrap(), &mut network.to_client);
    let syn_ack = network.to_client.frames.pop_front().unwrap();
    network.client.receive(&Segment::parse(&syn_ack).unwrap(), network.now, &mut network.to_server);
    for _ in 0..300 {
        network.to_server.frames.clear();
        network.run([0; 4]);
    }
    let counts = network.client.counts();
    assert_eq!((counts.failed.no_response, counts.established, counts.open()), (1, 1, 0));
}

#[test]
fn addresses_and_ports_run_out() {
    let mut network = Network::new(settings(false), 1);
    let opened = (0..400).filter(|_| network.client.open(0, &mut network.to_server)).count();
    assert_eq!((opened, network.client.most_open()), (300, 300));
    for _ in 0..10 {
        network.run([0; 4]);
    }
    assert_eq!(network.client.counts().completed, 300);
    assert!(network.client.open(network.now, &mut network.to_server));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn connections_survive_a_bad_network(
        seed: u64, faults in [0_u64..150, 0_u64..150, 0_u64..60, 0_u64..200], v6: bool, exhausted in 0_usize..50,
    ) {
        let mut network = Network::new(settings(v6), seed);
        network.to_server.exhausted = exhausted;
        for _ in 0..200 {
            network.client.open(network.now, &mut network.to_server);
            network.run(faults);
        }
        // the longest timeout is 20 ms · 2^12
        for _ in 0..200_000 {
            if network.client.counts().open() == 0 {
                break;
            }
            network.run(faults);
        }
        let counts = network.client.counts();
        prop_assert_eq!((counts.opened, counts.open()), (200, 0), "{:?}", counts);
        prop_assert_eq!(counts.completed, 200, "{:?}", counts);
        prop_assert_eq!(counts.transactions, 400);
        prop_assert_eq!(counts.bytes.1, 400 * 5000);
    }

    #[test]
    fn no_frame_panics(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..50), cut in 0_usize..120) {
        let mut network = Network::new(settings(false), 1);
        network.client.open(0, &mut network.to_server);
        let syn = network.to_server.frames[0].clone();
        for bytes in frames {
            let mut frame = syn.clone();
            for (at, byte) in bytes.iter().enumerate().filter(|(at, _)| at % 3 == 0) {
                if let Some(old) = frame.get_mut(at) {
                    *old = *byte;
                }
            }
            frame.truncate(cut);
            for segment in [&bytes, &frame].into_iter().filter_map(|frame| Segment::parse(frame).ok()) {
                network.server.receive(&segment, &mut network.to_client);
                network.client.receive(&segment, 5, &mut network.to_server);
            }
        }
    }
}
