//! Sets of flows.
//!
//! ```
//! use traffic::{FlowSettings, Flows};
//!
//! let dst = vec!["10.1.0.0/16".parse()?, "10.2.3.0/24".parse()?];
//! let flows = Flows::new(FlowSettings { count: 100_000, dst, ..FlowSettings::v4() })?;
//! assert_eq!(flows.tuple(7).map(|flow| flow.dst.to_string().starts_with("10.2.3.")), Some(true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use wire::flow::FiveTuple;
use wire::{IpProtocol, MacAddr, build};

use crate::address::AddressRange;
use crate::order::{Alias, NotOrder, Order, Picker};
use crate::random::scramble;

/// Most flows in a set. A flow takes 16 bytes of memory, 38 over IPv6, 8 more in Zipf's order, 12 more where flows differ in
/// MAC addresses: 10 million IPv4 flows take 153 MiB. More than the cache holds is slower to send.
pub const MAX_FLOWS: u32 = 1 << 24;
/// Most destination ranges: twice today's Internet table.
pub const MAX_DESTINATIONS: usize = 1 << 21;

/// Transport of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// UDP; over IPv4 without a checksum (RFC 768 allows 0), over IPv6 with one.
    #[default]
    Udp,
    /// TCP segments with ACK and PSH and an unchanging sequence number: no connection is opened, so stateful functions
    /// may refuse them.
    Tcp,
}

/// Parameters of a set of flows.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowSettings {
    /// Number of flows, 1 to [`MAX_FLOWS`].
    pub count: u32,
    /// Transport protocol.
    pub transport: Transport,
    /// Source addresses.
    pub src: AddressRange,
    /// Destination addresses: one range, or many that take turns, such as the prefixes of a router's table; of each,
    /// the flows use addresses all over it. Same version as `src`.
    pub dst: Vec<AddressRange>,
    /// Source ports, from 1.
    pub src_ports: RangeInclusive<u16>,
    /// Destination ports, from 1.
    pub dst_ports: RangeInclusive<u16>,
    /// Source address of the frames.
    pub src_mac: MacAddr,
    /// Destination address of the frames.
    pub dst_mac: MacAddr,
    /// Destination addresses of the frames that flows have in turn instead of `dst_mac`, if there are any.
    pub dst_macs: Vec<MacAddr>,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// In which order flows take turns.
    pub order: Order,
    /// For the order, and for addresses within many destination ranges.
    pub seed: u64,
}

impl FlowSettings {
    /// Returns the one flow of UDP in the test range of RFC 2544 appendix C, 198.18.0.0/15: the lower half talks to the
    /// upper.
    pub fn v4() -> Self {
        Self::between(
            AddressRange::new([198, 18, 0, 1].into(), [198, 18, 255, 254].into()),
            AddressRange::new([198, 19, 0, 1].into(), [198, 19, 255, 254].into()),
        )
    }

    /// Returns the one flow of UDP in the test range of RFC 5180 §8, 2001:2::/48.
    pub fn v6() -> Self {
        let net = |net: u16| AddressRange::prefix([0x2001, 2, 0, net, 0, 0, 0, 0].into(), 64);
        Self::between(net(1), net(2))
    }

    fn between<E>(src: Result<AddressRange, E>, dst: Result<AddressRange, E>) -> Self {
        let loopback = AddressRange::from(IpAddr::from([198, 18, 0, 1]));
        Self {
            count: 1,
            transport: Transport::Udp,
            src: src.unwrap_or(loopback),
            dst: vec![dst.unwrap_or(loopback)],
            src_ports: 1024..=65535,
            dst_ports: 50_000..=50_000,
            src_mac: build::SRC_MAC,
            dst_mac: build::DST_MAC,
            dst_macs: vec![],
            ttl: 64,
            order: Order::RoundRobin,
            seed: 0,
        }
    }
}

/// One flow, where each is chosen by itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// Source address of its frames.
    pub src_mac: MacAddr,
    /// Destination address of its frames.
    pub dst_mac: MacAddr,
    /// Addresses, ports and protocol, which is UDP or TCP.
    pub tuple: FiveTuple,
}

