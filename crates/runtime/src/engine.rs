//! From a chain file to running workers, and back.

use crate::cpus::{allowed_cpus, choose, pin};
use crate::ports::{self, CaptureReader, CaptureWriter, Faults, Shared, Watch};
use crate::summary::{NfSummary, PortSummary, Summary};
use crate::{Drain, Input, LinkStats, Origin, Output, Source, Worker};
use chain::{ChainFile, Device, WorkerPlan};
use dpdk::{Eal, Memory, Mempool, Port, PortConfig, RxQueue, TxQueue};
use graph::{BuildCx, Diagnostics, Graph, NodeStats, Spread, Target};
use packet::Batch;
use pcap::LinkType;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Why a chain file does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something in the file.
    #[error(transparent)]
    Input(#[from] Diagnostics),
    /// Something about this machine, or what this user may do on it.
    #[error("{problem}\n  cure: {cure}")]
    Environment {
        /// What failed.
        problem: String,
        /// What mends it.
        cure: String,
    },
}

/// A running chain file.
pub struct Engine {
    file: String,
    names: Names,
    started: Instant,
    stop: Arc<AtomicBool>,
    faults: Faults,
    workers: Vec<Running>,
    handles: Vec<(usize, Watch)>,
    /// Receive queues of rings, which may hold packets that no chain takes out.
    rings: Vec<(usize, RxQueue)>,
    captures: Vec<CaptureWriter>,
    pool: Arc<Mempool>,
    /// Packet buffers that drivers may keep for good.
    drivers_own: usize,
    memory: Memory,
    notes: Vec<String>,
    /// Packets that had come when last asked whether all is done.
    seen: AtomicU64,
}

struct Names {
    ports: Vec<(String, String)>,
    nfs: Vec<(String, &'static str)>,
}

struct Running {
    cpu: usize,
    chains: Vec<String>,
    nodes: Vec<(usize, Arc<NodeStats>)>,
    received: Vec<(usize, Arc<LinkStats>)>,
    sent: Vec<(usize, Arc<LinkStats>)>,
    dry: Arc<AtomicBool>,
    thread: Option<JoinHandle<Worker>>,
}

/// A worker before it runs.
struct Placed {
    cpu: usize,
    chains: Vec<usize>,
    plan: WorkerPlan,
    inputs: Vec<(usize, Input)>,
    outputs: Vec<Option<Output>>,
}

impl Engine {
    /// Opens the ports, builds the NFs and starts the workers.
    ///
    /// # Errors
    /// A setting that an NF refuses, a CPU that is not there, a port that does not open.
    pub fn start(file: &ChainFile) -> Result<Engine, Error> {
        let allowed = allowed_cpus();
        let absent = file.absent_cpus(&allowed);
        if !absent.is_empty() {
            return Err(Error::Input(Diagnostics(absent)));
        }
        let mut workers = place(file, &allowed);
        // NFs first: a setting that makes no sense is told before any device is touched
        let mut nodes = build(file, &workers)?;
        let (eal, pool) = memory(file, &workers)?;
        let mut opening = Opening {
            file,
            eal,
            pool: pool.clone(),
            stop: Arc::default(),
            faults: Faults::default(),
            handles: vec![],
            rings: vec![],
            captures: vec![],
            drivers_own: 0,
            notes: notes(eal),
        };
        opening.all(&mut workers)?;
        let Opening { stop, faults, handles, rings, captures, drivers_own, notes, .. } = opening;
        let mut engine = Engine {
            file: file.file.display().to_string(),
            names: Names {
                ports: file.ports.iter().map(|p| (p.name.clone(), p.device.to_string())).collect(),
                nfs: file.nfs.iter().map(|n| (n.name.clone(), n.kind.name)).collect(),
            },
            started: Instant::now(),
            stop,
            faults,
            workers: vec![],
            handles,
            rings,
            captures,
            memory: eal.memory(),
            pool,
            drivers_own,
            notes,
            seen: AtomicU64::new(u64::MAX),
        };
        for placed in workers {
            let graph = Graph::new(&placed.plan.blueprint, nodes.remove(0), engine.pool.clone());
            engine.launch(file, eal, placed, graph)?;
        }
        Ok(engine)
    }

