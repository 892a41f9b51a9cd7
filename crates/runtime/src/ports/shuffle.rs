//! Handing packets to the cores of the next chain.

use crate::{Receive, Transmit};
use config::Shuffle;
use graph::ShuffleTo;
use packet::{BURST, Batch, Packet};
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::VecDeque;
use wire::flow;

/// Packets that wait for a core at most, from each core that hands some over.
pub(crate) const ROOM: usize = 1024;

/// The end of a link at a core that hands packets over: a ring to each core of the chain, the same flow always to the same.
/// If the core is one of these, it keeps its own.
pub(crate) struct Handing {
    /// None for this core.
    rings: Vec<Option<Producer<Packet>>>,
    /// Packets of a batch, by core.
    sorted: Vec<Batch>,
    kept: VecDeque<Packet>,
    by: Shuffle,
    bytes: u64,
}

/// The end of one of these rings at the core that takes packets.
pub(crate) struct Taking {
    ring: Consumer<Packet>,
    bytes: u64,
}

/// A core's end of a link to `cores` cores, of which it may be one itself, and the ends of the others.
pub(crate) fn link(cores: usize, own: Option<usize>, by: Shuffle) -> (Handing, Vec<Option<Taking>>) {
    let ring = |core| {
        let (to, ring) = RingBuffer::new(ROOM);
        if own == Some(core) { (None, None) } else { (Some(to), Some(Taking { ring, bytes: 0 })) }
    };
    let (rings, ends) = (0..cores).map(ring).unzip();
    let sorted = (0..cores).map(|_| Batch::new()).collect();
    (Handing { rings, sorted, kept: VecDeque::with_capacity(2 * BURST), by, bytes: 0 }, ends)
}

/// A link from a core to `cores` others, as between chains on different cores, for whoever measures it: the end that hands
/// packets over, and the ends that take them.
pub fn shuffle_link(cores: usize, by: Shuffle) -> (Box<dyn Transmit>, Vec<Box<dyn Receive>>) {
    let (handing, ends) = link(cores, None, by);
    (Box::new(handing), ends.into_iter().flatten().map(|end| Box::new(end) as Box<dyn Receive>).collect())
}

/// To which of several cores a packet goes.
#[inline(always)]
fn core_of(packet: &Packet, by: Shuffle, cores: usize) -> usize {
    match by {
        Shuffle::Flow => flow::share(flow::symmetric_hash(packet.data()), cores as u32) as usize,
        Shuffle::Noted => packet.meta().note::<ShuffleTo>().map_or(0, |to| to.0 as usize % cores),
    }
}

/// Hands over what there is room for, all at once; the rest stays. How many bytes that were.
fn hand(ring: &mut Producer<Packet>, batch: &mut Batch, rest: Option<&mut Batch>) -> u64 {
    let n = ring.slots().min(batch.len());
    let mut bytes = 0;
    let mut packets = batch.drain();
    if let Ok(chunk) = ring.write_chunk_uninit(n) {
        chunk.fill_from_iter(packets.by_ref().take(n).inspect(|p| bytes += p.len() as u64));
    }
    let mut left = Batch::new();
    let rest = rest.unwrap_or(&mut left);
    for packet in packets {
        rest.push(packet).expect("no more than came");
    }
    if !left.is_empty() {
        *batch = left;
    }
    bytes
}

impl Transmit for Handing {
    fn send(&mut self, batch: &mut Batch) -> usize {
        let before = batch.len();
        if let [Some(ring)] = &mut self.rings[..] {
            self.bytes += hand(ring, batch, None);
            return before - batch.len();
        }
        let (cores, by, sorted) = (self.rings.len(), self.by, &mut self.sorted);
        batch.extract_if(
            #[inline(always)]
            |packet| Some(core_of(packet, by, cores)),
            |core, packet| sorted[core].push(packet).expect("a batch goes into a batch"),
        );
        for (ring, sorted) in self.rings.iter_mut().zip(&mut self.sorted) {
            if sorted.is_empty() {
                continue;
            }
            self.bytes += match ring {
                Some(ring) => hand(ring, sorted, Some(batch)),
                None => {
                    let bytes = sorted.iter().map(|p| p.len() as u64).sum();
                    self.kept.extend(sorted.drain());
                    bytes
                }
            };
        }
        before - batch.len()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn refusal(&self) -> &'static str {
        "shuffle_full"
    }

    fn close(&mut self) {
        // the other cores see that this one has ended
        self.rings.clear();
    }

    fn take_kept(&mut self, batch: &mut Batch) {
        while !batch.is_full() {
            let Some(packet) = self.kept.pop_front() else { break };
            batch.push(packet).expect("it has room");
        }
    }
}

