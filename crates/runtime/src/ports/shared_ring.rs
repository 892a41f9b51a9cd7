//! Sandbox ports over shared-memory rings.

use super::io::{Receive, Transmit};
use config::Side;
use dpdk::{ClientRx, ClientTx, Mempool, RingClient, RingServer, ServerRx, ServerTx};
use packet::Batch;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The servers and clients of shared-memory rings, by socket.
#[derive(Default)]
pub(crate) struct SharedRings {
    servers: BTreeMap<PathBuf, RingServer>,
    clients: BTreeMap<PathBuf, Arc<RingClient>>,
}

/// Both ends of a queue.
pub(crate) type RingEnds = (Box<dyn Receive>, Box<dyn Transmit>);

impl SharedRings {
    /// Opens a queue of a region: as the server of packets of `pool` on the host side, as the client in a sandbox.
    ///
    /// # Errors
    /// The server cannot be reached, or memory cannot be shared.
    pub(crate) fn open(
        &mut self,
        side: Side,
        socket: &Path,
        (queue, queues): (usize, usize),
        pool: &Arc<Mempool>,
    ) -> io::Result<RingEnds> {
        match side {
            Side::Host => {
                if !self.servers.contains_key(socket) {
                    // SAFETY: the socket is in the private folder of the run, and this program is the only client.
                    #[expect(unsafe_code, reason = "trusts the client")]
                    let server = unsafe { RingServer::listen(socket, queues, config::Sandbox::QUEUE_SIZE, pool)? };
                    self.servers.insert(socket.to_owned(), server);
                }
                let (rx, tx) = self.servers[socket].queue(queue);
                Ok((Box::new(rx), Box::new(tx)))
            }
            Side::Sandboxed => {
                if !self.clients.contains_key(socket) {
                    // SAFETY: as above, this program listens.
                    #[expect(unsafe_code, reason = "trusts the server")]
                    let client = unsafe { RingClient::connect(socket)? };
                    self.clients.insert(socket.to_owned(), client);
                }
                let (rx, tx) = self.clients[socket].queue(queue);
                Ok((Box::new(rx), Box::new(tx)))
            }
        }
    }

    /// Returns the most packets that clients may still hold when all ports are closed.
    pub(crate) fn max_outstanding(&self) -> usize {
        self.servers.len() * RingServer::MAX_OUTSTANDING
    }
}

impl Receive for ServerRx {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        ServerRx::receive(self, batch)
    }
    fn bytes(&self) -> u64 {
        ServerRx::bytes(self)
    }
}

impl Transmit for ServerTx {
    fn send(&mut self, batch: &mut Batch) -> usize {
        ServerTx::send(self, batch)
    }
    fn maintain(&mut self) {
        ServerTx::release_stale_region(self);
    }
    fn bytes(&self) -> u64 {
        ServerTx::bytes(self)
    }
}

impl Receive for ClientRx {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        ClientRx::receive(self, batch)
    }
    fn bytes(&self) -> u64 {
        ClientRx::bytes(self)
    }
    fn rx_interrupt(&self) -> Option<BorrowedFd<'_>> {
        ClientRx::rx_interrupt(self)
    }
    fn enable_rx_interrupt(&mut self, on: bool) {
        ClientRx::enable_rx_interrupt(self, on);
    }
}

impl Transmit for ClientTx {
    fn send(&mut self, batch: &mut Batch) -> usize {
        ClientTx::send(self, batch)
    }
    fn bytes(&self) -> u64 {
        ClientTx::bytes(self)
    }
}
