//! The node.

use super::counts::counts;
use super::flows::{Flows, NO_FLOW};
use super::output::Output;
use super::{Drop, Rewrite, Settings};
use crate::counts::{Published, Tables};
use crate::window::frame::{self, Classified, FlowPacket, Frame};
use crate::window::hold::PathOutput;
use diagnostics::Diagnostic;
use graph::{BoundedTable, Context, Counter, Named, Node};
use packet::{BURST, Batch};
use std::sync::Arc;
use std::time::Duration;
use wire::Tcp;

/// Number of slices in which the flow table is scanned for expired flows; all of them once a second.
const PARTS: usize = 250;
const TICK: Duration = Duration::from_millis(4);
/// Largest number of waiting directions processed per timer tick, in turn.
const LANES: usize = 1024;

/// The node created by [`packetize`](crate::packetize()).
pub struct Packetized<R: Rewrite> {
    flows: Flows<R>,
    published: Published,
    tables: Tables,
    kinds: [Classified; BURST],
    parts: [FlowPacket; BURST],
    numbers: [u32; BURST],
}

impl<R: Rewrite> Packetized<R> {
    pub(super) fn new(settings: &Settings, rewrite: R) -> Result<Self, Diagnostic> {
        Ok(Packetized {
            flows: Flows::new(settings, rewrite)?,
            tables: Tables::new(settings.flows, settings.memory),
            published: Published::new(&counts(&Default::default(), &Default::default(), Default::default())),
            kinds: [Classified::Other; BURST],
            parts: [FlowPacket::default(); BURST],
            numbers: [NO_FLOW; BURST],
        })
    }

    /// Parses the packets of a batch and looks up their flows.
    #[inline(always)]
    fn read(&mut self, batch: &mut Batch) {
        let Self { flows, kinds, parts, numbers, .. } = self;
        let mut n = 0;
        batch.for_each(
            #[inline(always)]
            |packet| {
                let at = n & (BURST - 1);
                n += 1;
                let (kind, part) = match frame::read::<Tcp>(packet.data(), false) {
                    Frame::V4(key, part) if flows.is_rewritten(&key.five_tuple()) => {
                        flows.v4.ask(key, at);
                        (Classified::Ours, part)
                    }
                    Frame::V6(key, part) if flows.is_rewritten(&key.five_tuple()) => {
                        flows.v6.ask(key, at);
                        (Classified::Ours, part)
                    }
                    Frame::Unreadable => (Classified::Unreadable, FlowPacket::default()),
                    Frame::V4(..) | Frame::V6(..) | Frame::Other => (Classified::Other, FlowPacket::default()),
                };
                (kinds[at], parts[at], numbers[at]) = (kind, part, NO_FLOW);
            },
        );
        flows.find(numbers);
    }

    fn count(&self) {
        self.tables.set(self.flows.occupancy());
        self.published.set(&counts(&self.flows.met, &self.flows.tally, self.flows.gauges()));
    }
}

impl<R: Rewrite> Node for Packetized<R> {
    fn drops(&self) -> &[&'static str] {
        Drop::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.published.named()
    }

    fn gauges(&self) -> Vec<&'static str> {
        vec!["connections", "flows", "memory_bytes", "waiting"]
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.tables.published()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        self.flows.set_clock(cx.now().as_millis() as u64);
        self.read(batch);
        let packets = batch.drain();
        let mut out = Output::new(PathOutput { cx, batch: Some(batch), full: false });
        for (at, packet) in packets.enumerate() {
            let at = at & (BURST - 1);
            match self.kinds[at] {
                Classified::Ours => self.flows.packet(self.numbers[at], &self.parts[at], packet, &mut out),
                Classified::Unreadable => self.flows.unreadable(packet, &mut out),
                Classified::Other => out.pass(packet),
            }
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.flows.set_clock(cx.now().as_millis() as u64);
        let mut out = Output::new(PathOutput { cx, batch: None, full: false });
        self.flows.expire(LANES, &mut out);
        self.flows.age(PARTS, &mut out);
        self.count();
    }

    fn finish(&mut self) {
        self.count();
    }
}
