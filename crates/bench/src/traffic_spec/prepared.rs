//! Prepared traffic.

use super::capture_file::CaptureFile;
use super::error::PrepareError;
use super::prepared_frames::PreparedFrames;
use super::profile::Timetable;
use super::profile_streams::ProfileStreams;
use super::replay::{self, Replay};
use super::synthetic::{self, SyntheticOptions};
use crate::generator::packet_source::PacketSource;
use crate::trial::{Macs, StreamOutput};
use report::{Frames, Mix as MixDocument, MixPart};
use std::collections::BTreeMap;
use traffic::nfpa::Direction;
use traffic::short_connections::{Short, ShortSettings};
use traffic::tcp::TcpSettings;
use traffic::{FieldSpec, FlowSettings, Flows, Mix, Order, Stack};
use wire::MacAddr;

/// First bytes of the addresses that a switch has to learn: unicast, locally administered.
const ADDRESS_PREFIX: [u8; 2] = [0x02, 0xbd];
/// Largest burst of packets that are late.
const BURST: u32 = 8;

/// Traffic with its frames built, ready to send.
pub struct PreparedTraffic {
    name: String,
    frames: FrameSource,
}

enum FrameSource {
    Made { forward: PreparedFrames, back: Option<PreparedFrames>, mix: Mix, options: Box<SyntheticOptions> },
    Short { short: Short, mix: Mix },
    Tcp { flows: FlowSettings, settings: TcpSettings },
    Replayed(Replay),
    Profile(Box<ProfileStreams>),
}

