//! Queues of a class and their management: when packets are dropped or marked.

mod codel;
mod fifo;
mod fq_codel;
mod largest;
mod red;
mod tail_drop;

pub(super) use codel::CoDel;
pub(super) use fifo::{Fifo, Host, Stamp};
pub(super) use fq_codel::FqCoDel;
pub(super) use largest::Largest;
pub(super) use red::Red;
pub(super) use tail_drop::TailDrop;

graph::named_enum! {
    /// Drop reasons.
    pub(super) enum DropReason {
        /// The queue of the class is full.
        QueueFull = "queue_full",
        /// Random early detection.
        Red = "red",
        /// Controlled delay.
        CoDel = "codel",
        /// All queues together hold as many packets as they may, and this subscriber has most of them.
        BufferFull = "buffer_full",
        /// The subscriber is new and there is no room for it.
        SubscribersFull = "subscribers_full",
        /// A reload has changed the classes.
        Reload = "reload",
    }
}

/// Limits and parameters of the queues of a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    pub(super) discipline: Discipline,
    pub(super) limit: TailDrop,
}

/// A queue discipline.
#[derive(Clone, Copy, Debug)]
pub(super) enum Discipline {
    TailDrop,
    Red(red::Parameters),
    CoDel(codel::Parameters),
    FqCoDel(fq_codel::Parameters),
}

pub(super) use codel::Parameters as CoDelParameters;
pub(super) use fq_codel::Parameters as FqCoDelParameters;
pub(super) use red::Parameters as RedParameters;

/// The queue of a class of a subscriber.
pub(super) enum ClassQueue {
    TailDrop(Fifo),
    Red(Fifo, Red),
    CoDel(Fifo, CoDel),
    FqCoDel(FqCoDel),
}

impl ClassQueue {
    pub(super) fn new(parameters: &Parameters) -> Self {
        match parameters.discipline {
            Discipline::TailDrop => ClassQueue::TailDrop(Fifo::default()),
            Discipline::Red(_) => ClassQueue::Red(Fifo::default(), Red::default()),
            Discipline::CoDel(_) => ClassQueue::CoDel(Fifo::default(), CoDel::default()),
            Discipline::FqCoDel(_) => ClassQueue::FqCoDel(FqCoDel::default()),
        }
    }

    /// Returns the number of packets in the queue.
    pub(super) fn len(&self) -> usize {
        match self {
            ClassQueue::TailDrop(fifo) | ClassQueue::Red(fifo, _) | ClassQueue::CoDel(fifo, _) => fifo.len(),
            ClassQueue::FqCoDel(queue) => queue.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prefetches what appending a packet of a flow, or removing one, needs.
    #[inline]
    pub(super) fn prefetch<H: Host>(&self, host: &mut H, parameters: &Parameters, flow: u64) {
        match (self, parameters.discipline) {
            (ClassQueue::FqCoDel(queue), Discipline::FqCoDel(own)) => queue.prefetch(host, &own, flow),
            (ClassQueue::TailDrop(fifo) | ClassQueue::Red(fifo, _) | ClassQueue::CoDel(fifo, _), _) => {
                fifo.prefetch(host);
            }
            (ClassQueue::FqCoDel(_), _) => {}
        }
    }

    /// Appends a packet that arrives at a time in nanoseconds, or drops it or others. `flow` is a hash of its flow,
    /// `random` is uniform.
    pub(super) fn push<H: Host>(
        &mut self,
        host: &mut H,
        parameters: &Parameters,
        mut item: H::Item,
        bytes: u32,
        now: u64,
        (flow, random): (u64, u32),
    ) {
        let limit = &parameters.limit;
        match (self, parameters.discipline) {
            (ClassQueue::FqCoDel(queue), Discipline::FqCoDel(own)) => {
                queue.push(host, &own, limit, item, bytes, now, flow);
            }
            (ClassQueue::Red(fifo, red), Discipline::Red(own)) => {
                if !limit.admits(fifo.len(), fifo.bytes(), bytes) {
                    return host.drop(DropReason::QueueFull, item);
                }
                let accepts = match red.arrive(&own, fifo.len(), now, random) {
                    red::Verdict::Accept => true,
                    red::Verdict::Mark => own.ecn && host.mark(&mut item),
                    red::Verdict::Drop => false,
                };
                if !accepts {
                    return host.drop(DropReason::Red, item);
                }
                fifo.push(host, item, bytes, now);
            }
            (ClassQueue::TailDrop(fifo) | ClassQueue::CoDel(fifo, _), _) | (ClassQueue::Red(fifo, _), _) => {
                if !limit.admits(fifo.len(), fifo.bytes(), bytes) {
                    return host.drop(DropReason::QueueFull, item);
                }
                fifo.push(host, item, bytes, now);
            }
            (ClassQueue::FqCoDel(_), _) => host.drop(DropReason::QueueFull, item),
        }
    }

    /// Drops the oldest packet, with `fq_codel` that of the flow with most bytes, without regard to the discipline.
    pub(super) fn drop_oldest<H: Host>(&mut self, host: &mut H, reason: DropReason) {
        match self {
            ClassQueue::TailDrop(fifo) | ClassQueue::Red(fifo, _) | ClassQueue::CoDel(fifo, _) => {
                if let Some((item, _)) = fifo.pop(host) {
                    host.drop(reason, item);
                }
            }
            ClassQueue::FqCoDel(queue) => queue.drop_from_longest(host, reason, 1),
        }
    }

    /// Removes the next packet to send, with its bytes, and drops packets that have waited for too long.
    pub(super) fn pop<H: Host>(&mut self, host: &mut H, parameters: &Parameters, now: u64) -> Option<(H::Item, u32)> {
        match (self, parameters.discipline) {
            (ClassQueue::FqCoDel(queue), Discipline::FqCoDel(own)) => queue.pop(host, &own, now),
            (ClassQueue::CoDel(fifo, codel), Discipline::CoDel(own)) => codel.pop(host, &own, fifo, now),
            (ClassQueue::Red(fifo, red), _) => {
                let popped = fifo.pop(host);
                if fifo.is_empty() {
                    red.idle(now);
                }
                popped.map(|(item, stamp)| (item, stamp.bytes))
            }
            (ClassQueue::TailDrop(fifo) | ClassQueue::CoDel(fifo, _), _) => {
                fifo.pop(host).map(|(item, stamp)| (item, stamp.bytes))
            }
            (ClassQueue::FqCoDel(_), _) => None,
        }
    }
}

#[cfg(test)]
pub(super) mod test_host;
