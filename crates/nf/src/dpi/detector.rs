//! Recognition of the application of a flow by its first payloads.

use super::Application;
use super::headers::Headers;
use super::hosts::Hosts;
use super::protocol::{self, Context, Head, RECOGNISERS, Transport, Verdict};
use super::stream_start::{self, ConnectionId, StreamStart};
use std::collections::HashMap;
use wire::{IpProtocol, Malformed};

/// State of the recognition of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum State {
    /// Payloads are inspected.
    #[default]
    Undecided,
    /// The application is known, its host is not.
    AwaitsHost,
    /// Payloads are no longer inspected.
    Final,
}

/// A flow.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Flow {
    /// Packets and bytes before the decision.
    pub(super) packets: u32,
    pub(super) bytes: u32,
    /// Number of the inspection, from 1; 0 if there is none.
    inspection: u32,
    /// Number of the application, 0 if it is not known, and of the group of its host.
    pub(super) application: u8,
    pub(super) group: u8,
    pub(super) state: State,
    /// Number of the application that uses one of the ports by default, 0 if there is none or no guess is wanted.
    pub(super) guess: u8,
}

/// Data of a flow that is being inspected.
#[derive(Clone, Default)]
struct Inspection {
    /// Recognisers that have not excluded the flow, and those of them that have rejected one payload.
    candidates: u64,
    doubted: u64,
    /// Payloads in each direction.
    payloads: [u8; 2],
    /// Starts of the last payloads in each direction.
    heads: [Head; 2],
    /// Number of the buffer of the first bytes, from 1, and their direction.
    stream: u32,
    stream_direction: u8,
}

/// Elements by number, from 1, that are taken and returned.
struct Slots<T> {
    elements: Vec<T>,
    free: Vec<u32>,
    most: usize,
    create: fn() -> T,
}

impl<T> Slots<T> {
    fn new(most: usize, create: fn() -> T) -> Self {
        Slots { elements: Vec::with_capacity(most), free: Vec::with_capacity(most), most, create }
    }

    /// Returns the number of a free element; 0 if there is none.
    fn take(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            return number;
        }
        if self.elements.len() >= self.most {
            return 0;
        }
        self.elements.push((self.create)());
        self.elements.len() as u32
    }

    fn give(&mut self, number: u32) {
        if number != 0 {
            self.free.push(number);
        }
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.elements.get_mut((number as usize).checked_sub(1)?)
    }

    fn used(&self) -> usize {
        self.elements.len() - self.free.len()
    }
}

/// Limits of a detector.
pub(super) struct Limits {
    /// Flows inspected at the same time.
    pub(super) inspected: usize,
    /// Flows of which the first bytes are kept.
    pub(super) streams: usize,
    /// Payloads inspected of each flow, in each direction.
    pub(super) payloads: u8,
    /// Decide by port if no payload does.
    pub(super) guess: bool,
}

/// Recognises applications.
pub(super) struct Detector {
    limits: Limits,
    inspections: Slots<Inspection>,
    streams: Slots<StreamStart>,
    /// Recognisers of a port.
    by_port: HashMap<u16, u64>,
    /// Recognisers of TCP and of UDP.
    of_transport: [u64; 2],
    scratch: StreamStart,
    joined: Box<[u8; stream_start::BYTES]>,
    /// Flows that were not inspected, or whose first bytes were not kept, because of the limits.
    pub(super) not_inspected: u64,
    pub(super) not_reassembled: u64,
}

/// A payload of a flow.
struct Payload<'a> {
    bytes: &'a [u8],
    context: Context,
    direction: usize,
    sequence: u32,
}

impl Detector {
    pub(super) fn new(limits: Limits) -> Detector {
        let mut by_port: HashMap<u16, u64> = HashMap::new();
        let mut of_transport = [0; 2];
        for (n, recogniser) in RECOGNISERS.iter().enumerate() {
            recogniser.ports.iter().for_each(|port| *by_port.entry(*port).or_default() |= 1 << n);
            of_transport[0] |= u64::from(recogniser.tcp) << n;
            of_transport[1] |= u64::from(recogniser.udp) << n;
        }
        Detector {
            inspections: Slots::new(limits.inspected, Inspection::default),
            streams: Slots::new(limits.streams, StreamStart::new),
            limits,
            by_port,
            of_transport,
            scratch: StreamStart::new(),
            joined: Box::new([0; stream_start::BYTES]),
            not_inspected: 0,
            not_reassembled: 0,
        }
    }

    /// Returns the number of flows that are being inspected.
    pub(super) fn inspected(&self) -> usize {
        self.inspections.used()
    }

    /// Returns the number of flows whose first bytes are kept.
    pub(super) fn streams(&self) -> usize {
        self.streams.used()
    }

