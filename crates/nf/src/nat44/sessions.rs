//! Sessions: both directions of each, and the mappings that sessions share.

use super::flow::{FIN, Flow, PLAIN, RST, SYN, Translation, Way, said};
use super::ports::{NoPort, Ports};
use super::settings::{Config, Filtering, Limits, Mapping, UNIT};
use diagnostics::Diagnostic;
use foldhash::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{FlowTable, Found, Settings as TableSettings, Tuple4};
use wire::IpProtocol;

pub(crate) type Table = FlowTable<Tuple4, Translation>;

/// The time of the tables.
#[inline(always)]
pub(crate) fn clock(now: Duration) -> u32 {
    (now.as_millis() >> UNIT) as u32
}

/// An inside or outside end of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct End {
    pub(crate) address: u32,
    pub(crate) port: u16,
    pub(crate) protocol: u8,
}

/// An inside end and the external one that it keeps.
struct Mapped {
    external: End,
    sessions: u32,
    /// Of a forward: there without sessions, and open to all.
    forward: bool,
}

/// Why there is no session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Nobody has asked for it.
    Unknown,
    /// The port is mapped, but not for this sender.
    Filtered,
    /// A TCP segment that begins nothing.
    NotSyn,
    /// The tables are full.
    Full,
    /// No port.
    NoPort(NoPort),
}

/// A session that begins or has ended, to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SessionEvent {
    pub(crate) begins: bool,
    /// As it is inside, outwards.
    pub(crate) flow: Flow,
    pub(crate) external: (u32, u16),
}

/// All sessions of a copy.
pub(crate) struct Sessions {
    config: Arc<Config>,
    pub(crate) outwards: Table,
    pub(crate) inwards: Table,
    pub(crate) ports: Ports,
    by_inside: HashMap<End, Mapped>,
    by_external: HashMap<End, End>,
    /// Sessions of a mapped external end with an outside address, where that is what filters.
    known: HashMap<(End, u32), u32>,
    ended: Vec<(Tuple4, Translation)>,
    made_way: u64,
    /// How often new sessions may still look for such that make way, until time goes on.
    looks: u32,
    /// Whether [`events`](Self::events) are kept.
    tell: bool,
    events: Vec<SessionEvent>,
}

impl Sessions {
    pub(crate) fn new(config: &Arc<Config>, ports: Ports, tell: bool) -> Result<Self, Diagnostic> {
        let table = || {
            Table::new(&TableSettings::new(config.sessions)).map_err(|e| {
                let d = Diagnostic::new(e.to_string()).key("sessions").value(config.sessions);
                d.remedy("ask for fewer sessions, as far as memory goes")
            })
        };
        let mut it = Sessions {
            config: config.clone(),
            outwards: table()?,
            inwards: table()?,
            ports,
            by_inside: HashMap::default(),
            by_external: HashMap::default(),
            known: HashMap::default(),
            ended: vec![],
            made_way: 0,
            looks: LOOKS,
            tell,
            events: vec![],
        };
        for f in &config.forward {
            if it.ports.is_own(f.external) {
                let inside = End { address: f.inside, port: f.inside_port, protocol: f.protocol };
                let external = End { address: config.external[f.external], port: f.port, protocol: f.protocol };
                it.ports.reserve(f.external, f.protocol, f.port);
                it.by_inside.insert(inside, Mapped { external, sessions: 0, forward: true });
                it.by_external.insert(external, inside);
            }
        }
        Ok(it)
    }

    pub(crate) fn len(&self) -> usize {
        self.outwards.len()
    }

    pub(crate) fn mappings(&self) -> usize {
        self.by_inside.len()
    }

