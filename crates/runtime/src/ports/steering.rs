//! Software steering: distributes flows over cores where a device cannot.

use super::core_ring::{RING_SIZE, occupancy, pop_burst, push_burst};
use super::io::{PortDrop, Receive, RxPort, SourceKind};
use crate::occupancy::Occupancy;
use config::{ChainFile, Shuffle, Spreading};
use core::net::{Ipv4Addr, Ipv6Addr};
use graph::{ShuffleTo, Spread, SteerFn};
use packet::{Batch, Packet};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::flow::{self, FiveTuple};
use wire::{EtherType, IpProtocol, icmpv4, icmpv6, ipv4, ipv6};

/// The key by which packets are assigned to cores.
#[derive(Clone)]
pub(crate) enum SteeringKey {
    /// Both directions of a flow go to one core.
    Flow,
    /// All packets between two hosts go to one core.
    Hosts,
    /// A function of an NF chooses the core of a packet that enters by the input with this number.
    Custom(SteerFn, u8),
    /// The NF in front has chosen the core of each packet ([`ShuffleTo`]).
    Metadata,
}

impl SteeringKey {
    /// Returns the key that meets the requirements on the packets of a chain over `cores` cores.
    pub(crate) fn of(file: &ChainFile, spreading: Spreading, cores: usize) -> SteeringKey {
        match (file.steering(spreading, cores), spreading.requirement) {
            (Some((steer, input)), _) => SteeringKey::Custom(steer, input),
            (None, Spread::Hosts) => SteeringKey::Hosts,
            (None, _) => SteeringKey::Flow,
        }
    }

    /// Returns the index of the core for a packet, below `cores`; 0 if the packet has no addresses.
    #[inline(always)]
    pub(crate) fn core_of(&self, packet: &Packet, cores: usize) -> usize {
        let frame = packet.data();
        let hash = match self {
            SteeringKey::Flow => flow::symmetric_hash(frame),
            SteeringKey::Hosts => FiveTuple::of_frame(frame).map_or(0, |t| host_pair(frame, t).symmetric_hash()),
            SteeringKey::Custom(steer, input) => return steer(*input, frame).min(cores - 1),
            SteeringKey::Metadata => {
                return packet.meta().metadata::<ShuffleTo>().map_or(0, |to| to.0 as usize % cores);
            }
        };
        flow::share(hash, cores as u32) as usize
    }
}

impl From<Shuffle> for SteeringKey {
    fn from(by: Shuffle) -> SteeringKey {
        match by {
            Shuffle::Flow => SteeringKey::Flow,
            Shuffle::Metadata => SteeringKey::Metadata,
        }
    }
}

/// Returns the two hosts of a packet; those of the quoted packet for an ICMP error.
fn host_pair(frame: &[u8], t: FiveTuple) -> FiveTuple {
    let quoted = match t.protocol {
        IpProtocol::ICMPV4 | IpProtocol::ICMPV6 => quoted_packet(frame),
        _ => None,
    };
    let FiveTuple { src, dst, .. } = quoted.unwrap_or(t);
    FiveTuple { src, dst, src_port: 0, dst_port: 0, protocol: IpProtocol(0) }
}

/// Returns the addresses of the packet that an ICMP error quotes.
fn quoted_packet(frame: &[u8]) -> Option<FiveTuple> {
    let (mut ether_type, mut payload) =
        (EtherType(u16::from_be_bytes(*frame.get(12..14)?.first_chunk()?)), frame.get(14..)?);
    while ether_type.is_vlan() {
        ether_type = EtherType(u16::from_be_bytes(*payload.get(2..4)?.first_chunk()?));
        payload = payload.get(4..)?;
    }
    match ether_type {
        EtherType::IPV4 => {
            let packet = ipv4::Packet::new(payload).ok()?;
            let message = icmpv4::Message::new(packet.payload()).ok()?;
            let h: &[u8; 20] = message.payload().first_chunk().filter(|_| message.header().is_error())?;
            let address = |at: usize| Ipv4Addr::new(h[at], h[at + 1], h[at + 2], h[at + 3]);
            (h[0] >> 4 == 4).then(|| FiveTuple::v4(address(12), address(16), 0, 0, IpProtocol(0)))
        }
        EtherType::IPV6 => {
            let packet = ipv6::Packet::new(payload).ok()?;
            let message = icmpv6::Message::new(packet.payload()).ok()?;
            let h: &[u8; 40] = message.payload().first_chunk().filter(|_| message.header().is_error())?;
            let address = |at: usize| Ipv6Addr::from(*h[at..].first_chunk::<16>().expect("40 bytes"));
            (h[0] >> 4 == 6).then(|| FiveTuple::v6(address(8), address(24), 0, 0, IpProtocol(0)))
        }
        _ => None,
    }
}

