//! Assigns NFs to sandboxes and finds the crossings of their boundaries.

use super::checker::Checker;
use super::paths::Builder;
use crate::file::File;
use crate::plan::{NfConfig, Port};
use crate::sandbox::{Crossing, CrossingKind, Isolation, Sandbox, SpreadBy, Transport};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;

/// Default memory limit of a sandbox in MiB.
const DEFAULT_MEMORY_MIB: u64 = 1024;
/// Smallest memory limit in MiB: DPDK needs as much at its start.
const MIN_MEMORY_MIB: u64 = 640;
/// Smallest memory limit in MiB of a process with a passthrough device, for which DPDK needs more without huge pages.
const MIN_MEMORY_WITH_DEVICE_MIB: u64 = 900;
/// Remedy for an NF and a port on different sides.
const SAME_SANDBOX: &str = "put that NF in the same sandbox, or remove sandbox from the port";
/// Longest name of a port in bytes.
const MAX_NAME: usize = 32;

/// Name and isolation of the sandbox of each sandboxed NF.
type Members = BTreeMap<String, (String, Isolation)>;

/// Returns the NF of a path element or an end of an edge.
pub(super) fn nf_of(element: &str) -> &str {
    element.split([':', '.']).next().unwrap_or_default()
}

/// Adds an output that leaves a sandbox: to the crossing of a chain that ends at the interface of the same name, if
/// there is one; else as a separate crossing.
fn add_output(file: &File, sandbox: &str, from: &str, to: &str, crossings: &mut Vec<(String, CrossingKind)>) {
    let shared = crossings.iter_mut().find_map(|(of, kind)| {
        let CrossingKind::Path(n, run) = &*kind else { return None };
        let (n, run) = (*n, run.clone());
        let path = file.chain[n].get_ref().path.get_ref();
        let is_interface = |element: &Spanned<String>| {
            let (nf, input) = element.get_ref().split_once(':').unwrap_or((element.get_ref(), path[0].get_ref()));
            from.split_once('.') == Some((nf, input))
        };
        let stays = *of == *sandbox && run.start > 0 && run.end == path.len();
        (stays && path[run.clone()].iter().any(is_interface)).then_some((kind, n, run))
    });
    match shared {
        Some((kind, n, run)) => *kind = CrossingKind::Interface(n, run, from.to_owned(), to.to_owned()),
        None => crossings.push((sandbox.to_owned(), CrossingKind::Output(from.to_owned(), to.to_owned()))),
    }
}

/// Returns the number of ports of a crossing, on each side.
fn width(file: &File, sandboxes: &[Sandbox], name: &str, kind: &CrossingKind) -> usize {
    match kind {
        // packets that only leave need one port
        CrossingKind::Path(n, run) if run.start == 0 => {
            usize::from(run.end < file.chain[*n].get_ref().path.get_ref().len())
        }
        CrossingKind::Path(..) | CrossingKind::Interface(..) => {
            let sandbox = sandboxes.iter().find(|sandbox| sandbox.name == name);
            sandbox.map_or(1, |sandbox| sandbox.interfaces * sandbox.queues)
        }
        CrossingKind::Output(..) => 1,
    }
}

impl Checker<'_> {
    /// Parses the value of a key `isolation`.
    pub(super) fn isolation(&mut self, span: Range<usize>, name: &str) -> Option<Isolation> {
        let known = Isolation::ALL.iter().find(|(known, _)| *known == name);
        if known.is_none() {
            let names = Isolation::ALL.map(|(name, _)| format!("{name:?}")).join(", ");
            self.error(span, name, "unknown isolation", format!("write one of {names}"));
        }
        known.map(|(_, isolation)| *isolation)
    }
}

