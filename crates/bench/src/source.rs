//! What a trial sends, packet by packet.

use crate::gaps::{self, Gaps};
use crate::profile::Timetable;
use crate::trace::Trace;
use dpdk::Mempool;
use packet::{Batch, Packet};
use std::sync::Arc;
use std::time::Duration;
use traffic::capture::PROBE_EVERY;
use traffic::short::Connections;
use traffic::size::Cycle;
use traffic::{Pacer, Picker, Probe, Short, Stream, Template, Turns};

/// Packets that are kept to be sent again.
const SPARE: usize = 4096;
/// Time for the first frames of a file.
const FIRST_READ: Duration = Duration::from_secs(5);

/// What is sent, from its beginning; trials one after the other go on where the last has ended.
pub struct Load<'a> {
    /// At least one, each sent into an end of its own.
    pub(crate) streams: Vec<Kind<'a>>,
    /// What a profile says, and for each of its streams the frames of each of its parts.
    pub(crate) timetable: Option<&'a Timetable>,
    pub(crate) parts: Vec<Vec<Made<'a>>>,
}

/// Where a load's packets come from.
pub(crate) enum Kind<'a> {
    Made(Made<'a>),
    Replay(Replay<'a>),
}

/// Frames made for flows, each with a number but for SYNs without data.
pub(crate) struct Made<'a> {
    sizes: Cycle,
    way: Way<'a>,
}

/// How flows take turns.
enum Way<'a> {
    /// Over and over.
    Flows { template: &'a Template, picker: Picker },
    /// Each once.
    Short(Box<Connections>),
}

/// Frames of a capture, one now and then with a number.
pub(crate) struct Replay<'a> {
    turns: Turns<'a>,
    /// A frame with room for a number.
    room: Option<usize>,
    /// The file, where memory does not hold all of it.
    stream: Option<Box<Stream>>,
    /// Its own gaps, if it keeps them.
    gaps: Option<Gaps<'a>>,
}

impl<'a> Load<'a> {
    pub(crate) fn made(template: &'a Template, sizes: Cycle, picker: Picker) -> Self {
        Load::of(Kind::Made(Made::flows(template, sizes, picker)))
    }

    fn of(kind: Kind<'a>) -> Self {
        Load { streams: vec![kind], timetable: None, parts: vec![] }
    }

    /// The streams of a profile; `plain` are sent where none is asked for, one into each port.
    pub(crate) fn programme(timetable: &'a Timetable, plain: Vec<Made<'a>>, parts: Vec<Vec<Made<'a>>>) -> Self {
        Load { streams: plain.into_iter().map(Kind::Made).collect(), timetable: Some(timetable), parts }
    }

    /// With the streams of another load behind its own. Their frames have to be of the same headers.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.streams.extend(other.streams);
        self
    }

    pub(crate) fn short(short: &Short, sizes: Cycle) -> Self {
        Load::of(Kind::Made(Made { sizes, way: Way::Short(Box::new(short.connections(0, 1))) }))
    }

    /// The frames of a capture, read as they are sent where memory does not hold them.
    pub(crate) fn replay(trace: &'a Trace, seed: u64, gaps: Option<Gaps<'a>>) -> Self {
        let capture = trace.capture();
        let stream = trace.stream(seed, 0, None).map(ready);
        Load::of(Kind::Replay(Replay { turns: capture.turns(seed), room: capture.first_with_room(), stream, gaps }))
    }

    /// Has captures that keep their own gaps begin with their first frame: so much is due at a trial's start.
    pub(crate) fn restart(&mut self) {
        for kind in &mut self.streams {
            if let Kind::Replay(Replay { turns, stream, gaps: Some(gaps), .. }) = kind {
                turns.rewind();
                if stream.is_some() {
                    // the one before ends first: two would hold twice the memory
                    *stream = None;
                    *stream = gaps.stream().map(ready);
                }
            }
        }
    }

    /// The own gaps of a stream, if it keeps them.
    pub(crate) fn gaps(&self, stream: usize) -> Option<&Gaps<'a>> {
        match &self.streams[stream] {
            Kind::Replay(replay) => replay.gaps.as_ref(),
            Kind::Made(_) => None,
        }
    }

    /// The highest number of packets that a stream may send, given what its schedule says before it begins.
    pub(crate) fn most(&self, stream: usize, intended: u64) -> u64 {
        match &self.streams[stream] {
            Kind::Replay(Replay { stream: Some(_), gaps: Some(_), .. }) => u32::MAX.into(),
            _ => intended,
        }
    }

    /// How many packets of a stream are due.
    #[inline(always)]
    pub(crate) fn due(&mut self, stream: usize, pacer: &mut Pacer, now: u64) -> usize {
        match &mut self.streams[stream] {
            Kind::Replay(Replay { turns, stream, gaps: Some(_), .. }) => {
                gaps::due(pacer, turns, stream.as_deref_mut(), now)
            }
            _ => pacer.due(now),
        }
    }

    /// Where in a frame its number is; `usize::MAX` where that depends.
    pub(crate) fn probe_at(&self) -> usize {
        match &self.streams[0] {
            Kind::Made(Made { way: Way::Flows { template, .. }, .. }) => template.probe_at(),
            Kind::Made(Made { way: Way::Short(connections), .. }) => connections.short().probe_at(),
            Kind::Replay(_) => usize::MAX,
        }
    }

    /// Of so many packets, about one carries a number.
    pub(crate) fn numbered_every(&self) -> u64 {
        match &self.streams[0] {
            Kind::Made(_) => 1,
            Kind::Replay(_) => PROBE_EVERY,
        }
    }

    /// Whether all behind a packet's number is the generator's own, and known.
    pub(crate) fn has_pattern(&self) -> bool {
        self.streams.iter().all(|kind| matches!(kind, Kind::Made(Made { way: Way::Flows { .. }, .. })))
    }

    /// Whether some packets carry no number.
    pub(crate) fn is_replay(&self) -> bool {
        match &self.streams[0] {
            Kind::Made(Made { way: Way::Flows { .. }, .. }) => false,
            Kind::Made(Made { way: Way::Short(connections), .. }) => !connections.short().settings().data_in_syn,
            Kind::Replay(_) => true,
        }
    }
}