    fn launch(&mut self, file: &ChainFile, eal: Eal, placed: Placed, graph: Graph) -> Result<(), Error> {
        let Placed { cpu, chains, plan, inputs, outputs } = placed;
        let nodes = plan.nfs.iter().zip(graph.stats()).map(|(&nf, (_, s))| (nf, s.clone())).collect();
        let received = inputs.iter().map(|(port, i)| (*port, i.stats.clone())).collect();
        let sent = outputs.iter().enumerate().filter_map(|(p, o)| Some((p, o.as_ref()?.stats.clone()))).collect();
        let inputs = inputs.into_iter().map(|(_, i)| i).collect();
        let mut worker = Worker::new(inputs, graph, outputs, self.stop.clone());
        let dry = worker.dry();
        let faults = self.faults.clone();
        let run = move || {
            let tell = |fault| ports::report(&faults, fault);
            if let Err(e) = pin(cpu) {
                tell(format!("a worker could not be kept on CPU {cpu}: {e}"));
            }
            // without an lcore of its own it works, slower
            let lcore = eal.register_thread();
            if let Err(e) = &lcore {
                tell(e.to_string());
            }
            worker.run(|p| {
                let n = p.packets;
                tell(format!("nf {:?} panicked: {} ({n} packets lost); it is closed from then on: its packets are dropped as nf_panic", p.node, p.message));
            });
            worker
        };
        let thread =
            std::thread::Builder::new().name(format!("worker-{cpu}")).spawn(run).map_err(|e| Error::Environment {
                problem: format!("a worker thread does not start: {e}"),
                cure: "raise the limit of threads: ulimit -u".into(),
            })?;
        let chains = chains.iter().map(|&c| file.chains[c].name.clone()).collect();
        self.workers.push(Running { cpu, chains, nodes, received, sent, dry, thread: Some(thread) });
        Ok(())
    }

    /// Whether all is done: every worker has come to its end by itself, as when all captures are read, or waits for others
    /// that wait too, and nothing has moved since this was last asked.
    pub fn is_finished(&self) -> bool {
        let ended = |w: &Running| w.thread.as_ref().is_none_or(JoinHandle::is_finished);
        if self.workers.iter().all(ended) {
            return true;
        }
        let received: u64 = self.workers.iter().flat_map(|w| &w.received).map(|(_, s)| s.packets.get()).sum();
        let still = self.seen.swap(received, Ordering::Relaxed) == received;
        still && self.workers.iter().all(|w| ended(w) || w.dry.load(Ordering::Relaxed))
    }

    /// What has been done so far.
    pub fn snapshot(&self) -> Summary {
        let ports = self.names.ports.iter().map(|(name, device)| PortSummary {
            name: name.clone(),
            device: device.clone(),
            ..Default::default()
        });
        let nfs =
            self.names.nfs.iter().map(|(name, kind)| NfSummary { name: name.clone(), kind, ..Default::default() });
        let mut s = Summary {
            file: self.file.clone(),
            seconds: self.started.elapsed().as_secs_f64(),
            memory: match self.memory {
                Memory::Huge => "huge pages",
                Memory::Ordinary => "ordinary pages",
            },
            ports: ports.collect(),
            nfs: nfs.collect(),
            workers: self.workers.iter().map(|w| (w.cpu, w.chains.clone())).collect(),
            faults: self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            ..Default::default()
        };
        for worker in &self.workers {
            worker.nodes.iter().for_each(|(nf, stats)| s.nfs[*nf].add(stats));
            worker.sent.iter().for_each(|(port, stats)| s.ports[*port].add_sent(stats));
            worker.received.iter().for_each(|(port, stats)| s.ports[*port].add_received(stats));
        }
        for (port, handle) in &self.handles {
            let (stats, port) = (handle.port.stats(), &mut s.ports[*port]);
            port.missed = stats.rx_missed;
            port.send_errors = stats.tx_errors;
            port.link = handle.link();
        }
        s.total();
        s
    }

