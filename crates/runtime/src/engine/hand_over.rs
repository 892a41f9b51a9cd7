//! Handing the chains of a run over to another process.

use super::saved_state::{SavedState, packet_interface};
use super::{End, Engine};
use config::Device;
use diagnostics::Diagnostic;
use dpdk::PacketSocket;
use std::sync::atomic::Ordering;

impl Engine {
    /// Returns an error for the first port that another process cannot go on with.
    ///
    /// # Errors
    /// A port is a tap, an AF_XDP socket or a capture.
    pub fn check_hand_over(&self) -> Result<(), Diagnostic> {
        let problem = |port: &config::Port| match (&port.device, port.device.scheme_and_target()) {
            (_, Some(("tap", name))) => Some((
                format!("port {:?}: the tap {name} ends with its process", port.name),
                "use one end of a veth pair instead (af_packet:INTERFACE), or restart",
            )),
            // tried on veth: creating the socket fails until the process that had one has ended
            (_, Some(("af_xdp", name))) => Some((
                format!(
                    "port {:?}: no other process can open an AF_XDP socket of {name} before this one ends",
                    port.name
                ),
                "use af_packet:INTERFACE instead, or restart",
            )),
            (Device::Pcap(_), _) => Some((
                format!("port {:?}: a capture cannot be continued by another process", port.name),
                "restart, which reads or writes it from the begin",
            )),
            _ => None,
        };
        match self.file.ports.iter().find_map(problem) {
            Some((problem, remedy)) => Err(Diagnostic::new(problem).remedy(remedy)),
            None => Ok(()),
        }
    }

    /// Returns a text for each NF that started without the state that it had in the process before.
    #[must_use]
    pub fn not_restored(&self) -> &[String] {
        &self.not_restored
    }

    /// Returns the packet sockets of ports.
    #[must_use]
    pub fn packet_sockets(&self) -> Vec<PacketSocket> {
        let interfaces = self.file.ports.iter().filter_map(|port| packet_interface(&port.device));
        // ignore errors: their packets are received until the ports are closed
        interfaces.flat_map(|interface| PacketSocket::of_interface(interface).unwrap_or_default()).collect()
    }

    /// Returns the packets that were received from packet sockets.
    #[must_use]
    pub fn received_from_packet_sockets(&self) -> u64 {
        let ports = 0..self.file.ports.len();
        let sockets = ports.filter(|&port| packet_interface(&self.file.ports[port].device).is_some());
        let sockets: Vec<End> = sockets.map(|port| self.end(port)).collect();
        let is_socket = |end: &End| sockets.contains(end);
        let all = self.workers.iter().flat_map(|worker| &worker.received).filter(|(end, _)| is_socket(end));
        all.map(|(_, stats)| stats.packets.get()).sum()
    }

    /// Has the state of the NFs passed to `successor` when the engine stops, once ports are closed that only one process
    /// can have open.
    pub fn hand_over_to(&mut self, successor: impl FnOnce(SavedState) + Send + 'static) {
        self.drain.saves.store(true, Ordering::Relaxed);
        self.successor = Some(Box::new(successor));
    }
}
