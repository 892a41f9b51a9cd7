//! Short flows: every flow is a TCP connection of a few packets, then comes the next with another five-tuple.
//!
//! Only the client's side of a connection is sent, as a load balancer with direct return sees it (Maglev, NSDI'16) and
//! as tests of connections a second need it: SYN, data, and FIN with the last data. There are no answers, so a function that waits
//! for the other side's SYN-ACK before it lets data pass will refuse the data; that is its right, and shows as loss.
//!
//! - The SYN has an MSS option and no payload, as every stack sends it, and so no [`Probe`]: data in a SYN is
//!   legal (RFC 9293 §3.10.7.2) but rare, and functions drop it. It is counted, as frames of a capture are. With
//!   [`ShortSettings::data_in_syn`] it carries data and a probe like the others, and no option.
//! - Data segments have ACK and PSH, the last one also FIN. Sequence numbers start at random, count the SYN and every byte,
//!   and checksums are right. The acknowledgement number is the connection's own and never changes: the server says nothing.
//! - Sizes come from the mix; SYNs without data are the smallest frames, whatever the mix says.
//! - So many connections are open at a time; they take turns. They begin staggered, so that SYNs do not bunch.
//! - Five-tuples come from the settings' ranges in the order of [`FlowSettings`], each used once until all have been:
//!   see [`Short::reuse_after_s`].
//!
//! ```
//! use traffic::{FlowSettings, Mix, Probe, Short, ShortSettings};
//!
//! let mix: Mix = "128:3,1518:1".parse()?;
//! let short = Short::new(&FlowSettings::v4(), &mix, ShortSettings { concurrent: 100, ..ShortSettings::default() })?;
//! let mut connections = short.connections(0, 1);
//! let mut frame = [0; 2048];
//! let turn = connections.next_turn(0);
//! assert_eq!((turn.len(), turn.is_numbered()), (60, false)); // a SYN
//! connections.fill(turn, Probe::default(), &mut frame);
//! // At a million connections a second, the 4·10⁹ address pairs with 64,512 ports each last for years.
//! assert!(short.reuse_after_s(10e6) > 365.0 * 86_400.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use wire::tcp::{self, TcpOption};
use wire::{IpProtocol, TcpFlags, build, checksum};

use crate::flows::{FlowError, FlowSettings, Places, Transport, V4, V6, native_sum, tuple};
use crate::probe::{self, Probe};
use crate::random::scramble;
use crate::size::{FCS, FrameSize, Mix};
use crate::stack::Stack;
use crate::template::{PATTERN, Size, TooSmall, headers, put, v4, v6};

/// Most packets of a connection.
pub const MAX_PACKETS: u32 = 1 << 16;
/// Most connections open at a time: 28 MiB of IPv4 ones.
pub const MAX_CONCURRENT: u32 = 1 << 20;
/// Segment size that SYNs announce, bytes.
const MSS: u16 = 1460;

/// Length of connections, and their number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShortSettings {
    /// Packets of a connection, SYN and FIN included, 2 to [`MAX_PACKETS`].
    pub packets: u32,
    /// Connections open at a time, 1 to [`MAX_CONCURRENT`].
    pub concurrent: u32,
    /// True if SYNs carry data, and so a probe.
    pub data_in_syn: bool,
}

impl Default for ShortSettings {
    /// Returns the defaults: ten packets, 1024 connections, no data in SYNs.
    fn default() -> Self {
        Self { packets: 10, concurrent: 1024, data_in_syn: false }
    }
}

/// Error of a set of short connections.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShortError {
    /// Not a number of packets and connections.
    #[error(
        "`{0}` is no way to send short flows; give `10`, `10x1024` or `10x1024,syn-data`: 2 to {MAX_PACKETS} packets each, 1 to \
         {MAX_CONCURRENT} open at a time"
    )]
    Text(String),
    /// Addresses that make no flows.
    #[error(transparent)]
    Flows(#[from] FlowError),
    /// A size is too small.
    #[error(transparent)]
    Small(#[from] TooSmall),
    /// More connections are open than there are five-tuples.
    #[error(
        "{concurrent} connections at a time, but the addresses and ports make only {possible} five-tuples; widen a range"
    )]
    Few {
        /// Connections open at a time.
        concurrent: u32,
        /// Five-tuples there are.
        possible: u128,
    },
}

impl fmt::Display for ShortSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}{}", self.packets, self.concurrent, if self.data_in_syn { ",syn-data" } else { "" })
    }
}

impl FromStr for ShortSettings {
    type Err = ShortError;

