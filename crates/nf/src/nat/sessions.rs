//! The session table: both directions of each session, and the mappings that sessions share.

mod saved;

use super::config::{Config, Forward, TICK_SHIFT, Timeouts};
use super::flow::{DATA, Direction, Endpoint, FIN, Flow, RST, SYN, Translation, observed_flags};
use super::forward_changes::Displaced;
use super::log::record::SessionEvent;
use super::port_allocator::{AllocationError, PortAllocator};
use super::settings::{Filtering, Mapping};
use diagnostics::Diagnostic;
use foldhash::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{FlowTable, Lookup, Settings as TableSettings, Tuple4};
use wire::IpProtocol;

pub(crate) type Table = FlowTable<Tuple4, Translation>;

/// Converts a time to the units of the session tables.
#[inline(always)]
pub(crate) fn clock(now: Duration) -> u32 {
    (now.as_millis() >> TICK_SHIFT) as u32
}

/// The external endpoint of an inside endpoint.
pub(super) struct PortMapping {
    pub(super) external: Endpoint,
    /// Number of sessions, unless it is a forward.
    pub(super) sessions: u32,
    /// True for a forward: it exists without sessions and is open to all outside hosts.
    pub(super) forward: bool,
}

/// Reason for which no session was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionError {
    /// No mapping exists for the destination.
    NoSession,
    /// The filtering behaviour does not admit the sender.
    Filtered,
    /// A TCP segment without a session is not a SYN.
    NotSyn,
    /// The session table is full.
    TableFull,
    /// No port was allocated.
    Allocation(AllocationError),
}

graph::named_enum! {
    /// State of a session.
    pub(crate) enum SessionState {
        /// A TCP connection of which only one host has sent data.
        Opening = "opening",
        Established = "established",
        /// A TCP connection that was reset, or that both hosts have closed.
        Closing = "closing",
        /// A session of another protocol.
        Active = "active",
    }
}

/// All sessions of one core.
pub(crate) struct SessionTable {
    pub(super) config: Arc<Config>,
    pub(crate) outbound: Table,
    pub(crate) inbound: Table,
    pub(crate) ports: PortAllocator,
    pub(super) by_inside: HashMap<Endpoint, PortMapping>,
    pub(super) by_external: HashMap<Endpoint, Endpoint>,
    /// Number of sessions between an external endpoint and an outside address, for address-dependent filtering.
    peers: HashMap<(Endpoint, u32), u32>,
    ended: Vec<(Tuple4, Translation)>,
    evicted: u64,
    /// Scans for evictable sessions that are still permitted in this tick.
    eviction_scans: u32,
    /// True if events are recorded for [`events`](Self::events).
    record_events: bool,
    events: Vec<SessionEvent>,
    pub(super) displaced: Displaced,
}

impl SessionTable {
    pub(crate) fn new(config: &Arc<Config>, ports: PortAllocator, record_events: bool) -> Result<Self, Diagnostic> {
        let table = || {
            Table::new(&TableSettings::new(config.sessions)).map_err(|e| {
                let d = Diagnostic::new(e.to_string()).key("sessions").value(config.sessions);
                d.remedy("write a smaller number of sessions, or free memory")
            })
        };
        let mut sessions = SessionTable {
            config: config.clone(),
            outbound: table()?,
            inbound: table()?,
            ports,
            by_inside: HashMap::default(),
            by_external: HashMap::default(),
            peers: HashMap::default(),
            ended: vec![],
            evicted: 0,
            eviction_scans: EVICTION_SCANS_PER_TICK,
            record_events,
            events: vec![],
            displaced: Displaced::default(),
        };
        for f in &config.forward {
            sessions.add_forward(f);
        }
        Ok(sessions)
    }

    /// Adds the mapping of a forward if its external address belongs to this core.
    pub(super) fn add_forward(&mut self, f: &Forward) {
        if self.ports.is_own(f.external) {
            let (inside, external) = self.endpoints(f);
            self.ports.reserve(f.external, f.protocol, f.port);
            self.by_inside.insert(inside, PortMapping { external, sessions: 0, forward: true });
            self.by_external.insert(external, inside);
        }
    }

