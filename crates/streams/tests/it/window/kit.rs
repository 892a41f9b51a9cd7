//! A window on a bench: packets in, packets and events out, accounts checked at every step.

use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use packet::{BURST, Batch, HeapPool, Packet, Pool};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use streams::window::{Direction, End, Event, Flow, Lost, Settings, Transport, Verdict};
use wire::TcpFlags;
use wire::build;

pub(crate) const ACK: TcpFlags = TcpFlags::ACK;
pub(crate) const FIN: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::ACK.0);
pub(crate) const RST: TcpFlags = TcpFlags(TcpFlags::RST.0 | TcpFlags::ACK.0);

/// Events that the closure received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// Bytes shown before, new bytes.
    Bytes(Vec<u8>, Vec<u8>),
    Gap(u32, Lost),
    End(End),
}

pub(crate) fn bytes(new: &[u8]) -> Told {
    Told::Bytes(vec![], new.to_vec())
}

/// One event, with the flow it is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    pub(crate) number: u32,
    pub(crate) direction: Direction,
    pub(crate) src_port: u16,
    pub(crate) offset: u64,
    pub(crate) midstream: bool,
    pub(crate) told: Told,
}

type Answer = Box<dyn FnMut(&Note) -> Verdict + Send>;

#[derive(Default)]
pub(crate) struct Out(pub(crate) Vec<(u16, Packet)>);

impl Sink for Out {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0.extend(batch.drain().map(|packet| (port, packet)));
    }
}

pub(crate) struct Bench {
    pub(crate) graph: Graph,
    pool: Arc<HeapPool>,
    notes: Arc<Mutex<Vec<Note>>>,
    sent: u64,
    pub(crate) ms: u64,
}

impl Bench {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self::of::<wire::Tcp>(settings, Box::new(|_| Verdict::Forward))
    }

    pub(crate) fn answering(settings: &Settings, answer: impl FnMut(&Note) -> Verdict + Send + 'static) -> Self {
        Self::of::<wire::Tcp>(settings, Box::new(answer))
    }

    /// A node in two paths: hop `n` enters by input `n`, and its first output leads to port `n`.
    pub(crate) fn of<T: Transport>(settings: &Settings, mut answer: Answer) -> Self {
        let notes = Arc::new(Mutex::new(vec![]));
        let told = Arc::clone(&notes);
        let look = move |flow: &Flow<'_>, event: Event<'_>| {
            let told_now = match event {
                Event::Window(window) => Told::Bytes(window.repeated().to_vec(), window.fresh().to_vec()),
                Event::Gap { bytes, why } => Told::Gap(bytes, why),
                Event::End(why) => Told::End(why),
            };
            let note = Note {
                number: flow.number(),
                direction: flow.direction(),
                src_port: flow.tuple().src_port,
                offset: flow.offset(),
                midstream: flow.is_midstream(),
                told: told_now,
            };
            let verdict = answer(&note);
            told.lock().unwrap().push(note);
            verdict
        };
        let node = streams::window::<T, _>(settings, look).unwrap();
        let blueprint = Blueprint {
            nodes: vec![NodePlan { name: "window".into(), edges: vec![Target::Unconnected] }],
            hops: (0..2)
                .map(|n| HopPlan { node: 0, input: n, next: Target::Port(n.into()), fail_open: false })
                .collect(),
        };
        let pool = Arc::new(HeapPool::new(100_000));
        let graph = Graph::new(&blueprint, vec![Box::new(node)], pool.clone());
        Bench { graph, pool, notes, sent: 0, ms: 0 }
    }

    /// Sends frames into input `input`; what came out, and by which port.
    pub(crate) fn by(&mut self, input: u16, frames: &[Vec<u8>]) -> Vec<(u16, Vec<u8>)> {
        let mut out = Out::default();
        for burst in frames.chunks(BURST) {
            let mut batch = Batch::new();
            for frame in burst {
                batch.push(self.pool.alloc_from(frame).unwrap()).unwrap();
            }
            self.graph.run::<false>(Target::Hop(Hop(input)), &mut batch, &mut out);
        }
        self.settle(out)
    }

    /// Sends frames; what came out.
    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.by(0, frames).into_iter().map(|(_, frame)| frame).collect()
    }

    /// Sends frames; payloads of what came out.
    pub(crate) fn payloads(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.send(frames).iter().map(|frame| frame[54..].to_vec()).collect()
    }

    /// Lets time pass; what came out.
    pub(crate) fn wait(&mut self, ms: u64) -> Vec<Vec<u8>> {
        self.wait_by(ms).into_iter().map(|(_, frame)| frame).collect()
    }

    /// Lets time pass; what came out, and by which port.
    pub(crate) fn wait_by(&mut self, ms: u64) -> Vec<(u16, Vec<u8>)> {
        let mut out = Out::default();
        let until = self.ms + ms;
        while self.ms < until {
            self.ms = (self.ms + 4).min(until);
            self.graph.run_timers(Duration::from_millis(self.ms), &mut out);
        }
        self.settle(out)
    }

    fn settle(&mut self, out: Out) -> Vec<(u16, Vec<u8>)> {
        self.sent += out.0.len() as u64;
        let stats = self.graph.stats().next().unwrap().1.clone();
        let held = stats.held.get();
        assert_eq!(self.pool.in_use() as u64, out.0.len() as u64 + held, "a packet was leaked");
        assert_eq!(stats.packets.get() + stats.created.get(), self.sent + held + stats.dropped(), "accounting");
        assert_eq!(self.drops("vanished"), 0);
        out.0.iter().map(|(port, packet)| (*port, packet.data().to_vec())).collect()
    }

    pub(crate) fn held(&self) -> u64 {
        self.graph.stats().next().unwrap().1.held.get()
    }

    pub(crate) fn drops(&self, reason: &str) -> u64 {
        let stats = self.graph.stats().next().unwrap().1;
        stats.reasons.iter().zip(&stats.drops).filter(|(r, _)| **r == reason).map(|(_, n)| n.get()).sum()
    }

    /// A count, brought up to date by a tick.
    pub(crate) fn count(&mut self, name: &str) -> u64 {
        self.wait(4);
        self.read(name)
    }

    /// A count as it was shown last.
    pub(crate) fn read(&self, name: &str) -> u64 {
        let stats = self.graph.stats().next().unwrap().1;
        stats.counters().iter().find(|c| c.0 == name).unwrap_or_else(|| panic!("no count {name}")).1.get()
    }

    pub(crate) fn notes(&mut self) -> Vec<Note> {
        core::mem::take(&mut *self.notes.lock().unwrap())
    }

    /// Returns the events since the last call, of all directions.
    pub(crate) fn told(&mut self) -> Vec<Told> {
        self.notes().into_iter().map(|note| note.told).collect()
    }

    pub(crate) fn finish(&mut self) {
        assert_eq!(self.graph.finish(), []);
    }
}

