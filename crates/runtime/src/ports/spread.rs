//! Spreading flows over cores in software, where a device does not.

use crate::{Receive, Source};
use core::net::{Ipv4Addr, Ipv6Addr};
use graph::{Lane, Spread};
use packet::{Batch, Packet};
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::flow::{self, FiveTuple};
use wire::{EtherType, IpProtocol, icmpv4, icmpv6, ipv4, ipv6};

/// Packets that wait for a core at most.
const ROOM: usize = 1024;

/// By what packets are spread.
pub(crate) enum By {
    /// Both directions of a flow go to one core.
    Flow,
    /// All packets between two hosts do.
    Hosts,
    /// An NF says to which, of a packet on its way to the input of this number.
    Nf(Lane, u8),
}

impl By {
    /// For the strictest spreading that an NF asks for, but its own.
    pub(crate) fn of(spread: Spread) -> By {
        if spread == Spread::Hosts { By::Hosts } else { By::Flow }
    }

    /// Which of `cores` has this frame; the first, if it has no addresses.
    #[inline(always)]
    pub(crate) fn core_of(&self, frame: &[u8], cores: usize) -> usize {
        let hash = match self {
            By::Flow => flow::symmetric_hash(frame),
            By::Hosts => FiveTuple::of_frame(frame).map_or(0, |t| hosts_of(frame, t).symmetric_hash()),
            By::Nf(lane, input) => return lane(*input, frame).min(cores - 1),
        };
        flow::share(hash, cores as u32) as usize
    }
}

/// The two hosts between which a packet goes, or, of an ICMP error, the packet that it is about.
fn hosts_of(frame: &[u8], t: FiveTuple) -> FiveTuple {
    let about = match t.protocol {
        IpProtocol::ICMPV4 | IpProtocol::ICMPV6 => quoted(frame),
        _ => None,
    };
    let FiveTuple { src, dst, .. } = about.unwrap_or(t);
    FiveTuple { src, dst, src_port: 0, dst_port: 0, protocol: IpProtocol(0) }
}

/// What an ICMP error quotes: the last packet that can be read behind the frame's first IP header.
fn quoted(frame: &[u8]) -> Option<FiveTuple> {
    let (mut kind, mut rest) = (EtherType(u16::from_be_bytes(*frame.get(12..14)?.first_chunk()?)), frame.get(14..)?);
    while kind.is_vlan() {
        (kind, rest) = (EtherType(u16::from_be_bytes(*rest.get(2..4)?.first_chunk()?)), rest.get(4..)?);
    }
    match kind {
        EtherType::IPV4 => {
            let packet = ipv4::Packet::new(rest).ok()?;
            let message = icmpv4::Message::new(packet.payload()).ok()?;
            let h: &[u8; 20] = message.payload().first_chunk().filter(|_| message.header().is_error())?;
            let address = |at: usize| Ipv4Addr::new(h[at], h[at + 1], h[at + 2], h[at + 3]);
            (h[0] >> 4 == 4).then(|| FiveTuple::v4(address(12), address(16), 0, 0, IpProtocol(0)))
        }
        EtherType::IPV6 => {
            let packet = ipv6::Packet::new(rest).ok()?;
            let message = icmpv6::Message::new(packet.payload()).ok()?;
            let h: &[u8; 40] = message.payload().first_chunk().filter(|_| message.header().is_error())?;
            let address = |at: usize| Ipv6Addr::from(*h[at..].first_chunk::<16>().expect("40 bytes"));
            (h[0] >> 4 == 6).then(|| FiveTuple::v6(address(8), address(24), 0, 0, IpProtocol(0)))
        }
        _ => None,
    }
}

/// Polls a port, keeps the packets of its own core and hands the others to their cores, which count them as received.
pub(crate) struct Spreader {
    from: Source,
    by: By,
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
pub(crate) fn spread(
    from: Source,
    by: By,
    cores: usize,
    patient: bool,
    stop: Arc<AtomicBool>,
) -> (Spreader, Vec<Handed>) {
    let (others, ends) = (1..cores).map(|_| RingBuffer::new(ROOM)).map(|(p, c)| (p, Handed(c))).unzip();
    (Spreader { from, by, others, full: 0, patient, handed: false, stop }, ends)
}

impl Receive for Spreader {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        let before = batch.len();
        self.handed = self.from.receive(batch) != 0;
        let (others, full, patient, stop) = (&mut self.others, &mut self.full, self.patient, &self.stop);
        let by = &self.by;
        let cores = others.len() + 1;
        batch.extract_if(
            |packet| by.core_of(packet.data(), cores).checked_sub(1),
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
        let ip = |n: u8| Ipv4Addr::new(10, 0, n, 1);
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
        let (mut own, mut others) = spread(Source::Other(Box::new(source)), By::Flow, 3, false, Arc::default());
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
        let flow = frames().into_iter().find(|f| By::Flow.core_of(f, 2) == 1).unwrap();
        let source = Packets((0..ROOM + 7).map(|_| pool.alloc_from(&flow).unwrap()).collect());
        let (mut own, _others) = spread(Source::Other(Box::new(source)), By::Flow, 2, false, Arc::default());
        let mut batch = Batch::new();
        while !own.finished() {
            assert_eq!(own.receive(&mut batch), 0);
        }
        let mut full = 0;
        own.dropped(&mut |reason, n| full += n * u64::from(reason == "spread_full"));
        assert_eq!((full, pool.in_use()), (7, ROOM));
    }

    #[test]
    fn fragments_and_errors_go_where_the_hosts_packets_go() {
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        for cores in 2..9 {
            let of = |frame: &[u8]| By::Hosts.core_of(frame, cores);
            let whole = wire::build::udp4(a, b, 1000, 2000).to_vec();
            let piece = wire::build::ipv4(b, a, IpProtocol::UDP).fragment(64, false).payload(&[0; 8]).vlan(3).to_vec();
            let error = wire::build::icmp4([10, 9, 9, 9], b, icmpv4::Repr::TimeExceeded { code: 0 });
            let error = error.payload(&wire::build::udp4(b, a, 2000, 1000).to_vec()[14..42]).to_vec();
            let (six, seven) = (Ipv6Addr::from_bits(6), Ipv6Addr::from_bits(7));
            let whole6 = wire::build::udp6(six, seven, 1000, 2000).to_vec();
            let error6 = wire::build::icmp6(Ipv6Addr::from_bits(9), six, icmpv6::Repr::PacketTooBig { mtu: 1280 });
            let error6 = error6.payload(&whole6[14..]).vlan(1).to_vec();
            assert_eq!([of(&piece), of(&error)], [of(&whole); 2], "{cores} cores");
            assert_eq!(of(&error6), of(&whole6));
        }
    }

    #[test]
    fn an_nf_says_whose_a_packet_is() {
        let lane: Lane = Arc::new(|input, frame| usize::from(input) + frame.len());
        assert_eq!(By::Nf(lane.clone(), 1).core_of(&[0; 3], 9), 4);
        assert_eq!(By::Nf(lane, 1).core_of(&[0; 30], 9), 8, "there are no more");
    }
}
