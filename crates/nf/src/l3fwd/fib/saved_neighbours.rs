//! Neighbours for the process that replaces this one.

use super::{Control, Fib, REQUESTS_MAX};
use crate::l3fwd::interface::Interface;
use graph::{InvalidState, StateReader, StateWriter};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;
use wire::MacAddr;

/// A neighbour whose MAC address is known.
#[derive(Serialize, Deserialize)]
struct SavedNeighbour {
    interface: String,
    address: IpAddr,
    mac: [u8; 6],
    /// Times in nanoseconds.
    confirmed: u64,
    requested: Option<u64>,
    requests: u32,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Control {
    /// Writes the neighbours whose MAC addresses were learned.
    pub(in crate::l3fwd) fn save(&self, interfaces: &[Interface], state: &mut StateWriter) {
        for ((interface, address), n) in &self.neighbours {
            let Some(MacAddr(mac)) = n.mac.filter(|_| !n.is_static) else { continue };
            state.push(&SavedNeighbour {
                interface: interfaces[*interface].name.clone(),
                address: *address,
                mac,
                confirmed: nanoseconds(n.confirmed),
                requested: n.requested.map(nanoseconds),
                requests: n.requests,
            });
        }
    }

    /// Enters the neighbours that another FIB has saved, as far as the interfaces, the routes and the maximum number
    /// permit.
    ///
    /// # Errors
    /// The state is not valid.
    pub(in crate::l3fwd) fn restore(
        &mut self,
        fib: &Fib,
        interfaces: &[Interface],
        state: &mut StateReader<'_>,
    ) -> Result<(), InvalidState> {
        while let Some(SavedNeighbour { interface, address, mac, confirmed, requested, requests }) = state.read()? {
            let mac = MacAddr(mac);
            if !mac.is_unicast() || requests > REQUESTS_MAX {
                return Err(InvalidState);
            }
            let Some(interface) = interfaces.iter().position(|own| own.name == interface) else { continue };
            if !interfaces[interface].reaches(address) || interfaces[interface].has(address) {
                continue;
            }
            if let Some(n) = self.enter(fib, interfaces, (interface, address), mac) {
                let time = Duration::from_nanos;
                (n.confirmed, n.requested, n.requests) = (time(confirmed), requested.map(time), requests);
            }
        }
        Ok(())
    }
}
