//! The node.

use super::counts::Counts;
use super::flows::{Flows, NOBODY};
use super::out::Out;
use super::{DROPS, Rewrite, Settings};
use crate::window::frame::{self, Frame, Kind, Part};
use crate::window::hold::Door;
use diagnostics::Diagnostic;
use graph::{Counter, Context, Node};
use packet::{BURST, Batch};
use std::sync::Arc;
use std::time::Duration;
use wire::Tcp;

/// In how many parts the flows are looked through for those to forget; all of them in a second.
const PARTS: usize = 250;
const TICK: Duration = Duration::from_millis(4);
/// Directions at most that are looked at in one wake, of those that wait for time to pass; they take turns.
const LANES: usize = 1024;

/// The node that [`packetize`](crate::packetize()) makes.
pub struct Packetized<R: Rewrite> {
    flows: Flows<R>,
    counts: Counts,
    kinds: [Kind; BURST],
    parts: [Part; BURST],
    numbers: [u32; BURST],
}

impl<R: Rewrite> Packetized<R> {
    pub(super) fn new(settings: &Settings, rewrite: R) -> Result<Self, Diagnostic> {
        Ok(Packetized {
            flows: Flows::new(settings, rewrite)?,
            counts: Counts::default(),
            kinds: [Kind::Other; BURST],
            parts: [Part::default(); BURST],
            numbers: [NOBODY; BURST],
        })
    }

    /// Reads the packets of a batch, and finds their flows.
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
                    Frame::V4(key, part) if flows.wants(&key.five_tuple()) => {
                        flows.v4.ask(key, at);
                        (Kind::Ours, part)
                    }
                    Frame::V6(key, part) if flows.wants(&key.five_tuple()) => {
                        flows.v6.ask(key, at);
                        (Kind::Ours, part)
                    }
                    Frame::Unreadable => (Kind::Unreadable, Part::default()),
                    Frame::V4(..) | Frame::V6(..) | Frame::Other => (Kind::Other, Part::default()),
                };
                (kinds[at], parts[at], numbers[at]) = (kind, part, NOBODY);
            },
        );
        flows.find(numbers);
    }

    fn count(&self) {
        self.counts.show(&self.flows.met, &self.flows.tally, self.flows.gauges());
    }
}

impl<R: Rewrite> Node for Packetized<R> {
    fn drops(&self) -> &[&'static str] {
        &DROPS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.counts.named()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        self.flows.set_clock(cx.now().as_millis() as u64);
        self.read(batch);
        let packets = batch.drain();
        let mut out = Out::new(Door { cx, batch: Some(batch), full: false });
        for (at, packet) in packets.enumerate() {
            let at = at & (BURST - 1);
            match self.kinds[at] {
                Kind::Ours => self.flows.packet(self.numbers[at], &self.parts[at], packet, &mut out),
                Kind::Unreadable => self.flows.unreadable(packet, &mut out),
                Kind::Other => out.pass(packet),
            }
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.flows.set_clock(cx.now().as_millis() as u64);
        let mut out = Out::new(Door { cx, batch: None, full: false });
        self.flows.expire(LANES, &mut out);
        self.flows.age(PARTS, &mut out);
        self.count();
    }

    fn finish(&mut self) {
        self.count();
    }
}
