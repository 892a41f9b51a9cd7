//! Links between chains: rings that pass packets to the cores of the next chain.

use super::core_ring::{RING_SIZE, occupancy, pop_burst, push_burst};
use super::io::{PortDrop, Receive, SourceKind, Transmit};
use super::steering::SteeringKey;
use crate::occupancy::Occupancy;
use config::Shuffle;
use packet::{BURST, Batch, Packet};
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::VecDeque;

/// The sending end of a link: a ring to each core of the next chain; the key selects the core. Packets for the sending
/// core itself stay local.
pub(crate) struct ShuffleSender {
    /// `None` for the sending core itself.
    rings: Vec<Option<Producer<Packet>>>,
    /// Packets of a batch, by core.
    by_core: Vec<Batch>,
    local: VecDeque<Packet>,
    key: SteeringKey,
    bytes: u64,
}

/// The receiving end of one ring of a link.
pub(crate) struct ShuffleReceiver {
    ring: Consumer<Packet>,
    bytes: u64,
}

/// Creates a link to `cores` cores, of which the sending core may be one (`own`); returns the ends of the others.
pub(crate) fn shuffle_rings(
    cores: usize,
    own: Option<usize>,
    key: SteeringKey,
) -> (ShuffleSender, Vec<Option<ShuffleReceiver>>) {
    let ring = |core| {
        let (producer, ring) = RingBuffer::new(RING_SIZE);
        if own == Some(core) { (None, None) } else { (Some(producer), Some(ShuffleReceiver { ring, bytes: 0 })) }
    };
    let (rings, receivers) = (0..cores).map(ring).unzip();
    let by_core = (0..cores).map(|_| Batch::new()).collect();
    (ShuffleSender { rings, by_core, local: VecDeque::with_capacity(2 * BURST), key, bytes: 0 }, receivers)
}

/// Creates a link to `cores` other cores, for benchmarks; returns the sending end and the receiving ends.
pub fn shuffle_link(cores: usize, by: Shuffle) -> (Box<dyn Transmit>, Vec<Box<dyn Receive>>) {
    let (sender, receivers) = shuffle_rings(cores, None, by.into());
    (Box::new(sender), receivers.into_iter().flatten().map(|end| Box::new(end) as Box<dyn Receive>).collect())
}

impl Transmit for ShuffleSender {
    fn send(&mut self, batch: &mut Batch) -> usize {
        let before = batch.len();
        if let [Some(ring)] = &mut self.rings[..] {
            self.bytes += push_burst(ring, batch, None);
            return before - batch.len();
        }
        let (cores, key, by_core) = (self.rings.len(), &self.key, &mut self.by_core);
        batch.extract_if(
            #[inline(always)]
            |packet| Some(key.core_of(packet, cores)),
            |core, packet| by_core[core].push(packet).expect("at most a batch"),
        );
        for (ring, packets) in self.rings.iter_mut().zip(&mut self.by_core) {
            self.bytes += match ring {
                Some(ring) => push_burst(ring, packets, Some(batch)),
                None => {
                    let bytes = packets.iter().map(|p| p.len() as u64).sum();
                    self.local.extend(packets.drain());
                    bytes
                }
            };
        }
        before - batch.len()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn drop_reason(&self) -> PortDrop {
        PortDrop::ShuffleFull
    }

    fn close(&mut self) {
        // the receivers see their ring abandoned, and finish
        self.rings.clear();
    }

    fn take_local(&mut self, batch: &mut Batch) {
        while !batch.is_full() {
            let Some(packet) = self.local.pop_front() else { break };
            batch.push(packet).expect("the batch is not full");
        }
    }
}

impl Receive for ShuffleReceiver {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        let before = batch.len();
        let n = pop_burst(&mut self.ring, batch);
        self.bytes += batch.as_slice()[before..].iter().map(|packet| packet.len() as u64).sum::<u64>();
        n
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn queue(&self) -> Option<Occupancy> {
        Some(occupancy(&self.ring))
    }

    fn kind(&self) -> SourceKind {
        SourceKind::FromCore
    }

