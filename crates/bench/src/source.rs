//! What a trial sends, packet by packet.

use dpdk::Mempool;
use packet::{Batch, Packet};
use std::sync::Arc;
use traffic::capture::PROBE_EVERY;
use traffic::size::Cycle;
use traffic::{Capture, Picker, Probe, Template, Turns};

/// Packets that are kept to be sent again.
const SPARE: usize = 4096;

/// What is sent, from its beginning; trials one after the other go on where the last has ended.
pub struct Load<'a>(pub(crate) Kind<'a>);

/// Where a load's packets come from.
pub(crate) enum Kind<'a> {
    Made(Made<'a>),
    Replay(Replay<'a>),
}

/// Frames made for flows, each with a number.
pub(crate) struct Made<'a> {
    template: &'a Template,
    sizes: Cycle,
    picker: Picker,
}

/// Frames of a capture, one now and then with a number.
pub(crate) struct Replay<'a> {
    turns: Turns<'a>,
    /// A frame with room for a number.
    room: Option<usize>,
}

impl<'a> Load<'a> {
    pub(crate) fn made(template: &'a Template, sizes: Cycle, picker: Picker) -> Self {
        Load(Kind::Made(Made { template, sizes, picker }))
    }

    pub(crate) fn replay(capture: &'a Capture, seed: u64) -> Self {
        Load(Kind::Replay(Replay { turns: capture.turns(seed), room: capture.first_with_room() }))
    }

    /// Where in a frame its number is; `usize::MAX` where that depends.
    pub(crate) fn probe_at(&self) -> usize {
        match &self.0 {
            Kind::Made(made) => made.template.probe_at(),
            Kind::Replay(_) => usize::MAX,
        }
    }

    /// Of so many packets, about one carries a number.
    pub(crate) fn numbered_every(&self) -> u64 {
        match &self.0 {
            Kind::Made(_) => 1,
            Kind::Replay(_) => PROBE_EVERY,
        }
    }

    /// Whether some packets carry no number.
    pub(crate) fn is_replay(&self) -> bool {
        matches!(self.0, Kind::Replay(_))
    }
}

/// Makes packets.
pub(crate) trait Source {
    /// The next packet, and whether it carries the number; none without buffers.
    fn packet(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)>;

    /// As [`packet`](Source::packet), of those sent before a trial: with a number if any has room for it.
    fn prelude(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)>;
}

impl Source for Made<'_> {
    #[inline(always)]
    fn packet(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
        let (size, flow) = (self.sizes.next_index(), self.picker.next_flow());
        let len = self.template.frame_len(size);
        // one that has come back keeps its buffer's header, which both cores then only read, and its payload
        if let Some(mut packet) = buffers.spare.pop()
            && packet.len() == len
        {
            self.template.fill_head(size, flow, probe, packet.data_mut());
            return Some((packet, true));
        }
        let mut packet = buffers.fresh()?;
        self.template.fill(size, flow, probe, packet.append(len)?);
        Some((packet, true))
    }

    fn prelude(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
        self.packet(probe, buffers)
    }
}

impl Replay<'_> {
    #[inline(always)]
    fn frame(&self, frame: usize, probe: Option<Probe>, buffers: &mut Buffers) -> Option<Packet> {
        let capture = self.turns.capture();
        let len = capture.frame(frame).len();
        let mut packet = buffers.empty()?;
        capture.fill(frame, probe, packet.append(len)?);
        Some(packet)
    }
}

impl Source for Replay<'_> {
    #[inline(always)]
    fn packet(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
        let turn = self.turns.next_turn();
        Some((self.frame(turn.frame, turn.probe.then_some(probe), buffers)?, turn.probe))
    }

    fn prelude(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
        let frame = self.room.unwrap_or_else(|| self.turns.next_turn().frame);
        Some((self.frame(frame, Some(probe), buffers)?, self.room.is_some()))
    }
}

/// Buffers to send in.
pub(crate) struct Buffers {
    pool: Arc<Mempool>,
    /// Packets that have come back.
    spare: Vec<Packet>,
    /// Whether these are the very ones that were sent.
    own: bool,
    /// New ones.
    ready: Batch,
    /// Bytes free before the data of a new one.
    headroom: usize,
}

impl Buffers {
    pub(crate) fn new(pool: Arc<Mempool>, own: bool) -> Self {
        Buffers { pool, own, spare: vec![], ready: Batch::new(), headroom: 0 }
    }

    /// A new one, without bytes.
    #[inline(always)]
    fn fresh(&mut self) -> Option<Packet> {
        if self.ready.is_empty() && !self.pool.fill(&mut self.ready) {
            return None;
        }
        self.ready.pop()
    }

    /// One without bytes; one that has come back, if nothing was put in front of its bytes or taken off there.
    #[inline(always)]
    fn empty(&mut self) -> Option<Packet> {
        if let Some(mut packet) = self.spare.pop()
            && packet.headroom() == self.headroom
        {
            packet.truncate(0);
            return Some(packet);
        }
        let packet = self.fresh()?;
        self.headroom = packet.headroom();
        Some(packet)
    }

    /// Keeps packets that have come back, as many as are worth it.
    #[inline(always)]
    pub(crate) fn keep(&mut self, arrived: &mut Batch) {
        while self.own
            && self.spare.len() < SPARE
            && let Some(packet) = arrived.pop()
        {
            self.spare.push(packet);
        }
        arrived.clear();
    }

    /// Gives back those that have come back: their payload is that of other frames.
    pub(crate) fn forget(&mut self) {
        self.spare.clear();
    }

    /// Gives back all.
    pub(crate) fn clear(&mut self) {
        self.forget();
        self.ready.clear();
    }
}
