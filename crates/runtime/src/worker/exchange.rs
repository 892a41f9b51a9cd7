//! Replacing the graphs of running workers.
//!
//! Workers between which nodes, inputs or outputs move [meet](Meeting): each arrives between two batches and goes on
//! forwarding until the last has arrived. Then each gives up all that it runs on, the last to do so rearranges what
//! spreads packets over workers, and each takes what it runs on from then on. A worker that exchanges nothing with others
//! is alone in its meeting.

use super::idle_policy::IdlePolicy;
use super::input::{DrainPolicy, Input};
use super::output::Output;
use super::rebuild::NodeBuilder;
use super::schedule::Schedule;
use crate::faults::watchdog::WatchedWorker;
use crate::observe::WorkerNames;
use crate::ports::{LinkStats, PortDrop, Receive, RxPort, SharedTx, SteeringKey, TxPort, steer};
use dpdk::Mempool;
use graph::{Blueprint, Graph, Replacement, Target};
use packet::{Batch, Packet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The graph, inputs and outputs that a worker is to run on from now on.
pub(crate) struct Exchange {
    pub(crate) meeting: Arc<Meeting>,
    /// Index of the worker in the meeting.
    pub(crate) own: usize,
    /// True once the worker has arrived at the meeting.
    pub(crate) has_arrived: bool,
    pub(crate) replacement: Replacement,
    pub(crate) inputs: Vec<NewInput>,
    /// Outputs by the number of their port or link.
    pub(crate) outputs: Vec<NewOutput>,
    /// Schedule of the chains, with the indices of the inputs of each; none if they are served in turn.
    pub(crate) schedule: Option<(Schedule, Vec<Vec<usize>>)>,
    pub(crate) idle: IdlePolicy,
    pub(crate) builders: Vec<Arc<NodeBuilder>>,
    pub(crate) watched: WatchedWorker,
    /// Names of the places in the graph.
    pub(crate) names: Arc<WorkerNames>,
    /// True if the worker has no chains any more.
    pub(crate) ends: bool,
    /// Receives the time that the change took the worker.
    pub(crate) replaced: Sender<Duration>,
}

/// A worker, and the index of one of its inputs or the number of one of its outputs before the exchange.
pub(crate) type Place = (usize, usize);

/// An input of a worker after an exchange.
pub(crate) enum NewInput {
    /// One that a worker had, with the entry of its packets.
    Moved(Place, Target),
    /// That of a user of a [`Respread`], by their indices.
    Respread(usize, usize),
    Added(Box<Input>),
}

/// An output of a worker after an exchange.
pub(crate) enum NewOutput {
    None,
    Moved {
        from: Place,
        /// Entry of packets that stay on the core.
        entry: Target,
        self_consumed: bool,
    },
    /// A copy that a [`Share`] makes, by their indices.
    Shared(usize, usize),
    Added(Box<Output>),
}

/// Packets of a port or link that other workers are to process.
pub(crate) struct Respread {
    /// The input that receives from the port; none for a link, whose inputs are new.
    pub(crate) port: Option<Place>,
    /// Inputs that receive from other cores and are no longer used; the users process the packets in them first.
    pub(crate) rings: Vec<Place>,
    pub(crate) key: SteeringKey,
    /// The workers that process the packets, with their entry.
    pub(crate) users: Vec<(usize, Target)>,
    /// Counts of the inputs of the users behind the first, which continues those of the port.
    pub(crate) stats: Vec<Arc<LinkStats>>,
    pub(crate) stop: Arc<AtomicBool>,
}

/// An output that several workers are to share.
pub(crate) struct Share {
    pub(crate) of: Place,
    /// Counts of the copies.
    pub(crate) stats: Vec<Arc<LinkStats>>,
}

/// Graphs, inputs and outputs while workers exchange them. All but `first` is by the index of the worker before the exchange.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) graphs: Vec<Graph>,
    pub(crate) inputs: Vec<Vec<Option<Input>>>,
    pub(crate) outputs: Vec<Vec<Option<Output>>>,
    pub(crate) respreads: Vec<Respread>,
    pub(crate) shares: Vec<Share>,
    /// Inputs of the users of each [`Respread`].
    respread: Vec<Vec<Option<Input>>>,
    /// Copies of each [`Share`].
    shared: Vec<Vec<Option<Output>>>,
    /// Packets that each worker processes before all others, with their entry.
    first: Vec<Vec<(Target, Packet)>>,
}