impl PreparedTraffic {
    /// Prepares synthetic frames of a mix; `name` is the mix as written.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn synthetic(name: &str, flows: &Flows, mix: &Mix) -> Result<PreparedTraffic, PrepareError> {
        PreparedTraffic::synthetic_with_options(name, flows, None, mix, &SyntheticOptions::default())
    }

    /// Prepares synthetic frames with the headers of `options`, and those of the flows `back` in the reverse direction.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn synthetic_with_options(
        name: &str,
        flows: &Flows,
        back: Option<&Flows>,
        mix: &Mix,
        options: &SyntheticOptions,
    ) -> Result<PreparedTraffic, PrepareError> {
        let fields: Vec<_> = options.vary.iter().map(|field| field.spec().clone()).collect();
        let back = back.map(|back| {
            let fields: Vec<_> = fields.iter().map(FieldSpec::reversed).collect();
            PreparedFrames::new(back, mix, options.stack.clone().map(Stack::reversed).as_ref(), &fields)
        });
        let back = back.transpose()?;
        let forward = PreparedFrames::new(flows, mix, options.stack.as_ref(), &fields)?;
        Ok(PreparedTraffic {
            name: name.to_owned(),
            frames: FrameSource::Made { forward, back, mix: mix.clone(), options: Box::new(options.clone()) },
        })
    }

    /// Prepares short connections between the addresses of `flows`.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn connections(
        name: &str,
        flows: &FlowSettings,
        mix: &Mix,
        settings: ShortSettings,
    ) -> Result<PreparedTraffic, PrepareError> {
        let short = Short::new(flows, mix, settings)?;
        Ok(PreparedTraffic { name: name.to_owned(), frames: FrameSource::Short { short, mix: mix.clone() } })
    }

    /// Returns the traffic with these MAC addresses in place of its own, and one flow; none if it is not synthetic frames of
    /// flows.
    pub(crate) fn with_macs(&self, macs: Macs) -> Option<PreparedTraffic> {
        let FrameSource::Made { forward, mix, options, .. } = &self.frames else { return None };
        let settings = FlowSettings { count: 1, ..forward.flows().settings().clone() };
        let address = |number: u64| {
            let [a, b, c, d] = (number as u32).to_be_bytes();
            MacAddr([ADDRESS_PREFIX[0], ADDRESS_PREFIX[1], a, b, c, d])
        };
        let name = if macs.is_source { "eth.src" } else { "eth.dst" };
        let last = address(macs.first + u64::from(macs.count) - 1);
        let field = format!("{name}={}-{last}", address(macs.first)).parse().ok()?;
        let forward = PreparedFrames::new(&Flows::new(settings).ok()?, mix, options.stack.as_ref(), &[field]).ok()?;
        let frames = FrameSource::Made { forward, back: None, mix: mix.clone(), options: options.clone() };
        Some(PreparedTraffic { name: self.name.clone(), frames })
    }

    /// Prepares TCP connections between the addresses of `flows`, whose count is that of the pairs of client address and
    /// port.
    pub fn tcp(flows: FlowSettings, settings: TcpSettings) -> PreparedTraffic {
        PreparedTraffic { name: "tcp".to_owned(), frames: FrameSource::Tcp { flows, settings } }
    }

    /// Prepares a replay.
    pub(crate) fn from_replay(replay: Replay) -> PreparedTraffic {
        PreparedTraffic { name: replay.name(), frames: FrameSource::Replayed(replay) }
    }

    /// Prepares the streams of a profile.
    pub(crate) fn from_profile(streams: ProfileStreams) -> PreparedTraffic {
        PreparedTraffic { name: streams.timetable().profile().name(), frames: FrameSource::Profile(Box::new(streams)) }
    }

    /// Returns the timetable of a profile, if it is one.
    pub fn timetable(&self) -> Option<&Timetable> {
        match &self.frames {
            FrameSource::Profile(streams) => Some(streams.timetable()),
            _ => None,
        }
    }

    /// Returns the mix as written, or the name of the capture or script.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a source of packets that starts with the first one.
    pub fn packet_source(&self) -> PacketSource<'_> {
        self.core_source(0, 1)
    }

    /// Returns true if several generator cores can send it, each a part of the flows.
    pub(crate) fn is_divisible(&self) -> bool {
        matches!(self.frames, FrameSource::Made { .. })
    }

    /// Returns the source of packets of one of several generator cores: of flow `n` it sends those with `n` modulo `cores`
    /// equal to `core`, or draws from all flows if their order is random.
    pub(crate) fn core_source(&self, core: usize, cores: usize) -> PacketSource<'_> {
        match &self.frames {
            FrameSource::Made { forward, back, mix, .. } => {
                let made =
                    |frames| PacketSource::synthetic(PreparedFrames::source(frames, mix, core as u32, cores as u32));
                back.iter().map(made).fold(made(forward), PacketSource::with_streams_of)
            }
            FrameSource::Short { short, mix } => PacketSource::connections(short, mix.cycle()),
            FrameSource::Tcp { flows, settings } => PacketSource::tcp(flows, *settings),
            FrameSource::Replayed(replay) => replay.packet_source(),
            FrameSource::Profile(streams) => streams.packet_source(),
        }
    }

    /// Returns the bytes of the longest frame without FCS.
    pub fn longest_frame(&self) -> usize {
        match &self.frames {
            FrameSource::Made { mix, .. } | FrameSource::Short { mix, .. } => mix.largest().without_fcs(),
            FrameSource::Tcp { flows, settings } => settings.longest_frame(flows.src.is_ipv4()),
            FrameSource::Replayed(replay) => {
                replay.traces().iter().map(|trace| trace.capture().longest()).max().unwrap_or(0)
            }
            FrameSource::Profile(streams) => streams.longest_frame(),
        }
    }

    /// Returns the number of flows of synthetic frames, 0 for other traffic.
    pub(crate) fn flow_count(&self) -> u32 {
        match &self.frames {
            FrameSource::Made { forward, .. } => forward.flows().count(),
            _ => 0,
        }
    }

    /// Returns the number of directions, 1 or 2.
    pub fn directions(&self) -> u8 {
        match &self.frames {
            FrameSource::Made { back: Some(_), .. } => 2,
            FrameSource::Replayed(replay) => replay.directions(),
            FrameSource::Profile(streams) => streams.timetable().ports(),
            _ => 1,
        }
    }

    /// Returns true if packets are sent into two ports: both directions, or the answers of servers.
    pub fn is_bidirectional(&self) -> bool {
        self.directions() > 1 || self.tcp_settings().is_some_and(|settings| !settings.dsr)
    }

    /// Returns the settings of TCP connections with client and server, if it consists of them.
    pub fn tcp_settings(&self) -> Option<TcpSettings> {
        match &self.frames {
            FrameSource::Tcp { settings, .. } => Some(*settings),
            _ => None,
        }
    }

    /// Returns the captures of a replay, one per direction.
    pub fn captures(&self) -> &[CaptureFile] {
        self.replay().map_or(&[], Replay::traces)
    }

    fn replay(&self) -> Option<&Replay> {
        match &self.frames {
            FrameSource::Replayed(replay) => Some(replay),
            _ => None,
        }
    }

    /// Returns the rate of a capture that is sent with its gaps, packets per second.
    pub fn captured_pps(&self) -> Option<f64> {
        self.replay()?.captured_pps()
    }

    /// Describes what is rewritten in captures, with true if that changes any frame.
    pub fn rewritten(&self) -> Option<(String, bool)> {
        let replay = self.replay()?;
        Some((replay.rewrite_summary()?, !replay.rewrites_nothing()))
    }

    /// Returns the description in a result.
    pub fn document(&self) -> report::Traffic {
        let of = |frames, flows, protocol: &str, seed| report::Traffic {
            frames,
            flows,
            protocol: protocol.to_owned(),
            burst: BURST,
            directions: self.directions(),
            trace_sha256: None,
            reverse_trace_sha256: None,
            profile: None,
            vary: vec![],
            tcp: None,
            seed: Some(seed),
        };
        match &self.frames {
            FrameSource::Made { forward, mix, options, .. } => {
                let settings = forward.flows().settings();
                let stack = options.stack.as_ref().map_or_else(|| "udp".to_owned(), Stack::to_string);
                let hash = options.trace.map(|trace| trace.sha256(Direction::Forward, synthetic::TRACE_SEED));
                let traffic = of(self.sizes(mix), settings.count.into(), &stack, settings.seed);
                let vary = options.vary.iter().map(ToString::to_string).collect();
                report::Traffic { trace_sha256: hash, vary, ..traffic }
            }
            FrameSource::Short { short, mix } => {
                of(self.sizes(mix), short.settings().concurrent.into(), "tcp", short.flows().seed)
            }
            FrameSource::Tcp { flows, settings } => {
                let sizes = settings.client_frame_sizes(flows.src.is_ipv4()).into_iter();
                let parts = sizes.map(|(frame_bytes, weight)| MixPart { frame_bytes, weight }).collect();
                let frames = Frames::Mix(MixDocument { name: self.name.clone(), parts });
                let traffic = of(frames, flows.count.into(), "tcp", flows.seed);
                report::Traffic { tcp: Some(settings.to_string()), ..traffic }
            }
            FrameSource::Replayed(replay) => replay.document(of(Frames::FrameBytes(0), 0, "as captured", replay::SEED)),
            FrameSource::Profile(streams) => {
                let traffic = of(streams.frames(), streams.flows(), "udp", streams.seed());
                // rates are sums over all streams and ports
                report::Traffic { directions: 1, profile: Some(streams.document()), ..traffic }
            }
        }
    }

    fn sizes(&self, mix: &Mix) -> Frames {
        match mix.entries() {
            [(size, _)] => Frames::FrameBytes(size.with_fcs()),
            parts => Frames::Mix(MixDocument {
                name: self.name.clone(),
                parts: parts
                    .iter()
                    .map(|(size, weight)| MixPart { frame_bytes: size.with_fcs(), weight: *weight })
                    .collect(),
            }),
        }
    }

    /// Returns the streams of a profile with their outputs, for a result.
    pub fn stream_documents(&self, outputs: &[StreamOutput]) -> Vec<report::Stream> {
        let Some(timetable) = self.timetable() else { return vec![] };
        timetable
            .streams()
            .iter()
            .zip(outputs)
            .map(|(stream, output)| stream.document(output, timetable.seconds()))
            .collect()
    }

    /// Returns the parameters that distinguish this traffic from others, besides frame sizes.
    pub fn cell(&self) -> BTreeMap<String, String> {
        let mut cell = BTreeMap::new();
        match &self.frames {
            FrameSource::Made { forward, options, .. } => {
                let settings = forward.flows().settings();
                if options.trace.is_none() {
                    cell.insert("flows".to_owned(), settings.count.to_string());
                }
                if settings.order != Order::default() {
                    cell.insert("order".to_owned(), settings.order.to_string());
                }
                cell.extend(options.parameters());
            }
            FrameSource::Short { short, .. } => {
                cell.insert("short".to_owned(), short.settings().to_string());
            }
            FrameSource::Tcp { flows, settings } => {
                cell.insert("flows".to_owned(), flows.count.to_string());
                cell.insert("tcp".to_owned(), settings.to_string());
            }
            FrameSource::Replayed(replay) => cell.extend(replay.cell()),
            FrameSource::Profile(_) => {}
        }
        cell
    }

    /// Returns deviations of a result that the traffic causes.
    pub fn deviations(&self) -> Vec<String> {
        match &self.frames {
            FrameSource::Made { back: None, .. } => vec![],
            FrameSource::Made { back: Some(_), options, .. } => {
                let what = if options.trace.is_some() {
                    "the reverse direction of the trace"
                } else {
                    "the same flows with swapped addresses and ports"
                };
                vec![format!(
                    "packets are sent in both directions, into the second port {what}: counts and latencies are \
                     those of both, loads and rates are per direction"
                )]
            }
            FrameSource::Short { short, .. } => {
                let ShortSettings { packets, concurrent, data_in_syn } = short.settings();
                let numbers =
                    if data_in_syn { "SYNs carry data" } else { "SYNs have no sequence number and are only counted" };
                vec![format!(
                    "each flow is a connection of {packets} packets without replies, {concurrent} at a time; \
                     {numbers}; an NF that waits for a SYN-ACK drops the packets after the SYN"
                )]
            }
            FrameSource::Tcp { settings, .. } => {
                let answers = if settings.dsr { "directly" } else { "through the DUT" };
                let frames = settings.client_frames();
                vec![
                    format!(
                        "a connection counts as the {frames} frames that its client sends if nothing is lost, and all of \
                         them are lost if it fails; servers answer {answers}"
                    ),
                    "latencies are times from a SYN to its answer".to_owned(),
                ]
            }
            FrameSource::Replayed(replay) => replay.deviations(),
            FrameSource::Profile(streams) => streams.deviations(),
        }
    }
}
