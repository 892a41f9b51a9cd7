//! The packets of a trial.

use crate::generator::capture_timing::{self, CaptureTiming};
use crate::traffic_spec::CaptureFile;
use crate::traffic_spec::profile::Timetable;
use dpdk::Mempool;
use packet::{Batch, Packet, clock};
use std::sync::Arc;
use std::time::Duration;
use traffic::capture::PROBE_EVERY;
use traffic::order::Turns;
use traffic::short_connections::Connections;
use traffic::size::Cycle;
use traffic::tcp::{Client, Server, TcpSettings};
use traffic::{Fields, FlowSettings, FrameSequence, Pacer, Picker, Probe, Short, Stream, Template};
use wire::MacAddr;

/// Largest number of received packets that are kept for sending again.
const MAX_RECYCLED: usize = 4096;
/// Time limit for reading the first frames of a file.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// A source of packets. Consecutive trials continue where the previous one ended.
pub struct PacketSource<'a> {
    /// At least one stream, each sent into a port of its own; or only the ends of TCP connections.
    pub(crate) streams: Vec<StreamSource<'a>>,
    /// Timetable of a profile.
    pub(crate) timetable: Option<&'a Timetable>,
    /// Frames of each part of each stream of a profile.
    pub(crate) parts: Vec<Vec<SyntheticFrames<'a>>>,
}

/// Source of the packets of a stream.
pub(crate) enum StreamSource<'a> {
    Synthetic(SyntheticFrames<'a>),
    Replay(ReplayFrames<'a>),
    Tcp(Box<Endpoints>),
}

/// The ends of TCP connections.
pub(crate) struct Endpoints {
    pub(crate) client: Client,
    pub(crate) server: Server,
    pub(crate) settings: TcpSettings,
    pub(crate) host_mac: MacAddr,
    /// Time of the creation, ticks: time 0 of the client.
    pub(crate) created: u64,
}

/// Synthetic frames, each with a sequence number except SYNs without data.
pub(crate) struct SyntheticFrames<'a> {
    sizes: Cycle,
    flows: FlowSource<'a>,
    /// Fields that change from packet to packet.
    fields: Option<&'a Fields>,
    /// Number of the next packet among those of all generator cores, if there are such fields.
    packet: u64,
    cores: u64,
}

/// Source of the flow of each packet.
enum FlowSource<'a> {
    /// A fixed set of flows.
    Fixed { template: &'a Template, picker: Picker },
    /// Short connections, each sent once.
    Connections(Box<Connections>),
}

/// Frames of a capture, some of them with a sequence number.
pub(crate) struct ReplayFrames<'a> {
    turns: FrameSequence<'a>,
    /// Index of a frame with room for a sequence number.
    probe_frame: Option<usize>,
    /// Reader of a capture that does not fit into memory.
    stream: Option<Box<Stream>>,
    /// Timing of the capture, if it is kept.
    timing: Option<CaptureTiming<'a>>,
}

impl Endpoints {
    /// Sets the counts to zero.
    pub(crate) fn reset_counts(&mut self) {
        self.client.reset_counts();
        self.server.reset_counts();
    }
}

impl<'a> PacketSource<'a> {
    /// Returns a source of synthetic frames of a fixed set of flows.
    pub(crate) fn synthetic(frames: SyntheticFrames<'a>) -> Self {
        PacketSource::single(StreamSource::Synthetic(frames))
    }

    fn single(stream: StreamSource<'a>) -> Self {
        PacketSource { streams: vec![stream], timetable: None, parts: vec![] }
    }

    /// Returns the streams of a profile. `constant` are sent in trials without the profile, one into each port.
    pub(crate) fn profile(
        timetable: &'a Timetable,
        constant: Vec<SyntheticFrames<'a>>,
        parts: Vec<Vec<SyntheticFrames<'a>>>,
    ) -> Self {
        let streams = constant.into_iter().map(StreamSource::Synthetic).collect();
        PacketSource { streams, timetable: Some(timetable), parts }
    }

    /// Appends the streams of another source, whose frames must have the same headers.
    pub(crate) fn with_streams_of(mut self, other: Self) -> Self {
        self.streams.extend(other.streams);
        self
    }

