//! Taps of representors, by which the control plane in a network namespace uses the interfaces of an NF.
//!
//! A thread moves frames between the taps and bounded rings, so that workers take no system call for a tap, and the
//! kernel's processing of a frame, such as that by nftables, takes no time of a worker.

mod configure;
mod frame_ring;
mod rate_limit;
mod thread;

pub(crate) use configure::UnconfiguredRepresentors;

use super::io::{PortDrop, Receive, Transmit};
use config::Port;
use dpdk::Mempool;
use dpdk::netdev::Tap;
use frame_ring::{FrameReceiver, FrameSender, frame_ring};
use packet::{Batch, Pool as _};
use rate_limit::RateLimit;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;
use thread::{RepresentorThread, ServedTap, TapCounts, Wake};

/// The thread of the representors of an engine, which runs while there are taps.
#[derive(Clone, Default)]
pub(crate) struct Representors(Arc<Mutex<Weak<RepresentorThread>>>);

/// An open tap of a representor, which is closed when this is dropped.
pub(crate) struct RepresentorTap {
    name: String,
    number: u64,
    counts: Arc<TapCounts>,
    thread: Arc<RepresentorThread>,
}

/// The receiving side of the port of a representor.
pub(crate) struct RepresentorRx {
    frames: FrameReceiver,
    pool: Arc<Mempool>,
    counts: Arc<TapCounts>,
    bytes: u64,
}

/// The sending side of the port of a representor.
pub(crate) struct RepresentorTx {
    frames: FrameSender,
    wake: Arc<Wake>,
    bytes: u64,
}

/// A tap with both sides of its port.
pub(crate) type OpenRepresentor = (RepresentorTap, RepresentorRx, RepresentorTx);

impl Representors {
    /// Creates the tap `name` of a port in its network namespace, configures it like its interface, and serves it by the
    /// thread, which is started on `cpus` if it does not run.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub(crate) fn open(
        &self,
        (port, name): (&Port, &str),
        max_frame: usize,
        pool: &Arc<Mempool>,
        cpus: &[usize],
    ) -> Result<OpenRepresentor, (String, String)> {
        let namespace = port.namespace.as_deref();
        let place = namespace.map_or_else(String::new, |name| format!(" in the network namespace {name:?}"));
        let tap = Tap::create(name, namespace).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => (
                format!("an interface {name:?} exists{place}"),
                format!("choose another name for the tap, or delete it: {}", deletion(name, namespace)),
            ),
            _ => {
                let create = namespace.map_or_else(String::new, |name| {
                    format!(", and check that the namespace exists (ip netns add {name})")
                });
                (format!("tap {name} could not be created{place}: {e}"), format!("run as root{create}"))
            }
        })?;
        configure::configure(port, max_frame).map_err(|problem| {
            let remedy = "run as root; check the cause, and that IPv6 is not disabled in the namespace if there are IPv6 \
                          addresses";
            (problem, remedy.to_owned())
        })?;
        let thread = self.thread(cpus).map_err(|e| {
            (
                format!("the thread of the representors could not be started: {e}"),
                "check the limits of the user".to_owned(),
            )
        })?;
        let (to_worker, from_tap) = frame_ring(max_frame);
        let (to_tap, from_worker) = frame_ring(max_frame);
        let counts: Arc<TapCounts> = Arc::default();
        let number = thread.open(ServedTap {
            tap,
            to_worker,
            from_worker,
            counts: counts.clone(),
            limit: RateLimit::new(Instant::now()),
            max_frame,
            is_ready: false,
        });
        let rx = RepresentorRx { frames: from_tap, pool: pool.clone(), counts: counts.clone(), bytes: 0 };
        let tx = RepresentorTx { frames: to_tap, wake: thread.wake().clone(), bytes: 0 };
        Ok((RepresentorTap { name: name.to_owned(), number, counts, thread }, rx, tx))
    }

    /// Returns the thread, which is started if it does not run.
    fn thread(&self, cpus: &[usize]) -> std::io::Result<Arc<RepresentorThread>> {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = own.upgrade() {
            return Ok(thread);
        }
        let thread = Arc::new(RepresentorThread::start(cpus.to_vec())?);
        *own = Arc::downgrade(&thread);
        Ok(thread)
    }
}

