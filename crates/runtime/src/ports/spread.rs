//! Spreading flows over cores in software, where a device does not.

use crate::{Receive, Source};
use packet::{Batch, Packet};
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::flow::FiveTuple;

/// Packets that wait for a core at most.
const ROOM: usize = 1024;

/// Polls a port, keeps the packets of its own core's flows and hands the others to their cores, which count them as
/// received. Both directions of a flow go to one core; what has no five-tuple stays.
pub(crate) struct Spreader {
    from: Source,
    others: Vec<Producer<Packet>>,
    full: u64,
    /// Whether the source can wait for a core that has no room.
    patient: bool,
    /// Whether the last batch held packets of other cores.
    handed: bool,
    stop: Arc<AtomicBool>,
}

/// What another core hands on.
pub(crate) struct Handed(Consumer<Packet>);

/// Splits a source over `cores` cores: the end for the core that polls, and those for the others.
pub(crate) fn spread(from: Source, cores: usize, patient: bool, stop: Arc<AtomicBool>) -> (Spreader, Vec<Handed>) {
    let (others, ends) = (1..cores).map(|_| RingBuffer::new(ROOM)).map(|(p, c)| (p, Handed(c))).unzip();
    (Spreader { from, others, full: 0, patient, handed: false, stop }, ends)
}

/// Which of `cores` has the flow of this frame.
fn core_of(frame: &[u8], cores: usize) -> usize {
    let hash = FiveTuple::of_frame(frame).map_or(0, |t| t.symmetric_hash());
    ((u64::from(hash) * cores as u64) >> 32) as usize
}

impl Receive for Spreader {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        let before = batch.len();
        self.handed = self.from.receive(batch) != 0;
        let (others, full, patient, stop) = (&mut self.others, &mut self.full, self.patient, &self.stop);
        let cores = others.len() + 1;
        batch.sift(
            |packet| core_of(packet.data(), cores).checked_sub(1),
            |other, mut packet| {
                while let Err(PushError::Full(back)) = others[other].push(packet) {
                    if !patient || stop.load(Ordering::Relaxed) {
                        *full += 1;
                        return;
                    }
                    packet = back;
                    std::thread::yield_now();
                }
            },
        );
        batch.len().saturating_sub(before)
    }

    fn bytes(&self) -> u64 {
        self.from.bytes()
    }

    fn dropped(&self, each: &mut dyn FnMut(&'static str, u64)) {
        self.from.dropped(each);
        each("spread_full", self.full);
    }

    fn idle(&self) -> bool {
        !self.handed && self.from.idle()
    }

    fn finished(&self) -> bool {
        self.from.finished()
    }

    fn close(&mut self) {
        // the other cores see that this one has ended
        self.others.clear();
        self.from.close();
    }
}

impl Receive for Handed {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        let before = batch.len();
        while !batch.is_full() {
            let Ok(packet) = self.0.pop() else { break };
            batch.push(packet).expect("it has room");
        }
        batch.len() - before
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

    fn frames() -> Vec<Vec<u8>> {
        let ip = |n: u8| std::net::Ipv4Addr::new(10, 0, n, 1);
        (0..40u8)
            .flat_map(|n| {
                let there = wire::build::udp4(ip(n), ip(100 + n), 1000, 2000).payload(&[n]).to_vec();
                let back = wire::build::udp4(ip(100 + n), ip(n), 2000, 1000).payload(&[n]).to_vec();
                [there, back, vec![n; 20]]
            })
            .collect()
    }

    #[test]
    fn both_directions_of_a_flow_meet_on_one_core_and_nothing_is_lost() {
        let pool = HeapPool::new(1000);
        let source = Packets(frames().iter().map(|f| pool.alloc_from(f).unwrap()).collect());
        let (mut own, mut others) = spread(Source::Other(Box::new(source)), 3, false, Arc::default());
        let mut seen = vec![vec![]; 3];
        let mut batch = Batch::new();
        while !own.finished() {
            own.receive(&mut batch);
            seen[0].extend(batch.drain().map(|p| p.data().to_vec()));
            for (n, other) in others.iter_mut().enumerate() {
                other.receive(&mut batch);
                seen[n + 1].extend(batch.drain().map(|p| p.data().to_vec()));
            }
        }
        let mut all: Vec<_> = seen.concat();
        let mut sent = frames();
        all.sort();
        sent.sort();
        assert_eq!(all, sent);
        for n in 0..40u8 {
            let holders = seen.iter().filter(|s| s.iter().any(|f| f.len() > 20 && f.last() == Some(&n)));
            assert_eq!(holders.count(), 1, "flow {n} is on one core");
        }
        assert!(seen.iter().all(|s| s.len() > 5), "every core has its share");
        assert!(!others[0].finished());
        own.close();
        assert!(others[0].finished());
    }

    #[test]
    fn a_core_without_room_costs_packets_and_they_are_counted() {
        let pool = HeapPool::new(2 * ROOM);
        let flow = frames().into_iter().find(|f| core_of(f, 2) == 1).unwrap();
        let source = Packets((0..ROOM + 7).map(|_| pool.alloc_from(&flow).unwrap()).collect());
        let (mut own, _others) = spread(Source::Other(Box::new(source)), 2, false, Arc::default());
        let mut batch = Batch::new();
        while !own.finished() {
            assert_eq!(own.receive(&mut batch), 0);
        }
        let mut full = 0;
        own.dropped(&mut |reason, n| full += n * u64::from(reason == "spread_full"));
        assert_eq!((full, pool.in_use()), (7, ROOM));
    }
}