    /// Returns the inside and the external endpoint of a forward.
    pub(super) fn endpoints(&self, f: &Forward) -> (Endpoint, Endpoint) {
        let inside = Endpoint { address: f.inside, port: f.inside_port, protocol: f.protocol };
        (inside, Endpoint { address: self.config.external[f.external], port: f.port, protocol: f.protocol })
    }

    pub(crate) fn len(&self) -> usize {
        self.outbound.len()
    }

    pub(crate) fn mappings(&self) -> usize {
        self.by_inside.len()
    }

    /// Drains the sessions that were created or ended since the last call, if they are recorded.
    pub(crate) fn events(&mut self) -> std::vec::Drain<'_, SessionEvent> {
        self.events.drain(..)
    }

    /// Looks up the session of a packet, restarts its idle timer, records TCP flags and returns the translation.
    pub(crate) fn find(&mut self, flow: &Flow, direction: Direction, flags: u8, now: u32) -> Option<Translation> {
        let (table, other) = match direction {
            Direction::Outbound => (&mut self.outbound, &mut self.inbound),
            Direction::Inbound => (&mut self.inbound, &mut self.outbound),
        };
        let mut found = None;
        let observed = if flow.protocol == IpProtocol::TCP.0 { observed_flags(flags) } else { DATA };
        let prepared = [table.prepare(flow.key())];
        table.look_up(&prepared, now, |_, t| {
            let before = t.flags_seen();
            t.set_flags_seen(before | observed);
            found = Some((*t, before));
        });
        let (mut t, before) = found?;
        if observed & SYN != 0 && before & !SYN != 0 {
            // a new connection of the same addresses and ports (RFC 9293 §3.6.1)
            let reverse = reverse_flow(flow, &t, direction);
            let prepared = [other.prepare(reverse.key())];
            let mut closed = false;
            other.look_up(&prepared, now, |_, o| {
                closed = is_closed(before, o.flags_seen());
                if closed {
                    o.set_flags_seen(0);
                }
            });
            if closed {
                t.set_flags_seen(observed);
                let prepared = [table.prepare(flow.key())];
                table.look_up(&prepared, now, |_, t| t.set_flags_seen(observed));
            }
        }
        Some(t)
    }

    /// Returns the translation of a session without restarting its idle timer.
    pub(crate) fn peek(&self, flow: &Flow, direction: Direction) -> Option<Translation> {
        let table = if direction == Direction::Outbound { &self.outbound } else { &self.inbound };
        table.get(&flow.key()).copied()
    }

    /// Creates a session for a packet from inside.
    ///
    /// # Errors
    /// Returns the reason; nothing is allocated in that case.
    pub(crate) fn create_outbound(
        &mut self,
        flow: &Flow,
        flags: u8,
        hairpin: bool,
        now: u32,
    ) -> Result<Translation, SessionError> {
        if flow.protocol == IpProtocol::TCP.0 && flags & (SYN | RST | FIN | 0x10) != SYN {
            return Err(SessionError::NotSyn);
        }
        if self.is_full(now) {
            return Err(SessionError::TableFull);
        }
        let inside = Endpoint { address: flow.src, port: flow.src_port, protocol: flow.protocol };
        self.ports.add_session(flow.src).map_err(SessionError::Allocation)?;
        let external = match self.external_endpoint(&inside, flow) {
            Ok(external) => external,
            Err(error) => {
                self.ports.remove_session(flow.src);
                return Err(error);
            }
        };
        self.create(flow, external, Direction::Outbound, flags, hairpin, now)
    }

    /// Returns the external endpoint for a session, and whether it is that of a forward; creates the mapping if
    /// necessary.
    fn external_endpoint(&mut self, inside: &Endpoint, flow: &Flow) -> Result<(Endpoint, bool), SessionError> {
        if let Some(mapping) = self.by_inside.get_mut(inside) {
            mapping.sessions += u32::from(!mapping.forward);
            return Ok((mapping.external, mapping.forward));
        }
        let address = self.ports.address_of(inside.address).ok_or(SessionError::Allocation(AllocationError::NoPort))?;
        let shared = self.config.mapping == Mapping::EndpointIndependent;
        let inbound = &self.inbound;
        let unused = |port| inbound.get(&flow.with_source(address, port).reversed().key()).is_none();
        let usable = |port| shared || unused(port);
        let port = self
            .ports
            .allocate(inside.address, inside.protocol, inside.port, shared, usable)
            .map_err(SessionError::Allocation)?;
        let external = Endpoint { address, port, protocol: inside.protocol };
        if shared {
            self.by_inside.insert(*inside, PortMapping { external, sessions: 1, forward: false });
            self.by_external.insert(external, *inside);
        }
        Ok((external, false))
    }

    /// Creates a session for a packet from outside if filtering admits it.
    ///
    /// # Errors
    /// Returns the reason; nothing is allocated in that case.
    pub(crate) fn create_inbound(&mut self, flow: &Flow, flags: u8, now: u32) -> Result<Translation, SessionError> {
        let external = Endpoint { address: flow.dst, port: flow.dst_port, protocol: flow.protocol };
        let inside = *self.by_external.get(&external).ok_or(SessionError::NoSession)?;
        let mapping = &self.by_inside[&inside];
        let open = mapping.forward
            || match self.config.filtering {
                Filtering::EndpointIndependent => true,
                Filtering::AddressDependent => self.peers.contains_key(&(external, flow.src)),
                Filtering::AddressAndPortDependent => false,
            };
        if !open {
            return Err(SessionError::Filtered);
        }
        if flow.protocol == IpProtocol::TCP.0 && flags & (SYN | RST | FIN | 0x10) != SYN {
            return Err(SessionError::NotSyn);
        }
        if self.is_full(now) {
            return Err(SessionError::TableFull);
        }
        self.ports.add_session(inside.address).map_err(SessionError::Allocation)?;
        let mut forward = false;
        if let Some(mapping) = self.by_inside.get_mut(&inside) {
            forward = mapping.forward;
            mapping.sessions += u32::from(!forward);
        }
        let outbound = Flow {
            src: inside.address,
            dst: flow.src,
            src_port: inside.port,
            dst_port: flow.src_port,
            protocol: flow.protocol,
        };
        let hairpin = self.config.external_index(flow.src).is_some();
        self.create(&outbound, (external, forward), Direction::Inbound, flags, hairpin, now)
    }

    /// Inserts both directions of a session; `flow` is that of untranslated outbound packets, `forward` true if the
    /// external endpoint is that of a forward.
    fn create(
        &mut self,
        flow: &Flow,
        (external, forward): (Endpoint, bool),
        direction: Direction,
        flags: u8,
        hairpin: bool,
        now: u32,
    ) -> Result<Translation, SessionError> {
        let (inside, outside) = ((flow.src, flow.src_port), (external.address, external.port));
        let mut outbound = Translation::new(flow.protocol, inside, outside);
        let mut inbound = Translation::new(flow.protocol, outside, inside);
        if forward {
            outbound.set_forward();
        }
        // packets of a hairpin session never come from outside, so both directions take the slow path
        if hairpin {
            outbound.set_hairpin();
            inbound.set_hairpin();
        }
        if flow.protocol == IpProtocol::TCP.0 {
            let first = if direction == Direction::Outbound { &mut outbound } else { &mut inbound };
            first.set_flags_seen(observed_flags(flags));
        }
        if !self.insert_both(flow, outbound, inbound, now) {
            self.release(flow, &outbound);
            return Err(SessionError::TableFull);
        }
        if self.config.filtering == Filtering::AddressDependent {
            *self.peers.entry((external, flow.dst)).or_insert(0) += 1;
        }
        if self.record_events {
            self.events.push(SessionEvent { created: true, flow: *flow, external: outside });
        }
        Ok(if direction == Direction::Outbound { outbound } else { inbound })
    }

    /// Inserts the translations of both directions, or none of them if there is no room.
    fn insert_both(&mut self, flow: &Flow, outbound: Translation, inbound: Translation, now: u32) -> bool {
        let reverse = reverse_flow(flow, &outbound, Direction::Outbound);
        let both = insert(&mut self.outbound, flow, outbound, now);
        if both && !insert(&mut self.inbound, &reverse, inbound, now) {
            self.outbound.remove(&flow.key());
            return false;
        }
        both
    }

    /// Releases the mapping and the port of a session.
    fn release(&mut self, flow: &Flow, t: &Translation) {
        if !t.is_forward() {
            self.release_port(flow, t);
        }
        self.ports.remove_session(flow.src);
    }

    /// Releases the port of a session, and the mapping with its last session.
    fn release_port(&mut self, flow: &Flow, t: &Translation) {
        if self.config.mapping != Mapping::EndpointIndependent {
            return self.ports.release(flow.src, flow.protocol, t.port(), false);
        }
        let inside = Endpoint { address: flow.src, port: flow.src_port, protocol: flow.protocol };
        let external = Endpoint { address: t.address(), port: t.port(), protocol: flow.protocol };
        match self.by_inside.get_mut(&inside) {
            Some(mapping) if mapping.external == external && !mapping.forward => {
                mapping.sessions -= 1;
                if mapping.sessions == 0 {
                    self.by_inside.remove(&inside);
                    self.by_external.remove(&external);
                    self.ports.release(flow.src, flow.protocol, external.port, true);
                }
            }
            _ => self.release_replaced(inside, external),
        }
    }

    /// Returns true if the table is full and no half-open or closed connection can be evicted.
    fn is_full(&mut self, now: u32) -> bool {
        /// Buckets that are scanned for each new session without room.
        const BUCKETS_PER_SCAN: usize = 8;
        if self.outbound.len() < self.config.sessions {
            return false;
        }
        if self.eviction_scans == 0 {
            return true;
        }
        self.eviction_scans -= 1;
        self.evicted += self.expire(now, BUCKETS_PER_SCAN, PRESSURE_TIMEOUT) as u64;
        self.outbound.len() >= self.config.sessions
    }

    /// Returns the number of sessions that were evicted before their timeout.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Scans the next buckets for sessions beyond their idle timeout and returns how many were removed.
    pub(crate) fn age(&mut self, now: u32, buckets: usize) -> usize {
        self.eviction_scans = EVICTION_SCANS_PER_TICK;
        self.expire(now, buckets, u32::MAX)
    }

    /// As [`age`](Self::age), with at most `transitory` as idle timeout of half-open and closed connections.
    fn expire(&mut self, now: u32, buckets: usize, transitory: u32) -> usize {
        let SessionTable { outbound, inbound, ended, config, .. } = self;
        let timeouts = Timeouts { transitory: config.timeouts.transitory.min(transitory), ..config.timeouts };
        let min_timeout = timeouts.udp.min(timeouts.transitory).min(timeouts.icmp).min(timeouts.established);
        outbound.age(now, buckets, |key, t, idle| {
            if idle < min_timeout {
                return false;
            }
            let flow = Flow::of_key(key);
            let reverse = reverse_flow(&flow, t, Direction::Outbound).key();
            let (back, idle_back) =
                inbound.peek(&reverse, now).map_or((0, idle), |(back, idle)| (back.flags_seen(), idle));
            let state = state(flow.protocol, t.flags_seen(), back);
            let over = idle.min(idle_back) >= timeout(&timeouts, state, flow.protocol);
            if over {
                inbound.remove(&reverse);
                ended.push((*key, *t));
            }
            over
        });
        let n = self.ended.len();
        for (key, t) in core::mem::take(&mut self.ended) {
            self.forget(Flow::of_key(&key), &t);
        }
        n
    }

    /// Releases what a session used whose entries have been removed.
    fn forget(&mut self, flow: Flow, t: &Translation) {
        let external = (t.address(), t.port());
        self.release(&flow, t);
        if self.config.filtering == Filtering::AddressDependent {
            let key = (Endpoint { address: external.0, port: external.1, protocol: flow.protocol }, flow.dst);
            if let Some(sessions) = self.peers.get_mut(&key) {
                *sessions -= 1;
                if *sessions == 0 {
                    self.peers.remove(&key);
                }
            }
        }
        if self.record_events {
            self.events.push(SessionEvent { created: false, flow, external });
        }
    }

    /// Removes the session of packets from inside with this flow; returns false if there is none.
    pub(crate) fn close(&mut self, flow: &Flow) -> bool {
        let Some(t) = self.outbound.remove(&flow.key()) else { return false };
        self.inbound.remove(&reverse_flow(flow, &t, Direction::Outbound).key());
        self.forget(*flow, &t);
        true
    }

    /// Passes the sessions of a bucket of `outbound` to a function: flow from inside, external address and port, state,
    /// and seconds until it expires.
    pub(crate) fn read(&self, bucket: usize, now: u32, mut f: impl FnMut(Flow, (u32, u16), SessionState, u64)) {
        for (key, t) in self.outbound.iter(bucket..bucket + 1) {
            let flow = Flow::of_key(&key);
            let reverse = reverse_flow(&flow, t, Direction::Outbound).key();
            let idle = self.outbound.peek(&key, now).map_or(0, |(_, idle)| idle);
            let (back, idle) = self
                .inbound
                .peek(&reverse, now)
                .map_or((0, idle), |(back, other)| (back.flags_seen(), idle.min(other)));
            let state = state(flow.protocol, t.flags_seen(), back);
            let left = timeout(&self.config.timeouts, state, flow.protocol).saturating_sub(idle);
            f(flow, (t.address(), t.port()), state, (u64::from(left) << TICK_SHIFT) / 1000);
        }
    }
}

