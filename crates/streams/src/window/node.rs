//! Node that inspects byte streams.

use super::counts::counts;
use super::flows::{DropReason, Fate, Flows, NO_FLOW};
use super::frame::{self, Classified, FlowPacket, Frame};
use super::hold::{HeldPackets, PathOutput};
use super::transport::Transport;
use super::{Inspect, Settings};
use crate::counts::{Published, Tables};
use diagnostics::Diagnostic;
use graph::{BoundedTable, Context, Counter, Named, Node, StatsTable};
use packet::{BURST, Batch, Packet};
use std::sync::Arc;
use std::time::Duration;

/// Number of slices in which the flow table is scanned for expired flows; all of them once a second.
const PARTS: usize = 250;
const TICK: Duration = Duration::from_millis(4);

/// The node created by [`window`](crate::window()).
pub struct Windowed<T: Transport, L: Inspect> {
    flows: Flows<T, L>,
    /// Held packets.
    holding: Option<HeldPackets>,
    /// True if packets with a wrong checksum are skipped.
    checksums: bool,
    published: Published,
    tables: Tables,
    /// Slices scanned of the flow table, which is scanned once a second.
    scanned: usize,
    kinds: [Classified; BURST],
    parts: [FlowPacket; BURST],
    ways: [u8; BURST],
    numbers: [u32; BURST],
}

impl<T: Transport, L: Inspect> Windowed<T, L> {
    pub(super) fn new(settings: &Settings, look: L) -> Result<Self, Diagnostic> {
        Ok(Windowed {
            flows: Flows::new(settings, look)?,
            holding: settings.hold.then(|| HeldPackets::new(settings)),
            checksums: settings.checksums,
            tables: Tables::new(settings.flows, settings.memory),
            published: Published::new(&counts(&Default::default(), &Default::default(), Default::default())),
            scanned: 0,
            kinds: [Classified::Other; BURST],
            parts: [FlowPacket::default(); BURST],
            ways: [0; BURST],
            numbers: [NO_FLOW; BURST],
        })
    }

    /// Parses the packets of a batch and looks up their flows.
    #[inline(always)]
    fn read(&mut self, batch: &mut Batch) {
        let Self { flows, kinds, parts, ways, numbers, checksums, .. } = self;
        let mut n = 0;
        batch.for_each(
            #[inline(always)]
            |packet| {
                let at = n & (BURST - 1);
                n += 1;
                let (kind, part) = match frame::read::<T>(packet.data(), *checksums) {
                    Frame::V4(key, part) => {
                        flows.v4.ask(key, at);
                        (Classified::Ours, part)
                    }
                    Frame::V6(key, part) => {
                        flows.v6.ask(key, at);
                        (Classified::Ours, part)
                    }
                    Frame::Unreadable => (Classified::Unreadable, FlowPacket::default()),
                    Frame::Other => (Classified::Other, FlowPacket::default()),
                };
                (kinds[at], parts[at], ways[at]) = (kind, part, part.way);
            },
        );
        flows.find(ways, numbers);
    }

    /// Feeds a packet to its stream. `room`: true if the packet could be held.
    #[inline(always)]
    fn show(&mut self, at: usize, packet: &Packet, room: bool) -> Fate {
        let at = at & (BURST - 1);
        let flows = &mut self.flows;
        match self.kinds[at] {
            Classified::Ours if self.numbers[at] != NO_FLOW => {
                let part = &self.parts[at];
                let payload = part.payload(packet.data());
                flows.packet(self.numbers[at], usize::from(part.way & 1), &part.segment, payload, room)
            }
            Classified::Ours => flows.fail(DropReason::Unseen),
            Classified::Unreadable => {
                flows.met.unreadable += 1;
                flows.fail(DropReason::Unseen)
            }
            Classified::Other => Fate::Pass,
        }
    }

    /// Processes a batch packet by packet, since some may be held.
    fn process_held(&mut self, cx: &mut Context<'_>, batch: &mut Batch) {
        let packets = batch.drain();
        let mut door = PathOutput { cx, batch: Some(batch), full: false };
        self.settle(&mut door);
        for (at, packet) in packets.enumerate() {
            let id = self.numbers[at & (BURST - 1)].wrapping_mul(2) | u32::from(self.parts[at & (BURST - 1)].way);
            let room = self.holding.as_ref().is_some_and(|holding| holding.has_room(id));
            match self.show(at, &packet, room) {
                Fate::Pass => {
                    if let Some(holding) = &mut self.holding {
                        holding.send_inspected_before(&mut self.flows, &mut door, id);
                    }
                    door.send(door.cx.path(), packet);
                }
                Fate::Drop(reason) => door.cx.drop(reason, packet),
                Fate::Hold(end) => {
                    if let Some(holding) = &mut self.holding {
                        holding.hold(&mut self.flows, &mut door, id, packet, end);
                    }
                }
            }
            self.settle(&mut door);
        }
    }

    fn settle(&mut self, door: &mut PathOutput<'_, '_>) {
        match &mut self.holding {
            Some(holding) => holding.send_inspected(&mut self.flows, door),
            None => self.flows.touched.clear(),
        }
    }

    fn count(&self) {
        self.tables.set(self.flows.occupancy());
        self.published.set(&counts(&self.flows.met, &self.flows.tally, self.flows.gauges()));
    }
}

impl<T: Transport, L: Inspect> Node for Windowed<T, L> {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.published.named()
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.flows.table.table())
    }

    fn gauges(&self) -> Vec<&'static str> {
        vec!["flows", "memory_bytes", "waiting_streams"]
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.tables.published()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        self.flows.set_clock(cx.now().as_millis() as u64);
        self.read(batch);
        if self.holding.is_some() {
            self.process_held(cx, batch);
            return;
        }
        let mut at = 0;
        batch.extract_if(
            #[inline(always)]
            |packet| {
                at += 1;
                match self.show(at - 1, packet, false) {
                    Fate::Drop(reason) => Some(reason),
                    Fate::Pass | Fate::Hold(_) => None,
                }
            },
            |reason, packet| cx.drop(reason, packet),
        );
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.flows.set_clock(cx.now().as_millis() as u64);
        self.flows.expire();
        self.flows.age(PARTS);
        self.scanned += 1;
        if self.scanned == PARTS {
            self.scanned = 0;
            self.flows.table.publish();
        }
        self.settle(&mut PathOutput { cx, batch: None, full: false });
        self.count();
    }

    fn finish(&mut self) {
        self.flows.stop();
        self.flows.touched.clear();
        self.count();
    }
}
