//! Opening ports and giving their queues to workers.

use super::{Error, Placed};
use crate::faults::Faults;
use crate::ports::{self, CaptureReader, CaptureWriter, Shared, Watch};
use crate::sriov::Functions;
use crate::worker::Local;
use crate::{Drain, Input, Origin, Output, Source, Transmit};
use config::{ChainFile, Class, Device, Side, Start, WorkerPlan};
use diagnostics::{Diagnostic, Diagnostics};
use dpdk::{Eal, Mempool, Port, PortConfig, PortHandle, PortInfo, RxQueue, TxQueue};
use graph::{Spread, Target};
use pcap::LinkType;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Ports on their way to being open.
pub(super) struct Opening<'a> {
    pub(super) file: &'a ChainFile,
    pub(super) functions: &'a Functions,
    pub(super) eal: Eal,
    pub(super) pool: Arc<Mempool>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) faults: Faults,
    pub(super) handles: Vec<(usize, Watch)>,
    pub(super) rings: Vec<(usize, RxQueue)>,
    pub(super) captures: Vec<CaptureWriter>,
    pub(super) drivers_own: usize,
    pub(super) notes: Vec<String>,
    pub(super) walls: ports::Rings,
    /// Whether ports are to have bells, as far as they can.
    pub(super) bells: bool,
}

