//! Two hosts, the node between them, and bad wires.

use crate::packetize::host::{Host, Task};
use crate::packetize::link::{Badness, Link};
use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, NodeStats, Sink, Target};
use packet::{BURST, Batch, HeapPool, Packet, Pool};
use smoltcp::wire::IpAddress;
use std::sync::Arc;
use std::time::Duration;
use streams::packetize::{Packetized, Rewrite};

/// Output of the node by port: 0 to `b`, 1 to `a`.
#[derive(Default)]
pub(crate) struct Collect(pub(crate) [Vec<Packet>; 2]);

impl Sink for Collect {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0[usize::from(port)].extend(batch.drain());
    }
}

/// The node alone, in two paths.
pub(crate) struct Between {
    graph: Graph,
    pub(crate) pool: Arc<HeapPool>,
    received: u64,
    sent: u64,
}

impl Between {
    pub(crate) fn new<R: Rewrite>(node: Packetized<R>, buffers: usize) -> Self {
        let blueprint = Blueprint {
            nodes: vec![NodePlan { name: "between".into(), edges: vec![Target::Unconnected] }],
            hops: (0..2)
                .map(|n| HopPlan { node: 0, input: n, next: Target::Port(n.into()), fail_open: false })
                .collect(),
        };
        let pool = Arc::new(HeapPool::new(buffers));
        Between { graph: Graph::new(&blueprint, vec![Box::new(node)], pool.clone()), pool, received: 0, sent: 0 }
    }

    pub(crate) fn stats(&self) -> Arc<NodeStats> {
        self.graph.stats().next().unwrap().1.clone()
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.stats().counters().iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1.get()
    }

    pub(crate) fn dropped(&self, reason: &str) -> u64 {
        let stats = self.stats();
        let at = stats.reasons.iter().position(|r| *r == reason).unwrap();
        stats.drops[at].get()
    }

    /// Returns the output frames to `b` and to `a` after input frames.
    pub(crate) fn feed(&mut self, input: u16, frames: &[Vec<u8>]) -> [Vec<Vec<u8>>; 2] {
        let mut out = Collect::default();
        for burst in frames.chunks(BURST) {
            let mut batch = Batch::new();
            for frame in burst {
                if let Some(packet) = self.pool.alloc_from(frame) {
                    self.received += 1;
                    batch.push(packet).unwrap();
                }
            }
            self.graph.run::<false>(Target::Hop(Hop(input)), &mut batch, &mut out);
        }
        self.settle(out)
    }

    pub(crate) fn wake(&mut self, now: u64) -> [Vec<Vec<u8>>; 2] {
        let mut out = Collect::default();
        self.graph.run_timers(Duration::from_millis(now), &mut out);
        self.settle(out)
    }

    /// Sees that every packet is accounted for.
    fn settle(&mut self, out: Collect) -> [Vec<Vec<u8>>; 2] {
        let stats = self.stats();
        self.sent += out.0.iter().map(Vec::len).sum::<usize>() as u64;
        assert_eq!(stats.packets.get() + stats.created.get(), self.sent + stats.dropped(), "accounting");
        assert_eq!(stats.packets.get(), self.received);
        for every in <graph::CommonDrop as graph::Named>::NAMES {
            assert_eq!(self.dropped(every), 0, "{every}");
        }
        let frames = out.0.map(|packets| packets.iter().map(|packet| packet.data().to_vec()).collect());
        assert_eq!(self.pool.in_use(), 0, "a packet was leaked");
        frames
    }
}

pub(crate) const PORT: u16 = 80;

/// All of it.
pub(crate) struct World {
    pub(crate) between: Between,
    pub(crate) hosts: [Host; 2],
    /// From `a`, from `b`, to `b`, to `a`.
    links: [Link; 4],
    pub(crate) now: u64,
    v6: bool,
}

impl World {
    pub(crate) fn new<R: Rewrite>(
        node: Packetized<R>,
        tasks: [Task; 2],
        badness: Badness,
        seed: u64,
        v6: bool,
        stamps: bool,
    ) -> Self {
        let address =
            |n: u8| if v6 { IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, n.into()) } else { IpAddress::v4(10, 0, 0, n) };
        let [a, b] = tasks;
        let mut hosts = [Host::new(address(1), a, seed, stamps), Host::new(address(2), b, seed ^ 77, stamps)];
        hosts[1].listen(PORT);
        hosts[0].connect(address(2), PORT);
        let links = [1, 2, 3, 4].map(|n| Link::new(seed ^ (n << 20), badness));
        World { between: Between::new(node, 4096), hosts, links, now: 0, v6 }
    }

    fn framed(&self, packet: &[u8]) -> Vec<u8> {
        let kind: [u8; 2] = if self.v6 { [0x86, 0xdd] } else { [8, 0] };
        [&[2; 12][..], &kind, packet].concat()
    }

    /// A millisecond goes by.
    pub(crate) fn step(&mut self) {
        self.now += 1;
        let now = self.now;
        for way in 0..2 {
            self.hosts[way].work(now);
            for packet in self.hosts[way].packets() {
                let frame = self.framed(&packet);
                self.links[way].send(now, frame);
            }
        }
        let mut all = vec![];
        for way in 0..2 {
            let frames = self.links[way].arrived(now);
            all.push(self.between.feed(way as u16, &frames));
        }
        all.push(self.between.wake(now));
        for frames in all {
            for (way, frames) in frames.into_iter().enumerate() {
                frames.into_iter().for_each(|frame| self.links[2 + way].send(now, frame));
            }
        }
        for way in 0..2 {
            for frame in self.links[2 + way].arrived(now) {
                self.hosts[1 - way].receive(frame[14..].to_vec());
            }
        }
    }

    /// How the hosts and the node are, for a message.
    pub(crate) fn state(&mut self) -> String {
        let stats = self.between.stats();
        let drops = stats.reasons.iter().zip(&stats.drops).map(|(reason, count)| (*reason, count.get()));
        let drops: Vec<_> = drops.filter(|(_, count)| *count > 0).collect();
        let counters: Vec<_> = stats.counters().iter().map(|(name, count)| (name.clone(), count.get())).collect();
        let hosts = self.hosts.each_mut().map(|host| {
            let socket = host.socket();
            (socket.state(), socket.send_queue(), socket.recv_queue())
        });
        format!("hosts: state, to send, to read {hosts:?}; dropped {drops:?}; counted {counters:?}")
    }

    /// Lets time go by until something is so, and nothing is on its way; whether it was in time.
    pub(crate) fn run(&mut self, until: u64, is: impl Fn(&mut Self) -> bool) -> bool {
        while self.now < until {
            self.step();
            if self.links.iter().all(Link::is_empty) && is(self) {
                return true;
            }
        }
        false
    }

    /// Advances the time without much traffic.
    pub(crate) fn wait(&mut self, ms: u64) {
        let until = self.now + ms;
        while self.now < until {
            self.step();
            let idle = self.links.iter().all(Link::is_empty);
            self.now += if idle && self.now + 4 < until { 3 } else { 0 };
        }
    }
}
