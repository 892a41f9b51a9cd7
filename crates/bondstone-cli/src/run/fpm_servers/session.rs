//! One connection of zebra: bytes to changes of routes, and answers.

use crate::run::daemon_routes::{Counts, DaemonRoutes, Interfaces, Netdev, Source, Tables};
use core::sync::atomic::{AtomicBool, Ordering};
use fpm::{FrameError, FrameReader, Message, Verdict};
use std::collections::BTreeSet;

/// State of a connection.
pub(super) struct Session {
    reader: FrameReader,
    routes: DaemonRoutes,
}

impl Session {
    /// Returns the state of a new connection with the routes of routers with these names.
    pub(super) fn new(names: String) -> Session {
        Session { reader: FrameReader::new(), routes: DaemonRoutes::new(Source::Fpm, names) }
    }

    /// Returns the buffer for received bytes.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.reader.room()
    }

    /// Returns what the connection has brought.
    pub(super) fn counts(&self) -> Counts {
        self.routes.counts
    }

    /// Executes the whole frames among what was received, with `n` bytes more, until `end` is set. `netdev` returns
    /// the interface for the number that the kernel has for it.
    ///
    /// # Errors
    /// The stream cannot be read on.
    pub(super) fn received(
        &mut self,
        n: usize,
        tables: &Tables,
        netdev: &dyn Fn(u32) -> Netdev,
        answers: &mut Vec<u8>,
        end: &AtomicBool,
    ) -> Result<(), FrameError> {
        self.reader.filled(n);
        let mut interfaces = Interfaces::new(netdev);
        // routes change once with all messages that have arrived
        let mut changed = BTreeSet::new();
        while let Some(frame) = self.reader.next_frame().inspect_err(|_| self.routes.counts.malformed += 1)? {
            for message in fpm::messages(frame) {
                if end.load(Ordering::Relaxed) {
                    return Ok(());
                }
                match message {
                    Ok(Message::Route(route)) => {
                        let answer = |verdict: Verdict, answers: &mut Vec<u8>| fpm::answer(&route, verdict, answers);
                        let target = (!route.removes).then_some(&route.target);
                        self.routes.route(
                            (route.table, route.prefix),
                            target,
                            tables,
                            &mut interfaces,
                            answers,
                            &answer,
                        );
                    }
                    Ok(Message::NextHop(next_hop)) => drop(changed.insert(self.routes.next_hop(next_hop))),
                    Ok(Message::Other { .. }) => {}
                    Err(e) => self.routes.malformed(&e),
                }
            }
        }
        self.routes.change_objects(&changed, tables, &mut interfaces, answers, end);
        Ok(())
    }

    /// Makes the last change, after which nothing has been received for a while.
    pub(super) fn flush(&mut self, tables: &Tables) {
        self.routes.flush(tables);
    }
}

#[cfg(test)]
mod tests;
