//! Connections and states of backends for the process that replaces this one.

use super::backends::KnownBackend;
use super::balancer::Balancer;
use super::connection::Connection;
use super::destination_numbers::{Identity, identity};
use crate::saved_flows::{restore, save};
use graph::{InvalidState, StateReader, StateWriter};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::IpAddr;
use wire::IpProtocol;

/// State besides connections.
#[derive(Serialize, Deserialize)]
struct SavedBalancer {
    /// Identification of the next outer IPv4 header.
    id: u16,
    backends: Vec<KnownBackend>,
    /// Address, port and protocol.
    vips: Vec<(IpAddr, u16, u8)>,
    /// Destinations: virtual address, backend and number.
    destinations: Vec<(usize, usize, Connection)>,
}

impl SavedBalancer {
    fn identity(&self, vip: usize, backend: usize) -> Option<Identity<'_>> {
        let ((address, port, protocol), b) = (*self.vips.get(vip)?, self.backends.get(backend)?);
        Some(((address, port, IpProtocol(protocol)), &b.name, b.address, b.port.unwrap_or(port)))
    }
}

impl Balancer {
    /// Writes the states of backends, which each copy does, and the connections and fragmented datagrams of this copy.
    pub(super) fn save_connections(&self, state: &mut StateWriter) {
        let pool = &self.pool.0;
        let numbered = pool.config.destinations().zip(&pool.numbers.of);
        state.push(&SavedBalancer {
            id: self.id,
            backends: pool.known(),
            vips: pool.config.vips.iter().map(|v| (v.endpoint.0, v.endpoint.1, v.endpoint.2.0)).collect(),
            destinations: numbered.map(|((vip, backend), number)| (vip, backend, *number)).collect(),
        });
        save(&self.v4, state);
        save(&self.v6, state);
        save(&self.fragments, state);
    }

    /// Takes over what another copy has saved, without connections to backends that have been removed and without
    /// fragments of replies.
    pub(super) fn restore_connections(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        let saved: SavedBalancer = state.read()?.ok_or(InvalidState)?;
        let pool = &self.pool.0;
        pool.restore(&saved.backends);
        self.id = saved.id;
        let config = &pool.config;
        let current: HashMap<_, _> =
            config.destinations().map(|pair| identity(config, pair)).zip(pool.numbers.of.iter().copied()).collect();
        let mut numbers = HashMap::new();
        for (vip, backend, number) in &saved.destinations {
            let identity = saved.identity(*vip, *backend).ok_or(InvalidState)?;
            if let Some(current) = current.get(&identity) {
                numbers.insert(*number, *current);
            }
        }
        numbers.insert(Connection::NONE, Connection::NONE);
        let number_of = |connection: Connection| Ok(numbers.get(&connection).copied());
        restore(&mut self.v4, state, |_, connection| number_of(connection))?;
        restore(&mut self.v6, state, |_, connection| number_of(connection))?;
        restore(&mut self.fragments, state, |_, connection| number_of(connection))
    }
}