/// Returns the flow of the packets of the other direction.
fn reverse_flow(flow: &Flow, t: &Translation, direction: Direction) -> Flow {
    match direction {
        Direction::Outbound => flow.with_source(t.address(), t.port()).reversed(),
        Direction::Inbound => Flow { dst: t.address(), dst_port: t.port(), ..*flow }.reversed(),
    }
}

fn insert(table: &mut Table, flow: &Flow, t: Translation, now: u32) -> bool {
    let prepared = [table.prepare(flow.key())];
    let mut new = false;
    table.look_up_or_insert(
        &prepared,
        now,
        |_, _| {},
        |_, found| {
            if let Lookup::New(value) = found {
                *value = t;
                new = true;
            }
        },
    );
    new
}

/// Evicting scans per tick; bounds the cost of a flood of new sessions.
const EVICTION_SCANS_PER_TICK: u32 = 16;

/// Idle timeout of half-open and closed connections while the table is full: five seconds.
const PRESSURE_TIMEOUT: u32 = (5 * 1000) >> TICK_SHIFT;

/// Returns true if either end has reset the connection or both have closed it.
fn is_closed(one: u8, other: u8) -> bool {
    (one | other) & RST != 0 || one & other & FIN != 0
}

/// Returns the state of a session by the flags that were seen in both directions.
fn state(protocol: u8, outbound: u8, inbound: u8) -> SessionState {
    let established =
        outbound & DATA != 0 && inbound & (DATA | SYN) != 0 || inbound & DATA != 0 && outbound & (DATA | SYN) != 0;
    match IpProtocol(protocol) {
        IpProtocol::TCP if is_closed(outbound, inbound) => SessionState::Closing,
        IpProtocol::TCP if established => SessionState::Established,
        IpProtocol::TCP => SessionState::Opening,
        _ => SessionState::Active,
    }
}

/// Returns the idle timeout of a session (RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 5508 REQ-2, RFC 7857 §2).
fn timeout(timeouts: &Timeouts, state: SessionState, protocol: u8) -> u32 {
    match state {
        SessionState::Established => timeouts.established,
        SessionState::Opening | SessionState::Closing => timeouts.transitory,
        SessionState::Active if protocol == IpProtocol::UDP.0 => timeouts.udp,
        SessionState::Active => timeouts.icmp,
    }
}
