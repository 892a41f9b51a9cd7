//! Which NFs are behind which wall, and how packets get there and back.

use super::paths::Builder;
use super::{Checker, MOST_PORTS};
use crate::file::File;
use crate::plan::NfUse;
use crate::wall::{Crossing, Isolation, Over, Transport, Wall, Way};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;

/// MiB that a wall's NFs may have where the file does not say.
const MEMORY_MIB: u64 = 1024;
/// The least: what DPDK takes at its start.
const LEAST_MIB: u64 = 640;
/// The least of a process with a device, for which DPDK takes more where there are no huge pages.
const LEAST_WITH_DEVICE_MIB: u64 = 900;
/// What mends an NF and a port that are on two sides.
const BESIDE: &str = "put that NF behind the same wall, or take wall out of the port";
/// The longest name.
const LONGEST: usize = 32;

/// For each NF behind a wall that wall's name and kind.
type Behind = BTreeMap<String, (String, Isolation)>;

/// The NF of a path's element, or of an edge's end.
fn nf_of(element: &str) -> &str {
    element.split([':', '.']).next().unwrap_or_default()
}

/// Leads an output out of a wall: where packets come in to the interface of its name and stay, by the same way.
fn lead_out(file: &File, wall: &str, from: &str, to: &str, crossings: &mut Vec<(String, Way)>) {
    let shared = crossings.iter_mut().find_map(|(of, way)| {
        let Way::Path(n, run) = &*way else { return None };
        let (n, run) = (*n, run.clone());
        let path = file.chain[n].get_ref().path.get_ref();
        let is_its = |element: &Spanned<String>| {
            let (nf, input) = element.get_ref().split_once(':').unwrap_or((element.get_ref(), path[0].get_ref()));
            from.split_once('.') == Some((nf, input))
        };
        let stays = *of == *wall && run.start > 0 && run.end == path.len();
        (stays && path[run.clone()].iter().any(is_its)).then_some((way, n, run))
    });
    match shared {
        Some((way, n, run)) => *way = Way::Interface(n, run, from.to_owned(), to.to_owned()),
        None => crossings.push((wall.to_owned(), Way::Edge(from.to_owned(), to.to_owned()))),
    }
}

impl Checker<'_> {
    /// What a word for isolation means.
    pub(super) fn isolation(&mut self, span: Range<usize>, word: &str) -> Option<Isolation> {
        let found = Isolation::ALL.iter().find(|(name, _)| *name == word);
        if found.is_none() {
            let words = Isolation::ALL.map(|(name, _)| format!("{name:?}")).join(", ");
            self.fault(span, word, "there is no such isolation", format!("write one of {words}"));
        }
        found.map(|(_, isolation)| *isolation)
    }
}