impl Receive for Taking {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        let n = self.ring.slots().min(BURST - batch.len());
        let Ok(chunk) = self.ring.read_chunk(n) else { return 0 };
        for packet in chunk {
            self.bytes += packet.len() as u64;
            batch.push(packet).expect("it has room");
        }
        n
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn finished(&self) -> bool {
        self.ring.is_abandoned() && self.ring.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{HeapPool, Pool};
    use proptest::prelude::*;

    /// A packet of a flow, with its number in that flow; both directions of a flow in turn.
    fn frame(flow: u8, number: u16) -> Vec<u8> {
        let (a, b) = ([10, 0, 0, flow], [10, 0, 1, flow]);
        let (src, dst, ports) = if number.is_multiple_of(2) { (a, b, (1, 2)) } else { (b, a, (2, 1)) };
        wire::build::udp4(src, dst, ports.0, ports.1).payload(&number.to_be_bytes()).to_vec()
    }

    proptest! {
        #[test]
        fn flows_keep_their_order_and_nothing_is_lost(
            cores in 1..5usize,
            noted: bool,
            own in prop::option::of(0..5usize),
            bursts in prop::collection::vec((prop::collection::vec(0..20u8, 1..=32), 0..60usize), 1..60),
        ) {
            let pool = HeapPool::new(4096);
            let own = own.filter(|own| *own < cores);
            let (mut handing, mut taking) = link(cores, own, if noted { Shuffle::Noted } else { Shuffle::Flow });
            let mut next = [0u16; 20];
            let mut refused = vec![];
            let mut seen: Vec<Vec<(u8, u16)>> = vec![vec![]; cores];
            let mut take = |handing: &mut Handing, taking: &mut Vec<Option<Taking>>, rounds: usize| {
                for round in 0..rounds {
                    let core = round % cores;
                    let mut batch = Batch::new();
                    match &mut taking[core] {
                        Some(end) => _ = end.receive(&mut batch),
                        None => handing.take_kept(&mut batch),
                    }
                    for p in batch.drain() {
                        let flow = p.data()[29].min(p.data()[33]).max(p.data()[29]);
                        let payload = &p.data()[42..44];
                        seen[core].push((flow, u16::from_be_bytes([payload[0], payload[1]])));
                    }
                }
            };
            for (burst, rounds) in bursts {
                let mut batch = Batch::new();
                for flow in burst {
                    let mut p = pool.alloc_from(&frame(flow, next[flow as usize])).unwrap();
                    if noted {
                        p.meta_mut().set_note(ShuffleTo(flow.into()));
                    }
                    next[flow as usize] += 1;
                    batch.push(p).unwrap();
                }
                handing.send(&mut batch);
                refused.extend(batch.drain().map(|p| p.data().to_vec()));
                take(&mut handing, &mut taking, rounds);
            }
            handing.close();
            take(&mut handing, &mut taking, 60 * cores * ROOM / BURST);
            prop_assert!(taking.iter().flatten().all(Taking::finished));
            let sent: usize = next.iter().map(|n| usize::from(*n)).sum();
            prop_assert_eq!(seen.iter().map(Vec::len).sum::<usize>() + refused.len(), sent);
            for flow in 0..20 {
                let holders: Vec<usize> = (0..cores).filter(|c| seen[*c].iter().any(|(f, _)| *f == flow)).collect();
                prop_assert!(holders.len() <= 1, "flow {} on {:?}", flow, holders);
                if noted && let [holder] = holders[..] {
                    prop_assert_eq!(holder, usize::from(flow) % cores);
                }
                let numbers: Vec<u16> = seen.iter().flatten().filter(|(f, _)| *f == flow).map(|(_, n)| *n).collect();
                prop_assert!(numbers.is_sorted(), "{:?}", numbers);
            }
            prop_assert_eq!(pool.in_use(), 0);
        }
    }

    #[test]
    fn a_core_without_room_gives_packets_back() {
        let pool = HeapPool::new(2 * ROOM);
        let (mut handing, mut taking) = link(1, None, Shuffle::Flow);
        let mut sent = 0;
        let mut batch = Batch::new();
        loop {
            (0..30).for_each(|_| batch.push(pool.alloc_from(&frame(1, 0)).unwrap()).unwrap());
            sent += handing.send(&mut batch);
            if !batch.is_empty() {
                break;
            }
        }
        assert_eq!((sent, batch.len()), (ROOM, 30 - ROOM % 30));
        taking[0].as_mut().unwrap().receive(&mut Batch::new());
        batch.clear();
        assert_eq!(pool.in_use(), ROOM - BURST);
    }
}