    /// Sessions that began or ended since the last call, if they are to be told.
    pub(crate) fn events(&mut self) -> std::vec::Drain<'_, SessionEvent> {
        self.events.drain(..)
    }

    /// The translation of a packet of a known session, which has heard now what TCP says.
    pub(crate) fn find(&mut self, flow: &Flow, way: Way, flags: u8, now: u32) -> Option<Translation> {
        let (table, other) = match way {
            Way::Out => (&mut self.outwards, &mut self.inwards),
            Way::In => (&mut self.inwards, &mut self.outwards),
        };
        let mut found = None;
        let said = if flow.protocol == IpProtocol::TCP.0 { said(flags) } else { PLAIN };
        let prepared = [table.prepare(flow.key())];
        table.look_up(&prepared, now, |_, t| {
            let before = t.state;
            t.state |= said;
            found = Some((*t, before));
        });
        let (mut t, before) = found?;
        if said & SYN != 0 && before & !SYN != 0 {
            // the same addresses and ports begin anew (RFC 9293 §3.6.1)
            let reverse = reverse(flow, &t, way);
            let prepared = [other.prepare(reverse.key())];
            let mut closed = false;
            other.look_up(&prepared, now, |_, o| {
                closed = is_over(before, o.state);
                if closed {
                    o.state = 0;
                }
            });
            if closed {
                t.state = said;
                let prepared = [table.prepare(flow.key())];
                table.look_up(&prepared, now, |_, t| t.state = said);
            }
        }
        Some(t)
    }

    /// The translation of a known session, which does not count as used.
    pub(crate) fn peek(&self, flow: &Flow, way: Way) -> Option<Translation> {
        let table = if way == Way::Out { &self.outwards } else { &self.inwards };
        table.get(&flow.key()).copied()
    }

    /// Begins a session for the first packet from inside.
    ///
    /// # Errors
    /// What is in the way; nothing is kept then.
    pub(crate) fn begin_out(
        &mut self,
        flow: &Flow,
        flags: u8,
        hairpin: bool,
        now: u32,
    ) -> Result<Translation, Refused> {
        if flow.protocol == IpProtocol::TCP.0 && flags & (SYN | RST | FIN | 0x10) != SYN {
            return Err(Refused::NotSyn);
        }
        if self.is_full(now) {
            return Err(Refused::Full);
        }
        let inside = End { address: flow.src, port: flow.src_port, protocol: flow.protocol };
        self.ports.enter(flow.src).map_err(Refused::NoPort)?;
        let external = match self.mapped(&inside, flow) {
            Ok(external) => external,
            Err(refused) => {
                self.ports.leave(flow.src);
                return Err(refused);
            }
        };
        self.begin(flow, &external, Way::Out, flags, hairpin, now)
    }

    /// The external end for a session, mapped now if it is not yet.
    fn mapped(&mut self, inside: &End, flow: &Flow) -> Result<End, Refused> {
        if let Some(mapped) = self.by_inside.get_mut(inside) {
            mapped.sessions += 1;
            return Ok(mapped.external);
        }
        let address = self.ports.address_of(inside.address).ok_or(Refused::NoPort(NoPort::Ports))?;
        let shared = self.config.mapping == Mapping::EndpointIndependent;
        let inwards = &self.inwards;
        let unused = |port| inwards.get(&flow.from(address, port).reversed().key()).is_none();
        let also = |port| shared || unused(port);
        let port =
            self.ports.take(inside.address, inside.protocol, inside.port, shared, also).map_err(Refused::NoPort)?;
        let external = End { address, port, protocol: inside.protocol };
        if shared {
            self.by_inside.insert(*inside, Mapped { external, sessions: 1, forward: false });
            self.by_external.insert(external, *inside);
        }
        Ok(external)
    }

    /// Begins a session for the first packet from outside, if it may.
    ///
    /// # Errors
    /// As [`begin_out`](Self::begin_out).
    pub(crate) fn begin_in(&mut self, flow: &Flow, flags: u8, now: u32) -> Result<Translation, Refused> {
        let external = End { address: flow.dst, port: flow.dst_port, protocol: flow.protocol };
        let inside = *self.by_external.get(&external).ok_or(Refused::Unknown)?;
        let mapped = &self.by_inside[&inside];
        let open = mapped.forward
            || match self.config.filtering {
                Filtering::EndpointIndependent => true,
                Filtering::AddressDependent => self.known.contains_key(&(external, flow.src)),
                Filtering::AddressAndPortDependent => false,
            };
        if !open {
            return Err(Refused::Filtered);
        }
        if flow.protocol == IpProtocol::TCP.0 && flags & (SYN | RST | FIN | 0x10) != SYN {
            return Err(Refused::NotSyn);
        }
        if self.is_full(now) {
            return Err(Refused::Full);
        }
        self.ports.enter(inside.address).map_err(Refused::NoPort)?;
        if let Some(mapped) = self.by_inside.get_mut(&inside) {
            mapped.sessions += 1;
        }
        let out = Flow {
            src: inside.address,
            dst: flow.src,
            src_port: inside.port,
            dst_port: flow.src_port,
            protocol: flow.protocol,
        };
        let hairpin = self.config.number(flow.src).is_some();
        self.begin(&out, &external, Way::In, flags, hairpin, now)
    }

    /// Both directions of a session: `flow` as it is inside, outwards.
    fn begin(
        &mut self,
        flow: &Flow,
        external: &End,
        way: Way,
        flags: u8,
        hairpin: bool,
        now: u32,
    ) -> Result<Translation, Refused> {
        let (inside, outside) = ((flow.src, flow.src_port), (external.address, external.port));
        let mut out = Translation::new(flow.protocol, inside, outside);
        let mut inn = Translation::new(flow.protocol, outside, inside);
        // neither comes from outside, whoever says so
        (out.hairpin, inn.hairpin) = (hairpin.into(), hairpin.into());
        if flow.protocol == IpProtocol::TCP.0 {
            let first = if way == Way::Out { &mut out } else { &mut inn };
            first.state = said(flags);
        }
        let reverse = flow.from(outside.0, outside.1).reversed();
        let mut both = insert(&mut self.outwards, flow, out, now);
        if both && !insert(&mut self.inwards, &reverse, inn, now) {
            self.outwards.remove(&flow.key());
            both = false;
        }
        if !both {
            self.end(flow, outside);
            return Err(Refused::Full);
        }
        if self.config.filtering == Filtering::AddressDependent {
            *self.known.entry((*external, flow.dst)).or_insert(0) += 1;
        }
        if self.tell {
            self.events.push(SessionEvent { begins: true, flow: *flow, external: outside });
        }
        Ok(if way == Way::Out { out } else { inn })
    }

    /// Gives back what a session had.
    fn end(&mut self, flow: &Flow, (address, port): (u32, u16)) {
        let inside = End { address: flow.src, port: flow.src_port, protocol: flow.protocol };
        match self.by_inside.get_mut(&inside) {
            Some(mapped) => {
                mapped.sessions -= 1;
                if mapped.sessions == 0 && !mapped.forward {
                    self.by_inside.remove(&inside);
                    self.by_external.remove(&End { address, port, protocol: flow.protocol });
                    self.ports.put_back(flow.src, flow.protocol, port, true);
                }
            }
            None => self.ports.put_back(flow.src, flow.protocol, port, false),
        }
        self.ports.leave(flow.src);
    }

    /// Whether there is no room for another session, also not once connections that are half open or over have made way.
    fn is_full(&mut self, now: u32) -> bool {
        /// Buckets that are looked through for each that finds no room.
        const LOOKED_AT: usize = 8;
        if self.outwards.len() < self.config.sessions {
            return false;
        }
        if self.looks == 0 {
            return true;
        }
        self.looks -= 1;
        self.made_way += self.look_through(now, LOOKED_AT, PRESSED) as u64;
        self.outwards.len() >= self.config.sessions
    }

    /// Sessions that have made way for others, before their time.
    pub(crate) fn made_way(&self) -> u64 {
        self.made_way
    }

    /// Looks through the next buckets for sessions that have been idle too long; how many those were.
    pub(crate) fn age(&mut self, now: u32, buckets: usize) -> usize {
        self.looks = LOOKS;
        self.look_through(now, buckets, u32::MAX)
    }

    /// As [`age`](Self::age), where connections that are half open or over may be idle no longer than `transitory`.
    fn look_through(&mut self, now: u32, buckets: usize, transitory: u32) -> usize {
        let Sessions { outwards, inwards, ended, config, .. } = self;
        let limits = Limits { transitory: config.limits.transitory.min(transitory), ..config.limits };
        let least = limits.udp.min(limits.transitory).min(limits.icmp).min(limits.established);
        outwards.age(now, buckets, |key, t, idle| {
            if idle < least {
                return false;
            }
            let flow = Flow::of_key(key);
            let reverse = reverse(&flow, t, Way::Out).key();
            let (back, idle_back) = inwards.peek(&reverse, now).map_or((0, idle), |(back, idle)| (back.state, idle));
            let over = idle.min(idle_back) >= limit(&limits, flow.protocol, t.state, back);
            if over {
                inwards.remove(&reverse);
                ended.push((*key, *t));
            }
            over
        });
        let n = self.ended.len();
        for (key, t) in core::mem::take(&mut self.ended) {
            let (flow, external) = (Flow::of_key(&key), (t.address(), t.port()));
            self.end(&flow, external);
            if self.config.filtering == Filtering::AddressDependent {
                let key = (End { address: external.0, port: external.1, protocol: flow.protocol }, flow.dst);
                if let Some(sessions) = self.known.get_mut(&key) {
                    *sessions -= 1;
                    if *sessions == 0 {
                        self.known.remove(&key);
                    }
                }
            }
            if self.tell {
                self.events.push(SessionEvent { begins: false, flow, external });
            }
        }
        n
    }
}