/// Error of a set of flows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// None or too many.
    #[error("{0} flows; a set has 1 to {MAX_FLOWS}")]
    Count(u32),
    /// More than there are different addresses and ports.
    #[error("{count} flows, but the addresses and ports make only {possible} different ones; widen a range")]
    Distinct {
        /// Flows asked for.
        count: u32,
        /// Flows there can be.
        possible: u128,
    },
    /// None or too many.
    #[error("{0} destination ranges; a set has 1 to {MAX_DESTINATIONS}")]
    Destinations(usize),
    /// Source and destination are of different versions.
    #[error("destinations {dst} cannot be reached from {src}: not the same IP version")]
    Version {
        /// The sources.
        src: AddressRange,
        /// The first destination at fault.
        dst: AddressRange,
    },
    /// Empty, or contains port 0.
    #[error("{which} ports {first}-{last}: give a range from 1 to 65535, lower end first")]
    Ports {
        /// `source` or `destination`.
        which: &'static str,
        /// Its start.
        first: u16,
        /// Its end.
        last: u16,
    },
    /// The order's numbers make no sense.
    #[error(transparent)]
    Order(#[from] NotOrder),
    /// A flow that is not like the first of a list.
    #[error("flow {flow} of the list is not like the first: all have to be {protocol} over {version}")]
    Mixed {
        /// Its number, from 0.
        flow: usize,
        /// `UDP` or `TCP`, as the first.
        protocol: &'static str,
        /// `IPv4` or `IPv6`, as the first.
        version: &'static str,
    },
}

/// An IPv4 flow as its header has it: addresses and ports, and what they add to checksums, in native order.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct V4 {
    pub(crate) bytes: [u8; 12],
    pub(crate) address_sum: u16,
    pub(crate) sum: u16,
}

/// An IPv6 flow; see [`V4`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct V6 {
    pub(crate) bytes: [u8; 36],
    pub(crate) sum: u16,
}

#[derive(Clone, Debug)]
pub(crate) enum Table {
    V4(Arc<[V4]>),
    V6(Arc<[V6]>),
}

/// A set of flows. Clones share it.
#[derive(Clone, Debug)]
pub struct Flows {
    settings: Arc<FlowSettings>,
    table: Table,
    /// For each flow the first twelve bytes of its frames, where flows differ in them.
    macs: Option<Arc<[[u8; 12]]>>,
    alias: Option<Arc<Alias>>,
}

impl Flows {
    /// Makes the flows. All differ in some address or port, unless destination ranges overlap.
    ///
    /// # Errors
    /// See [`FlowError`].
    pub fn new(settings: FlowSettings) -> Result<Self, FlowError> {
        let FlowSettings { count, src, .. } = settings;
        if !(1..=MAX_FLOWS).contains(&count) {
            return Err(FlowError::Count(count));
        }
        let places = Places::of(&settings)?;
        if places.all() < count.into() {
            return Err(FlowError::Distinct { count, possible: places.all() });
        }
        let alias = alias(settings.order, count)?;
        let tuples = (0..count).map(|flow| tuple(&settings, &places, flow.into()));
        let table = if src.is_ipv4() {
            Table::V4(tuples.map(|flow| V4::new(&flow)).collect())
        } else {
            Table::V6(tuples.map(|flow| V6::new(&flow)).collect())
        };
        let turns = settings.dst_macs.iter().cycle().take(count as usize);
        let macs = (!settings.dst_macs.is_empty()).then(|| turns.map(|dst| front(settings.src_mac, *dst)).collect());
        Ok(Self { settings: settings.into(), table, macs, alias })
    }

    /// Flows as they are listed, each with its own addresses; of `settings` only time to live, order and seed matter.
    /// Flows may be alike.
    ///
    /// # Errors
    /// [`FlowError::Count`] for none or more than [`MAX_FLOWS`], [`FlowError::Mixed`] unless all are of the version and the
    /// transport of the first, [`FlowError::Order`].
    pub fn listed(list: &[Flow], settings: FlowSettings) -> Result<Self, FlowError> {
        let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
        let Some(first) = list.first().filter(|_| count <= MAX_FLOWS) else { return Err(FlowError::Count(count)) };
        let v4 = first.tuple.src.is_ipv4();
        let transport = if first.tuple.protocol == IpProtocol::TCP { Transport::Tcp } else { Transport::Udp };
        let protocol = if transport == Transport::Tcp { IpProtocol::TCP } else { IpProtocol::UDP };
        let like = |flow: &Flow| {
            let tuple = &flow.tuple;
            tuple.src.is_ipv4() == v4 && tuple.dst.is_ipv4() == v4 && tuple.protocol == protocol
        };
        if let Some(flow) = list.iter().position(|flow| !like(flow)) {
            let (tcp, version) = (transport == Transport::Tcp, if v4 { "IPv4" } else { "IPv6" });
            return Err(FlowError::Mixed { flow, protocol: if tcp { "TCP" } else { "UDP" }, version });
        }
        let alias = alias(settings.order, count)?;
        let of = |flow: &Flow| (flow.tuple.src, flow.tuple.dst, flow.tuple.src_port, flow.tuple.dst_port);
        let table = if v4 {
            Table::V4(list.iter().map(|flow| V4::new(&of(flow))).collect())
        } else {
            Table::V6(list.iter().map(|flow| V6::new(&of(flow))).collect())
        };
        let differ = list.iter().any(|flow| (flow.src_mac, flow.dst_mac) != (first.src_mac, first.dst_mac));
        let macs = differ.then(|| list.iter().map(|flow| front(flow.src_mac, flow.dst_mac)).collect());
        let (src_mac, dst_mac) = (first.src_mac, first.dst_mac);
        let settings = FlowSettings { count, transport, src_mac, dst_mac, ..settings };
        Ok(Self { settings: settings.into(), table, macs, alias })
    }

