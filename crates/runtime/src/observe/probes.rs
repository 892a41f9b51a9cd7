//! Times at which sampled probes of the packet generator are at each place of the graphs.

use super::names::{EndName, WorkerNames};
use graph::Point;
use packet::{Packet, clock};
use rtrb::{Consumer, Producer, RingBuffer};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use traffic::Probe;
use traffic::probe::{Reading, Sample};

/// Records of a worker that are kept until they are read.
pub const MAX_PROBE_RECORDS: usize = 1 << 16;
/// Largest number of probes that a worker follows at the same time.
const MAX_FOLLOWED: usize = 64;
/// Time after which a probe is followed no longer, as another worker has received it, or it was lost in a panic.
const FOLLOW_TIMEOUT_MS: u64 = 100;

/// Place of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbePoint {
    /// It was received from a port or link.
    #[default]
    Received,
    /// It is about to be processed by an NF.
    Entered,
    /// It leaves an NF.
    Left,
    /// It is offered to a port or link.
    Sent,
}

/// Time at which a probe was at a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeRecord {
    /// The probe: [`Probe::identity`].
    pub probe: u64,
    /// Time-stamp counter of the CPU.
    pub cycles: u64,
    /// Kind of the place.
    pub point: ProbePoint,
    /// Name of the NF, port or link.
    pub name: String,
}

/// The same, as a worker writes it.
#[derive(Clone, Copy, Default)]
struct RawRecord {
    probe: u64,
    cycles: u64,
    point: ProbePoint,
    /// Number of the hop, the input, or the port or link.
    number: u16,
}

/// A probe that a worker processes, recognized by the address of its buffer.
struct Followed {
    buffer: usize,
    probe: u64,
    since: u64,
}

/// The end of a trace of probes at a worker.
pub(crate) struct ProbeTap {
    /// Set when the trace is no longer read.
    ended: Arc<AtomicBool>,
    sample: Sample,
    records: Producer<RawRecord>,
    followed: Vec<Followed>,
    /// Offset of the last probe found in a frame.
    place: usize,
}

impl ProbeTap {
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns true while a probe is followed.
    pub(super) fn is_watching(&self) -> bool {
        !self.followed.is_empty()
    }

    /// Stops following probes that have left unseen.
    pub(super) fn forget_old(&mut self) {
        let timeout = clock::hz() / 1000 * FOLLOW_TIMEOUT_MS;
        let now = clock::cycles();
        self.followed.retain(|followed| now.saturating_sub(followed.since) < timeout);
    }

    pub(super) fn received(&mut self, input: usize, packets: &[Packet]) {
        let now = clock::cycles();
        for packet in packets {
            // the buffer of a probe that has left unseen is another packet now
            self.release(packet);
            let (reading, place) = Probe::read_at(packet.data(), self.place);
            let Reading::Probe(probe) = reading else { continue };
            self.place = place;
            if !self.sample.contains(probe) {
                continue;
            }
            let probe = probe.identity();
            self.record(probe, now, ProbePoint::Received, input as u16);
            if self.followed.len() == MAX_FOLLOWED {
                self.followed.remove(0);
            }
            self.followed.push(Followed { buffer: packet.address(), probe, since: now });
        }
    }

    pub(super) fn sees(&mut self, names: &WorkerNames, at: Point, packets: &[Packet]) {
        if self.followed.is_empty() {
            return;
        }
        let now = clock::cycles();
        let (point, number) = match at {
            Point::Enter(hop) => (ProbePoint::Entered, hop.0),
            Point::Leave(hop, _) => (ProbePoint::Left, hop.0),
            Point::Send(port) => (ProbePoint::Sent, port),
            Point::Hold(_) => return,
            Point::Drop(..) | Point::Refuse(..) | Point::Create(_) => {
                return packets.iter().for_each(|packet| self.release(packet));
            }
        };
        for packet in packets {
            let probe = self.followed.iter().find(|followed| followed.buffer == packet.address());
            if let Some(probe) = probe.map(|followed| followed.probe) {
                self.record(probe, now, point, number);
            }
        }
        // a link may pass packets on in this worker
        if let Point::Send(port) = at
            && !names.outputs.get(usize::from(port)).is_some_and(|end| end.is_link)
        {
            packets.iter().for_each(|packet| self.release(packet));
        }
    }

    fn release(&mut self, packet: &Packet) {
        if !self.followed.is_empty() {
            self.followed.retain(|followed| followed.buffer != packet.address());
        }
    }

    fn record(&mut self, probe: u64, cycles: u64, point: ProbePoint, number: u16) {
        // if there is no room, the reader finds the probe to be incomplete
        let _ = self.records.push(RawRecord { probe, cycles, point, number });
    }
}

/// A running trace of probes, read by another thread than the workers'. Dropping it ends the trace.
pub struct ProbeTrace {
    ended: Arc<AtomicBool>,
    queues: Vec<(Consumer<RawRecord>, Arc<WorkerNames>)>,
}