    /// Returns a source of short connections.
    pub(crate) fn connections(short: &Short, sizes: Cycle) -> Self {
        let flows = FlowSource::Connections(Box::new(short.connections(0, 1)));
        PacketSource::single(StreamSource::Synthetic(SyntheticFrames {
            sizes,
            flows,
            fields: None,
            packet: 0,
            cores: 1,
        }))
    }

    /// Returns the ends of TCP connections between the addresses of `flows`.
    pub(crate) fn tcp(flows: &FlowSettings, settings: TcpSettings) -> Self {
        let (client, server) = (Client::new(settings.client(flows), 0), Server::new(settings.server(flows)));
        PacketSource::single(StreamSource::Tcp(Box::new(Endpoints {
            client,
            server,
            settings,
            host_mac: flows.src_mac,
            created: clock::cycles(),
        })))
    }

    /// Returns a source of the frames of a capture; one that does not fit into memory is read while it is sent.
    pub(crate) fn replay(trace: &'a CaptureFile, seed: u64, timing: Option<CaptureTiming<'a>>) -> Self {
        let capture = trace.capture();
        let stream = trace.stream(seed, 0, None).map(wait_for_first_frames);
        let (turns, probe_frame) = (capture.turns(seed), capture.first_with_room());
        PacketSource::single(StreamSource::Replay(ReplayFrames { turns, probe_frame, stream, timing }))
    }

    /// Rewinds captures that keep their timing to the first frame, which is due at the start of a trial.
    pub(crate) fn restart(&mut self) {
        for source in &mut self.streams {
            if let StreamSource::Replay(ReplayFrames { turns, stream, timing: Some(timing), .. }) = source {
                turns.rewind();
                if stream.is_some() {
                    // close the previous reader first to limit memory
                    *stream = None;
                    *stream = timing.open().map(wait_for_first_frames);
                }
            }
        }
    }

    /// Returns the timing of a stream that keeps the timing of its capture.
    pub(crate) fn timing(&self, stream: usize) -> Option<&CaptureTiming<'a>> {
        match &self.streams[stream] {
            StreamSource::Replay(replay) => replay.timing.as_ref(),
            StreamSource::Synthetic(_) | StreamSource::Tcp(_) => None,
        }
    }

    /// Returns the highest number of packets that a stream may send, of which `intended` are scheduled so far.
    pub(crate) fn max_packets(&self, stream: usize, intended: u64) -> u64 {
        match &self.streams[stream] {
            StreamSource::Replay(ReplayFrames { stream: Some(_), timing: Some(_), .. }) => u32::MAX.into(),
            _ => intended,
        }
    }

    /// Returns the number of packets of a stream that are due.
    #[inline(always)]
    pub(crate) fn due(&mut self, stream: usize, pacer: &mut Pacer, now: u64) -> usize {
        match &mut self.streams[stream] {
            StreamSource::Replay(ReplayFrames { turns, stream, timing: Some(_), .. }) => {
                capture_timing::due(pacer, turns, stream.as_deref_mut(), now)
            }
            _ => pacer.due(now),
        }
    }

    /// Returns the offset of the sequence number in a frame; `usize::MAX` if it differs between frames.
    pub(crate) fn probe_offset(&self) -> usize {
        match &self.streams[0] {
            StreamSource::Synthetic(SyntheticFrames { flows: FlowSource::Fixed { template, .. }, .. }) => {
                template.probe_at()
            }
            StreamSource::Synthetic(SyntheticFrames { flows: FlowSource::Connections(connections), .. }) => {
                connections.short().probe_at()
            }
            StreamSource::Replay(_) | StreamSource::Tcp(_) => usize::MAX,
        }
    }

    /// Returns the MAC address of the hosts that send, with which requests for neighbours are answered. None for
    /// captures, whose hosts may send such requests themselves.
    pub(crate) fn host_mac(&self) -> Option<MacAddr> {
        match &self.streams[0] {
            StreamSource::Synthetic(SyntheticFrames { flows: FlowSource::Fixed { template, .. }, .. }) => {
                Some(template.flows().settings().src_mac)
            }
            StreamSource::Synthetic(SyntheticFrames { flows: FlowSource::Connections(connections), .. }) => {
                Some(connections.short().flows().src_mac)
            }
            StreamSource::Tcp(endpoints) => Some(endpoints.host_mac),
            StreamSource::Replay(_) => None,
        }
    }

    /// Returns the flows of the next packets of a stream and the number of destination MAC addresses that flows have in
    /// turn, if there are several and the order of flows is not random.
    pub(crate) fn vnfs(&self, stream: usize) -> Option<(Turns, usize)> {
        let StreamSource::Synthetic(SyntheticFrames { flows: FlowSource::Fixed { template, picker }, .. }) =
            self.streams.get(stream)?
        else {
            return None;
        };
        let count = template.flows().settings().dst_macs.len();
        Some((picker.turns()?, count)).filter(|_| (2..=report::limit::VNFS).contains(&count))
    }

    /// Returns the mean number of packets per packet with a sequence number.
    pub(crate) fn probe_interval(&self) -> u64 {
        match &self.streams[0] {
            StreamSource::Synthetic(_) | StreamSource::Tcp(_) => 1,
            StreamSource::Replay(_) => PROBE_EVERY,
        }
    }

    /// Returns true if the payload behind the sequence number is a pattern that the receiver can verify.
    pub(crate) fn has_pattern(&self) -> bool {
        let has_pattern = |source: &StreamSource<'_>| {
            matches!(source, StreamSource::Synthetic(SyntheticFrames { flows: FlowSource::Fixed { .. }, .. }))
        };
        self.streams.iter().all(has_pattern)
    }

    /// Returns true if some packets have no sequence number.
    pub(crate) fn has_unnumbered_packets(&self) -> bool {
        match &self.streams[0] {
            StreamSource::Synthetic(SyntheticFrames { flows: FlowSource::Fixed { .. }, .. }) => false,
            StreamSource::Synthetic(SyntheticFrames { flows: FlowSource::Connections(connections), .. }) => {
                !connections.short().settings().data_in_syn
            }
            StreamSource::Replay(_) | StreamSource::Tcp(_) => true,
        }
    }
}

