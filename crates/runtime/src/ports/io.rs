//! The interfaces by which workers receive and send packets, and their statistics.

use crate::occupancy::Occupancy;
use dpdk::{RxQueue, TxQueue};
use graph::{Counter, Named, Numbered};
use packet::Batch;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

/// The next frame of a source, by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextFrame {
    /// It has this time, in ns. Times do not decrease.
    At(u64),
    /// It cannot be read until a buffer is free.
    NoBuffer,
    /// It is not known yet.
    Pending,
    /// There is none.
    End,
}

/// The place of a source between a port and the cores that process its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// It receives from the port.
    Port,
    /// It receives from the port and passes packets to other cores.
    Spreading,
    /// It receives from another core.
    FromCore,
}

/// A source of packets.
pub trait Receive: Send {
    /// Appends received packets to the batch until it is full; returns their number.
    fn receive(&mut self, batch: &mut Batch) -> usize;

    /// Returns the bytes received, without FCS; 0 if they are not counted.
    fn bytes(&self) -> u64 {
        0
    }

    /// Returns the next frame without receiving it; only captures have one.
    fn next_frame(&mut self) -> NextFrame {
        NextFrame::Pending
    }

    /// Sets the time in ns of the last frames that [`receive`](Receive::receive) returns, for sources that have a
    /// [next frame](Receive::next_frame).
    fn receive_until(&mut self, _ns: u64) {}

    /// Calls `each` with a reason and the number of packets that were received and dropped for it.
    fn for_each_drop(&self, _each: &mut dyn FnMut(PortDrop, u64)) {}

    /// Returns the packets that wait in the queue, if it can be told; called about once a millisecond.
    fn queue(&self) -> Option<Occupancy> {
        None
    }

    /// Returns a file that becomes readable when packets arrive while interrupts are on; `None` if the source has none.
    fn rx_interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Switches rx interrupts on or off. Packets that arrived before raise none.
    fn enable_rx_interrupt(&mut self, _on: bool) {}

    /// Returns its place between port and cores.
    fn kind(&self) -> SourceKind {
        SourceKind::Port
    }

    /// Returns the source from which a [spreading](SourceKind::Spreading) source receives; `None` for others.
    fn into_inner(self: Box<Self>) -> Option<RxPort> {
        None
    }

    /// Returns true if the last [`receive`](Receive::receive), which returned 0, did no other work either.
    fn idle(&self) -> bool {
        true
    }

    /// Returns true if no more packets will arrive.
    fn finished(&self) -> bool {
        false
    }

    /// Discards the packets of a device that wait, which are not counted; called before the first
    /// [`receive`](Receive::receive).
    fn discard(&mut self) {}

    /// Closes the source; only its counts are read afterwards.
    fn close(&mut self) {}
}

/// A destination of packets.
pub trait Transmit: Send {
    /// Sends packets from the front of the batch and removes those that were accepted; returns their number.
    fn send(&mut self, batch: &mut Batch) -> usize;

    /// Returns the bytes sent, without FCS; 0 if they are not counted.
    fn bytes(&self) -> u64 {
        0
    }

    /// Returns the reason for which packets that are not accepted are dropped.
    fn drop_reason(&self) -> PortDrop {
        PortDrop::TxFull
    }

    /// Closes the destination; nothing is sent afterwards.
    fn close(&mut self) {}

    /// Returns the queue if several workers share it.
    fn shared(&self) -> Option<SharedQueue> {
        None
    }

    /// Moves packets that were sent and stay on this core into the batch until it is full.
    fn take_local(&mut self, _: &mut Batch) {}

    /// Does periodic work; called about once a millisecond, also while nothing is sent.
    fn maintain(&mut self) {}
}

/// A destination that several workers send to.
pub type SharedQueue = Arc<Mutex<Box<dyn Transmit>>>;

/// The receiving side of a port. A device's queue, the common case, is called statically.
pub enum RxPort {
    /// A receive queue of a device.
    Device(RxQueue),
    /// Any other source.
    Other(Box<dyn Receive>),
}

/// The sending side of a port.
pub enum TxPort {
    /// A transmit queue of a device.
    Device(TxQueue),
    /// Any other destination.
    Other(Box<dyn Transmit>),
}

impl RxPort {
    /// Returns the port itself, without spreading over cores.
    pub(crate) fn unspread(self) -> RxPort {
        match self {
            RxPort::Other(other) if other.kind() == SourceKind::Spreading => {
                other.into_inner().expect("a spreading source has a port")
            }
            port => port,
        }
    }
}