/// Starts a trace of the probes of a sample; returns its end at each worker, of which these are the names.
pub(crate) fn start(sample: Sample, names: Vec<Arc<WorkerNames>>) -> (ProbeTrace, Vec<ProbeTap>) {
    let ended = Arc::<AtomicBool>::default();
    let queue = |names| {
        let (mut records, mut queue) = RingBuffer::new(MAX_PROBE_RECORDS);
        // workers must not wait for the memory
        while records.push(RawRecord::default()).is_ok() {}
        while queue.pop().is_ok() {}
        let followed = Vec::with_capacity(MAX_FOLLOWED);
        (ProbeTap { ended: ended.clone(), sample, records, followed, place: usize::MAX }, (queue, names))
    };
    let (taps, queues) = names.into_iter().map(queue).unzip();
    (ProbeTrace { ended, queues }, taps)
}

impl ProbeTrace {
    /// Returns the records so far, those of each worker in their order.
    pub fn read(&mut self) -> Vec<ProbeRecord> {
        let end = |ends: &[EndName], number: u16| ends.get(usize::from(number)).map(|end| end.name.clone());
        let mut all = vec![];
        for (queue, names) in &mut self.queues {
            while let Ok(RawRecord { probe, cycles, point, number }) = queue.pop() {
                let name = match point {
                    ProbePoint::Received => end(&names.inputs, number),
                    ProbePoint::Sent => end(&names.outputs, number),
                    ProbePoint::Entered | ProbePoint::Left => Some(names.nf(graph::Hop(number))),
                };
                all.push(ProbeRecord { probe, cycles, point, name: name.unwrap_or_default() });
            }
        }
        all
    }
}

impl Drop for ProbeTrace {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::HopNames;
    use super::*;
    use graph::Hop;
    use packet::{HeapPool, Pool as _};
    use wire::build;

    fn names() -> Arc<WorkerNames> {
        let end = |name: &str, is_link| EndName { name: name.to_owned(), is_link };
        let hop = |nf: &str| HopNames { nf: nf.to_owned(), ..HopNames::default() };
        Arc::new(WorkerNames {
            inputs: vec![end("lan", false)],
            outputs: vec![end("wan", false), end("between", true)],
            hops: vec![hop("fw"), hop("nat")],
            ..WorkerNames::default()
        })
    }

    fn packet(pool: &HeapPool, payload: &[u8]) -> Packet {
        pool.alloc_from(&build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(payload).to_vec()).unwrap()
    }

    #[test]
    fn records_each_place_of_a_probe_until_it_leaves() {
        let (pool, names) = (HeapPool::new(8), names());
        let (mut trace, mut taps) = start(Sample::one_in(1), vec![names.clone()]);
        let tap = &mut taps[0];
        let probe = |sequence| packet(&pool, &Probe { stream: 1, sequence, stamp: 0 }.to_bytes());
        let packets = [probe(5), packet(&pool, &[0; 30]), probe(6), probe(7)];
        tap.received(0, &packets[1..2]);
        assert!(!tap.is_watching(), "there is no probe among the packets");
        tap.received(0, &packets);
        tap.sees(&names, Point::Enter(Hop(0)), &packets);
        tap.sees(&names, Point::Drop(Hop(0), "reason"), &packets[3..]);
        tap.sees(&names, Point::Leave(Hop(0), 0), &packets[..3]);
        // a link may pass packets on in the worker
        tap.sees(&names, Point::Send(1), &packets[..3]);
        tap.sees(&names, Point::Enter(Hop(1)), &packets[..2]);
        tap.sees(&names, Point::Send(0), &packets[..2]);
        // it has left for another worker, and its buffer is another packet now
        assert!(tap.is_watching());
        tap.received(0, &packets[2..3]);
        tap.sees(&names, Point::Create(Hop(1)), &packets[2..3]);
        assert!(!tap.is_watching());
        let records = trace.read();
        assert!(records.is_sorted_by_key(|record| record.cycles));
        let of = |sequence| {
            let identity = Probe { stream: 1, sequence, stamp: 0 }.identity();
            let own = records.iter().filter(move |record| record.probe == identity);
            own.map(|record| (record.point, &*record.name)).collect::<Vec<_>>()
        };
        use ProbePoint::{Entered, Left, Received, Sent};
        let start = [(Received, "lan"), (Entered, "fw")];
        let link = [(Left, "fw"), (Sent, "between")];
        assert_eq!(of(5), [&start[..], &link, &[(Entered, "nat"), (Sent, "wan")]].concat());
        assert_eq!(of(6), [&start[..], &link, &[(Received, "lan")]].concat());
        assert_eq!(of(7), start);
        drop(trace);
        assert!(tap.has_ended());
    }
}