impl<'a> SyntheticFrames<'a> {
    /// Returns the frames of a fixed set of flows that one of several generator cores sends.
    pub(crate) fn of_flows(
        template: &'a Template,
        fields: Option<&'a Fields>,
        sizes: Cycle,
        (core, cores): (u32, u32),
    ) -> Self {
        let flows = FlowSource::Fixed { template, picker: template.flows().picker(core, cores) };
        SyntheticFrames { sizes, flows, fields, packet: core.into(), cores: cores.into() }
    }

    /// Writes the fields that change from packet to packet.
    #[inline(always)]
    fn vary(&mut self, frame: &mut [u8]) {
        if let Some(fields) = self.fields {
            fields.write(self.packet, frame);
            self.packet += self.cores;
        }
    }
}

/// A source of packets for one stream.
pub(crate) trait Source {
    /// Returns the next packet, and true if it has a sequence number; none if the buffer pool is empty.
    fn packet(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)>;

    /// As [`packet`](Source::packet) for warm-up packets, which have a sequence number if any frame has room for it.
    fn warm_up_packet(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)>;
}

impl Source for SyntheticFrames<'_> {
    #[inline(always)]
    fn packet(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
        let size = self.sizes.next_index();
        let (template, flow) = match &mut self.flows {
            FlowSource::Fixed { template, picker } => (*template, picker.next_flow()),
            FlowSource::Connections(connections) => return connection_packet(connections, size, probe, buffers),
        };
        let len = template.frame_len(size);
        // a recycled packet keeps its payload and its mbuf header, which both cores then only read
        if let Some(mut packet) = buffers.recycled.pop()
            && packet.len() == len
        {
            template.fill_head(size, flow, probe, packet.data_mut());
            self.vary(packet.data_mut());
            return Some((packet, true));
        }
        let Some(mut packet) = buffers.allocate() else {
            // flows of numbered packets follow from their numbers
            if let FlowSource::Fixed { picker, .. } = &mut self.flows {
                picker.step_back();
            }
            return None;
        };
        template.fill(size, flow, probe, packet.append(len)?);
        self.vary(packet.data_mut());
        Some((packet, true))
    }

    fn warm_up_packet(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
        self.packet(probe, buffers)
    }
}

/// Returns the next packet of a connection; without a buffer the connection lacks that packet.
#[inline]
fn connection_packet(
    connections: &mut Connections,
    size: usize,
    probe: Probe,
    buffers: &mut Buffers,
) -> Option<(Packet, bool)> {
    let turn = connections.next_turn(size);
    let mut packet = buffers.empty_packet()?;
    connections.fill(turn, probe, packet.append(turn.len())?);
    Some((packet, turn.is_numbered()))
}

