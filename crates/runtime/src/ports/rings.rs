//! Ways through walls by rings: packets are lent as they are.

use crate::{Receive, Transmit};
use config::Side;
use dpdk::{Borrowed, Borrower, Lender, Lending, Mempool, Returned, Returning};
use packet::Batch;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The walls by rings of a side, by their sockets.
#[derive(Default)]
pub(crate) struct Rings {
    lenders: BTreeMap<PathBuf, Lender>,
    borrowers: BTreeMap<PathBuf, Arc<Borrower>>,
}

/// Both ends of a way.
pub(crate) type Ends = (Box<dyn Receive>, Box<dyn Transmit>);

impl Rings {
    /// The ends of a way on this side: on that of the switch packets of `pool` are lent.
    ///
    /// # Errors
    /// Nobody lends there, or memory cannot be shared.
    pub(crate) fn ends(
        &mut self,
        side: Side,
        socket: &Path,
        (lane, lanes): (usize, usize),
        pool: &Arc<Mempool>,
    ) -> io::Result<Ends> {
        match side {
            Side::Switch => {
                if !self.lenders.contains_key(socket) {
                    let lender = Lender::listen(socket, lanes, config::Wall::QUEUE, pool)?;
                    self.lenders.insert(socket.to_owned(), lender);
                }
                let (from, to) = self.lenders[socket].lane(lane);
                Ok((Box::new(from), Box::new(to)))
            }
            Side::Host => {
                if !self.borrowers.contains_key(socket) {
                    self.borrowers.insert(socket.to_owned(), Borrower::link(socket)?);
                }
                let (from, to) = self.borrowers[socket].lane(lane);
                Ok((Box::new(from), Box::new(to)))
            }
        }
    }

    /// Packets that may still be lent when all ports are closed, until those who have them are no more.
    pub(crate) fn lent(&self) -> usize {
        self.lenders.len() * Lender::MOST
    }
}

impl Receive for Returned {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        Returned::receive(self, batch)
    }
    fn bytes(&self) -> u64 {
        Returned::bytes(self)
    }
}

impl Transmit for Lending {
    fn send(&mut self, batch: &mut Batch) -> usize {
        Lending::send(self, batch)
    }
    fn tend(&mut self) {
        Lending::tend(self);
    }
    fn bytes(&self) -> u64 {
        Lending::bytes(self)
    }
}

impl Receive for Borrowed {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        Borrowed::receive(self, batch)
    }
    fn bytes(&self) -> u64 {
        Borrowed::bytes(self)
    }
}

impl Transmit for Returning {
    fn send(&mut self, batch: &mut Batch) -> usize {
        Returning::send(self, batch)
    }
    fn bytes(&self) -> u64 {
        Returning::bytes(self)
    }
}