    fn from_str(text: &str) -> Result<Self, ShortError> {
        let unknown = || ShortError::Text(text.chars().take(80).collect());
        let (numbers, data_in_syn) =
            text.trim().strip_suffix(",syn-data").map_or((text.trim(), false), |rest| (rest, true));
        let (packets, concurrent) = numbers.split_once('x').map_or((numbers, None), |(a, b)| (a, Some(b)));
        let number = |text: &str| text.parse::<u32>().map_err(|_| unknown());
        let concurrent = concurrent.map_or(Ok(Self::default().concurrent), number)?;
        let settings = Self { packets: number(packets)?, concurrent, data_in_syn };
        if settings.is_possible() { Ok(settings) } else { Err(unknown()) }
    }
}

impl ShortSettings {
    fn is_possible(self) -> bool {
        (2..=MAX_PACKETS).contains(&self.packets) && (1..=MAX_CONCURRENT).contains(&self.concurrent)
    }
}

/// A SYN without data, and what it adds to checksums without flow and sequence number.
#[derive(Clone, Debug)]
struct Syn {
    bytes: Box<[u8]>,
    ip_sum: u16,
    sum: u16,
}

/// Frames of short connections. Clones share what is large.
#[derive(Clone, Debug)]
pub struct Short {
    flows: Arc<FlowSettings>,
    places: Places,
    settings: ShortSettings,
    syn: Arc<Syn>,
    /// For each size of the mix: with data and SYN, with data, with data and FIN.
    sizes: Arc<[[Size; 3]]>,
}

impl Short {
    /// Prepares the frames of `mix` for connections between the addresses and ports of `flows`, whose count, order and
    /// transport do not matter.
    ///
    /// # Errors
    /// See [`ShortError`].
    pub fn new(flows: &FlowSettings, mix: &Mix, settings: ShortSettings) -> Result<Self, ShortError> {
        if !settings.is_possible() {
            return Err(ShortError::Text(settings.to_string()));
        }
        let places = Places::of(flows)?;
        if places.all() < settings.concurrent.into() {
            return Err(ShortError::Few { concurrent: settings.concurrent, possible: places.all() });
        }
        let flows = FlowSettings { transport: Transport::Tcp, ..flows.clone() };
        let is_v4 = flows.src.is_ipv4();
        let needed = (headers(is_v4, true) + probe::LEN) as u16 + FCS;
        let stack = Stack { ipv6: !is_v4, tcp: true, ..Stack::default() };
        let of = |size: FrameSize| {
            if size.with_fcs() < needed {
                return Err(TooSmall { size, stack: stack.clone(), probe: true, needed });
            }
            let data = TcpFlags::ACK | TcpFlags::PSH;
            let kinds = [TcpFlags::SYN, data, data | TcpFlags::FIN];
            Ok(kinds.map(|flags| Size::new(&flows, is_v4, size.without_fcs(), true, flags)))
        };
        let sizes = mix.entries().iter().map(|(size, _)| of(*size)).collect::<Result<_, _>>()?;
        let syn = Syn::new(&flows).into();
        Ok(Self { flows: flows.into(), places, settings, syn, sizes })
    }

    /// Returns the settings.
    pub fn settings(&self) -> ShortSettings {
        self.settings
    }

    /// Returns the flows that addresses and ports are taken from.
    pub fn flows(&self) -> &FlowSettings {
        &self.flows
    }

    /// Returns the different five-tuples.
    pub fn tuples(&self) -> u128 {
        self.places.all()
    }

    /// Seconds until a five-tuple comes again at `pps` packets a second, from SYN to SYN.
    pub fn reuse_after_s(&self, pps: f64) -> f64 {
        self.tuples() as f64 * f64::from(self.settings.packets) / pps
    }

    /// Returns the offset of the payload, where the probe starts.
    pub fn probe_at(&self) -> usize {
        headers(self.flows.src.is_ipv4(), true)
    }

    /// Connections from the first on, for generator core `lane` of `lanes`, which share out the five-tuples.
    pub fn connections(&self, lane: u32, lanes: u32) -> Connections {
        let lanes = lanes.max(1);
        let count = self.settings.concurrent as usize;
        let slots = if self.flows.src.is_ipv4() {
            Slots::V4(vec![Slot::default(); count].into())
        } else {
            Slots::V6(vec![Slot::default(); count].into())
        };
        Connections {
            short: self.clone(),
            slots,
            next: 0,
            round: 0,
            opened: 0,
            lane: u64::from(lane % lanes),
            lanes: u64::from(lanes),
        }
    }
}

/// A connection: its five-tuple, and how far it is.
#[derive(Clone, Copy, Default, Debug)]
struct Slot<F> {
    flow: F,
    /// Packets sent; 0 before the first connection.
    sent: u32,
    seq: u32,
    ack: u32,
}