    /// Frees the memory of a flow that ends.
    pub(super) fn end(&mut self, flow: &mut Flow) {
        let number = core::mem::take(&mut flow.inspection);
        if let Some(inspection) = self.inspections.get_mut(number) {
            let stream = core::mem::take(&mut inspection.stream);
            self.streams.give(stream);
            self.inspections.give(number);
        }
    }

    /// Inspects a packet of a flow that is not final, and updates its application and state.
    pub(super) fn inspect(&mut self, flow: &mut Flow, headers: &Headers, frame: &[u8], hosts: &Hosts) {
        let Some(transport) = headers.transport() else {
            if matches!(headers.protocol, IpProtocol(50 | 51)) {
                flow.application = Application::Ipsec.number() as u8;
            }
            flow.state = State::Final;
            return;
        };
        if self.limits.guess && flow.packets == 1 {
            flow.guess = self.guess(transport, headers.ports);
        }
        let bytes = frame.get(headers.payload.0..headers.payload.1).unwrap_or_default();
        if bytes.is_empty() {
            return;
        }
        let candidates = self.of_transport[usize::from(transport == Transport::Udp)];
        if flow.inspection == 0 {
            flow.inspection = self.inspections.take();
            if let Some(inspection) = self.inspections.get_mut(flow.inspection) {
                *inspection = Inspection { candidates, ..Inspection::default() };
            }
        }
        let mut inspection = match self.inspections.get_mut(flow.inspection) {
            Some(inspection) => inspection.clone(),
            None => Inspection { candidates, ..Inspection::default() },
        };
        let (direction, most) = (headers.direction & 1, self.limits.payloads);
        let [previous, peer] = [inspection.heads[direction], inspection.heads[direction ^ 1]];
        let context = Context { transport, ports: headers.ports, previous, peer };
        let payload = Payload { bytes, context, direction, sequence: headers.sequence };
        if inspection.payloads[direction] < most {
            self.advance(flow, &mut inspection, &payload, hosts);
            inspection.heads[direction] = Head::new(bytes);
        }
        inspection.payloads[direction] = inspection.payloads[direction].saturating_add(1);
        // the other direction has as many payloads inspected, unless this one has sent twice as many by then
        let exhausted = inspection.candidates == 0
            || inspection.payloads.iter().all(|payloads| *payloads >= most)
            || inspection.payloads[direction] >= most.saturating_mul(2);
        match self.inspections.get_mut(flow.inspection) {
            Some(kept) => *kept = inspection,
            None => {
                self.not_inspected += 1;
                flow.state = State::Final;
            }
        }
        if exhausted && flow.state != State::Final {
            flow.state = State::Final;
        }
        if flow.state == State::Final {
            self.end(flow);
        }
    }

    /// Returns the number of the application that uses one of the ports by default, 0 if there is none.
    fn guess(&self, transport: Transport, ports: [u16; 2]) -> u8 {
        let all = self.of_transport[usize::from(transport == Transport::Udp)];
        let [src, dst] = ports.map(|port| self.by_port.get(&port).copied().unwrap_or_default() & all);
        let set = if dst != 0 { dst } else { src };
        RECOGNISERS.get(set.trailing_zeros() as usize).map_or(0, |it| it.application.number() as u8)
    }

    fn advance(&mut self, flow: &mut Flow, inspection: &mut Inspection, payload: &Payload<'_>, hosts: &Hosts) {
        if payload.context.transport == Transport::Tcp {
            self.append(inspection, payload);
        }
        if flow.state == State::Undecided {
            let stream = match self.streams.get_mut(inspection.stream) {
                Some(stream) if usize::from(inspection.stream_direction) == payload.direction => stream.bytes(),
                _ => &[],
            };
            let [src, dst] = payload.context.ports.map(|port| self.by_port.get(&port).copied().unwrap_or_default());
            let (application, needs_more) = recognise(inspection, payload, stream, src | dst);
            if let Some(application) = application {
                flow.application = application.number() as u8;
                flow.state = State::AwaitsHost;
            } else if needs_more && payload.context.transport == Transport::Tcp {
                self.keep(flow.inspection, inspection, payload);
            }
        }
        if flow.state == State::AwaitsHost {
            self.find_host(flow, inspection, payload, hosts);
        }
    }

    /// Adds a segment to the first bytes that are kept.
    fn append(&mut self, inspection: &Inspection, payload: &Payload<'_>) {
        if usize::from(inspection.stream_direction) == payload.direction
            && let Some(stream) = self.streams.get_mut(inspection.stream)
        {
            let offset = payload.sequence.wrapping_sub(stream.sequence) as usize;
            stream.insert(offset, payload.bytes);
        }
    }

    /// Begins to keep the first bytes of a direction.
    fn keep(&mut self, number: u32, inspection: &mut Inspection, payload: &Payload<'_>) {
        // without an inspection nothing would free the buffer
        if number == 0 || inspection.stream != 0 || inspection.candidates == 0 {
            return;
        }
        inspection.stream = self.streams.take();
        inspection.stream_direction = payload.direction as u8;
        match self.streams.get_mut(inspection.stream) {
            Some(stream) => {
                stream.clear();
                stream.sequence = payload.sequence;
                stream.insert(0, payload.bytes);
            }
            None => self.not_reassembled += 1,
        }
    }

