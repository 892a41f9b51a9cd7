//! Listing and draining the backends of a running load balancer.

use super::backends::PoolHandle;
use super::balancer::Balancer;
use super::config::Config;
use super::connection::Connection;
use crate::visits::{Copies, Visits};
use control::{MaglevBackend, MaglevBackends, MaglevDrained};
use diagnostics::Diagnostic;
use graph::Named;
use std::sync::Arc;
use tables::flow::{FlowKey, FlowTable};

/// Most buckets of connections that a visit counts, of eight slots each: some tens of microseconds.
const BUCKETS_PER_VISIT: usize = 512;

/// A load balancer: its backends, and the copies with the connections.
pub struct LiveBackends {
    pub(super) pool: Arc<PoolHandle>,
    copies: Copies<Balancer>,
}

/// A table of connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    V4,
    V6,
}

impl LiveBackends {
    pub(super) fn new(pool: Arc<PoolHandle>) -> Self {
        LiveBackends { pool, copies: Copies::default() }
    }

    /// Adds a copy.
    pub(super) fn attach(&self, copy: usize) -> Visits<Balancer> {
        self.copies.attach(copy)
    }

    fn config(&self) -> &Config {
        &self.pool.0.config
    }

    /// Returns the backends of all services, with their connections and packets.
    ///
    /// # Errors
    /// A copy does not answer.
    pub fn list(&self) -> Result<MaglevBackends, Diagnostic> {
        let config = self.config();
        let (mut connections, mut packets) = (vec![0; config.backends.len()], vec![0; config.backends.len()]);
        for copy in 0..self.copies.len() {
            packets = self.copies.call(copy, move |balancer, _| {
                let sent = balancer.destinations.iter().filter_map(|d| Some((d.backend?, d.packets)));
                sent.for_each(|(backend, n)| packets[backend] += n);
                packets
            })?;
            for table in [Table::V4, Table::V6] {
                let mut next = Some(0);
                while let Some(from) = next {
                    (connections, next) = self.copies.call(copy, move |balancer, _| {
                        let next = match table {
                            Table::V4 => count(&balancer.v4, balancer, from, &mut connections),
                            Table::V6 => count(&balancer.v6, balancer, from, &mut connections),
                        };
                        (connections, next)
                    })?;
                }
            }
        }
        let snapshot = self.pool.0.current();
        let slots: Vec<Vec<usize>> = snapshot.rings.iter().map(|ring| ring.counts()).collect();
        let backend = |(n, b): (usize, &super::config::Backend)| {
            let service = &config.services[b.service];
            MaglevBackend {
                service: service.name.clone(),
                backend: b.name.clone(),
                address: b.address.to_string(),
                state: snapshot.states[n].name().to_owned(),
                slots: slots[b.service][n - service.backends.start],
                connections: connections[n],
                packets: packets[n],
            }
        };
        let backends = config.backends.iter().enumerate().map(backend).collect();
        Ok(MaglevBackends { nf: String::new(), backends })
    }

    /// Drains a backend, which then receives no new connections, or ends that. `name` is that of the backend, or
    /// `SERVICE/BACKEND`.
    ///
    /// # Errors
    /// The backend does not exist, several services have one of this name, or its service would have none that receives
    /// new connections.
    pub fn drain(&self, name: &str, drain: bool) -> Result<MaglevDrained, Diagnostic> {
        let config = self.config();
        let full =
            |n: usize| format!("{}/{}", config.services[config.backends[n].service].name, config.backends[n].name);
        let found: Vec<usize> =
            (0..config.backends.len()).filter(|&n| config.backends[n].name == name || full(n) == name).collect();
        let names = |of: &[usize]| of.iter().map(|&n| full(n)).collect::<Vec<_>>().join(", ");
        let backend = match found[..] {
            [one] => one,
            [] => {
                let all: Vec<usize> = (0..config.backends.len()).collect();
                let remedy = format!("name one of {}", names(&all));
                return Err(Diagnostic::new("is not a backend").value(name).remedy(remedy));
            }
            _ => {
                let remedy = format!("name one of {}", names(&found));
                return Err(Diagnostic::new("is a backend of several services").value(name).remedy(remedy));
            }
        };
        let b = &config.backends[backend];
        let service = &config.services[b.service];
        let state = self.pool.0.drain(backend, drain).ok_or_else(|| {
            let problem = format!("is the only backend of service {} that receives new connections", service.name);
            Diagnostic::new(problem).value(name).remedy("undrain another one first")
        })?;
        let state = state.name().to_owned();
        Ok(MaglevDrained { nf: String::new(), service: service.name.clone(), backend: b.name.clone(), state })
    }
}

/// Counts the connections of each backend from a bucket on; returns the next bucket, if there is one.
fn count<K: FlowKey>(
    table: &FlowTable<K, Connection>,
    balancer: &Balancer,
    from: usize,
    connections: &mut [u64],
) -> Option<usize> {
    let end = table.buckets().min(from + BUCKETS_PER_VISIT);
    for (_, connection) in table.iter(from..end) {
        if let Some(backend) = connection.find(&balancer.destinations).and_then(|d| d.backend) {
            connections[backend] += 1;
        }
    }
    (end < table.buckets()).then_some(end)
}
