//! Sessions over a reload that changes forwards. A mapping that contradicts a new forward is replaced at once; its
//! sessions are closed by a scan of the table in the timer, as that may have millions.

use super::flow::{Endpoint, Flow, Translation};
use super::forward_changes::ForwardChanges;
use super::sessions::{PortMapping, SessionTable};
use super::settings::Mapping;

/// Buckets, of eight slots, that are scanned in a tick.
const BUCKETS_PER_TICK: usize = 256;

impl SessionTable {
    /// Sets the changes that [`take_over`](Self::take_over) applies.
    pub(crate) fn set_forward_changes(&mut self, changes: ForwardChanges) {
        self.displaced.changes = changes;
    }

    /// Takes over the sessions of another table. Its settings differ at most in those that the NF permits, and in
    /// forwards as given to [`set_forward_changes`](Self::set_forward_changes). Takes time in proportion to these.
    pub(crate) fn take_over(&mut self, old: &mut SessionTable) {
        core::mem::swap(self, old);
        core::mem::swap(&mut self.config, &mut old.config);
        self.ports.set_config(&self.config);
        let ForwardChanges { mut removed, mut added, copy } = core::mem::take(&mut old.displaced.changes);
        if removed.is_empty() && added.is_empty() {
            return;
        }
        removed.retain(|f| self.ports.is_own(f.external));
        added.retain(|f| self.ports.is_own(f.external));
        for f in removed {
            let (inside, external) = self.endpoints(&f);
            self.by_inside.remove(&inside);
            self.by_external.remove(&external);
            match self.displaced.replaced.remove(&(inside, external)) {
                // the sessions that had this mapping before the forward have it again
                Some(sessions) => {
                    self.by_inside.insert(inside, PortMapping { external, sessions, forward: false });
                    self.by_external.insert(external, inside);
                }
                None => self.displaced.removed.push(f),
            }
        }
        for f in added {
            let (inside, external) = self.endpoints(&f);
            if let Some(other) = self.by_external.get(&external).copied() {
                self.replace(other);
            }
            self.replace(inside);
            self.add_forward(&f);
        }
        self.ports.set_rebinding(true);
        (self.displaced.copy, self.displaced.scan, self.displaced.closed) = (copy, Some(0), 0);
    }

    /// Removes the mapping of an inside endpoint, whose sessions remain.
    fn replace(&mut self, inside: Endpoint) {
        if let Some(PortMapping { external, sessions, .. }) = self.by_inside.remove(&inside) {
            self.by_external.remove(&external);
            self.displaced.replaced.insert((inside, external), sessions);
        }
    }

    /// Counts one session less of a mapping that was replaced, and releases its port with the last one.
    pub(super) fn release_replaced(&mut self, inside: Endpoint, external: Endpoint) {
        let Some(sessions) = self.displaced.replaced.get_mut(&(inside, external)) else { return };
        *sessions -= 1;
        if *sessions > 0 {
            return;
        }
        self.displaced.replaced.remove(&(inside, external));
        self.ports.release(inside.address, inside.protocol, external.port, true);
        if self.by_external.contains_key(&external)
            && let Some(index) = self.config.external_index(external.address)
        {
            self.ports.reserve(index, external.protocol, external.port);
        }
    }

    /// Closes sessions of the next buckets that do not fit the forwards after a reload, and returns how many.
    pub(crate) fn close_displaced(&mut self) -> usize {
        let Some(from) = self.displaced.scan else { return 0 };
        let end = self.outbound.buckets().min(from + BUCKETS_PER_TICK);
        let mut flows = vec![];
        for (key, t) in self.outbound.iter(from..end) {
            let flow = Flow::of_key(&key);
            if !self.fits(&flow, t) {
                flows.push(flow);
            }
        }
        flows.iter().for_each(|flow| _ = self.close(flow));
        self.displaced.closed += flows.len();
        if end < self.outbound.buckets() {
            self.displaced.scan = Some(end);
        } else if core::mem::take(&mut self.displaced.closed) > 0 {
            // new sessions may have moved others to buckets that were scanned before
            self.displaced.scan = Some(0);
        } else {
            self.end_scan();
        }
        flows.len()
    }

    fn end_scan(&mut self) {
        self.displaced.scan = None;
        self.ports.set_rebinding(false);
        for f in core::mem::take(&mut self.displaced.removed) {
            if !self.by_external.contains_key(&self.endpoints(&f).1) {
                self.ports.end_reservation(f.external, f.protocol, f.port);
            }
        }
    }

    /// Returns true if a session could be created as it is.
    fn fits(&self, flow: &Flow, t: &Translation) -> bool {
        let inside = Endpoint { address: flow.src, port: flow.src_port, protocol: flow.protocol };
        let external = Endpoint { address: t.address(), port: t.port(), protocol: flow.protocol };
        let has_mapping = match self.by_inside.get(&inside) {
            Some(mapping) => mapping.external == external && (mapping.forward || !t.is_forward()),
            None => self.config.mapping == Mapping::EndpointDependent && !t.is_forward(),
        };
        has_mapping && self.may_have(&inside, &external, flow)
    }

    /// Returns true if the forwards and the other mappings let an inside endpoint have this external endpoint.
    pub(super) fn may_have(&self, inside: &Endpoint, external: &Endpoint, flow: &Flow) -> bool {
        let required = self.config.required_external(inside.address);
        let (copy, copies) = self.displaced.copy;
        self.by_external.get(external).is_none_or(|owner| owner == inside)
            && required.is_none_or(|index| self.config.external[index] == external.address)
            && (copies <= 1 || self.config.copy_of(true, flow, copies) == copy)
    }
}