fn deletion(name: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("ip -n {namespace} link delete {name}"),
        None => format!("ip link delete {name}"),
    }
}

impl RepresentorTap {
    /// Returns the packets that the kernel did not accept after they had been sent.
    pub(crate) fn send_errors(&self) -> u64 {
        self.counts.send_errors.load(Ordering::Relaxed)
    }

    /// Returns an error if the interface was deleted.
    pub(crate) fn deletion(&self) -> Option<String> {
        let is_deleted = self.counts.is_deleted.load(Ordering::Relaxed);
        is_deleted.then(|| format!("interface {} was deleted during the run", self.name))
    }

    /// Has the kernel receive the packets that were sent, and closes the tap.
    pub(crate) fn close(&self) {
        self.thread.close(self.number);
    }
}

impl Drop for RepresentorTap {
    fn drop(&mut self) {
        self.close();
    }
}

impl Receive for RepresentorRx {
    #[inline]
    fn receive(&mut self, batch: &mut Batch) -> usize {
        if self.frames.is_empty() {
            return 0;
        }
        let before = batch.len();
        while !batch.is_full() {
            // without a buffer the frame waits
            let copied = self.frames.take(|[first, second]| {
                let mut packet = self.pool.alloc()?;
                let data = packet.append(first.len() + second.len())?;
                data[..first.len()].copy_from_slice(first);
                data[first.len()..].copy_from_slice(second);
                Some(packet)
            });
            let Some(packet) = copied else { break };
            self.bytes += packet.len() as u64;
            batch.push(packet).expect("the batch is not full");
        }
        batch.len() - before
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn for_each_drop(&self, each: &mut dyn FnMut(PortDrop, u64)) {
        each(PortDrop::TooLong, self.counts.too_long.load(Ordering::Relaxed));
    }
}

impl Transmit for RepresentorTx {
    fn send(&mut self, batch: &mut Batch) -> usize {
        let fits = |packet: &&packet::Packet| self.frames.push(packet.data());
        let (mut sent, mut bytes) = (0, 0);
        for packet in batch.iter().take_while(fits) {
            (sent, bytes) = (sent + 1, bytes + packet.len() as u64);
        }
        if sent == 0 {
            return 0;
        }
        self.wake.notify();
        self.bytes += bytes;
        // free the packets that were copied; the others stay, in order
        let mut n = 0;
        let is_sent = |_: &mut packet::Packet| {
            n += 1;
            (n <= sent).then_some(())
        };
        batch.extract_if(is_sent, |(), packet| drop(packet));
        sent
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::HeapPool;

    #[test]
    fn packets_that_do_not_fit_stay_in_order() {
        let thread = RepresentorThread::start(vec![]).unwrap();
        let (to_tap, mut at_tap) = frame_ring(1500);
        let mut tx = RepresentorTx { frames: to_tap, wake: thread.wake().clone(), bytes: 0 };
        let pool = HeapPool::new(packet::BURST);
        let mut batch = Batch::new();
        let (mut accepted, mut number) = (0, 0u32);
        let refused = loop {
            while !batch.is_full() {
                let mut frame = [0; 2000];
                frame[..4].copy_from_slice(&number.to_ne_bytes());
                number += 1;
                batch.push(pool.alloc_from(&frame).unwrap()).unwrap();
            }
            accepted += tx.send(&mut batch) as u32;
            if let Some(first) = batch.iter().next() {
                break u32::from_ne_bytes(*first.data().first_chunk().unwrap());
            }
        };
        assert_eq!((refused, tx.bytes()), (accepted, u64::from(accepted) * 2000));
        assert_eq!(tx.send(&mut batch), 0, "the ring is full");
        let mut received = 0;
        while let Some(n) = at_tap.take(|[first, second]| Some([first, second].concat())) {
            assert_eq!((n.len(), u32::from_ne_bytes(*n.first_chunk().unwrap())), (2000, received));
            received += 1;
        }
        assert_eq!(received, accepted);
        batch.clear();
        assert_eq!(pool.in_use(), 0);
    }
}