    /// What the user may want to know about how it runs.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Stops receiving, lets run out what is inside, closes everything, and adds up.
    pub fn stop(mut self) -> Summary {
        self.stop.store(true, Ordering::Relaxed);
        let mut held: BTreeMap<usize, u64> = BTreeMap::new();
        let mut ended = vec![];
        for running in &mut self.workers {
            match running.thread.take().map(JoinHandle::join) {
                Some(Ok(worker)) => {
                    ended.push((worker, running.received.iter().map(|(port, _)| *port).collect::<Vec<_>>()))
                }
                Some(Err(_)) => ports::report(&self.faults, format!("the worker on CPU {} died", running.cpu)),
                None => {}
            }
        }
        for (worker, ports) in &mut ended {
            for (input, n) in worker.empty_queues() {
                *held.entry(ports[input]).or_default() += n;
            }
        }
        for (port, rx) in &mut self.rings {
            let mut batch = Batch::new();
            while RxQueue::receive(rx, &mut batch) != 0 {
                *held.entry(*port).or_default() += batch.len() as u64;
                batch.clear();
            }
        }
        self.captures.iter().for_each(CaptureWriter::finish);
        let mut summary = self.snapshot();
        for (port, n) in held {
            summary.hold(port, n);
        }
        // with the last queue handle a port closes and gives back what its driver held
        drop((ended, std::mem::take(&mut self.rings), std::mem::take(&mut self.handles)));
        let leaked = self.pool.in_use();
        if leaked > self.drivers_own {
            summary.faults.push(format!("{leaked} packet buffers were not given back"));
        }
        summary
    }
}

impl Drop for Engine {
    /// Stops workers that nobody has stopped, so that none polls a port that closes.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for running in &mut self.workers {
            drop(running.thread.take().map(JoinHandle::join));
        }
    }
}

/// What runs where.
fn place(file: &ChainFile, allowed: &[usize]) -> Vec<Placed> {
    let mut by_cpu: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (n, chain) in file.chains.iter().enumerate() {
        let chosen = [choose(n, allowed)];
        for &cpu in if chain.cores.is_empty() { &chosen[..] } else { &chain.cores[..] } {
            by_cpu.entry(cpu).or_default().push(n);
        }
    }
    let placed = by_cpu.into_iter().map(|(cpu, chains)| {
        let plan = file.worker(&chains);
        let outputs = file.ports.iter().map(|_| None).collect();
        Placed { cpu, chains, plan, inputs: vec![], outputs }
    });
    placed.collect()
}

/// One copy of each NF for each worker that has it.
fn build(file: &ChainFile, workers: &[Placed]) -> Result<Vec<Vec<Box<dyn graph::Node>>>, Error> {
    let mut faults = vec![];
    let mut all = vec![];
    for (w, worker) in workers.iter().enumerate() {
        let mut nodes = vec![];
        for &nf in &worker.plan.nfs {
            let holders = |ws: &[Placed]| ws.iter().filter(|p| p.plan.nfs.contains(&nf)).count();
            let cx = BuildCx {
                name: file.nfs[nf].name.clone(),
                folder: file.folder().to_owned(),
                copy: (holders(&workers[..w]), holders(workers)),
            };
            match file.nfs[nf].factory.build(&cx) {
                Ok(node) => nodes.push(node),
                Err(d) => faults.push(file.place(nf, d)),
            }
        }
        all.push(nodes);
    }
    faults.dedup();
    if faults.is_empty() { Ok(all) } else { Err(Error::Input(Diagnostics(faults))) }
}