    /// The same flows seen from their other side: source and destination of frames, addresses and ports swapped. Of their
    /// settings, addresses and ports stay those that the flows were made from.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let settings = &*self.settings;
        let settings = FlowSettings { src_mac: settings.dst_mac, dst_mac: settings.src_mac, ..settings.clone() };
        let table = match &self.table {
            Table::V4(flows) => Table::V4(flows.iter().map(V4::reversed).collect()),
            Table::V6(flows) => Table::V6(flows.iter().map(V6::reversed).collect()),
        };
        let turned = |front: &[u8; 12]| {
            let mut front = *front;
            front.rotate_left(6);
            front
        };
        let macs = self.macs.as_ref().map(|fronts| fronts.iter().map(turned).collect());
        Self { settings: settings.into(), table, macs, alias: self.alias.clone() }
    }

    /// Returns the first `count` of them, in memory that is shared.
    ///
    /// # Errors
    /// [`FlowError::Count`] for none, or more than there are.
    pub fn first(&self, count: u32) -> Result<Self, FlowError> {
        if !(1..=self.count()).contains(&count) {
            return Err(FlowError::Count(count));
        }
        let alias = alias(self.settings.order, count)?;
        let settings = FlowSettings { count, ..(*self.settings).clone() };
        Ok(Self { settings: settings.into(), alias, ..self.clone() })
    }

    /// Returns the settings.
    pub fn settings(&self) -> &FlowSettings {
        &self.settings
    }

    /// Returns the number of values.
    pub fn count(&self) -> u32 {
        self.settings.count
    }

    /// Returns true if they are IPv4.
    pub fn is_ipv4(&self) -> bool {
        matches!(self.table, Table::V4(_))
    }

    /// Addresses, ports and protocol of flow number `flow`, if there is one.
    pub fn tuple(&self, flow: u32) -> Option<FiveTuple> {
        let protocol = match self.settings.transport {
            Transport::Udp => IpProtocol::UDP,
            Transport::Tcp => IpProtocol::TCP,
        };
        let port = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        match &self.table {
            Table::V4(flows) => {
                let bytes = &flows.get(flow as usize)?.bytes;
                let address = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]].into();
                Some(FiveTuple::v4(address(0), address(4), port(bytes, 8), port(bytes, 10), protocol))
            }
            Table::V6(flows) => {
                let bytes = &flows.get(flow as usize)?.bytes;
                let (src, dst) = (bytes.first_chunk::<16>()?, bytes[16..].first_chunk::<16>()?);
                Some(FiveTuple::v6((*src).into(), (*dst).into(), port(bytes, 32), port(bytes, 34), protocol))
            }
        }
    }

    /// Chooses flows in this set's order for generator core `lane` of `lanes`: taking turns, the cores share out the
    /// flows; else each draws from all.
    pub fn picker(&self, lane: u32, lanes: u32) -> Picker {
        Picker::new(self.count(), self.settings.order, self.alias.clone(), self.settings.seed, lane, lanes)
    }

    /// Returns the source and destination address of the frames of flow number `flow`, if there is one.
    pub fn macs(&self, flow: u32) -> Option<(MacAddr, MacAddr)> {
        if flow >= self.count() {
            return None;
        }
        let Some(macs) = &self.macs else { return Some((self.settings.src_mac, self.settings.dst_mac)) };
        let [a, b, c, d, e, f, rest @ ..] = *macs.get(flow as usize)?;
        Some((MacAddr(rest), MacAddr([a, b, c, d, e, f])))
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn fronts(&self) -> Option<&Arc<[[u8; 12]]>> {
        self.macs.as_ref()
    }
}

/// Returns the first bytes of frames with these addresses.
fn front(MacAddr(src): MacAddr, MacAddr(dst): MacAddr) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..6].copy_from_slice(&dst);
    bytes[6..].copy_from_slice(&src);
    bytes
}

fn alias(order: Order, count: u32) -> Result<Option<Arc<Alias>>, NotOrder> {
    Ok(match order.checked()? {
        Order::Zipf { exponent } => Some(Arc::new(Alias::zipf(count, exponent))),
        _ => None,
    })
}

