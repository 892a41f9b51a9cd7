//! Log of port blocks and sessions, sent by a thread of its own as syslog or IPFIX.

mod exporter;
mod ipfix;
pub(super) mod record;
mod syslog;
pub(super) mod target;

use diagnostics::Diagnostic;
use graph::{BuildContext, Counter};
use record::{BlockEvent, Event, Record, RecordKind, SessionEvent};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::SystemTime;
use target::LogTarget;

/// Largest number of queued records; further ones are lost and counted.
const QUEUE_LEN: usize = 16_384;

/// Sending half of the log, used by the packet path; it never blocks.
pub(super) struct Log {
    /// `None` once the log is being dropped.
    records: Option<SyncSender<Record>>,
    thread: Option<JoinHandle<()>>,
    /// Records lost, here or by the thread.
    lost: Arc<AtomicU64>,
    counter: Arc<Counter>,
}

impl Drop for Log {
    /// Waits until all queued records are sent or lost. NFs are dropped outside the packet path.
    fn drop(&mut self) {
        self.records = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.update_counter();
    }
}

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
        Log::start(target, &cx.name, cx.copy.0, kind, counter.clone()).map_err(|e| {
            let d = Diagnostic::new(format!("cannot be logged to: {e}")).key("log").value(target.address());
            d.remedy("name the address and port of a server that this host has a route to")
        })
    }

    fn start(
        target: LogTarget,
        name: &str,
        copy: usize,
        kind: RecordKind,
        counter: Arc<Counter>,
    ) -> std::io::Result<Log> {
        let any: SocketAddr = match target.address() {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(target.address())?;
        let (sender, records) = sync_channel(QUEUE_LEN);
        let name = name.to_owned();
        let lost = Arc::<AtomicU64>::default();
        let lost_by_thread = lost.clone();
        let run = move || match target {
            LogTarget::Syslog(_) => syslog::run(socket, &name, &records, lost_by_thread),
            // observation domain 0 means "none" (RFC 7011 §3.1)
            LogTarget::Ipfix(_) => ipfix::run(socket, kind, copy as u32 + 1, &records, lost_by_thread),
        };
        let thread = std::thread::Builder::new().name("nat-log".into()).spawn(run)?;
        Ok(Log { records: Some(sender), thread: Some(thread), lost, counter })
    }

    fn send(&self, inside: IpAddr, event: Event) {
        let Some(records) = &self.records else { return };
        match records.try_send(Record { at: SystemTime::now(), inside, event }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Publishes the number of lost records.
    pub(super) fn update_counter(&self) {
        self.counter.set(self.lost.load(Ordering::Relaxed));
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