/// The other direction, as its packets come.
fn reverse(flow: &Flow, t: &Translation, way: Way) -> Flow {
    match way {
        Way::Out => flow.from(t.address(), t.port()).reversed(),
        Way::In => Flow { dst: t.address(), dst_port: t.port(), ..*flow }.reversed(),
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
            if let Found::New(value) = found {
                *value = t;
                new = true;
            }
        },
    );
    new
}

/// Of all that find no room in a millisecond, so many look for some: a flood shall not cost all the time there is.
const LOOKS: u32 = 16;

/// How long a connection that is half open or over may be idle where others find no room: five seconds.
const PRESSED: u32 = (5 * 1000) >> UNIT;

/// Whether either end has reset a connection, or both have closed it.
fn is_over(one: u8, other: u8) -> bool {
    (one | other) & RST != 0 || one & other & FIN != 0
}

/// After how long a session is forgotten (RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 5508 REQ-2, RFC 7857 §2).
fn limit(limits: &Limits, protocol: u8, out: u8, back: u8) -> u32 {
    match IpProtocol(protocol) {
        IpProtocol::TCP => {
            let over = is_over(out, back);
            let met = out & PLAIN != 0 && back & (PLAIN | SYN) != 0 || back & PLAIN != 0 && out & (PLAIN | SYN) != 0;
            if met && !over { limits.established } else { limits.transitory }
        }
        IpProtocol::UDP => limits.udp,
        _ => limits.icmp,
    }
}