impl Opening<'_> {
    /// Puts a wire in the place of every port but ways through walls; the far ends.
    pub(super) fn wires(&mut self, depth: u32, workers: &mut [Placed]) -> Result<Vec<End>, Error> {
        let mut ends = vec![];
        for (n, port) in self.file.ports.iter().enumerate() {
            match &port.device {
                Device::Dpdk { name, arguments, .. } if port.wall.is_some() => {
                    self.device(n, name, arguments, workers)?;
                }
                Device::Rings { socket, lane, lanes } => self.rings(n, socket, (*lane, *lanes), workers)?,
                Device::Queue { .. } => {}
                _ => ends.push(self.wire(n, depth, workers)?),
            }
        }
        Ok(ends)
    }

    fn wire(&mut self, port: usize, depth: u32, workers: &mut [Placed]) -> Result<End, Error> {
        let (polled, senders) = self.users(port, workers);
        let fail = |e: dpdk::Error| self.environment(port, &e.to_string(), "look at free memory".to_owned());
        let (near, far) = Port::wire(self.eal, depth).map_err(fail)?;
        let config = PortConfig::default();
        let mut near = near.start(&config, &self.pool).map_err(fail)?;
        let mut far = far.start(&config, &self.pool).map_err(fail)?;
        if !polled.is_empty() {
            let from = Source::Queue(near.rx.remove(0));
            self.poll_with(port, from, &polled, workers, false, Origin::Outside);
        }
        transmit(port, near.tx, &senders, workers, true);
        Ok(End { port, rx: far.rx.remove(0), tx: far.tx.remove(0) })
    }

    /// Opens every port.
    pub(super) fn all(&mut self, workers: &mut [Placed]) -> Result<(), Error> {
        let mut order: Vec<usize> = (0..self.file.ports.len()).collect();
        // a client finds its server only when that has been started; captures wait for the links of the others
        order.sort_by_key(|&p| match &self.file.ports[p].device {
            Device::Pcap(_) => 2,
            Device::Queue { .. } | Device::Rings { .. } => 0,
            Device::Dpdk { written, .. } => {
                u8::from(written.starts_with("virtio-user:") || written.contains("role=client"))
            }
        });
        for port in order {
            match self.file.ports[port].device.clone() {
                Device::Pcap(name) => self.capture(port, &name, workers)?,
                Device::Dpdk { name, arguments, .. } => {
                    let made = self.functions.addresses().get(&self.file.ports[port].name);
                    self.device(port, made.unwrap_or(&name), &arguments, workers)?;
                }
                Device::Rings { socket, lane, lanes } => self.rings(port, &socket, (lane, lanes), workers)?,
                // opened with the first
                Device::Queue { .. } => {}
            }
        }
        Ok(())
    }

    /// Workers that poll the port, with where its packets enter their graphs; and those that send to it.
    fn users(&self, port: usize, workers: &[Placed]) -> (Vec<(usize, Target)>, Vec<usize>) {
        let entry = |w: &Placed| {
            let at = w.chains.iter().position(|&c| self.file.chains[c].from == Start::Port(port))?;
            Some(w.plan.entries[at])
        };
        let polled = workers.iter().enumerate().filter_map(|(n, w)| Some((n, entry(w)?))).collect();
        (polled, senders(port, workers))
    }

    /// Joins the cores of chains by rings, for each link.
    pub(super) fn links(&self, workers: &mut [Placed]) -> Result<(), Error> {
        for (n, link) in self.file.links.iter().enumerate() {
            let taker = |(w, placed): (usize, &Placed)| {
                let at = placed.chains.iter().position(|&c| c == link.chain)?;
                Some((w, placed.plan.entries[at]))
            };
            let takers: Vec<(usize, Target)> = workers.iter().enumerate().filter_map(taker).collect();
            // what the sources behind it wait for, this core may wait for too
            let ports = (0..self.file.ports.len()).filter(|&p| self.behind(p).contains(&link.chain));
            let patient = ports.into_iter().all(|p| matches!(self.file.ports[p].device, Device::Pcap(_)));
            let (number, by) = (self.file.ports.len() + n, self.file.chains[link.chain].shuffle);
            for sender in senders(number, workers) {
                let own = takers.iter().position(|(taker, _)| *taker == sender);
                let chain = &self.file.chains[link.chain];
                if own.is_some() && chain.class != Class::PLAIN {
                    let cpu = workers[sender].cpu;
                    let fault = Diagnostic::new(format!(
                        "its packets stay on CPU {cpu}, where they come from, and go on at once: no priority, share or rate holds"
                    ));
                    let remedy = format!("give it other cores than the chain before {}, or take the key out", link.name);
                    let fault =
                        Diagnostic { file: Some(self.file.file.clone()), ..fault.value(&chain.name).remedy(remedy) };
                    return Err(Error::Input(Diagnostics(vec![fault])));
                }
                let (handing, ends) = ports::link(takers.len(), own, by);
                let mut output = Output::new(Drain::Other(Box::new(handing)));
                output.local = own.map(|own| Local { entry: takers[own].1, stats: Arc::default() });
                workers[sender].outputs[number] = Some(output);
                for (end, &(taker, entry)) in ends.into_iter().zip(&takers) {
                    let Some(end) = end else { continue };
                    let from = Source::Other(Box::new(end));
                    let input = Input { from, entry, stats: Arc::default(), patient, origin: Origin::Core };
                    workers[taker].inputs.push((number, input));
                }
            }
        }
        Ok(())
    }

    /// Ports that packets of this port can leave by.
    fn leads_to(&self, port: usize) -> Vec<usize> {
        let plan = self.file.worker(&self.behind(port));
        (0..self.file.ports.len()).filter(|&p| targets(&plan).any(|t| *t == Target::Port(p as u16))).collect()
    }

    /// Chains that packets of this port go along, those behind links too.
    fn behind(&self, port: usize) -> Vec<usize> {
        let (file, from) = (self.file, Start::Port(port));
        let mut chains: Vec<usize> = (0..file.chains.len()).filter(|&c| file.chains[c].from == from).collect();
        loop {
            let plan = file.worker(&chains);
            let to = |n: usize| targets(&plan).any(|t| *t == Target::Port((file.ports.len() + n) as u16));
            let more = file.links.iter().enumerate().filter(|(n, link)| to(*n) && !chains.contains(&link.chain));
            let more: Vec<usize> = more.map(|(_, link)| link.chain).collect();
            if more.is_empty() {
                return chains;
            }
            chains.extend(more);
        }
    }

    fn environment(&self, port: usize, problem: &str, remedy: String) -> Error {
        Error::Environment { problem: format!("port {:?}: {problem}", self.file.ports[port].name), remedy }
    }

    fn capture(&mut self, port: usize, name: &str, workers: &mut [Placed]) -> Result<(), Error> {
        let path = self.file.folder().join(name);
        let (polled, senders) = self.users(port, workers);
        let p = &self.file.ports[port];
        let failed = |e: pcap::Error| Error::Environment {
            problem: format!("port {:?}: {e}", p.name),
            remedy: "name a pcap or pcapng file that this user may read, or a place where it may write".into(),
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
            // who is behind a wall comes without being waited for by a user
            let unlinked =
                links.iter().filter(|(port, link)| self.file.ports[*port].wall.is_none() && link.link() == Some(false));
            for (unlinked, _) in unlinked {
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
            Device::Dpdk { .. } | Device::Queue { .. } | Device::Rings { .. } => Some(LinkType::ETHERNET),
        });
        let mut types: Vec<LinkType> = read.flatten().collect();
        types.dedup();
        if let [one] = types[..] { one } else { LinkType::ETHERNET }
    }

    fn device(&mut self, port: usize, name: &str, arguments: &str, workers: &mut [Placed]) -> Result<(), Error> {
        let (polled, senders) = self.users(port, workers);
        let plan = &self.file.ports[port];
        let fail = |e: dpdk::Error| self.environment(port, &e.to_string(), ports::remedy(&plan.device, &e));
        ports::claim_socket(&plan.device)
            .map_err(|e| self.environment(port, &e, "name another socket, or stop that process".to_owned()))?;
        let opened = Port::open(self.eal, name, arguments).map_err(fail)?;
        let info = opened.info().map_err(fail)?;
        let further = self.further(port);
        if !further.is_empty() {
            return self.queues(port, further, (opened, info), workers);
        }
        let ring = info.driver == "net_ring";
        // both sides of these see one queue, whatever each sets up
        let many = !ring && info.driver != "net_memif";
        let hardware = polled.len() > 1
            && many
            && usize::from(info.max_rx_queues) >= polled.len()
            && match self.file.spread(port) {
                Spread::Any => true,
                Spread::Flow => info.rss,
                Spread::Symmetric | Spread::Hosts | Spread::Custom => false,
            };
        let rx_queues = if hardware { polled.len() } else { 1 };
        // a tap has its queues in pairs, and the kernel would put packets into one that nobody polls
        let tap = info.driver == "net_tap";
        let most = if tap { rx_queues } else { usize::from(info.max_tx_queues) };
        let shared = !many || most < senders.len();
        let config = PortConfig {
            rx_queues: rx_queues as u16,
            tx_queues: match shared {
                _ if tap => rx_queues as u16,
                true => 1,
                false => senders.len().max(1) as u16,
            },
            descriptors: plan.descriptors,
            bells: self.bells && info.driver == "net_virtio_user",
        };
        let queues = opened.start(&config, &self.pool).map_err(fail)?;
        if info.driver == "net_memif" && plan.wall == Some(Side::Host) {
            self.linked(port, &queues.port)?;
        }
        self.handles.push((port, Watch::new(&plan.device, &info, queues.port)));
        self.drivers_own += ports::drivers_own(&info, &config, arguments);
        self.notes.extend(ports::note(&plan.name, &plan.device));
        let mut rx = queues.rx.into_iter();
        let (origin, patient) = self.origin(port);
        let origin = if ring { Origin::Ring } else { origin };
        if hardware {
            for (user, queue) in polled.iter().zip(rx.by_ref()) {
                self.poll_with(port, Source::Queue(queue), std::slice::from_ref(user), workers, patient, origin);
            }
        } else if !polled.is_empty()
            && let Some(queue) = rx.next()
        {
            self.poll_with(port, Source::Queue(queue), &polled, workers, patient, origin);
        }
        if ring {
            self.rings.extend(rx.map(|queue| (port, queue)));
        }
        transmit(port, queues.tx, &senders, workers, shared);
        self.mark(port, &senders, workers);
        Ok(())
    }

    /// The ports that are further queues of a port's device, in order.
    fn further(&self, port: usize) -> Vec<usize> {
        let name = &self.file.ports[port].name;
        let nth = |port: &usize| match &self.file.ports[*port].device {
            Device::Queue { of, nth } if of == name => Some(*nth),
            _ => None,
        };
        let mut further: Vec<usize> = (0..self.file.ports.len()).filter(|port| nth(port).is_some()).collect();
        further.sort_by_key(nth);
        further
    }

    /// Opens a device of which each queue is a port of its own: vhost's or virtio's, whose drivers keep no packets.
    fn queues(
        &mut self,
        port: usize,
        further: Vec<usize>,
        (opened, info): (Port, PortInfo),
        workers: &mut [Placed],
    ) -> Result<(), Error> {
        let plan = &self.file.ports[port];
        let fail = |e: dpdk::Error| self.environment(port, &e.to_string(), ports::remedy(&plan.device, &e));
        let many = 1 + further.len();
        let most = usize::from(info.max_rx_queues.min(info.max_tx_queues));
        if most < many {
            let remedy = "write fewer queues".to_owned();
            return Err(self.environment(port, &format!("{many} queues are asked for, and it has {most}"), remedy));
        }
        let (rx_queues, tx_queues) = (many as u16, many as u16);
        let bells = self.bells && info.driver == "net_virtio_user";
        let config = PortConfig { rx_queues, tx_queues, descriptors: plan.descriptors, bells };
        let queues = opened.start(&config, &self.pool).map_err(fail)?;
        // the driver counts for all of them
        self.handles.push((port, Watch::new(&plan.device, &info, queues.port)));
        let (origin, patient) = self.origin(port);
        let all = std::iter::once(port).chain(further);
        for (port, (rx, tx)) in all.zip(queues.rx.into_iter().zip(queues.tx)) {
            let (polled, senders) = self.users(port, workers);
            if !polled.is_empty() {
                self.poll_with(port, Source::Queue(rx), &polled, workers, patient, origin);
            }
            transmit(port, vec![tx], &senders, workers, true);
            self.mark(port, &senders, workers);
        }
        Ok(())
    }

    /// Whose packets a port brings, and whether these can wait: the switch never waits for whom it does not know, but an NF may
    /// wait for the switch.
    fn origin(&self, port: usize) -> (Origin, bool) {
        match self.file.ports[port].wall {
            Some(Side::Switch) => (Origin::Wall, false),
            Some(Side::Host) => (Origin::Switch, true),
            None => (Origin::Outside, false),
        }
    }

    /// Notes of outputs that they lead behind a wall.
    fn mark(&self, port: usize, senders: &[usize], workers: &mut [Placed]) {
        for &n in senders {
            if let Some(output) = &mut workers[n].outputs[port] {
                output.wall = self.file.ports[port].wall == Some(Side::Switch);
            }
        }
    }

    /// Opens a way through a wall by rings.
    fn rings(&mut self, port: usize, socket: &Path, lane: (usize, usize), workers: &mut [Placed]) -> Result<(), Error> {
        let (polled, senders) = self.users(port, workers);
        let side = self.file.ports[port].wall.unwrap_or(Side::Switch);
        let wrong = |e: std::io::Error| format!("{}: {e}", socket.display());
        let opened = self.walls.ends(side, socket, lane, &self.pool).map_err(wrong);
        let (from, to): ports::Ends = opened.map_err(|e| {
            self.environment(port, &e, "write transport = \"memif\", which shares less memory".to_owned())
        })?;
        let (origin, patient) = self.origin(port);
        if !polled.is_empty() {
            self.poll_with(port, Source::Other(from), &polled, workers, patient, origin);
        }
        share(port, to, &senders, workers);
        self.mark(port, &senders, workers);
        Ok(())
    }

    /// Waits for a link that is made by DPDK's own thread, for which that asks the system for what NFs may not later.
    fn linked(&self, port: usize, handle: &PortHandle) -> Result<(), Error> {
        /// How long the switch may take to answer, on a machine that gives its CPU to others.
        const PATIENCE: Duration = Duration::from_secs(10);
        let end = Instant::now() + PATIENCE;
        while !handle.link_up() {
            if Instant::now() > end {
                let problem = format!("no link after {PATIENCE:?}");
                return Err(self.environment(port, &problem, "look at what this side of the wall says".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// By what packets of a port are spread in software.
    fn by(&self, port: usize, cores: usize) -> ports::By {
        match self.file.lane(port, cores) {
            Some((lane, input)) => ports::By::Nf(lane, input),
            None => ports::By::of(self.file.spread(port)),
        }
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
            let (own, others) =
                ports::spread(from, self.by(port, users.len()), users.len(), patient, self.stop.clone());
            sources.push((Source::Other(Box::new(own)), origin));
            sources.extend(others.into_iter().map(|o| (Source::Other(Box::new(o)), Origin::Core)));
        }
        for ((from, origin), &(n, entry)) in sources.into_iter().zip(users) {
            workers[n].inputs.push((port, Input { from, entry, stats: Arc::default(), patient, origin }));
        }
    }
}

/// The far end of a wire that stands in the place of a port.
pub struct End {
    /// Number of the port in the file.
    pub port: usize,
    /// What the chain has sent.
    pub rx: RxQueue,
    /// What the chain is to receive.
    pub tx: TxQueue,
}

/// Workers that send to the port or link of this number.
fn senders(number: usize, workers: &[Placed]) -> Vec<usize> {
    let to = Target::Port(number as u16);
    (0..workers.len()).filter(|&n| targets(&workers[n].plan).any(|t| *t == to)).collect()
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

/// Gives one drain to all who send to a port.
fn share(port: usize, to: Box<dyn Transmit>, senders: &[usize], workers: &mut [Placed]) {
    if let [only] = senders {
        return send_with(port, Drain::Other(to), &mut workers[*only]);
    }
    let to = Arc::new(Mutex::new(to));
    for &n in senders {
        send_with(port, Drain::Other(Box::new(Shared::new(&to))), &mut workers[n]);
    }
}

fn transmit(port: usize, tx: Vec<TxQueue>, senders: &[usize], workers: &mut [Placed], shared: bool) {
    let mut tx = tx.into_iter();
    if shared && senders.len() > 1 {
        let Some(queue) = tx.next() else { return };
        return share(port, Box::new(queue), senders, workers);
    }
    for (&n, queue) in senders.iter().zip(tx) {
        send_with(port, Drain::Queue(queue), &mut workers[n]);
    }
}