#[derive(Clone, Debug)]
enum Slots {
    V4(Box<[Slot<V4>]>),
    V6(Box<[Slot<V6>]>),
}

/// Connections under way; see [`Short::connections`].
#[derive(Clone, Debug)]
pub struct Connections {
    short: Short,
    slots: Slots,
    next: usize,
    /// Times that all have had their turn, until all have begun.
    round: u32,
    opened: u64,
    lane: u64,
    lanes: u64,
}

/// Which packet of which connection comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the connection goes on as if it had been sent"]
pub struct Turn {
    slot: usize,
    size: usize,
    kind: Kind,
    len: usize,
    seq: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// SYN without data.
    Bare,
    /// Number of a [`Size`] with data.
    Data(u8),
}

impl Turn {
    /// Returns the bytes of the frame, without frame check sequence; 0 if the mix has no such size.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the mix has no such size.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if it carries a probe.
    pub fn is_numbered(&self) -> bool {
        self.kind != Kind::Bare
    }
}

impl<F> Slot<F> {
    fn open(&mut self, flow: F, number: u64, seed: u64) {
        let random = scramble(scramble(seed) ^ number);
        *self = Self { flow, sent: 0, seq: random as u32, ack: (random >> 32) as u32 };
    }
}

impl Connections {
    /// Connections that have been opened.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Returns the connections' source.
    pub fn short(&self) -> &Short {
        &self.short
    }

    /// The next packet, with the mix's size number `size` unless it is a SYN without data. The connection goes on.
    #[inline]
    pub fn next_turn(&mut self, size: usize) -> Turn {
        let ShortSettings { packets, data_in_syn, .. } = self.short.settings;
        let (slot, opens) = self.next_slot(packets);
        if opens {
            self.open(slot);
        }
        let (sent, seq) = match &mut self.slots {
            Slots::V4(slots) => (&mut slots[slot].sent, &mut slots[slot].seq),
            Slots::V6(slots) => (&mut slots[slot].sent, &mut slots[slot].seq),
        };
        let (kind, syn) = match *sent {
            0 if data_in_syn => (Kind::Data(0), 1),
            0 => (Kind::Bare, 1),
            n if n + 1 == packets => (Kind::Data(2), 0),
            _ => (Kind::Data(1), 0),
        };
        let at = *seq;
        *sent += 1;
        let (len, payload) = match kind {
            Kind::Bare => (self.short.syn.bytes.len(), 0),
            Kind::Data(_) => {
                let len = self.short.sizes.get(size).map_or(0, |size| size[1].len);
                (len, len.saturating_sub(self.short.probe_at()))
            }
        };
        *seq = seq.wrapping_add(syn + payload as u32);
        Turn { slot, size, kind, len, seq: at }
    }

    /// Returns the connection of the next packet, and true if it opens.
    #[inline]
    fn next_slot(&mut self, packets: u32) -> (usize, bool) {
        let count = match &self.slots {
            Slots::V4(slots) => slots.len(),
            Slots::V6(slots) => slots.len(),
        };
        loop {
            let (slot, round) = (self.next, self.round);
            self.next += 1;
            if self.next == count {
                self.next = 0;
                self.round = (round + 1).min(packets);
            }
            let sent = match &self.slots {
                Slots::V4(slots) => slots[slot].sent,
                Slots::V6(slots) => slots[slot].sent,
            };
            if sent == packets {
                return (slot, true);
            }
            if sent != 0 {
                return (slot, false);
            }
            // One in `packets` begins with each round. The first begins at once, so this comes to an end.
            if (u64::from(round) + slot as u64).is_multiple_of(packets.into()) {
                return (slot, true);
            }
        }
    }

    fn open(&mut self, slot: usize) {
        let number = self.lane + self.opened * self.lanes;
        self.opened += 1;
        let number = (u128::from(number) % self.short.places.all()) as u64;
        let seed = self.short.flows.seed;
        let tuple = tuple(&self.short.flows, &self.short.places, number);
        let isn = self.opened.wrapping_mul(self.lanes) ^ self.lane;
        match &mut self.slots {
            Slots::V4(slots) => slots[slot].open(V4::new(&tuple), isn, seed),
            Slots::V6(slots) => slots[slot].open(V6::new(&tuple), isn, seed),
        }
    }

    /// Writes the packet to the front of `frame`, with `probe` if it is numbered.
    ///
    /// Returns its length; 0, and nothing is written, if the mix has no such size or `frame` is shorter. To be called before
    /// the connection's next turn.
    #[inline]
    pub fn fill(&self, turn: Turn, probe: Probe, frame: &mut [u8]) -> usize {
        self.try_fill(turn, probe, frame).unwrap_or(0)
    }