/// Starts DPDK and makes a pool with a packet for every descriptor and worker, as far as the largest goes.
fn memory(file: &ChainFile, workers: &[Placed]) -> Result<(Eal, Arc<Mempool>), Error> {
    /// Packets of the smallest pool, and of the largest.
    const POOL: (u32, u32) = (1 << 13, 1 << 17);
    let failed = |e: &dpdk::Error| Error::Environment {
        problem: e.to_string(),
        cure: "run bondstone doctor, which finds what DPDK lacks on this machine".into(),
    };
    let pci: Vec<String> = file.ports.iter().filter_map(|p| p.device.pci()).map(str::to_owned).collect();
    let queues = workers.len() as u32 + 1;
    let devices = file.ports.iter().filter(|p| matches!(p.device, Device::Dpdk { .. }));
    let in_ports: u32 = devices.map(|p| 2 * queues * u32::from(p.descriptors)).sum();
    let wanted = (in_ports + queues * 2048).next_power_of_two();
    let size = wanted.clamp(POOL.0, POOL.1) - 1;
    let eal = Eal::start(Memory::best_for(size), &pci).map_err(|e| failed(&e))?;
    let pool = Mempool::new(eal, size).map_err(|e| failed(&e))?;
    Ok((eal, pool))
}

/// What more this machine could give.
fn notes(eal: Eal) -> Vec<String> {
    let mut notes = vec![];
    if eal.memory() == Memory::Ordinary {
        notes.push("running on ordinary pages; huge pages make packets and large tables faster: echo 512 | sudo tee /proc/sys/vm/nr_hugepages".to_owned());
    }
    notes
}

/// Ports on their way to being open.
struct Opening<'a> {
    file: &'a ChainFile,
    eal: Eal,
    pool: Arc<Mempool>,
    stop: Arc<AtomicBool>,
    faults: Faults,
    handles: Vec<(usize, Watch)>,
    rings: Vec<(usize, RxQueue)>,
    captures: Vec<CaptureWriter>,
    drivers_own: usize,
    notes: Vec<String>,
}