/// A source that polls a port, keeps the packets of its own core, and passes the others to their cores, which count
/// them as received.
pub(crate) struct SteeringSource {
    rx: RxPort,
    key: SteeringKey,
    others: Vec<Producer<Packet>>,
    /// Packets of a batch for each of the others.
    waiting: Vec<Batch>,
    dropped_full: u64,
    /// True if the source can wait for a core whose ring is full.
    backpressure: bool,
    /// True if the last call received packets, which may all have gone to other cores.
    forwarded: bool,
    stop: Arc<AtomicBool>,
}

/// The receiving end of a ring from the core that polls the port.
pub(crate) struct SteeredQueue(Consumer<Packet>);

/// Splits a source over `cores` cores; returns the sources of the core that polls, and of the others. `dropped_full` is
/// the number of packets of the port that were dropped as `steering_full` so far.
pub(crate) fn steer(
    rx: RxPort,
    key: SteeringKey,
    cores: usize,
    (backpressure, dropped_full): (bool, u64),
    stop: Arc<AtomicBool>,
) -> (SteeringSource, Vec<SteeredQueue>) {
    let (others, ends) = (1..cores).map(|_| RingBuffer::new(RING_SIZE)).map(|(p, c)| (p, SteeredQueue(c))).unzip();
    let waiting = (1..cores).map(|_| Batch::new()).collect();
    (SteeringSource { rx, key, others, waiting, dropped_full, backpressure, forwarded: false, stop }, ends)
}

impl Receive for SteeringSource {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        let before = batch.len();
        self.forwarded = self.rx.receive(batch) != 0;
        let (key, cores, waiting) = (&self.key, self.others.len() + 1, &mut self.waiting);
        batch.extract_if(
            |packet| key.core_of(packet, cores).checked_sub(1),
            |other, packet| waiting[other].push(packet).expect("at most a batch"),
        );
        for (ring, packets) in self.others.iter_mut().zip(waiting) {
            push_burst(ring, packets, None);
            while !packets.is_empty() && self.backpressure && !self.stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
                push_burst(ring, packets, None);
            }
            self.dropped_full += packets.len() as u64;
            packets.clear();
        }
        batch.len().saturating_sub(before)
    }

    fn bytes(&self) -> u64 {
        self.rx.bytes()
    }

    fn discard(&mut self) {
        self.rx.discard();
    }

    fn for_each_drop(&self, each: &mut dyn FnMut(PortDrop, u64)) {
        self.rx.for_each_drop(each);
        each(PortDrop::SteeringFull, self.dropped_full);
    }

    fn queue(&self) -> Option<Occupancy> {
        self.rx.queue()
    }

    fn kind(&self) -> SourceKind {
        SourceKind::Spreading
    }

    fn into_inner(self: Box<Self>) -> Option<RxPort> {
        Some(self.rx)
    }

    fn idle(&self) -> bool {
        !self.forwarded && self.rx.idle()
    }

    fn finished(&self) -> bool {
        self.rx.finished()
    }

    fn close(&mut self) {
        // the receivers see their ring abandoned, and finish
        self.others.clear();
        self.rx.close();
    }
}