    fn try_fill(&self, turn: Turn, probe: Probe, frame: &mut [u8]) -> Option<usize> {
        let frame = frame.get_mut(..turn.len).filter(|frame| !frame.is_empty())?;
        let transport = match (&self.slots, turn.kind) {
            (Slots::V4(slots), Kind::Bare) => {
                let slot = slots.get(turn.slot)?;
                frame.copy_from_slice(&self.short.syn.bytes);
                put(frame, 24, probe::fold_two(self.short.syn.ip_sum, slot.flow.address_sum).to_ne_bytes());
                put(frame, 26, slot.flow.bytes);
                numbers(frame, 34, turn.seq, 0, self.short.syn.sum, slot.flow.sum);
                return Some(turn.len);
            }
            (Slots::V6(slots), Kind::Bare) => {
                let slot = slots.get(turn.slot)?;
                frame.copy_from_slice(&self.short.syn.bytes);
                put(frame, 22, slot.flow.bytes);
                numbers(frame, 54, turn.seq, 0, self.short.syn.sum, slot.flow.sum);
                return Some(turn.len);
            }
            (Slots::V4(slots), Kind::Data(kind)) => {
                let slot = slots.get(turn.slot)?;
                let size = self.short.sizes.get(turn.size)?.get(usize::from(kind))?;
                v4::<72, true, true>(size, &slot.flow, probe, frame)?;
                (34, if kind == 0 { 0 } else { slot.ack })
            }
            (Slots::V6(slots), Kind::Data(kind)) => {
                let slot = slots.get(turn.slot)?;
                let size = self.short.sizes.get(turn.size)?.get(usize::from(kind))?;
                v6::<92, true, true>(size, &slot.flow, probe, frame)?;
                (54, if kind == 0 { 0 } else { slot.ack })
            }
        };
        let (transport, ack) = transport;
        // The present bytes sum to this without the numbers.
        let sum = !u16::from_ne_bytes(*frame.get(transport + 16..)?.first_chunk()?);
        numbers(frame, transport, turn.seq, ack, sum, 0);
        let head = transport + 20 + probe::LEN;
        let rest = frame.get_mut(head..)?;
        rest.copy_from_slice(PATTERN.get(probe::LEN..probe::LEN + rest.len())?);
        Some(turn.len)
    }
}

/// Writes sequence and acknowledgement number, and the checksum over them and what sums to `a` and `b`.
#[inline(always)]
fn numbers(frame: &mut [u8], transport: usize, seq: u32, ack: u32, a: u16, b: u16) {
    let (seq, ack) = (seq.to_be_bytes(), ack.to_be_bytes());
    put(frame, transport + 4, seq);
    put(frame, transport + 8, ack);
    let numbers = u64::from(u32::from_ne_bytes(seq)) + u64::from(u32::from_ne_bytes(ack));
    put(frame, transport + 16, probe::fold(u64::from(a) + u64::from(b) + numbers).to_ne_bytes());
}

impl Syn {
    fn new(flows: &FlowSettings) -> Self {
        let is_v4 = flows.src.is_ipv4();
        let (a4, a6) = ([0; 4], [0; 16]);
        let options = tcp::options(&[TcpOption::Mss(MSS)]).unwrap_or_default();
        macro_rules! bytes {
            ($frame:expr) => {{
                let frame = $frame.src_mac(flows.src_mac).dst_mac(flows.dst_mac).ttl(flows.ttl);
                frame.flags(TcpFlags::SYN).tcp_options(options).pad_to(FrameSize::MIN.without_fcs()).to_vec()
            }};
        }
        let mut bytes =
            if is_v4 { bytes!(build::tcp4(a4, a4, 0, 0).dont_fragment()) } else { bytes!(build::tcp6(a6, a6, 0, 0)) };
        let transport = headers(is_v4, true) - 20;
        if is_v4 {
            bytes[24..26].fill(0);
        }
        bytes[transport + 16..transport + 18].fill(0);
        let tcp = IpProtocol::TCP;
        let pseudo = if is_v4 {
            checksum::Pseudo::v4(a4.into(), a4.into(), tcp)
        } else {
            checksum::Pseudo::v6(a6.into(), a6.into(), tcp)
        };
        Self {
            ip_sum: if is_v4 { native_sum(&bytes[14..34]) } else { 0 },
            sum: probe::partial(pseudo.sum(&bytes[transport..transport + 24])),
            bytes: bytes.into(),
        }
    }
}

#[cfg(test)]
mod tests;