impl Receive for RxPort {
    #[inline(always)]
    fn receive(&mut self, batch: &mut Batch) -> usize {
        match self {
            RxPort::Device(queue) => queue.receive(batch),
            RxPort::Other(other) => other.receive(batch),
        }
    }
    fn bytes(&self) -> u64 {
        match self {
            RxPort::Device(queue) => queue.bytes(),
            RxPort::Other(other) => other.bytes(),
        }
    }
    fn next_frame(&mut self) -> NextFrame {
        match self {
            RxPort::Device(_) => NextFrame::Pending,
            RxPort::Other(other) => other.next_frame(),
        }
    }
    fn receive_until(&mut self, ns: u64) {
        if let RxPort::Other(other) = self {
            other.receive_until(ns);
        }
    }
    fn for_each_drop(&self, each: &mut dyn FnMut(PortDrop, u64)) {
        match self {
            RxPort::Device(queue) => {
                each(PortDrop::TooLong, queue.too_long());
                each(PortDrop::RxUnusable, queue.unusable());
            }
            RxPort::Other(other) => other.for_each_drop(each),
        }
    }
    fn queue(&self) -> Option<Occupancy> {
        match self {
            RxPort::Device(queue) => {
                let (used, capacity) = queue.used_descriptors()?;
                Some(Occupancy { used: used.into(), capacity: capacity.into() })
            }
            RxPort::Other(other) => other.queue(),
        }
    }
    fn kind(&self) -> SourceKind {
        match self {
            RxPort::Device(_) => SourceKind::Port,
            RxPort::Other(other) => other.kind(),
        }
    }
    fn idle(&self) -> bool {
        match self {
            RxPort::Device(_) => true,
            RxPort::Other(other) => other.idle(),
        }
    }
    fn finished(&self) -> bool {
        match self {
            RxPort::Device(_) => false,
            RxPort::Other(other) => other.finished(),
        }
    }
    fn discard(&mut self) {
        match self {
            RxPort::Device(queue) => queue.discard(),
            RxPort::Other(other) => other.discard(),
        }
    }
    fn close(&mut self) {
        if let RxPort::Other(other) = self {
            other.close();
        }
    }
}

impl Transmit for TxPort {
    #[inline(always)]
    fn send(&mut self, batch: &mut Batch) -> usize {
        match self {
            TxPort::Device(queue) => queue.send(batch),
            TxPort::Other(other) => other.send(batch),
        }
    }
    fn bytes(&self) -> u64 {
        match self {
            TxPort::Device(queue) => queue.bytes(),
            TxPort::Other(other) => other.bytes(),
        }
    }
    fn drop_reason(&self) -> PortDrop {
        match self {
            TxPort::Device(_) => PortDrop::TxFull,
            TxPort::Other(other) => other.drop_reason(),
        }
    }
    fn close(&mut self) {
        if let TxPort::Other(other) = self {
            other.close();
        }
    }
    fn shared(&self) -> Option<SharedQueue> {
        match self {
            TxPort::Device(_) => None,
            TxPort::Other(other) => other.shared(),
        }
    }
    fn take_local(&mut self, batch: &mut Batch) {
        if let TxPort::Other(other) = self {
            other.take_local(batch);
        }
    }
    fn maintain(&mut self) {
        if let TxPort::Other(other) = self {
            other.maintain();
        }
    }
}

/// A pair of queues of a port of a generator: the far end of a wire, or of a device.
pub struct PortQueues {
    /// Index of the port in the file.
    pub port: usize,
    /// Number of the pair, from 0: that of the generator core that uses it.
    pub queue: usize,
    /// Receives what the chain sends.
    pub rx: RxQueue,
    /// Sends what the chain receives.
    pub tx: TxQueue,
}

graph::named_enum! {
    /// Reasons for which packets are dropped at a port.
    pub enum PortDrop {
        /// The port accepted no more packets.
        TxFull = "tx_full",
        /// Writing to the capture file failed, perhaps after the packet was accepted.
        WriteFailed = "write_failed",
        /// A segmented packet for which the pool had no buffer, or a packet with inconsistent lengths.
        RxUnusable = "rx_unusable",
        /// The packet exceeds a buffer.
        TooLong = "too_long",
        /// A captured frame has another link type than the first one.
        LinkTypeMismatch = "link_type_mismatch",
        /// The ring to the core of the packet's flow is full.
        SteeringFull = "steering_full",
        /// The ring to the core of the next chain is full.
        ShuffleFull = "shuffle_full",
        /// The packet waited between cores or in a ring when a reload removed its port or link.
        Removed = "removed",
    }
}

/// Statistics of one worker at one port.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LinkStats {
    /// Packets received, or accepted for sending.
    pub packets: Counter,
    /// Bytes of these packets, without FCS.
    pub bytes: Counter,
    /// Cycles spent on timed batches.
    pub timed_cycles: Counter,
    /// Packets in timed batches.
    pub timed_packets: Counter,
    /// Packets that wait in the receive queue (a gauge).
    pub queued: Counter,
    /// The most packets that the queue can have; 0 if that or their number cannot be told.
    pub queue_size: Counter,
    /// Packets dropped at the port, by [`PortDrop`].
    pub drops: [Counter; PortDrop::NAMES.len()],
}

impl LinkStats {
    /// Returns the occupancy of the receive queue, if it can be told.
    pub(crate) fn queue(&self) -> Option<Occupancy> {
        let queue = Occupancy { used: self.queued.get(), capacity: self.queue_size.get() };
        Some(queue).filter(|queue| queue.capacity != 0)
    }

    /// Returns the number of packets dropped for a reason.
    pub fn count(&self, reason: PortDrop) -> &Counter {
        &self.drops[usize::from(reason.number())]
    }
}
