//! Export of records by a thread of its own, for which the packet path never waits.

mod exporter;
pub(crate) mod ipfix;

pub(crate) use exporter::Exporter;

use graph::Counter;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest number of queued records; further ones are lost and counted.
const QUEUE_LEN: usize = 16_384;

/// Sending half of an export. Its thread ends with it.
pub(crate) struct Export<R> {
    /// `None` once the export is being dropped.
    records: Option<SyncSender<R>>,
    thread: Option<JoinHandle<()>>,
    /// Records lost, here or by the thread.
    lost: Arc<AtomicU64>,
    counter: Arc<Counter>,
}

impl<R> Drop for Export<R> {
    /// Waits until all queued records are sent or lost. NFs are dropped outside the packet path.
    fn drop(&mut self) {
        self.records = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.update_counter();
    }
}

impl<R: Send + 'static> Export<R> {
    /// Starts a thread that runs `run` with a socket connected to `address`, the queue, and a counter of lost records.
    ///
    /// # Errors
    /// The socket or the thread cannot be created.
    pub(crate) fn to_server(
        name: &str,
        address: SocketAddr,
        counter: Arc<Counter>,
        run: impl FnOnce(UdpSocket, Receiver<R>, Arc<AtomicU64>) + Send + 'static,
    ) -> io::Result<Export<R>> {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        Self::start(name, counter, move |records, lost| run(socket, records, lost))
    }

    /// Starts a thread that runs `run` with the queue and a counter of lost records.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(crate) fn start(
        name: &str,
        counter: Arc<Counter>,
        run: impl FnOnce(Receiver<R>, Arc<AtomicU64>) + Send + 'static,
    ) -> io::Result<Export<R>> {
        let (sender, records) = sync_channel(QUEUE_LEN);
        let lost = Arc::<AtomicU64>::default();
        let lost_by_thread = lost.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || run(records, lost_by_thread))?;
        Ok(Export { records: Some(sender), thread: Some(thread), lost, counter })
    }
}

impl<R> Export<R> {
    /// Queues a record; it is lost if the queue is full.
    pub(crate) fn send(&self, record: R) {
        let Some(records) = &self.records else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = records.try_send(record) {
            self.lose();
        }
    }

    /// Counts a record that is not sent.
    pub(crate) fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Queues a record, and waits for room until `deadline`. Not for the packet path.
    pub(crate) fn send_until(&self, mut record: R, deadline: Instant) {
        let Some(records) = &self.records else { return };
        loop {
            match records.try_send(record) {
                Ok(()) => return,
                Err(TrySendError::Full(returned)) if Instant::now() < deadline => record = returned,
                Err(_) => return self.lose(),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Publishes the number of lost records.
    pub(crate) fn update_counter(&self) {
        self.counter.set(self.lost.load(Ordering::Relaxed));
    }
}