/// The place where workers exchange what they run on.
pub(crate) struct Meeting {
    workers: u32,
    /// Workers that have arrived, or [`Self::CANCELLED`].
    arrived: AtomicU32,
    /// Workers that have given up what they run on; one more when it is rearranged.
    released: AtomicU32,
    parts: Mutex<Parts>,
}

impl Meeting {
    const CANCELLED: u32 = u32::MAX;

    /// Creates a meeting of this many workers. `parts` has an empty graph for each of them, and the changes to make.
    pub(crate) fn new(workers: usize, parts: Parts) -> Arc<Meeting> {
        Arc::new(Meeting {
            workers: workers as u32,
            arrived: AtomicU32::new(0),
            released: AtomicU32::new(0),
            parts: Mutex::new(parts),
        })
    }

    /// Counts a worker as arrived, unless the meeting is cancelled.
    fn arrive(&self) {
        let one_more = |n| (n != Self::CANCELLED).then_some(n + 1);
        // errors: cancelled
        let _ = self.arrived.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
    }

    /// Cancels the meeting; returns false if all workers have arrived, so that it takes place.
    pub(crate) fn cancel(&self) -> bool {
        let cancel = |n| (n != self.workers).then_some(Self::CANCELLED);
        self.arrived.fetch_update(Ordering::AcqRel, Ordering::Acquire, cancel).is_ok()
    }

    pub(crate) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up what a worker runs on, and waits until all others have done so and it is rearranged.
    pub(super) fn release(&self, give_up: impl FnOnce(&mut Parts)) {
        {
            let mut parts = self.parts();
            give_up(&mut parts);
            if self.released.fetch_add(1, Ordering::AcqRel) + 1 == self.workers {
                parts.rearrange();
                self.released.fetch_add(1, Ordering::AcqRel);
            }
        }
        let mut spins = 0u32;
        while self.released.load(Ordering::Acquire) <= self.workers {
            spins += 1;
            if spins.is_multiple_of(1024) {
                // the other may be waiting for this CPU
                std::thread::yield_now();
            }
            core::hint::spin_loop();
        }
    }
}

impl Exchange {
    /// Arrives at the meeting; returns true once it takes place, and `None` if it does not.
    pub(super) fn is_due(&mut self, rebuilding: bool) -> Option<bool> {
        // on another worker, a node that is being rebuilt would not be found
        if !(self.has_arrived || rebuilding && self.meeting.workers > 1) {
            self.meeting.arrive();
            self.has_arrived = true;
        }
        match self.meeting.arrived.load(Ordering::Acquire) {
            Meeting::CANCELLED => None,
            n => Some(n == self.meeting.workers),
        }
    }
}

impl Parts {
    /// Creates the parts of this many workers that have not given up anything.
    pub(crate) fn empty(workers: usize, pool: &Arc<Mempool>) -> Parts {
        let graph = |_| Graph::new(&Blueprint::default(), vec![], pool.clone());
        Parts {
            graphs: (0..workers).map(graph).collect(),
            inputs: (0..workers).map(|_| vec![]).collect(),
            outputs: (0..workers).map(|_| vec![]).collect(),
            ..Parts::default()
        }
    }

    /// Takes what is left of what a worker has given up, if it has: its graph, inputs and outputs.
    pub(crate) fn take(&mut self, worker: usize) -> (Option<Graph>, Vec<Option<Input>>, Vec<Option<Output>>) {
        let graph = self.graphs.get_mut(worker).map(|graph| graph.take());
        let inputs = self.inputs.get_mut(worker).map(std::mem::take).unwrap_or_default();
        let outputs = self.outputs.get_mut(worker).map(std::mem::take).unwrap_or_default();
        (graph, inputs, outputs)
    }