impl Builder<'_> {
    /// Returns the sandboxes of a file without errors in its paths, ports and NFs.
    pub(super) fn sandboxes(&mut self, file: &File) -> Vec<Sandbox> {
        let before = self.checker.errors.len();
        let chains: Vec<Option<Isolation>> =
            file.chain.iter().map(|chain| self.chain_isolation(chain.get_ref())).collect();
        if self.checker.incomplete || !self.checker.faulty.is_empty() || self.checker.errors.len() != before {
            return vec![];
        }
        let members = self.members(file, &chains);
        let mut sandboxes: Vec<Sandbox> = vec![];
        for (nf, (name, isolation)) in &members {
            match sandboxes.iter_mut().find(|sandbox| sandbox.name == *name) {
                Some(sandbox) => sandbox.nfs.push(nf.clone()),
                None => sandboxes.push(Sandbox {
                    name: name.clone(),
                    isolation: *isolation,
                    nfs: vec![nf.clone()],
                    cores: vec![],
                    cpu_errors: vec![],
                    memory_mib: DEFAULT_MEMORY_MIB,
                    idle: None,
                    transport: Transport::default(),
                    interfaces: 1,
                    queues: 1,
                    spread: SpreadBy::default(),
                    crossings: vec![],
                    passthrough: vec![],
                    generation: 0,
                }),
            }
        }
        self.apply_settings(file, &mut sandboxes);
        self.assign_passthrough(file, &mut sandboxes);
        let mut crossings = vec![];
        for n in 0..file.chain.len() {
            self.chain_crossings(file, n, &members, &mut crossings);
        }
        self.output_crossings(file, &members, &mut crossings);
        self.check_limits(file, &sandboxes, &crossings);
        for (name, kind) in crossings {
            let width = width(file, &sandboxes, &name, &kind);
            let mut ports: Vec<String> = vec![];
            // several ports need a name for the NF that distributes packets over them
            for _ in 0..if width > 1 { width + 1 } else { width } {
                ports.push(self.unused_name(&name, &sandboxes, &ports));
            }
            let spread = if width > 1 { ports.pop().unwrap_or_default() } else { String::new() };
            if let Some(sandbox) = sandboxes.iter_mut().find(|sandbox| sandbox.name == name) {
                sandbox.crossings.push(Crossing { ports, spread_nf: spread, kind });
            }
        }
        sandboxes
    }

    /// Checks the numbers of ports and interfaces.
    fn check_limits(&mut self, file: &File, sandboxes: &[Sandbox], crossings: &[(String, CrossingKind)]) {
        let uses_dpdk = |name: &String| {
            sandboxes.iter().any(|sandbox| sandbox.name == *name && sandbox.transport != Transport::Rings)
        };
        let over_dpdk = crossings.iter().filter(|(name, _)| uses_dpdk(name));
        let needed: usize = over_dpdk.map(|(name, kind)| width(file, sandboxes, name, kind)).sum();
        let others = self.ports.iter().filter(|port| port.is_of_dpdk()).count();
        if others + needed > Port::MAX_OF_DPDK {
            let most = Port::MAX_OF_DPDK;
            let problem = format!("the sandboxes need {needed} ports of DPDK, which has {most}, and {others} are used");
            self.checker.error(0..0, "isolation", problem, "put consecutive NFs in one sandbox");
        }
        for sandbox in sandboxes {
            let own = crossings.iter().filter(|(name, _)| *name == sandbox.name);
            let crossing_ports: usize = own.map(|(name, kind)| width(file, sandboxes, name, kind)).sum();
            let settings =
                file.sandbox.iter().find(|(name, _)| *name.get_ref() == sandbox.name).map(|(_, settings)| settings);
            if sandbox.transport == Transport::MemifZeroCopy && crossing_ports > 1 {
                let span = settings.and_then(|settings| settings.transport.as_ref()).map_or(0..0, Spanned::span);
                let problem = format!(
                    "sandbox {:?} has {crossing_ports} interfaces; DPDK shares memory through one",
                    sandbox.name
                );
                let remedy = "write \"memif\", or put each chain and each direction in a separate sandbox";
                self.checker.error(span, sandbox.transport.name(), problem, remedy);
            }
            // 0 of them is another error
            let requested = settings.and_then(|settings| settings.interfaces.as_ref().or(settings.queues.as_ref()));
            if let (0, Some(requested)) = (crossing_ports, requested.filter(|requested| *requested.get_ref() != 0)) {
                let problem = format!(
                    "no packet crosses the boundary of sandbox {:?}: all its ports are passed through",
                    sandbox.name
                );
                let value = requested.get_ref().to_string();
                self.checker.error(requested.span(), &value, problem, "remove the key");
            }
            let own = crossings.iter().filter(|(name, _)| *name == sandbox.name);
            let interfaces: usize =
                own.map(|(name, kind)| width(file, sandboxes, name, kind).div_ceil(sandbox.queues)).sum();
            let slots = interfaces + sandbox.passthrough.len();
            if sandbox.isolation == Isolation::Vm && slots > Sandbox::MAX_SLOTS {
                let problem = format!("its VM has {slots} interfaces; the maximum is {}", Sandbox::MAX_SLOTS);
                self.checker.error(
                    0..0,
                    &sandbox.name,
                    problem,
                    "put fewer chains in one VM, or use queues instead of interfaces",
                );
            }
        }
    }

    /// Returns the isolation of a chain.
    fn chain_isolation(&mut self, chain: &crate::file::Chain) -> Option<Isolation> {
        let name = chain.isolation.as_ref()?;
        self.checker.isolation(name.span(), name.get_ref())
    }

    /// Returns the sandbox of each sandboxed NF. Chains that share an NF share the sandbox.
    fn members(&mut self, file: &File, chains: &[Option<Isolation>]) -> Members {
        let sandboxed = |isolation: Option<Isolation>| isolation.filter(|isolation| isolation.is_sandbox());
        let own = self.nfs.iter().filter_map(|nf| Some((nf.name.clone(), (nf.name.clone(), sandboxed(nf.isolation)?))));
        let mut members: Members = own.collect();
        for (n, chain) in file.chain.iter().enumerate() {
            let Some(isolation) = sandboxed(chains[n]) else { continue };
            let named = chain.get_ref().name.as_ref().map(|name| name.get_ref().clone());
            let mut name = named.unwrap_or_else(|| format!("chain{}", n + 1));
            // the sandbox of an NF may have that name
            while self.nfs.iter().any(|nf| nf.name == name && sandboxed(nf.isolation).is_some()) {
                name.push('-');
            }
            let path = chain.get_ref().path.get_ref();
            let all = path.iter().map(|element| nf_of(element.get_ref()));
            let all: Vec<_> =
                all.filter(|e| self.nfs.iter().any(|nf| nf.name == *e && nf.isolation.is_none())).collect();
            let joined: Vec<_> = all.iter().filter_map(|nf| members.get(*nf).cloned()).collect();
            if let Some((other, _)) = joined.iter().find(|(_, kind)| *kind != isolation) {
                let remedy = format!("give both the same isolation, or separate NFs ({other:?} is the other sandbox)");
                let problem = "shares an NF with a chain that has another isolation";
                self.checker.error(chain.span(), isolation.name(), problem, remedy);
            }
            let name = joined.first().map_or(name, |(name, _)| name.clone());
            let shared = |sandbox: &&mut (String, Isolation)| joined.contains(sandbox);
            members.values_mut().filter(shared).for_each(|(sandbox, _)| sandbox.clone_from(&name));
            members.extend(all.into_iter().map(|nf| (nf.to_owned(), (name.clone(), isolation))));
        }
        for (n, chain) in file.chain.iter().enumerate().filter(|(n, _)| sandboxed(chains[*n]).is_none()) {
            for element in chain.get_ref().path.get_ref() {
                let nf = nf_of(element.get_ref());
                let own = self.nfs.iter().any(|of| of.name == nf && of.isolation.is_some());
                let Some((_, isolation)) = members.get(nf).filter(|_| !own && self.port_of(nf).is_none()) else {
                    continue;
                };
                let problem = "is in a sandboxed chain and in this one, which is not sandboxed";
                let name = isolation.name();
                let remedy = format!("give chain {} isolation = {name:?}, or set the isolation of the NF", n + 1);
                self.checker.error(element.span(), nf, problem, remedy);
            }
        }
        members
    }

    fn port_of(&self, name: &str) -> Option<usize> {
        self.ports.iter().position(|p| p.name == name)
    }

    /// Applies the tables `[sandbox.NAME]`.
    fn apply_settings(&mut self, file: &File, sandboxes: &mut [Sandbox]) {
        let names: Vec<String> = sandboxes.iter().map(|sandbox| sandbox.name.clone()).collect();
        for (name, settings) in &file.sandbox {
            let Some(sandbox) = sandboxes.iter_mut().find(|sandbox| sandbox.name == *name.get_ref()) else {
                // isolation = "inproc" disables a sandbox without changing its table
                if self.is_disabled(file, name.get_ref()) {
                    continue;
                }
                let remedy = match names.is_empty() {
                    true => "add isolation = \"process\" to an NF or a chain".to_owned(),
                    false => format!("the sandboxes are: {}", names.join(", ")),
                };
                self.checker.error(name.span(), name.get_ref(), "no NF or chain of this name is in a sandbox", remedy);
                continue;
            };
            sandbox.cores = settings.cores.iter().map(|core| *core.get_ref()).collect();
            sandbox.cpu_errors = self.checker.cpu_errors(&settings.cores);
            sandbox.idle = settings.idle;
            sandbox.spread = settings.spread;
            if let Some(name) = &settings.transport {
                sandbox.transport = self.transport(name, sandbox);
            }
            self.apply_widths(settings, sandbox);
            if let Some(memory) = &settings.memory_mib {
                sandbox.memory_mib = *memory.get_ref();
                if sandbox.memory_mib < MIN_MEMORY_MIB {
                    let (value, remedy) = (sandbox.memory_mib.to_string(), format!("write {MIN_MEMORY_MIB} or more"));
                    self.checker.error(memory.span(), &value, "is less memory than DPDK needs", remedy);
                }
            }
        }
    }

    /// Sets the numbers of interfaces and queues of a sandbox; invalid ones stay 1.
    fn apply_widths(&mut self, settings: &crate::file::Sandbox, sandbox: &mut Sandbox) {
        if let Some(interfaces) = &settings.interfaces {
            let requested = *interfaces.get_ref();
            if (1..=Sandbox::MAX_INTERFACES).contains(&requested) {
                sandbox.interfaces = requested;
            } else {
                let (problem, remedy) =
                    ("is not a valid number of interfaces", format!("write 1 to {}", Sandbox::MAX_INTERFACES));
                self.checker.error(interfaces.span(), &requested.to_string(), problem, remedy);
            }
        }
        let Some(queues) = &settings.queues else { return };
        let requested = *queues.get_ref();
        let (problem, remedy) = if !(1..=Sandbox::MAX_QUEUES).contains(&requested) {
            ("is not a valid number of queues".to_owned(), format!("write 1 to {}", Sandbox::MAX_QUEUES))
        } else if requested > 1 && sandbox.transport != Transport::Vhost {
            let problem = format!("requires transport = \"vhost\", and the sandbox has {:?}", sandbox.transport.name());
            (problem, "write interfaces, or remove the transport".to_owned())
        } else if sandbox.interfaces * requested > Sandbox::MAX_SPREAD_PORTS {
            let (all, most) = (sandbox.interfaces * requested, Sandbox::MAX_SPREAD_PORTS);
            let problem = format!("gives each chain {all} queues; the maximum is {most}");
            (problem, "use fewer queues or interfaces".to_owned())
        } else {
            sandbox.queues = requested;
            return;
        };
        self.checker.error(queues.span(), &requested.to_string(), problem, remedy);
    }

    /// Returns true if an NF or a chain of this name has `isolation = "inproc"`.
    fn is_disabled(&self, file: &File, name: &str) -> bool {
        let is_chain = |chain: &crate::file::Chain| chain.name.as_ref().is_some_and(|own| own.get_ref() == name);
        let isolation = |chain: &crate::file::Chain| chain.isolation.as_ref().map(|name| name.get_ref().clone());
        let chains = file.chain.iter().map(Spanned::get_ref).filter(|chain| is_chain(chain));
        self.nfs.iter().any(|nf| nf.name == name && nf.isolation == Some(Isolation::Inproc))
            || chains.filter_map(isolation).any(|name| name == Isolation::Inproc.name())
    }

    /// Parses a transport and checks that the sandbox supports it.
    fn transport(&mut self, written: &Spanned<String>, sandbox: &Sandbox) -> Transport {
        let (problem, remedy) = match Transport::ALL.iter().find(|(name, _)| name == written.get_ref()) {
            None => {
                let names = Transport::ALL.map(|(name, _)| format!("{name:?}")).join(", ");
                ("unknown transport", format!("write one of {names}"))
            }
            Some((_, transport)) if transport.is_memif() && sandbox.isolation == Isolation::Vm => {
                let remedy = "remove transport, or set isolation to \"process\" or \"container\"";
                ("is not supported by VMs, whose interfaces are virtio", remedy.to_owned())
            }
            Some((_, Transport::Rings)) if sandbox.isolation != Isolation::Process => {
                let remedy = "write \"memif-zero-copy\", or set isolation to \"process\"";
                ("requires isolation = \"process\": both sides must run the same program", remedy.to_owned())
            }
            Some((_, transport)) => return *transport,
        };
        self.checker.error(written.span(), written.get_ref(), problem, remedy);
        Transport::default()
    }

    /// Assigns ports with a key `sandbox` to their sandboxes.
    fn assign_passthrough(&mut self, file: &File, sandboxes: &mut [Sandbox]) {
        for (port, written) in
            file.port.iter().filter_map(|(port, settings)| Some((port.get_ref(), settings.sandbox.as_ref()?)))
        {
            let (name, Some(at)) = (written.get_ref(), self.port_of(port)) else { continue };
            let device = &self.ports[at].device;
            let is_pci = device.pci_address().is_some() || device.virtual_function().is_some();
            let (problem, remedy) = match sandboxes.iter_mut().find(|sandbox| sandbox.name == *name) {
                None if self.is_disabled(file, name) => {
                    self.ports[at].sandbox = None;
                    continue;
                }
                None => (
                    "no NF or chain of this name is in a sandbox",
                    "give one isolation = \"process\" or \"vm\", or remove the key",
                ),
                Some(_) if !is_pci => (
                    "supports passthrough of PCI devices and virtual functions, and this port is neither",
                    "write device = \"sriov:INTERFACE\" or an address such as \"0000:01:00.0\", or remove the key",
                ),
                Some(sandbox) if sandbox.isolation == Isolation::Container => {
                    ("is a container, which does not support passthrough", "write isolation = \"process\" or \"vm\"")
                }
                Some(sandbox) if sandbox.transport == Transport::Rings => {
                    ("has transport = \"rings\", which does not support passthrough", "remove the transport")
                }
                Some(sandbox) => {
                    sandbox.passthrough.push(port.clone());
                    continue;
                }
            };
            self.checker.error(written.span(), name, problem, remedy);
        }
        for sandbox in sandboxes
            .iter()
            .filter(|sandbox| sandbox.isolation == Isolation::Process && !sandbox.passthrough.is_empty())
        {
            let settings = file.sandbox.iter().find(|(name, _)| *name.get_ref() == sandbox.name);
            let Some(memory) = settings.and_then(|(_, settings)| settings.memory_mib.as_ref()) else { continue };
            if sandbox.memory_mib < MIN_MEMORY_WITH_DEVICE_MIB {
                let (value, remedy) =
                    (sandbox.memory_mib.to_string(), format!("write {MIN_MEMORY_WITH_DEVICE_MIB} or more"));
                let problem = "is less memory than DPDK needs for a passthrough device";
                self.checker.error(memory.span(), &value, problem, remedy);
            }
        }
    }

    /// Returns the sandbox that contains an end of an edge or an element of a path.
    fn sandbox_of<'a>(&'a self, element: &str, members: &'a Members) -> Option<&'a String> {
        let name = nf_of(element);
        self.port_of(name)
            .map_or_else(|| members.get(name).map(|(sandbox, _)| sandbox), |port| self.ports[port].sandbox.as_ref())
    }

    /// Finds the crossings of chain `n`.
    fn chain_crossings(
        &mut self,
        file: &File,
        n: usize,
        members: &Members,
        crossings: &mut Vec<(String, CrossingKind)>,
    ) {
        let path = &file.chain[n].get_ref().path.get_ref()[..];
        let is_port = |builder: &Self, element: &Spanned<String>| builder.port_of(element.get_ref()).is_some();
        let sandbox_of =
            |builder: &Self, element: &Spanned<String>| builder.sandbox_of(element.get_ref(), members).cloned();
        if let Some(first) = path.first().filter(|first| sandbox_of(self, first).is_some() && !is_port(self, first)) {
            let problem = "is in a sandbox, and its packets continue in a chain outside it";
            let remedy = "put the rest in the same chain, or lead the output to a port by an edge";
            self.checker.error(first.span(), first.get_ref(), problem, remedy);
            return;
        }
        let mut at = 0;
        while at < path.len() {
            let Some(sandbox) = sandbox_of(self, &path[at]) else {
                at += 1;
                continue;
            };
            let is_inside = |element: &&Spanned<String>| sandbox_of(self, element).as_ref() == Some(&sandbox);
            let end = at + path[at..].iter().take_while(is_inside).count();
            let last = &path[end - 1];
            if end - at < path.len() && path[at..end].iter().all(|element| is_port(self, element)) {
                let problem = format!(
                    "is passed through to sandbox {sandbox:?}, which contains no element beside it in this path"
                );
                let remedy = "put that NF in the same sandbox, or remove sandbox from the port";
                self.checker.error(last.span(), last.get_ref(), problem, remedy);
            }
            let continues = |nf: &NfConfig| !nf.outputs.is_empty() && !nf.has_interfaces();
            if end == path.len() && self.nfs.iter().any(|nf| nf.name == nf_of(last.get_ref()) && continues(nf)) {
                let problem = "is in a sandbox, and another path outside it begins with its output";
                let remedy = "remove its isolation, or put it in a separate file, connected by vhost";
                self.checker.error(last.span(), last.get_ref(), problem, remedy);
            }
            let chain = file.chain[n].get_ref();
            if let (true, Some(core)) = (end - at == path.len(), chain.cores.first()) {
                let remedy = format!("write cores in [sandbox.{sandbox}]");
                let problem = format!("all of this chain is in sandbox {sandbox:?}, which has its own cores");
                self.checker.error(core.span(), &core.get_ref().to_string(), problem, remedy);
            }
            crossings.push((sandbox, CrossingKind::Path(n, at..end)));
            at = end;
        }
    }

    /// Finds the crossings of outputs that the paths do not follow.
    fn output_crossings(&mut self, file: &File, members: &Members, crossings: &mut Vec<(String, CrossingKind)>) {
        for edge in &file.edge {
            let (from, to) = (edge.from.get_ref(), edge.to.get_ref());
            match (self.sandbox_of(from, members), self.sandbox_of(to, members)) {
                (from, to) if from == to => {}
                (Some(sandbox), None) if self.port_of(to).is_some() => add_output(file, sandbox, from, to, crossings),
                (_, far) => {
                    let is_port = far.is_some() && self.port_of(to).is_some();
                    let remedy = if is_port {
                        SAME_SANDBOX
                    } else {
                        "lead the output to a port, or put both NFs in one sandbox"
                    };
                    self.checker.error(
                        edge.to.span(),
                        to,
                        "is on the other side of a sandbox boundary than the start of the edge",
                        remedy,
                    );
                }
            }
        }
        let written = |name: &str| file.edge.iter().any(|edge| edge.from.get_ref() == name);
        for nf in &self.nfs {
            for (at, output) in nf.outputs.iter().enumerate().skip(1) {
                let from = format!("{}.{output}", nf.name);
                // building rejects duplicate names
                let is_first = !nf.outputs[..at].contains(output);
                if !is_first || self.port_of(output).is_none() || written(&from) {
                    continue;
                }
                match (self.sandbox_of(&nf.name, members), self.sandbox_of(output, members)) {
                    (from, to) if from == to => {}
                    (Some(sandbox), None) => add_output(file, sandbox, &from, output, crossings),
                    (_, to) => {
                        let sandbox = to.cloned().unwrap_or_default();
                        let problem = format!(
                            "is passed through to sandbox {sandbox:?}, and an output of {:?} leads to it",
                            nf.name
                        );
                        let settings = file.port.iter().find(|(name, _)| *name.get_ref() == *output);
                        let span =
                            settings.and_then(|(_, settings)| settings.sandbox.as_ref()).map_or(0..0, Spanned::span);
                        self.checker.error(span, output, problem, SAME_SANDBOX);
                    }
                }
            }
        }
    }

    /// Returns an unused name for a crossing port.
    fn unused_name(&self, sandbox: &str, sandboxes: &[Sandbox], more: &[String]) -> String {
        let taken = |name: &String| {
            self.ports.iter().any(|p| p.name == *name)
                // an output of the same name would lead to the port
                || self.nfs.iter().any(|nf| nf.name == *name || nf.outputs.contains(name))
                || sandboxes.iter().any(|sandbox| sandbox.crossings.iter().any(|crossing| crossing.uses_name(name)))
                || more.contains(name)
        };
        let of = |n: usize| {
            let number = format!("-{n}");
            format!("{}{number}", &sandbox[..sandbox.len().min(MAX_NAME - number.len())])
        };
        (1..).map(of).find(|name| !taken(name)).unwrap_or_default()
    }
}
