//! `[dut]`.

use super::{Checker, MOST_OF_A_KIND, sendable};
use crate::Sent;
use crate::dut::{ChainText, Elsewhere, Env, Forward, Hooks, Kind, Plan, Ports};
use crate::scenario::cells::{self, Dut};
use crate::scenario::file;
use crate::simulated::Simulated;
use config::ChainFile;
use diagnostics::Diagnostic;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::{Spanned, Value};

/// Ports of a list.
const MOST_PORTS: usize = 8;
/// Characters of an interface's name (IFNAMSIZ without its end).
const LONGEST_INTERFACE: usize = 15;
/// Characters of a host's name with a user's.
const LONGEST_HOST: usize = 255;

/// What sends where no chain file says what: the addresses of RFC 2544.
const BARE: &str = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                    chain = [{ path = [\"in\", \"out\"] }]\n";

impl Checker<'_> {
    /// Whether there are devices, and the names of several tell them apart.
    pub(super) fn names(&mut self, all: &[file::Dut]) -> bool {
        let faults = self.faults.len();
        if all.is_empty() || all.len() > MOST_OF_A_KIND {
            let problem = format!("{} devices are not 1 to {MOST_OF_A_KIND}", all.len());
            self.fault(0..0, "dut", problem, "write [dut], or [[dut]] for each of several");
        }
        let mut seen = BTreeSet::new();
        for device in all {
            match &device.name {
                Some(name) => {
                    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.+/ ".contains(&b);
                    let text = name.get_ref();
                    if text.is_empty() || text.len() > super::LONGEST || !text.bytes().all(plain) || !seen.insert(text)
                    {
                        let remedy = "write letters, digits, - and _, each name once";
                        self.fault(name.span(), text, "is no name, or that of another device too", remedy);
                    }
                }
                None if all.len() > 1 => {
                    let span = device.kind.as_ref().or(device.chain.as_ref()).map_or(0..0, Spanned::span);
                    self.fault(span, "[[dut]]", "one of several devices has no name", "write name = \"...\"");
                }
                None => {}
            }
        }
        self.faults.len() == faults
    }

    /// The device of a cell.
    pub(super) fn dut(
        &mut self,
        device: &file::Dut,
        folder: &Path,
        parameters: &BTreeMap<String, String>,
        sent: &Sent,
        used: &mut BTreeSet<String>,
    ) -> Option<Dut> {
        for need in &device.needs {
            let kind = self.put_in(need, parameters, used)?;
            if self.registry.get(&kind).is_none() {
                return Some(Dut::Absent(format!("no NF {kind:?} yet")));
            }
        }
        let chain = match &device.chain {
            None => None,
            Some(written) => {
                let name = self.put_in(written, parameters, used)?;
                let remedy = "name a chain file in the scenario's folder";
                let path = self.file_name(&name, written.span(), folder, remedy)?;
                match cells::chain_file(&path, parameters, used, self.registry) {
                    Ok(chain) => Some(chain),
                    Err(faults) => {
                        self.others.extend(faults);
                        return None;
                    }
                }
            }
        };
        if let Some(written) = &device.simulated {
            let text = self.put_in(written, parameters, used)?;
            if device.kind.is_some() || device.switch.is_some() || chain.is_some() {
                self.fault(written.span(), &text, "is a device beside another one", "leave chain and kind out");
                return None;
            }
            self.only_of_programs(device);
            return match text.parse::<Simulated>() {
                Ok(simulated) => Some(Dut::Simulated(Box::new((simulated, self.bare()?)))),
                Err(e) => {
                    self.fault(
                        written.span(),
                        &text,
                        e.to_string(),
                        "write simulated = \"capacity=3.3e6\", and what else it has",
                    );
                    None
                }
            };
        }
        let switch = match (&device.switch, &chain) {
            (None, _) => None,
            (Some(written), Some(chain)) => match self.switch(device, written, chain, parameters, used)? {
                Ok(kind) => Some(kind),
                Err(absent) => return Some(Dut::Absent(absent)),
            },
            (Some(written), None) => {
                self.fault(
                    written.span(),
                    written.get_ref(),
                    "is a switch without NFs",
                    "write chain = \"FILE\" as well",
                );
                return None;
            }
        };
        let Some(kind) = switch.as_ref().or(device.kind.as_ref()) else {
            let Some(chain) = chain else {
                let remedy = "write chain = \"FILE\", kind = \"...\" or simulated = \"...\"";
                self.fault(0..0, "[dut]", "says neither a chain nor a kind of device", remedy);
                return None;
            };
            self.only_of_programs(device);
            return self.sendable(&chain, sent).then(|| Dut::Chain(Box::new(chain)));
        };
        let plan = self.plan(device, kind, chain.as_ref(), parameters, used)?;
        if sent.is_both_ways() && plan.ports.count() < 2 {
            self.others.push(crate::wired::one_port(&plan.ports.to_string(), None));
            return None;
        }
        let file = match chain {
            Some(chain) => chain,
            None => self.bare()?,
        };
        self.sendable(&file, sent).then(|| Dut::Rig(Box::new((plan, file))))
    }

    /// The kind of device that is the switch of a chain whose NFs are behind walls; why not, where those of this cell are not.
    fn switch(
        &mut self,
        device: &file::Dut,
        written: &Spanned<String>,
        chain: &ChainFile,
        parameters: &BTreeMap<String, String>,
        used: &mut BTreeSet<String>,
    ) -> Option<Result<Spanned<String>, String>> {
        let file::Dut { kind, ports, env, ssh, inner, .. } = device;
        let beside = [kind, env, ssh].into_iter().flatten().map(Spanned::span);
        let first = beside.chain(ports.iter().map(Spanned::span)).chain(inner.iter().map(Spanned::span)).next();
        if let Some(span) = first {
            let text = self.written(span.clone());
            let remedy = "leave it out: switch and NFs are processes beside the generator, joined by vhost-user";
            self.fault(span, &text, "does not go with a switch", remedy);
            return None;
        }
        let (ports, generators) = (chain.ports.len(), Ports::VhostUser.count());
        if ports != generators {
            let problem = format!("has {ports} ports, and the generator {generators}");
            self.others.push(Diagnostic { file: Some(chain.file.clone()), ..Diagnostic::new(problem).key("port") });
            return None;
        }
        let text = self.put_in(written, parameters, used)?;
        let kind = match &*text {
            "bondstone" => Kind::Bondstone,
            "ovs-dpdk" => Kind::Ovs,
            "testpmd" => Kind::Testpmd,
            "vpp" => Kind::Vpp,
            _ => {
                let remedy = "write \"bondstone\", \"ovs-dpdk\", \"testpmd\" or \"vpp\"";
                self.fault(written.span(), &text, "is no switch", remedy);
                return None;
            }
        };
        if kind != Kind::Bondstone {
            if chain.walls.is_empty() {
                return Some(Err(format!("{text} runs no NFs: they have to be behind walls")));
            }
            let side = chain.switch(Path::new("/run"), &[], &BTreeMap::new(), self.registry);
            let side = side.map_err(|faults| self.others.extend(faults)).ok()?;
            if let Err(d) = chain.for_any_switch().and_then(|()| side.hops().map(drop)) {
                return Some(Err(format!("{text}: {} {}", d.value.unwrap_or_default(), d.problem)));
            }
        }
        Some(Ok(Spanned::new(written.span(), kind.name().to_owned())))
    }

    /// Finds fault with keys that say nothing of a device in this process.
    fn only_of_programs(&mut self, device: &file::Dut) {
        let file::Dut { ports, cpus, env, ssh, program, inner, forward, start, ready, stop, reset, change, .. } =
            device;
        let texts = [env, ssh, program, forward, start, ready, stop, reset, change].into_iter().flatten();
        let spans = texts.map(Spanned::span).chain([ports].into_iter().flatten().map(Spanned::span));
        let spans = spans.chain(cpus.iter().map(Spanned::span)).chain(inner.iter().map(Spanned::span));
        for span in spans.collect::<Vec<_>>() {
            let written = self.written(span.clone());
            let remedy = "remove it, or name a program: kind = \"bondstone\" runs the chain in a process of its own";
            self.fault(span, &written, "says nothing of a device in this process", remedy);
        }
    }

    fn bare(&self) -> Option<ChainFile> {
        ChainFile::parse(BARE, Path::new("[traffic]"), self.registry).ok()
    }

    fn sendable(&mut self, chain: &ChainFile, sent: &Sent) -> bool {
        let right = sendable(chain, sent);
        self.others.extend(right.as_ref().err().cloned());
        right.is_ok()
    }

    fn plan(
        &mut self,
        device: &file::Dut,
        written: &Spanned<String>,
        chain: Option<&ChainFile>,
        parameters: &BTreeMap<String, String>,
        used: &mut BTreeSet<String>,
    ) -> Option<Plan> {
        let text = self.put_in(written, parameters, used)?;
        let kind: Kind = match text.parse() {
            Ok(kind) => kind,
            Err(problem) => {
                let problem: String = problem;
                self.fault(
                    written.span(),
                    &text,
                    problem,
                    "write one of these, or leave kind out for a chain in this process",
                );
                return None;
            }
        };
        let is_switch = device.switch.is_some();
        if (kind == Kind::Bondstone) != chain.is_some() && !is_switch {
            let (problem, remedy) = match chain {
                None => ("needs a chain", "write chain = \"FILE\""),
                Some(_) => ("runs no chain of ours", "leave chain out"),
            };
            self.fault(written.span(), &text, problem, remedy);
            return None;
        }
        let ports = self.device_ports(device, kind, parameters, used)?;
        let forward = match &device.forward {
            // what its NFs do
            None if is_switch => Forward::Any,
            None => kind.forward(),
            Some(written) => {
                let text = self.put_in(written, parameters, used)?;
                match text.parse() {
                    Ok(forward) => forward,
                    Err(problem) => {
                        let problem: String = problem;
                        self.fault(written.span(), &text, problem, "write one of these");
                        return None;
                    }
                }
            }
        };
        let inner = self.inner(device, kind, &ports)?;
        let elsewhere = self.elsewhere(device, &inner, parameters, used)?;
        let env = self.env(device, kind, &ports, parameters, used)?;
        let cpus = device.cpus.as_ref().map(|c| c.get_ref().clone()).unwrap_or_default();
        if let Some(written) =
            device.cpus.as_ref().filter(|c| c.get_ref().is_empty() || c.get_ref().iter().any(|&n| n > 1023))
        {
            let text = self.written(written.span());
            self.fault(written.span(), &text, "are no CPUs", "write some, such as cpus = [0]");
        }
        let mut hook = |written: &Option<Spanned<String>>| match written {
            Some(written) if kind != Kind::Command => {
                self.fault(written.span(), written.get_ref(), "is for kind = \"command\" only", "leave it out");
                None
            }
            Some(written) => self.put_in(written, parameters, used),
            None => None,
        };
        let (start, ready, stop) = (hook(&device.start), hook(&device.ready), hook(&device.stop));
        let (reset, change) = (hook(&device.reset), hook(&device.change));
        if kind == Kind::Command && start.is_none() {
            self.fault(written.span(), &text, "has no command to start", "write start = \"...\"");
            return None;
        }
        let hooks = Hooks { start: start.unwrap_or_default(), ready, stop, reset, change };
        let chain = chain.map(ChainText::of);
        Some(Plan { kind, ports, cpus, env, forward, chain, hooks, inner, elsewhere })
    }

    /// The interfaces that it is given.
    fn inner(&mut self, device: &file::Dut, kind: Kind, ports: &Ports) -> Option<Vec<String>> {
        let Some(written) = &device.inner else { return Some(vec![]) };
        let all = written.get_ref();
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        let is_name = |name: &String| {
            (1..=LONGEST_INTERFACE).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(plain)
        };
        let wrong = if kind == Kind::External {
            Some(("is not for a device that somebody else runs", "leave it out"))
        } else if !matches!(ports, Ports::Devices(_)) {
            Some((
                "has no ports at the other end",
                "name the generator's: ports = [\"af_packet:eth2\", \"af_packet:eth3\"]",
            ))
        } else if all.len() < 2 || all.len() != ports.count() || !all.iter().all(is_name) {
            Some(("are not as many interfaces as ports, at least two", "write inner = [\"eth1\", \"eth2\"]"))
        } else {
            None
        };
        if let Some((problem, remedy)) = wrong {
            let text = self.written(written.span());
            self.fault(written.span(), &text, problem, remedy);
            return None;
        }
        Some(all.clone())
    }

    /// The machine that it runs on.
    fn elsewhere(
        &mut self,
        device: &file::Dut,
        inner: &[String],
        parameters: &BTreeMap<String, String>,
        used: &mut BTreeSet<String>,
    ) -> Option<Option<Elsewhere>> {
        let program = match &device.program {
            Some(written) if device.ssh.is_none() => {
                self.fault(
                    written.span(),
                    written.get_ref(),
                    "is for a device on another machine",
                    "write ssh = \"HOST\"",
                );
                return None;
            }
            Some(written) => self.put_in(written, parameters, used)?,
            None => "bondstone".to_owned(),
        };
        let Some(written) = &device.ssh else { return Some(None) };
        let host = self.put_in(written, parameters, used)?;
        // what begins with a dash would be an option of ssh's
        let is_host = !host.is_empty() && host.len() <= LONGEST_HOST && !host.starts_with('-');
        if !is_host || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            self.fault(written.span(), &host, "is no host", "write ssh = \"root@HOST\", as ssh takes it");
            return None;
        }
        if inner.is_empty() {
            let remedy =
                "name the ends of the cables: here ports = [\"af_packet:eth2\", ...], there inner = [\"eth1\", ...]";
            self.fault(written.span(), &host, "is joined to this machine by no interfaces", remedy);
            return None;
        }
        Some(Some(Elsewhere { host, program }))
    }

    /// What its programs run in.
    fn env(
        &mut self,
        device: &file::Dut,
        kind: Kind,
        ports: &Ports,
        parameters: &BTreeMap<String, String>,
        used: &mut BTreeSet<String>,
    ) -> Option<Env> {
        let Some(written) = &device.env else { return Some(Env::default()) };
        let text = self.put_in(written, parameters, used)?;
        let env = text.parse::<Env>().and_then(|env| match (env, kind.ports().first()) {
            (Env::Container, Some(Ports::VhostUser)) if *ports == Ports::VhostUser => Ok(env),
            (Env::Container, Some(Ports::VhostUser)) => {
                let problem = "does not go with these ports: a container has none of the kernel's";
                Err((problem, "say ports = \"vhost-user\", or env = \"native\""))
            }
            (Env::Container, _) => {
                let problem = "is for programs, and this kind of device has none that forwards";
                Err((problem, "say env = \"native\""))
            }
            (Env::Native, _) => Ok(env),
        });
        env.map_err(|(problem, remedy)| self.fault(written.span(), &text, problem, remedy)).ok()
    }

    fn device_ports(
        &mut self,
        device: &file::Dut,
        kind: Kind,
        parameters: &BTreeMap<String, String>,
        used: &mut BTreeSet<String>,
    ) -> Option<Ports> {
        let Some(written) = &device.ports else {
            let first = kind.ports().first().cloned();
            if first.is_none() {
                self.fault(0..0, kind.name(), "names no ports", "write ports = [\"0000:01:00.0\", \"0000:01:00.1\"]");
            }
            return first;
        };
        let span = written.span();
        if let Value::Array(all) = written.get_ref() {
            let all: Vec<String> = all.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect();
            let at_cables = kind == Kind::External || device.inner.is_some();
            if !at_cables || all.is_empty() || all.len() > MOST_PORTS {
                let text = self.written(span.clone());
                let remedy = format!("name up to {MOST_PORTS}, of kind = \"external\" or with the device's own as inner");
                self.fault(span, &text, "is no list of ports", remedy);
                return None;
            }
            for (n, device) in all.iter().enumerate() {
                if let Err((problem, remedy)) = config::Device::parse(device, &format!("generator{n}")) {
                    self.fault(span.clone(), device, problem, remedy);
                }
            }
            return Some(Ports::Devices(all));
        }
        let text = Spanned::new(span.clone(), written.get_ref().as_str().unwrap_or_default().to_owned());
        let text = self.put_in(&text, parameters, used)?;
        Ports::of(kind, &text).map_err(|problem| self.fault(span, &text, problem, "write one of these")).ok()
    }
}