    /// Spreads the packets of ports and links over their new users, and has outputs shared.
    fn rearrange(&mut self) {
        self.first.resize_with(self.graphs.len(), Vec::new);
        for respread in std::mem::take(&mut self.respreads) {
            for &ring in &respread.rings {
                self.drain(ring, &respread);
            }
            let made = match respread.port.and_then(|(worker, input)| self.inputs[worker][input].take()) {
                Some(input) => spread(input, respread),
                None => vec![],
            };
            self.respread.push(made);
        }
        for Share { of: (worker, number), stats } in std::mem::take(&mut self.shares) {
            let mut copies = vec![];
            if let Some(output) = self.outputs[worker][number].take() {
                let (queue, own) = SharedTx::share(output.tx);
                self.outputs[worker][number] = Some(Output { tx: TxPort::Other(Box::new(own)), ..output });
                copies.extend(stats.into_iter().map(|stats| {
                    Some(Output { stats, ..Output::new(TxPort::Other(Box::new(SharedTx::new(&queue)))) })
                }));
            }
            self.shared.push(copies);
        }
    }

    /// Passes the packets in a ring between cores to the users that are to process them.
    fn drain(&mut self, (worker, input): Place, to: &Respread) {
        let Some(input) = &mut self.inputs[worker][input] else { return };
        let mut batch = Batch::new();
        while input.rx.receive(&mut batch) != 0 {
            input.stats.packets.add(batch.len() as u64);
            for packet in batch.drain() {
                let user = if to.users.len() == 1 { 0 } else { to.key.core_of(&packet, to.users.len()) };
                let (worker, entry) = to.users[user];
                self.first[worker].push((entry, packet));
            }
        }
        input.update_counts();
    }

    /// Takes an input of a worker.
    pub(super) fn input(&mut self, input: NewInput) -> Option<Input> {
        match input {
            NewInput::Moved((worker, number), entry) => {
                let input = self.inputs[worker][number].take()?;
                Some(Input { entry, ..input })
            }
            NewInput::Respread(respread, user) => self.respread.get_mut(respread)?.get_mut(user)?.take(),
            NewInput::Added(input) => Some(*input),
        }
    }

    /// Takes an output of a worker.
    pub(super) fn output(&mut self, output: NewOutput) -> Option<Output> {
        match output {
            NewOutput::None => None,
            NewOutput::Moved { from: (worker, number), entry, self_consumed } => {
                let mut output = self.outputs[worker][number].take()?;
                output.self_consumed = self_consumed;
                if let Some(local) = &mut output.local {
                    local.entry = entry;
                }
                Some(output)
            }
            NewOutput::Shared(share, copy) => self.shared.get_mut(share)?.get_mut(copy)?.take(),
            NewOutput::Added(output) => Some(*output),
        }
    }

    /// Takes the packets that a worker processes before all others.
    pub(super) fn first(&mut self, worker: usize) -> Vec<(Target, Packet)> {
        self.first.get_mut(worker).map(std::mem::take).unwrap_or_default()
    }
}

/// Returns the inputs of the users of a port, of which the first polls it.
fn spread(input: Input, Respread { key, users, stats, stop, .. }: Respread) -> Vec<Option<Input>> {
    let Input { rx, stats: own_stats, backpressure, drain, .. } = input;
    let rx = rx.unspread();
    let dropped_full = own_stats.count(PortDrop::SteeringFull).get();
    let mut sources = vec![];
    if users.len() == 1 {
        sources.push((rx, own_stats, drain));
    } else {
        let (own, others) = steer(rx, key, users.len(), (backpressure, dropped_full), stop);
        sources.push((RxPort::Other(Box::new(own)), own_stats, drain));
        let ring = |ring| RxPort::Other(Box::new(ring) as Box<dyn Receive>);
        sources.extend(others.into_iter().zip(stats).map(|(o, stats)| (ring(o), stats, DrainPolicy::UntilFinished)));
    }
    let input = |((rx, stats, drain), (_, entry))| Some(Input { rx, entry, stats, backpressure, drain });
    sources.into_iter().zip(users).map(input).collect()
}

/// Counts what an input received that no worker has any more. Packets that wait in it are dropped if it is not received
/// from later.
pub(crate) fn retire_input(input: &mut Input, is_removed: bool) {
    // a device drops what it has not delivered
    if is_removed && input.drain != DrainPolicy::Stop {
        let mut batch = Batch::new();
        while input.rx.receive(&mut batch) != 0 {
            input.stats.packets.add(batch.len() as u64);
            input.stats.count(PortDrop::Removed).add(batch.len() as u64);
            batch.clear();
        }
    }
    input.update_counts();
    input.stats.queued.set(0);
    input.stats.queue_size.set(0);
}