impl Opening<'_> {
    fn all(&mut self, workers: &mut [Placed]) -> Result<(), Error> {
        let mut order: Vec<usize> = (0..self.file.ports.len()).collect();
        // a client finds its server only when that has been started; captures wait for the links of the others
        order.sort_by_key(|&p| match &self.file.ports[p].device {
            Device::Pcap(_) => 2,
            Device::Dpdk { written, .. } => {
                u8::from(written.starts_with("virtio-user:") || written.contains("role=client"))
            }
        });
        for port in order {
            match self.file.ports[port].device.clone() {
                Device::Pcap(name) => self.capture(port, &name, workers)?,
                Device::Dpdk { name, arguments, .. } => self.device(port, &name, &arguments, workers)?,
            }
        }
        Ok(())
    }

    /// Workers that poll the port, with where its packets enter their graphs; and those that send to it.
    fn users(&self, port: usize, workers: &[Placed]) -> (Vec<(usize, Target)>, Vec<usize>) {
        let entry = |w: &Placed| {
            let at = w.chains.iter().position(|&c| self.file.chains[c].port == port)?;
            Some(w.plan.entries[at])
        };
        let polled = workers.iter().enumerate().filter_map(|(n, w)| Some((n, entry(w)?))).collect();
        let to = Target::Port(port as u16);
        let senders = (0..workers.len()).filter(|&n| targets(&workers[n].plan).any(|t| *t == to)).collect();
        (polled, senders)
    }

    /// Ports that packets of this port can leave by.
    fn leads_to(&self, port: usize) -> Vec<usize> {
        let chains = self.file.chains.iter().enumerate().filter(|(_, c)| c.port == port).map(|(n, _)| n);
        let plan = self.file.worker(&chains.collect::<Vec<_>>());
        (0..self.file.ports.len()).filter(|&p| targets(&plan).any(|t| *t == Target::Port(p as u16))).collect()
    }

    fn environment(&self, port: usize, problem: &str, cure: String) -> Error {
        Error::Environment { problem: format!("port {:?}: {problem}", self.file.ports[port].name), cure }
    }

    fn capture(&mut self, port: usize, name: &str, workers: &mut [Placed]) -> Result<(), Error> {
        let path = self.file.folder().join(name);
        let (polled, senders) = self.users(port, workers);
        let p = &self.file.ports[port];
        let failed = |e: pcap::Error| Error::Environment {
            problem: format!("port {:?}: {e}", p.name),
            cure: "name a pcap or pcapng file that this user may read, or a place where it may write".into(),
        };
        if !polled.is_empty() {
            if let Some(link_type) = ports::first_link_type(&path).map_err(failed)?.filter(|t| *t != LinkType::ETHERNET)
            {
                self.notes.push(format!(
                    "capture {} holds {link_type} frames; NFs take every frame for Ethernet",
                    path.display()
                ));
            }
            let to = self.leads_to(port);
            let links: Vec<_> = self.handles.iter().filter(|(port, _)| to.contains(port)).collect();
            for (unlinked, _) in links.iter().filter(|(_, link)| link.link() == Some(false)) {
                self.notes.push(format!(
                    "capture {} is read once port {:?} has a link",
                    path.display(),
                    self.file.ports[*unlinked].name
                ));
            }
            let links = links.into_iter().map(|(_, link)| link.clone()).collect();
            let reader = CaptureReader::open(&path, p.repeat, p.timed, links, self.pool.clone(), self.faults.clone())
                .map_err(failed)?;
            self.poll_with(port, Source::Other(Box::new(reader)), &polled, workers, true, Origin::Outside);
        }
        if !senders.is_empty() {
            let writer = CaptureWriter::create(&path, self.link_type(port), self.faults.clone()).map_err(failed)?;
            for n in senders {
                send_with(port, Drain::Other(Box::new(writer.clone())), &mut workers[n]);
            }
            self.captures.push(writer);
        }
        Ok(())
    }

    /// The link type that all ports that lead to this one have in common, or Ethernet.
    fn link_type(&self, to: usize) -> LinkType {
        let from = (0..self.file.ports.len()).filter(|&p| self.leads_to(p).contains(&to));
        let read = from.map(|p| match &self.file.ports[p].device {
            Device::Pcap(name) => ports::first_link_type(&self.file.folder().join(name)).ok().flatten(),
            Device::Dpdk { .. } => Some(LinkType::ETHERNET),
        });
        let mut types: Vec<LinkType> = read.flatten().collect();
        types.dedup();
        if let [one] = types[..] { one } else { LinkType::ETHERNET }
    }

    fn device(&mut self, port: usize, name: &str, arguments: &str, workers: &mut [Placed]) -> Result<(), Error> {
        let (polled, senders) = self.users(port, workers);
        let plan = &self.file.ports[port];
        let fail = |e: dpdk::Error| self.environment(port, &e.to_string(), ports::cure(&plan.device, &e));
        ports::claim_socket(&plan.device)
            .map_err(|e| self.environment(port, &e, "name another socket, or stop that process".to_owned()))?;
        let opened = Port::open(self.eal, name, arguments).map_err(fail)?;
        let info = opened.info().map_err(fail)?;
        let ring = info.driver == "net_ring";
        // both sides of these see one queue, whatever each sets up
        let many = !ring && info.driver != "net_memif";
        let hardware = polled.len() > 1
            && many
            && usize::from(info.max_rx_queues) >= polled.len()
            && match self.spread(port) {
                Spread::Any => true,
                Spread::Flow => info.rss,
                Spread::Symmetric => false,
            };
        let shared = !many || usize::from(info.max_tx_queues) < senders.len();
        let config = PortConfig {
            rx_queues: if hardware { polled.len() as u16 } else { 1 },
            tx_queues: if shared { 1 } else { senders.len().max(1) as u16 },
            descriptors: plan.descriptors,
        };
        // a tap has its queues in pairs
        let pairs = config.rx_queues.max(config.tx_queues);
        let config = match info.driver.as_str() {
            "net_tap" => PortConfig { rx_queues: pairs, tx_queues: pairs, ..config },
            _ => config,
        };
        let queues = opened.start(&config, &self.pool).map_err(fail)?;
        self.handles.push((port, Watch::new(&plan.device, queues.port)));
        self.drivers_own += ports::drivers_own(&info, &config);
        self.notes.extend(ports::note(&plan.name, &plan.device));
        let mut rx = queues.rx.into_iter();
        let origin = if ring { Origin::Ring } else { Origin::Outside };
        if hardware {
            for (user, queue) in polled.iter().zip(rx.by_ref()) {
                self.poll_with(port, Source::Queue(queue), std::slice::from_ref(user), workers, false, origin);
            }
        } else if !polled.is_empty()
            && let Some(queue) = rx.next()
        {
            self.poll_with(port, Source::Queue(queue), &polled, workers, false, origin);
        }
        if ring {
            self.rings.extend(rx.map(|queue| (port, queue)));
        }
        transmit(port, queues.tx, &senders, workers, shared);
        Ok(())
    }

    /// The strictest spreading that an NF behind the port asks for.
    fn spread(&self, port: usize) -> Spread {
        let chains = self.file.chains.iter().enumerate().filter(|(_, c)| c.port == port).map(|(n, _)| n);
        let nfs = self.file.worker(&chains.collect::<Vec<_>>()).nfs;
        nfs.iter().map(|&nf| self.file.nfs[nf].kind.spread).max().unwrap_or(Spread::Any)
    }

    /// Gives a source to the workers that poll it: to one, or spread over several.
    fn poll_with(
        &self,
        port: usize,
        from: Source,
        users: &[(usize, Target)],
        workers: &mut [Placed],
        patient: bool,
        origin: Origin,
    ) {
        let mut sources = vec![];
        if users.len() == 1 {
            sources.push((from, origin));
        } else {
            let (own, others) = ports::spread(from, users.len(), patient, self.stop.clone());
            sources.push((Source::Other(Box::new(own)), origin));
            sources.extend(others.into_iter().map(|o| (Source::Other(Box::new(o)), Origin::Core)));
        }
        for ((from, origin), &(n, entry)) in sources.into_iter().zip(users) {
            workers[n].inputs.push((port, Input { from, entry, stats: Arc::default(), patient, origin }));
        }
    }
}