/// A connection from port `port` of one host to port 80 of another.
#[derive(Clone, Copy)]
pub(crate) struct Conn {
    pub(crate) port: u16,
}

impl Conn {
    /// From who began it.
    pub(crate) fn there(self, seq: u32, flags: TcpFlags, payload: &[u8]) -> Vec<u8> {
        build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], self.port, 80).seq(seq).flags(flags).payload(payload).to_vec()
    }

    /// The other way.
    pub(crate) fn back(self, seq: u32, flags: TcpFlags, payload: &[u8]) -> Vec<u8> {
        build::tcp4([10, 0, 0, 2], [10, 0, 0, 1], 80, self.port).seq(seq).flags(flags).payload(payload).to_vec()
    }

    /// Data from who began it.
    pub(crate) fn data(self, seq: u32, payload: &[u8]) -> Vec<u8> {
        self.there(seq, ACK, payload)
    }

    /// An acknowledgement of the other side, without data.
    pub(crate) fn acks(self, ack: u32) -> Vec<u8> {
        build::tcp4([10, 0, 0, 2], [10, 0, 0, 1], 80, self.port).seq(501).flags(ACK).ack(ack).to_vec()
    }

    /// The first three packets: the first byte from here is number 1, from there 501.
    pub(crate) fn handshake(self) -> Vec<Vec<u8>> {
        let answer = build::tcp4([10, 0, 0, 2], [10, 0, 0, 1], 80, self.port).seq(500);
        let answer = answer.flags(TcpFlags::SYN_ACK).ack(1).to_vec();
        vec![self.there(0, TcpFlags::SYN, b""), answer, self.there(1, ACK, b"")]
    }
}

pub(crate) const C: Conn = Conn { port: 40_000 };