impl Receive for SteeredQueue {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        pop_burst(&mut self.0, batch)
    }

    fn queue(&self) -> Option<Occupancy> {
        Some(occupancy(&self.0))
    }

    fn kind(&self) -> SourceKind {
        SourceKind::FromCore
    }

    fn finished(&self) -> bool {
        self.0.is_abandoned() && self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{HeapPool, Pool};

    struct Packets(Vec<Packet>);
    impl Receive for Packets {
        fn receive(&mut self, batch: &mut Batch) -> usize {
            let n = self.0.len().min(packet::BURST - batch.len());
            self.0.drain(..n).for_each(|p| batch.push(p).unwrap());
            n
        }
        fn finished(&self) -> bool {
            self.0.is_empty()
        }
    }

    fn core_of(key: &SteeringKey, frame: &[u8], cores: usize) -> usize {
        key.core_of(&HeapPool::new(1).alloc_from(frame).unwrap(), cores)
    }

    fn frames() -> Vec<Vec<u8>> {
        let ip = |n: u8| Ipv4Addr::new(10, 0, n, 1);
        (0..40u8)
            .flat_map(|n| {
                let forward = wire::build::udp4(ip(n), ip(100 + n), 1000, 2000).payload(&[n]).to_vec();
                let reverse = wire::build::udp4(ip(100 + n), ip(n), 2000, 1000).payload(&[n]).to_vec();
                [forward, reverse, vec![n; 20]]
            })
            .collect()
    }

    #[test]
    fn both_directions_of_a_flow_go_to_one_core_and_no_packet_is_lost() {
        let pool = HeapPool::new(1000);
        let source = Packets(frames().iter().map(|f| pool.alloc_from(f).unwrap()).collect());
        let (mut own, mut others) =
            steer(RxPort::Other(Box::new(source)), SteeringKey::Flow, 3, (false, 0), Arc::default());
        let mut received = vec![vec![]; 3];
        let mut batch = Batch::new();
        while !own.finished() {
            own.receive(&mut batch);
            received[0].extend(batch.drain().map(|p| p.data().to_vec()));
            for (n, other) in others.iter_mut().enumerate() {
                other.receive(&mut batch);
                received[n + 1].extend(batch.drain().map(|p| p.data().to_vec()));
            }
        }
        let mut all: Vec<_> = received.concat();
        let mut sent = frames();
        all.sort();
        sent.sort();
        assert_eq!(all, sent);
        for n in 0..40u8 {
            let cores = received.iter().filter(|s| s.iter().any(|f| f.len() > 20 && f.last() == Some(&n)));
            assert_eq!(cores.count(), 1, "flow {n} is on one core");
        }
        assert!(received.iter().all(|s| s.len() > 5), "every core has its share");
        assert!(!others[0].finished());
        own.close();
        assert!(others[0].finished());
    }

    #[test]
    fn packets_to_a_full_ring_are_dropped_and_counted() {
        let pool = HeapPool::new(2 * RING_SIZE);
        let flow = frames().into_iter().find(|f| core_of(&SteeringKey::Flow, f, 2) == 1).unwrap();
        let source = Packets((0..RING_SIZE + 7).map(|_| pool.alloc_from(&flow).unwrap()).collect());
        let (mut own, others) =
            steer(RxPort::Other(Box::new(source)), SteeringKey::Flow, 2, (false, 0), Arc::default());
        let mut batch = Batch::new();
        while !own.finished() {
            assert_eq!(own.receive(&mut batch), 0);
        }
        let mut full = 0;
        own.for_each_drop(&mut |reason, n| full += n * u64::from(reason == PortDrop::SteeringFull));
        assert_eq!((full, pool.in_use()), (7, RING_SIZE));
        let size = RING_SIZE as u64;
        assert_eq!(others[0].queue(), Some(Occupancy { used: size, capacity: size }));
        assert_eq!(own.queue(), None, "unknown, not empty");
    }

    #[test]
    fn fragments_and_icmp_errors_follow_the_packets_of_their_hosts() {
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        for cores in 2..9 {
            let of = |frame: &[u8]| core_of(&SteeringKey::Hosts, frame, cores);
            let whole = wire::build::udp4(a, b, 1000, 2000).to_vec();
            let fragment =
                wire::build::ipv4(b, a, IpProtocol::UDP).fragment(64, false).payload(&[0; 8]).vlan(3).to_vec();
            let error = wire::build::icmp4([10, 9, 9, 9], b, icmpv4::Repr::TimeExceeded { code: 0 });
            let error = error.payload(&wire::build::udp4(b, a, 2000, 1000).to_vec()[14..42]).to_vec();
            let (a6, b6) = (Ipv6Addr::from_bits(6), Ipv6Addr::from_bits(7));
            let whole6 = wire::build::udp6(a6, b6, 1000, 2000).to_vec();
            let error6 = wire::build::icmp6(Ipv6Addr::from_bits(9), a6, icmpv6::Repr::PacketTooBig { mtu: 1280 });
            let error6 = error6.payload(&whole6[14..]).vlan(1).to_vec();
            assert_eq!([of(&fragment), of(&error)], [of(&whole); 2], "{cores} cores");
            assert_eq!(of(&error6), of(&whole6));
        }
    }

    #[test]
    fn a_custom_key_is_bounded_by_the_number_of_cores() {
        let steer: SteerFn = Arc::new(|input, frame| usize::from(input) + frame.len());
        assert_eq!(core_of(&SteeringKey::Custom(steer.clone(), 1), &[0; 3], 9), 4);
        assert_eq!(core_of(&SteeringKey::Custom(steer, 1), &[0; 30], 9), 8, "the last core");
    }
}