    /// Finds the host of a flow whose application is known. The flow is final if it has none.
    fn find_host(&mut self, flow: &mut Flow, inspection: &mut Inspection, payload: &Payload<'_>, hosts: &Hosts) {
        let application = Application::from_number(flow.application.into());
        let has_host = matches!(application, Some(Application::Tls | Application::Http | Application::Quic));
        if hosts.is_empty() || !has_host || flow.inspection == 0 {
            flow.state = State::Final;
            return;
        }
        let host = match application {
            Some(Application::Quic) => self.quic_host(inspection, payload, hosts),
            _ => {
                let kept = match self.streams.get_mut(inspection.stream) {
                    Some(stream) if usize::from(inspection.stream_direction) == payload.direction => Some(stream),
                    _ => None,
                };
                let is_full = kept.as_ref().is_some_and(|stream| stream.is_full());
                let bytes = kept.as_ref().map_or(payload.bytes, |stream| stream.bytes());
                let host = match application {
                    Some(Application::Http) => protocol::http_host(bytes),
                    _ => protocol::tls_server_name(bytes, &mut *self.joined),
                };
                let group = host.map(|host| host.map_or(0, |host| hosts.group(host)));
                if group == Err(Malformed::Short) && !is_full {
                    self.keep(flow.inspection, inspection, payload);
                }
                if is_full { group.or(Ok(0)) } else { group }
            }
        };
        match host {
            Err(Malformed::Short) if inspection.stream != 0 => {}
            // the first message may be one of the server
            Err(Malformed::Kind) if inspection.payloads == [0, 0] => {}
            host => {
                flow.group = host.unwrap_or(0);
                flow.state = State::Final;
            }
        }
    }

    /// Returns the group of the host in the ClientHello of QUIC.
    fn quic_host(
        &mut self,
        inspection: &mut Inspection,
        payload: &Payload<'_>,
        hosts: &Hosts,
    ) -> Result<u8, Malformed> {
        let group_of = |stream: &StreamStart| {
            let host = protocol::client_hello_name(stream.bytes());
            host.map(|host| host.map_or(0, |host| hosts.group(host)))
        };
        if inspection.stream == 0 {
            self.scratch.clear();
            if !protocol::read_quic_initial(payload.bytes, &[], &mut self.scratch) {
                return Err(Malformed::Kind);
            }
            let group = group_of(&self.scratch);
            if group != Err(Malformed::Short) {
                return group;
            }
            inspection.stream = self.streams.take();
            inspection.stream_direction = payload.direction as u8;
            let Some(stream) = self.streams.get_mut(inspection.stream) else {
                self.not_reassembled += 1;
                return Err(Malformed::Short);
            };
            core::mem::swap(stream, &mut self.scratch);
            stream.connection = ConnectionId::new(protocol::quic_destination(payload.bytes).unwrap_or_default());
            return group;
        }
        let Some(stream) = self.streams.get_mut(inspection.stream) else { return Err(Malformed::Short) };
        if usize::from(inspection.stream_direction) != payload.direction {
            return Err(Malformed::Short);
        }
        // the connection ID of later Initial packets may be the one that the server chose
        let id = stream.connection;
        if !protocol::read_quic_initial(payload.bytes, id.bytes(), stream) {
            protocol::read_quic_initial(payload.bytes, &[], stream);
        }
        group_of(stream)
    }
}

/// Calls the recognisers that remain, those of the ports first. Returns the application, or true if one needs more.
fn recognise(
    inspection: &mut Inspection,
    payload: &Payload<'_>,
    stream: &[u8],
    hint: u64,
) -> (Option<Application>, bool) {
    let mut needs_more = false;
    let sets = [inspection.candidates & hint, inspection.candidates & !hint];
    for mut set in sets {
        while set != 0 {
            let n = set.trailing_zeros() as usize;
            let bit = set & set.wrapping_neg();
            set &= !bit;
            let Some(recogniser) = RECOGNISERS.get(n) else { continue };
            let mut verdict = (recogniser.recognise)(payload.bytes, &payload.context);
            if verdict != Verdict::Match && stream.len() > payload.bytes.len() {
                match (recogniser.recognise)(stream, &payload.context) {
                    Verdict::NoMatch => {}
                    joined => verdict = joined,
                }
            }
            match verdict {
                Verdict::Match => return (Some(recogniser.application), false),
                Verdict::NeedMore => needs_more = true,
                Verdict::NoMatch if inspection.doubted & bit == 0 => inspection.doubted |= bit,
                Verdict::NoMatch => inspection.candidates &= !bit,
            }
        }
    }
    (None, needs_more)
}