impl<'a> Made<'a> {
    pub(crate) fn flows(template: &'a Template, sizes: Cycle, picker: Picker) -> Self {
        Made { sizes, way: Way::Flows { template, picker } }
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
        let size = self.sizes.next_index();
        let (template, flow) = match &mut self.way {
            Way::Flows { template, picker } => (*template, picker.next_flow()),
            Way::Short(connections) => return short(connections, size, probe, buffers),
        };
        let len = template.frame_len(size);
        // one that has come back keeps its buffer's header, which both cores then only read, and its payload
        if let Some(mut packet) = buffers.spare.pop()
            && packet.len() == len
        {
            template.fill_head(size, flow, probe, packet.data_mut());
            return Some((packet, true));
        }
        let mut packet = buffers.fresh()?;
        template.fill(size, flow, probe, packet.append(len)?);
        Some((packet, true))
    }

    fn prelude(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
        self.packet(probe, buffers)
    }
}

/// A packet of a connection. One for which there is no buffer is lost to its connection.
#[inline]
fn short(connections: &mut Connections, size: usize, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
    let turn = connections.next_turn(size);
    let mut packet = buffers.empty()?;
    connections.fill(turn, probe, packet.append(turn.len())?);
    Some((packet, turn.is_numbered()))
}

/// Waits for the first frames of a file.
fn ready(mut stream: Stream) -> Box<Stream> {
    stream.wait(FIRST_READ);
    Box::new(stream)
}

/// A packet of a file; none where that has not been read yet.
#[inline]
fn streamed(stream: &mut Stream, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
    // a frame for which there is no buffer keeps its turn
    let mut packet = buffers.empty()?;
    let turn = stream.next_turn()?;
    stream.fill(turn, turn.probe.then_some(probe), packet.append(stream.frame_len(turn))?);
    Some((packet, turn.probe))
}

impl Replay<'_> {
    #[inline(always)]
    fn frame(&self, frame: usize, probe: Option<Probe>, mut packet: Packet) -> Option<Packet> {
        let capture = self.turns.capture();
        let len = capture.frame(frame).len();
        capture.fill(frame, probe, packet.append(len)?);
        Some(packet)
    }
}

impl Source for Replay<'_> {
    #[inline(always)]
    fn packet(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
        if let Some(stream) = &mut self.stream {
            return streamed(stream, probe, buffers);
        }
        // a frame for which there is no buffer keeps its turn
        let packet = buffers.empty()?;
        let turn = self.turns.next_turn();
        Some((self.frame(turn.frame, turn.probe.then_some(probe), packet)?, turn.probe))
    }

    fn prelude(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
        let packet = buffers.empty()?;
        let first = self.gaps.as_ref().map(|_| 0);
        let frame = self.room.or(first).unwrap_or_else(|| self.turns.next_turn().frame);
        Some((self.frame(frame, Some(probe), packet)?, self.room.is_some()))
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