    fn finished(&self) -> bool {
        self.ring.is_abandoned() && self.ring.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::ShuffleTo;
    use packet::{HeapPool, Pool};
    use proptest::prelude::*;

    /// Returns a packet with its sequence number in the flow; the directions of a flow alternate.
    fn frame(flow: u8, number: u16) -> Vec<u8> {
        let (a, b) = ([10, 0, 0, flow], [10, 0, 1, flow]);
        let (src, dst, ports) = if number.is_multiple_of(2) { (a, b, (1, 2)) } else { (b, a, (2, 1)) };
        wire::build::udp4(src, dst, ports.0, ports.1).payload(&number.to_be_bytes()).to_vec()
    }

    proptest! {
        #[test]
        fn flows_stay_in_order_and_no_packet_is_lost(
            cores in 1..5usize,
            by_metadata: bool,
            own in prop::option::of(0..5usize),
            bursts in prop::collection::vec((prop::collection::vec(0..20u8, 1..=32), 0..60usize), 1..60),
        ) {
            let pool = HeapPool::new(4096);
            let own = own.filter(|own| *own < cores);
            let key = if by_metadata { SteeringKey::Metadata } else { SteeringKey::Flow };
            let (mut sender, mut receivers) = shuffle_rings(cores, own, key);
            let mut next = [0u16; 20];
            let mut refused = vec![];
            let mut received: Vec<Vec<(u8, u16)>> = vec![vec![]; cores];
            let mut receive = |sender: &mut ShuffleSender, ends: &mut Vec<Option<ShuffleReceiver>>, rounds: usize| {
                for round in 0..rounds {
                    let core = round % cores;
                    let mut batch = Batch::new();
                    match &mut ends[core] {
                        Some(end) => _ = end.receive(&mut batch),
                        None => sender.take_local(&mut batch),
                    }
                    for p in batch.drain() {
                        let flow = p.data()[29].min(p.data()[33]).max(p.data()[29]);
                        let payload = &p.data()[42..44];
                        received[core].push((flow, u16::from_be_bytes([payload[0], payload[1]])));
                    }
                }
            };
            for (burst, rounds) in bursts {
                let mut batch = Batch::new();
                for flow in burst {
                    let mut p = pool.alloc_from(&frame(flow, next[flow as usize])).unwrap();
                    if by_metadata {
                        p.meta_mut().set_metadata(ShuffleTo(flow.into()));
                    }
                    next[flow as usize] += 1;
                    batch.push(p).unwrap();
                }
                sender.send(&mut batch);
                refused.extend(batch.drain().map(|p| p.data().to_vec()));
                receive(&mut sender, &mut receivers, rounds);
            }
            sender.close();
            receive(&mut sender, &mut receivers, 60 * cores * RING_SIZE / BURST);
            prop_assert!(receivers.iter().flatten().all(ShuffleReceiver::finished));
            let sent: usize = next.iter().map(|n| usize::from(*n)).sum();
            prop_assert_eq!(received.iter().map(Vec::len).sum::<usize>() + refused.len(), sent);
            for flow in 0..20 {
                let holders: Vec<usize> =
                    (0..cores).filter(|c| received[*c].iter().any(|(f, _)| *f == flow)).collect();
                prop_assert!(holders.len() <= 1, "flow {} on {:?}", flow, holders);
                if by_metadata && let [holder] = holders[..] {
                    prop_assert_eq!(holder, usize::from(flow) % cores);
                }
                let packets = received.iter().flatten().filter(|(f, _)| *f == flow);
                let numbers: Vec<u16> = packets.map(|(_, n)| *n).collect();
                prop_assert!(numbers.is_sorted(), "{:?}", numbers);
            }
            prop_assert_eq!(pool.in_use(), 0);
        }
    }

    #[test]
    fn packets_stay_in_the_batch_when_a_ring_is_full() {
        let pool = HeapPool::new(2 * RING_SIZE);
        let (mut sender, mut receivers) = shuffle_rings(1, None, SteeringKey::Flow);
        let mut sent = 0;
        let mut batch = Batch::new();
        loop {
            (0..30).for_each(|_| batch.push(pool.alloc_from(&frame(1, 0)).unwrap()).unwrap());
            sent += sender.send(&mut batch);
            if !batch.is_empty() {
                break;
            }
        }
        assert_eq!((sent, batch.len()), (RING_SIZE, 30 - RING_SIZE % 30));
        let size = RING_SIZE as u64;
        assert_eq!(receivers[0].as_ref().unwrap().queue(), Some(Occupancy { used: size, capacity: size }));
        receivers[0].as_mut().unwrap().receive(&mut Batch::new());
        batch.clear();
        assert_eq!(pool.in_use(), RING_SIZE - BURST);
    }
}
