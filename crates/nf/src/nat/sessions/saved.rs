//! Sessions for the process that replaces this one.

use super::{PortMapping, SessionTable, reverse_flow};
use crate::nat::flow::{Direction, Endpoint, Flow, Translation};
use crate::nat::log::record::SessionEvent;
use crate::nat::settings::{Filtering, Mapping};
use crate::nat::statistics::Subscribers;
use crate::saved_flows::SavedKey;
use graph::{InvalidState, StateReader, StateWriter};
use serde::{Deserialize, Serialize};
use tables::flow::{Tuple4, later};
use wire::IpProtocol;

/// Sessions whose table entries are prefetched together, and buckets with about as many.
const BURST: usize = 32;
const BUCKETS: usize = 8;

#[derive(Serialize, Deserialize)]
struct SavedSession {
    /// Flow of the packets from inside.
    key: SavedKey<Tuple4>,
    external: (u32, u16),
    /// Time of the last packet of both directions, in units of the tables.
    seen: u32,
    /// State of the outbound and of the inbound translation.
    states: (u8, u8),
}

impl SessionTable {
    /// Writes the sessions and the blocks of ports.
    pub(crate) fn save(&self, state: &mut StateWriter) {
        self.ports.save(state);
        state.push(&self.outbound.len());
        let buckets = self.outbound.buckets();
        let mut burst = Vec::with_capacity(BURST);
        for from in (0..buckets).step_by(BUCKETS) {
            for (key, t, seen) in self.outbound.iter_seen(from..buckets.min(from + BUCKETS)) {
                let reverse = reverse_flow(&Flow::of_key(&key), t, Direction::Outbound).key();
                burst.push((key, t, seen, self.inbound.prepare(reverse)));
            }
            for (key, t, seen, reverse) in burst.drain(..) {
                let (back, seen_back) = self.inbound.read_seen(&reverse).map_or((0, seen), |(t, s)| (t.state(), s));
                state.push(&SavedSession {
                    key: SavedKey(key),
                    external: (t.address(), t.port()),
                    seen: later(seen, seen_back),
                    states: (t.state(), back),
                });
            }
        }
    }

    /// Adds the sessions that another table has saved, and returns the number of those that are left out because they
    /// contradict the forwards or exceed the capacity: they are recorded as ended.
    ///
    /// # Errors
    /// The state is not valid.
    pub(crate) fn restore(
        &mut self,
        state: &mut StateReader<'_>,
        inside: &mut impl Subscribers,
    ) -> Result<usize, InvalidState> {
        let result = self.restore_all(state, inside);
        self.ports.end_restoration();
        result
    }

    fn restore_all(
        &mut self,
        state: &mut StateReader<'_>,
        inside: &mut impl Subscribers,
    ) -> Result<usize, InvalidState> {
        self.ports.restore(state)?;
        let count = state.read::<usize>()?.ok_or(InvalidState)?;
        if self.config.mapping == Mapping::EndpointIndependent {
            let expected = count.min(self.config.sessions);
            self.by_inside.reserve(expected);
            self.by_external.reserve(expected);
        }
        let (mut burst, mut left_out) = (Vec::with_capacity(BURST), 0);
        for n in 1..=count {
            let SavedSession { key: SavedKey(key), external, seen, states } = state.read()?.ok_or(InvalidState)?;
            let flow = Flow::of_key(&key);
            if !inside.is_known(flow.src) || !is_translated(flow.protocol) {
                return Err(InvalidState);
            }
            // prefetches the entries
            self.outbound.prepare(key);
            self.inbound.prepare(flow.with_source(external.0, external.1).reversed().key());
            burst.push((flow, external, seen, states));
            if burst.len() == BURST || n == count {
                for (flow, external, seen, states) in burst.drain(..) {
                    let fits = self.restore_session(&flow, external, seen, states)?;
                    inside.session_restored(flow.src);
                    if !fits {
                        left_out += 1;
                        if self.record_events {
                            self.events.push(SessionEvent { created: false, flow, external });
                        }
                    }
                }
            }
        }
        Ok(left_out)
    }

    /// Adds a session; returns false if it does not fit, or is in the table already.
    fn restore_session(
        &mut self,
        flow: &Flow,
        (address, port): (u32, u16),
        seen: u32,
        states: (u8, u8),
    ) -> Result<bool, InvalidState> {
        let inside = Endpoint { address: flow.src, port: flow.src_port, protocol: flow.protocol };
        let external = Endpoint { address, port, protocol: flow.protocol };
        let index = self.ports.own_index(address).ok_or(InvalidState)?;
        let translated = (flow.src, flow.src_port);
        let mut outbound = Translation::new(flow.protocol, translated, (address, port));
        let mut inbound = Translation::new(flow.protocol, (address, port), translated);
        outbound.set_state(states.0);
        inbound.set_state(states.1);
        let shared = self.config.mapping == Mapping::EndpointIndependent;
        let (is_new, forward) = match self.by_inside.get(&inside) {
            Some(m) if m.external == external && (m.forward || !outbound.is_forward()) => (false, m.forward),
            None if !outbound.is_forward() => (shared, false),
            _ => return Ok(false),
        };
        if !self.may_have(&inside, &external, flow) {
            return Ok(false);
        }
        if !self.ports.permits(flow.src, index, flow.protocol, (!forward).then_some(port)) {
            return Err(InvalidState);
        }
        if forward {
            outbound.set_forward();
        }
        if !self.insert_both(flow, outbound, inbound, seen) {
            return Ok(false);
        }
        self.ports.restore_session(flow.src, index);
        if is_new {
            self.by_inside.insert(inside, PortMapping { external, sessions: 1, forward: false });
            self.by_external.insert(external, inside);
        } else if shared
            && !forward
            && let Some(mapping) = self.by_inside.get_mut(&inside)
        {
            mapping.sessions += 1;
        }
        if is_new || !shared && !forward {
            self.ports.mark_used(index, flow.protocol, port, shared);
        }
        if self.config.filtering == Filtering::AddressDependent {
            *self.peers.entry((external, flow.dst)).or_insert(0) += 1;
        }
        Ok(true)
    }
}

fn is_translated(protocol: u8) -> bool {
    [IpProtocol::TCP, IpProtocol::UDP, IpProtocol::ICMPV4].contains(&IpProtocol(protocol))
}
