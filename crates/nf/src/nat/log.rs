//! Log of port blocks and sessions, sent by a thread of its own as syslog or IPFIX.

mod nat_events;
pub(super) mod record;
mod syslog;
pub(super) mod target;

use crate::export::{Export, ipfix};
use diagnostics::Diagnostic;
use graph::{BuildContext, Counter};
use record::{BlockEvent, Event, Record, RecordKind, SessionEvent};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;
use target::LogTarget;

/// Sending half of the log, used by the packet path; it never blocks.
pub(super) struct Log(Export<Record>);

impl Log {
    /// Starts the log of one copy of a translator. Its thread ends with the log.
    ///
    /// # Errors
    /// The socket or the thread cannot be created.
    pub(super) fn new(
        target: LogTarget,
        cx: &BuildContext,
        kind: RecordKind,
        counter: &Arc<Counter>,
    ) -> Result<Log, Diagnostic> {
        let (name, domain) = (cx.name.clone(), cx.copy.0 as u32 + 1);
        let export =
            Export::to_server(
                "nat-log",
                target.address(),
                counter.clone(),
                move |socket, records, lost| match target {
                    LogTarget::Syslog(_) => syslog::run(socket, &name, &records, lost),
                    LogTarget::Ipfix(_) => ipfix::run(socket, kind, domain, &records, lost),
                },
            );
        export.map(Log).map_err(|e| {
            let d = Diagnostic::new(format!("cannot be logged to: {e}")).key("log").value(target.address());
            d.remedy("name the address and port of a server that this host has a route to")
        })
    }

    fn send(&self, inside: IpAddr, event: Event) {
        self.0.send(Record { at: SystemTime::now(), inside, event });
    }

    /// Publishes the number of lost records.
    pub(super) fn update_counter(&self) {
        self.0.update_counter();
    }

    /// Logs an event of a port block of the subscriber with this address.
    pub(super) fn block(&self, inside: IpAddr, event: BlockEvent) {
        self.send(inside, Event::Block(event));
    }

    /// Logs an event of a session of the subscriber with this address.
    pub(super) fn session(&self, inside: IpAddr, event: SessionEvent) {
        self.send(inside, Event::Session(event));
    }
}