/// Number of values of each field of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    dst: u128,
    src: u128,
    src_ports: u128,
    dst_ports: u128,
}

impl Places {
    /// Builds flows from checked settings.
    pub(crate) fn of(settings: &FlowSettings) -> Result<Self, FlowError> {
        let FlowSettings { src, ref dst, .. } = *settings;
        if !(1..=MAX_DESTINATIONS).contains(&dst.len()) {
            return Err(FlowError::Destinations(dst.len()));
        }
        if let Some(other) = dst.iter().find(|dst| dst.is_ipv4() != src.is_ipv4()) {
            return Err(FlowError::Version { src, dst: *other });
        }
        let ports = |which, range: &RangeInclusive<u16>| {
            let (first, last) = (*range.start(), *range.end());
            if first == 0 || first > last {
                return Err(FlowError::Ports { which, first, last });
            }
            Ok(u128::from(last - first) + 1)
        };
        Ok(Self {
            dst: if let [range] = dst[..] { range.len() } else { dst.len() as u128 },
            src: src.len(),
            src_ports: ports("source", &settings.src_ports)?,
            dst_ports: ports("destination", &settings.dst_ports)?,
        })
    }

    /// Returns the number of distinct flows that they allow.
    pub(crate) fn all(&self) -> u128 {
        self.dst.saturating_mul(self.src).saturating_mul(self.src_ports * self.dst_ports)
    }
}

/// Flow number `flow`: its number written with one digit for each field. Each digit is then shifted by those before
/// it, which keeps flows different and lets all fields vary from one flow to the next.
pub(crate) fn tuple(settings: &FlowSettings, places: &Places, flow: u64) -> (IpAddr, IpAddr, u16, u16) {
    let number = u128::from(flow);
    let (a, rest) = (number % places.dst, number / places.dst);
    let (b, rest) = (rest % places.src, rest / places.src);
    let (c, d) = (rest % places.src_ports, rest / places.src_ports);
    let dst = match settings.dst[..] {
        [range] => range.nth(a),
        ref ranges => {
            let seed = scramble(settings.seed.wrapping_add(1)) ^ flow;
            let host = u128::from(scramble(seed)) << 64 | u128::from(scramble(!seed));
            ranges[a as usize].nth(host)
        }
    };
    let src = settings.src.nth((a % places.src + b) % places.src);
    let src_port = *settings.src_ports.start() + ((a + b + c) % places.src_ports) as u16;
    let dst_port = *settings.dst_ports.start() + ((a + b + c + d) % places.dst_ports) as u16;
    (src, dst, src_port, dst_port)
}

/// Returns the contribution of `bytes` to an Internet checksum, in native order.
pub(crate) fn native_sum(bytes: &[u8]) -> u16 {
    (!wire::checksum::of(bytes)).to_be()
}

impl Default for V6 {
    fn default() -> Self {
        Self { bytes: [0; 36], sum: 0 }
    }
}

impl V4 {
    pub(crate) fn new((src, dst, src_port, dst_port): &(IpAddr, IpAddr, u16, u16)) -> Self {
        let mut bytes = [0; 12];
        if let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) {
            bytes[..4].copy_from_slice(&src.octets());
            bytes[4..8].copy_from_slice(&dst.octets());
        }
        bytes[8..10].copy_from_slice(&src_port.to_be_bytes());
        bytes[10..].copy_from_slice(&dst_port.to_be_bytes());
        Self { bytes, address_sum: native_sum(&bytes[..8]), sum: native_sum(&bytes) }
    }

    /// Sums stay: addresses and ports are whole words.
    fn reversed(&self) -> Self {
        let mut bytes = self.bytes;
        bytes[..8].rotate_left(4);
        bytes[8..].rotate_left(2);
        Self { bytes, ..*self }
    }
}

impl V6 {
    pub(crate) fn new((src, dst, src_port, dst_port): &(IpAddr, IpAddr, u16, u16)) -> Self {
        let mut bytes = [0; 36];
        if let (IpAddr::V6(src), IpAddr::V6(dst)) = (src, dst) {
            bytes[..16].copy_from_slice(&src.octets());
            bytes[16..32].copy_from_slice(&dst.octets());
        }
        bytes[32..34].copy_from_slice(&src_port.to_be_bytes());
        bytes[34..].copy_from_slice(&dst_port.to_be_bytes());
        Self { bytes, sum: native_sum(&bytes) }
    }

    fn reversed(&self) -> Self {
        let mut bytes = self.bytes;
        bytes[..32].rotate_left(16);
        bytes[32..].rotate_left(2);
        Self { bytes, ..*self }
    }
}

#[cfg(test)]
mod tests;