/// Waits until the first frames of a file are read.
fn wait_for_first_frames(mut stream: Stream) -> Box<Stream> {
    stream.wait(FIRST_READ_TIMEOUT);
    Box::new(stream)
}

/// Returns the next packet of a file; none if it has not been read yet.
#[inline]
fn streamed_packet(stream: &mut Stream, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
    // without a buffer the frame is sent next time
    let mut packet = buffers.empty_packet()?;
    let turn = stream.next_turn()?;
    stream.fill(turn, turn.probe.then_some(probe), packet.append(stream.frame_len(turn))?);
    Some((packet, turn.probe))
}

impl ReplayFrames<'_> {
    #[inline(always)]
    fn frame(&self, frame: usize, probe: Option<Probe>, mut packet: Packet) -> Option<Packet> {
        let capture = self.turns.capture();
        let len = capture.frame(frame).len();
        capture.fill(frame, probe, packet.append(len)?);
        Some(packet)
    }
}

impl Source for ReplayFrames<'_> {
    #[inline(always)]
    fn packet(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
        if let Some(stream) = &mut self.stream {
            return streamed_packet(stream, probe, buffers);
        }
        // without a buffer the frame is sent next time
        let packet = buffers.empty_packet()?;
        let turn = self.turns.next_turn();
        Some((self.frame(turn.frame, turn.probe.then_some(probe), packet)?, turn.probe))
    }

    fn warm_up_packet(&mut self, probe: Probe, buffers: &mut Buffers) -> Option<(Packet, bool)> {
        let packet = buffers.empty_packet()?;
        let first = self.timing.as_ref().map(|_| 0);
        let frame = self.probe_frame.or(first).unwrap_or_else(|| self.turns.next_turn().frame);
        Some((self.frame(frame, Some(probe), packet)?, self.probe_frame.is_some()))
    }
}

/// Buffers of packets to be sent.
pub(crate) struct Buffers {
    pool: Arc<Mempool>,
    /// Received packets, to be sent again.
    recycled: Vec<Packet>,
    /// True if received packets are the buffers that were sent.
    recycle: bool,
    /// Packets allocated from the pool.
    allocated: Batch,
    /// Headroom of a newly allocated packet, bytes.
    headroom: usize,
    /// True if the pool was empty since the last call of [`take_exhausted`](Self::take_exhausted).
    exhausted: bool,
}

impl Buffers {
    pub(crate) fn new(pool: Arc<Mempool>, recycle: bool) -> Self {
        Buffers { pool, recycle, recycled: vec![], allocated: Batch::new(), headroom: 0, exhausted: false }
    }

    /// Allocates an empty packet; none if the pool is empty.
    #[inline(always)]
    fn allocate(&mut self) -> Option<Packet> {
        if self.allocated.is_empty() && !self.pool.fill(&mut self.allocated) {
            self.exhausted = true;
            return None;
        }
        self.allocated.pop()
    }

    /// Returns true if the pool was empty since the last call.
    pub(crate) fn take_exhausted(&mut self) -> bool {
        core::mem::take(&mut self.exhausted)
    }

    /// Returns an empty packet: a recycled one if its headroom is unchanged, else a new one.
    #[inline(always)]
    pub(crate) fn empty_packet(&mut self) -> Option<Packet> {
        if let Some(mut packet) = self.recycled.pop()
            && packet.headroom() == self.headroom
        {
            packet.truncate(0);
            return Some(packet);
        }
        let packet = self.allocate()?;
        self.headroom = packet.headroom();
        Some(packet)
    }

    /// Keeps received packets to send them again, and frees those beyond the limit.
    #[inline(always)]
    pub(crate) fn recycle(&mut self, arrived: &mut Batch) {
        while self.recycle
            && self.recycled.len() < MAX_RECYCLED
            && let Some(packet) = arrived.pop()
        {
            self.recycled.push(packet);
        }
        arrived.clear();
    }

    /// Frees recycled packets, whose payload belongs to other frames.
    pub(crate) fn free_recycled(&mut self) {
        self.recycled.clear();
    }

    /// Frees all packets.
    pub(crate) fn clear(&mut self) {
        self.free_recycled();
        self.allocated.clear();
    }
}