impl Builder<'_> {
    /// The walls of a file that is right otherwise.
    pub(super) fn walls(&mut self, file: &File) -> Vec<Wall> {
        let chains: Vec<Option<Isolation>> = file.chain.iter().map(|chain| self.said(chain.get_ref())).collect();
        if !self.checker.faults.is_empty() {
            return vec![];
        }
        let behind = self.behind(file, &chains);
        let mut walls: Vec<Wall> = vec![];
        for (nf, (name, isolation)) in &behind {
            match walls.iter_mut().find(|wall| wall.name == *name) {
                Some(wall) => wall.nfs.push(nf.clone()),
                None => walls.push(Wall {
                    name: name.clone(),
                    isolation: *isolation,
                    nfs: vec![nf.clone()],
                    cores: vec![],
                    absent: vec![],
                    memory_mib: MEMORY_MIB,
                    idle: None,
                    transport: Transport::default(),
                    interfaces: 1,
                    queues: 1,
                    spread: Over::default(),
                    crossings: vec![],
                    own: vec![],
                }),
            }
        }
        self.means(file, &mut walls);
        self.own(file, &mut walls);
        let mut crossings = vec![];
        for n in 0..file.chain.len() {
            self.path(file, n, &behind, &mut crossings);
        }
        self.outputs(file, &behind, &mut crossings);
        let queues: BTreeMap<String, usize> =
            walls.iter().map(|wall| (wall.name.clone(), wall.interfaces * wall.queues)).collect();
        // what only comes out needs no more than one
        let width = |name: &str, way: &Way| match way {
            Way::Path(n, run) if run.start == 0 => usize::from(run.end < file.chain[*n].get_ref().path.get_ref().len()),
            Way::Path(..) | Way::Interface(..) => queues.get(name).copied().unwrap_or(1),
            Way::Edge(..) => 1,
        };
        let needed: usize = crossings.iter().map(|(name, way)| width(name, way)).sum();
        if self.ports.len() + needed > MOST_PORTS {
            let problem = format!("walls need {needed} ports more than the file has, and {MOST_PORTS} are allowed");
            self.checker.fault(0..0, "isolation", problem, "put NFs that follow each other behind one wall");
        }
        for wall in &walls {
            let own = crossings.iter().filter(|(name, _)| *name == wall.name);
            let ways: usize = own.map(|(name, way)| width(name, way)).sum();
            let means = file.wall.iter().find(|(name, _)| *name.get_ref() == wall.name).map(|(_, means)| means);
            if wall.transport == Transport::MemifZeroCopy && ways > 1 {
                let span = means.and_then(|means| means.transport.as_ref()).map_or(0..0, Spanned::span);
                let problem =
                    format!("{ways} interfaces are in wall {:?}, and DPDK shares its memory by one", wall.name);
                let remedy = "write \"memif\", or put each chain and each direction behind a wall of its own";
                self.checker.fault(span, wall.transport.name(), problem, remedy);
            }
            // 0 of them is a fault by itself
            let asks = means.and_then(|means| means.interfaces.as_ref().or(means.queues.as_ref()));
            if let (0, Some(asks)) = (ways, asks.filter(|asks| *asks.get_ref() != 0)) {
                let problem = format!("no packet crosses wall {:?}: its ports are opened behind it", wall.name);
                let value = asks.get_ref().to_string();
                self.checker.fault(asks.span(), &value, problem, "take the key out");
            }
            let own = crossings.iter().filter(|(name, _)| *name == wall.name);
            let interfaces: usize = own.map(|(name, way)| width(name, way).div_ceil(wall.queues)).sum();
            let slots = interfaces + wall.own.len();
            if wall.isolation == Isolation::Vm && slots > Wall::MOST_SLOTS {
                let problem = format!("{slots} interfaces are in its wall, and a VM has {}", Wall::MOST_SLOTS);
                self.checker.fault(
                    0..0,
                    &wall.name,
                    problem,
                    "put fewer chains behind one VM, or give it queues in the place of interfaces",
                );
            }
        }
        for (name, way) in crossings {
            let width = width(&name, &way);
            let mut ports: Vec<String> = vec![];
            // one name more, of what spreads over them
            for _ in 0..if width > 1 { width + 1 } else { width } {
                ports.push(self.free_name(&name, &walls, &ports));
            }
            let spread = if width > 1 { ports.pop().unwrap_or_default() } else { String::new() };
            if let Some(wall) = walls.iter_mut().find(|wall| wall.name == name) {
                wall.crossings.push(Crossing { ports, spread, way });
            }
        }
        walls
    }

    fn said(&mut self, chain: &crate::file::Chain) -> Option<Isolation> {
        let word = chain.isolation.as_ref()?;
        self.checker.isolation(word.span(), word.get_ref())
    }

    /// For each NF behind a wall that wall's name and kind. Chains that share an NF share the wall.
    fn behind(&mut self, file: &File, chains: &[Option<Isolation>]) -> Behind {
        let is_wall = |isolation: Option<Isolation>| isolation.filter(|isolation| isolation.is_wall());
        let own = self.nfs.iter().filter_map(|nf| Some((nf.name.clone(), (nf.name.clone(), is_wall(nf.isolation)?))));
        let mut behind: Behind = own.collect();
        for (n, chain) in file.chain.iter().enumerate() {
            let Some(isolation) = is_wall(chains[n]) else { continue };
            let named = chain.get_ref().name.as_ref().map(|name| name.get_ref().clone());
            let mut name = named.unwrap_or_else(|| format!("chain{}", n + 1));
            // an NF with a wall of its own may have that name
            while self.nfs.iter().any(|nf| nf.name == name && is_wall(nf.isolation).is_some()) {
                name.push('-');
            }
            let path = chain.get_ref().path.get_ref();
            let all = path.iter().map(|element| nf_of(element.get_ref()));
            let all: Vec<_> =
                all.filter(|e| self.nfs.iter().any(|nf| nf.name == *e && nf.isolation.is_none())).collect();
            let there: Vec<_> = all.iter().filter_map(|nf| behind.get(*nf).cloned()).collect();
            if let Some((other, _)) = there.iter().find(|(_, kind)| *kind != isolation) {
                let remedy = format!("give both the same isolation, or NFs of their own ({other:?} is the other wall)");
                let problem = "shares an NF with a chain that is behind a wall of another kind";
                self.checker.fault(chain.span(), isolation.name(), problem, remedy);
            }
            let name = there.first().map_or(name, |(name, _)| name.clone());
            let shared = |wall: &&mut (String, Isolation)| there.contains(wall);
            behind.values_mut().filter(shared).for_each(|(wall, _)| wall.clone_from(&name));
            behind.extend(all.into_iter().map(|nf| (nf.to_owned(), (name.clone(), isolation))));
        }
        for (n, chain) in file.chain.iter().enumerate().filter(|(n, _)| is_wall(chains[*n]).is_none()) {
            for element in chain.get_ref().path.get_ref() {
                let nf = nf_of(element.get_ref());
                let own = self.nfs.iter().any(|of| of.name == nf && of.isolation.is_some());
                let Some((_, isolation)) = behind.get(nf).filter(|_| !own && self.port_of(nf).is_none()) else {
                    continue;
                };
                let problem = "stands in a chain behind a wall, and in this one, which is not";
                let word = isolation.name();
                let remedy = format!("give chain {} isolation = {word:?} as well, or the NF its own", n + 1);
                self.checker.fault(element.span(), nf, problem, remedy);
            }
        }
        behind
    }

    fn port_of(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|p| p.name == name)
    }

    /// What the tables `[wall.NAME]` say.
    fn means(&mut self, file: &File, walls: &mut [Wall]) {
        let names: Vec<String> = walls.iter().map(|wall| wall.name.clone()).collect();
        for (name, means) in &file.wall {
            let Some(wall) = walls.iter_mut().find(|wall| wall.name == *name.get_ref()) else {
                // one word takes the wall away, and brings it back
                if self.is_without(file, name.get_ref()) {
                    continue;
                }
                let remedy = match names.is_empty() {
                    true => "put isolation = \"process\" into an NF or a chain".to_owned(),
                    false => format!("the walls are: {}", names.join(", ")),
                };
                self.checker.fault(
                    name.span(),
                    name.get_ref(),
                    "no NF and no chain of this name is behind a wall",
                    remedy,
                );
                continue;
            };
            wall.cores = means.cores.iter().map(|core| *core.get_ref()).collect();
            wall.absent = self.checker.absent(&means.cores);
            wall.idle = means.idle;
            wall.spread = means.spread;
            if let Some(word) = &means.transport {
                wall.transport = self.transport(word, wall);
            }
            self.breadth(means, wall);
            if let Some(memory) = &means.memory_mib {
                wall.memory_mib = *memory.get_ref();
                if wall.memory_mib < LEAST_MIB {
                    let (value, remedy) = (wall.memory_mib.to_string(), format!("write {LEAST_MIB} or more"));
                    self.checker.fault(memory.span(), &value, "is too little for DPDK to start in", remedy);
                }
            }
        }
    }

    /// How many interfaces each way through a wall has, and queues; one where the file asks for what it cannot have.
    fn breadth(&mut self, means: &crate::file::Wall, wall: &mut Wall) {
        if let Some(interfaces) = &means.interfaces {
            let asked = *interfaces.get_ref();
            if (1..=Wall::MOST_INTERFACES).contains(&asked) {
                wall.interfaces = asked;
            } else {
                let (problem, remedy) =
                    ("is no number of interfaces for a chain", format!("write 1 to {}", Wall::MOST_INTERFACES));
                self.checker.fault(interfaces.span(), &asked.to_string(), problem, remedy);
            }
        }
        let Some(queues) = &means.queues else { return };
        let asked = *queues.get_ref();
        let (problem, remedy) = if !(1..=Wall::MOST_QUEUES).contains(&asked) {
            ("is no number of queues for an interface".to_owned(), format!("write 1 to {}", Wall::MOST_QUEUES))
        } else if asked > 1 && wall.transport != Transport::Vhost {
            let problem = format!("is for vhost, and the wall has transport = {:?}", wall.transport.name());
            (problem, "write interfaces, or take the transport out".to_owned())
        } else if wall.interfaces * asked > Wall::MOST_SPREAD {
            let (all, most) = (wall.interfaces * asked, Wall::MOST_SPREAD);
            let problem = format!("makes {all} queues for each chain, and packets are spread over {most}");
            (problem, "give the wall fewer queues or interfaces".to_owned())
        } else {
            wall.queues = asked;
            return;
        };
        self.checker.fault(queues.span(), &asked.to_string(), problem, remedy);
    }

    /// Whether an NF or a chain of this name says that it has no wall.
    fn is_without(&self, file: &File, name: &str) -> bool {
        let is_chain = |chain: &crate::file::Chain| chain.name.as_ref().is_some_and(|own| own.get_ref() == name);
        let word = |chain: &crate::file::Chain| chain.isolation.as_ref().map(|word| word.get_ref().clone());
        let chains = file.chain.iter().map(Spanned::get_ref).filter(|chain| is_chain(chain));
        self.nfs.iter().any(|nf| nf.name == name && nf.isolation == Some(Isolation::Inproc))
            || chains.filter_map(word).any(|word| word == Isolation::Inproc.name())
    }

    /// What a word for a transport means, and whether the wall can have it.
    fn transport(&mut self, word: &Spanned<String>, wall: &Wall) -> Transport {
        let fault = match Transport::ALL.iter().find(|(name, _)| name == word.get_ref()) {
            None => {
                let words = Transport::ALL.map(|(name, _)| format!("{name:?}")).join(", ");
                ("there is no such transport", format!("write one of {words}"))
            }
            Some((_, transport)) if transport.is_memif() && wall.isolation == Isolation::Vm => {
                let remedy = "take transport out, or put the NF behind isolation = \"process\" or \"container\"";
                ("has no place in a VM, whose interfaces are virtio's", remedy.to_owned())
            }
            Some((_, Transport::Rings)) if wall.isolation != Isolation::Process => {
                let remedy = "write \"memif-zero-copy\", or put the NF behind isolation = \"process\"";
                ("is for processes: packets are shared by this program with itself", remedy.to_owned())
            }
            Some((_, transport)) => return *transport,
        };
        self.checker.fault(word.span(), word.get_ref(), fault.0, fault.1);
        Transport::default()
    }

    /// Ports that are opened behind walls.
    fn own(&mut self, file: &File, walls: &mut [Wall]) {
        for (port, word) in file.port.iter().filter_map(|(port, means)| Some((port.get_ref(), means.wall.as_ref()?))) {
            let (name, Some(at)) = (word.get_ref(), self.port_of(port)) else { continue };
            let device = &self.ports[at].device;
            let is_handed = device.pci().is_some() || device.virtual_function().is_some();
            let fault = match walls.iter_mut().find(|wall| wall.name == *name) {
                None if self.is_without(file, name) => {
                    self.ports[at].behind = None;
                    continue;
                }
                None => (
                    "no NF and no chain of this name is behind a wall",
                    "give one isolation = \"process\" or \"vm\", or take the key out",
                ),
                Some(_) if !is_handed => (
                    "can be handed a PCI device or a virtual function of one, and this port is neither",
                    "write device = \"sriov:INTERFACE\" or an address such as \"0000:01:00.0\", or take the key out",
                ),
                Some(wall) if wall.isolation == Isolation::Container => {
                    ("is a container, to which no device is handed", "write isolation = \"process\" or \"vm\"")
                }
                Some(wall) if wall.transport == Transport::Rings => {
                    ("has transport = \"rings\", which leaves no room for devices", "take the transport out")
                }
                Some(wall) => {
                    wall.own.push(port.clone());
                    continue;
                }
            };
            self.checker.fault(word.span(), name, fault.0, fault.1);
        }
        for wall in walls.iter().filter(|wall| wall.isolation == Isolation::Process && !wall.own.is_empty()) {
            let means = file.wall.iter().find(|(name, _)| *name.get_ref() == wall.name);
            let Some(memory) = means.and_then(|(_, means)| means.memory_mib.as_ref()) else { continue };
            if wall.memory_mib < LEAST_WITH_DEVICE_MIB {
                let (value, remedy) = (wall.memory_mib.to_string(), format!("write {LEAST_WITH_DEVICE_MIB} or more"));
                let problem = "is too little for DPDK to start in with a device";
                self.checker.fault(memory.span(), &value, problem, remedy);
            }
        }
    }

    /// The wall behind which an end of an edge or an element of a path is.
    fn side<'a>(&'a self, element: &str, behind: &'a Behind) -> Option<&'a String> {
        let name = nf_of(element);
        self.port_of(name)
            .map_or_else(|| behind.get(name).map(|(wall, _)| wall), |port| self.ports[port].behind.as_ref())
    }

    /// The ways of a chain through walls.
    fn path(&mut self, file: &File, n: usize, behind: &Behind, crossings: &mut Vec<(String, Way)>) {
        let path = &file.chain[n].get_ref().path.get_ref()[..];
        let is_port = |builder: &Self, element: &Spanned<String>| builder.port_of(element.get_ref()).is_some();
        let wall_of = |builder: &Self, element: &Spanned<String>| builder.side(element.get_ref(), behind).cloned();
        if let Some(first) = path.first().filter(|first| wall_of(self, first).is_some() && !is_port(self, first)) {
            let problem = "is behind a wall, and its packets go on before it";
            let remedy = "put what follows into the same chain, or lead the output to a port by an edge";
            self.checker.fault(first.span(), first.get_ref(), problem, remedy);
            return;
        }
        let mut at = 0;
        while at < path.len() {
            let Some(wall) = wall_of(self, &path[at]) else {
                at += 1;
                continue;
            };
            let is_behind = |element: &&Spanned<String>| wall_of(self, element).as_ref() == Some(&wall);
            let end = at + path[at..].iter().take_while(is_behind).count();
            let last = &path[end - 1];
            if end - at < path.len() && path[at..end].iter().all(|element| is_port(self, element)) {
                let problem =
                    format!("is opened behind wall {wall:?}, and what is beside it in this path is not there");
                let remedy = "put the NF beside it behind the same wall, or take wall out of the port";
                self.checker.fault(last.span(), last.get_ref(), problem, remedy);
            }
            let goes_on = |nf: &NfUse| !nf.outputs.is_empty() && !nf.has_interfaces();
            if end == path.len() && self.nfs.iter().any(|nf| nf.name == nf_of(last.get_ref()) && goes_on(nf)) {
                let problem = "is behind a wall, and another path begins with its output before it";
                let remedy = "take its isolation out, or put it into a file of its own, joined by vhost";
                self.checker.fault(last.span(), last.get_ref(), problem, remedy);
            }
            let chain = file.chain[n].get_ref();
            if let (true, Some(core)) = (end - at == path.len(), chain.cores.first()) {
                let remedy = format!("write cores into [wall.{wall}]");
                let problem = format!("all of this chain is behind wall {wall:?}, which has the CPUs");
                self.checker.fault(core.span(), &core.get_ref().to_string(), problem, remedy);
            }
            crossings.push((wall, Way::Path(n, at..end)));
            at = end;
        }
    }

    /// The ways of further outputs.
    fn outputs(&mut self, file: &File, behind: &Behind, crossings: &mut Vec<(String, Way)>) {
        for edge in &file.edge {
            let (from, to) = (edge.from.get_ref(), edge.to.get_ref());
            match (self.side(from, behind), self.side(to, behind)) {
                (from, to) if from == to => {}
                (Some(wall), None) if self.port_of(to).is_some() => lead_out(file, wall, from, to, crossings),
                (_, far) => {
                    let is_port = far.is_some() && self.port_of(to).is_some();
                    let remedy =
                        if is_port { BESIDE } else { "lead the output to a port, or put both NFs behind one wall" };
                    self.checker.fault(
                        edge.to.span(),
                        to,
                        "is on the other side of a wall than where the edge begins",
                        remedy,
                    );
                }
            }
        }
        let written = |name: &str| file.edge.iter().any(|edge| edge.from.get_ref() == name);
        for nf in &self.nfs {
            for (at, output) in nf.outputs.iter().enumerate().skip(1) {
                let from = format!("{}.{output}", nf.name);
                // the second of a name is a fault that building finds
                let is_first = !nf.outputs[..at].contains(output);
                if !is_first || self.port_of(output).is_none() || written(&from) {
                    continue;
                }
                match (self.side(&nf.name, behind), self.side(output, behind)) {
                    (from, to) if from == to => {}
                    (Some(wall), None) => lead_out(file, wall, &from, output, crossings),
                    (_, to) => {
                        let wall = to.cloned().unwrap_or_default();
                        let problem =
                            format!("is opened behind wall {wall:?}, and an output of {:?} leads to it", nf.name);
                        let means = file.port.iter().find(|(name, _)| *name.get_ref() == *output);
                        let span = means.and_then(|(_, means)| means.wall.as_ref()).map_or(0..0, Spanned::span);
                        self.checker.fault(span, output, problem, BESIDE);
                    }
                }
            }
        }
    }

    /// A name for a port through a wall that nobody else has.
    fn free_name(&self, wall: &str, walls: &[Wall], more: &[String]) -> String {
        let taken = |name: &String| {
            self.ports.iter().any(|p| p.name == *name)
                // an output would lead to a port that is called like it
                || self.nfs.iter().any(|nf| nf.name == *name || nf.outputs.contains(name))
                || walls.iter().any(|wall| wall.crossings.iter().any(|crossing| crossing.has(name)))
                || more.contains(name)
        };
        let of = |n: usize| {
            let number = format!("-{n}");
            format!("{}{number}", &wall[..wall.len().min(LONGEST - number.len())])
        };
        (1..).map(of).find(|name| !taken(name)).unwrap_or_default()
    }
}