/// Everywhere that packets of a plan can go.
fn targets(plan: &WorkerPlan) -> impl Iterator<Item = &Target> {
    let b = &plan.blueprint;
    let edges = b.nodes.iter().flat_map(|n| n.edges.iter().skip(1));
    plan.entries.iter().chain(b.hops.iter().map(|h| &h.next)).chain(edges)
}

fn send_with(port: usize, to: Drain, worker: &mut Placed) {
    // a ring that this same worker empties has no more room for being waited for
    let own = worker.inputs.iter().any(|(p, i)| *p == port && i.origin == Origin::Ring);
    let mut output = Output::new(to);
    output.own = own;
    worker.outputs[port] = Some(output);
}

fn transmit(port: usize, tx: Vec<TxQueue>, senders: &[usize], workers: &mut [Placed], shared: bool) {
    let mut tx = tx.into_iter();
    if shared && senders.len() > 1 {
        let Some(queue) = tx.next() else { return };
        let queue = Arc::new(Mutex::new(queue));
        for &n in senders {
            send_with(port, Drain::Other(Box::new(Shared::new(&queue))), &mut workers[n]);
        }
        return;
    }
    for (&n, queue) in senders.iter().zip(tx) {
        send_with(port, Drain::Queue(queue), &mut workers[n]);
    }
}
