//! `[dut]`.

use super::{Checker, MAX_ITEMS, check_traffic};
use crate::dut::{ChainText, CustomCommands, Driver, DutSpec, Env, Forward, Ports, registry};
use crate::scenario::cells::{self, CellDut};
use crate::scenario::file;
use crate::simulated::Simulated;
use crate::traffic_spec::TrafficSpec;
use config::ChainFile;
use diagnostics::Diagnostic;
use remote::RemoteHost;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::{Spanned, Value};

/// Largest number of listed ports.
const MAX_PORTS: usize = 8;
/// Longest name of an interface, bytes (IFNAMSIZ without the terminator).
const MAX_INTERFACE_BYTES: usize = 15;
/// Largest CPU number.
const MAX_CPU: usize = 1023;

/// Chain file for devices without one: its `[traffic]` has the addresses of RFC 2544.
const DEFAULT_CHAIN: &str = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                             chain = [{ path = [\"in\", \"out\"] }]\n";

/// Values of the parameters of a cell.
type Parameters = BTreeMap<String, String>;
/// Names of the parameters that are used.
type Used = BTreeSet<String>;

impl Checker<'_> {
    /// Checks that there are devices, and that several have distinct names. Returns false after an error.
    pub(super) fn dut_names(&mut self, all: &[file::Dut]) -> bool {
        let errors = self.errors.len();
        if all.is_empty() || all.len() > MAX_ITEMS {
            let problem = format!("invalid number of devices: {}", all.len());
            self.error(0..0, "dut", problem, format!("write [dut], or 1 to {MAX_ITEMS} tables [[dut]]"));
        }
        let mut names = BTreeSet::new();
        for device in all {
            match &device.name {
                Some(name) => {
                    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"_-.+/ ".contains(&b);
                    let text = name.get_ref();
                    let is_valid = (1..=super::MAX_VALUE_BYTES).contains(&text.len()) && text.bytes().all(is_allowed);
                    if !is_valid || !names.insert(text) {
                        let remedy = "use letters, digits, - and _; each name once";
                        self.error(name.span(), text, "invalid or duplicate name of a device", remedy);
                    }
                }
                None if all.len() > 1 => {
                    let span = device.kind.as_ref().or(device.chain.as_ref()).map_or(0..0, Spanned::span);
                    self.error(span, "[[dut]]", "one of several devices has no name", "add name = \"...\"");
                }
                None => {}
            }
        }
        self.errors.len() == errors
    }

    /// Returns the device of a cell.
    pub(super) fn dut(
        &mut self,
        device: &file::Dut,
        folder: &Path,
        parameters: &Parameters,
        traffic: &TrafficSpec,
        used: &mut Used,
    ) -> Option<CellDut> {
        let mut parameters = parameters.clone();
        parameters.extend(device.values.clone());
        let parameters = &parameters;
        for need in &device.needs {
            let kind = self.substitute(need, parameters, used)?;
            if self.registry.get(&kind).is_none() {
                return Some(CellDut::Unavailable(format!("no NF of kind {kind:?}")));
            }
        }
        let chain = match &device.chain {
            None => None,
            Some(written) => {
                let name = self.substitute(written, parameters, used)?;
                let remedy = "name a chain file in the directory of the scenario";
                let path = self.file_name(&name, written.span(), folder, remedy)?;
                match cells::chain_file(&path, parameters, used, self.registry) {
                    Ok(chain) => Some(chain),
                    Err(errors) => {
                        self.errors_elsewhere.extend(errors);
                        return None;
                    }
                }
            }
        };
        if let Some(written) = &device.simulated {
            let text = self.substitute(written, parameters, used)?;
            if device.kind.is_some() || device.switch.is_some() || chain.is_some() {
                self.error(written.span(), &text, "cannot be combined with chain, kind or switch", "remove those");
                return None;
            }
            self.reject_external_keys(device);
            return match text.parse::<Simulated>() {
                Ok(simulated) => Some(CellDut::Simulated(Box::new((simulated, self.default_chain()?)))),
                Err(e) => {
                    let remedy = "write simulated = \"capacity=3.3e6\" and further properties";
                    self.error(written.span(), &text, e.to_string(), remedy);
                    None
                }
            };
        }
        let driver = match (&device.switch, &chain) {
            (Some(written), Some(chain)) => match self.switch(device, written, chain, parameters, used)? {
                Ok(driver) => driver,
                Err(reason) => return Some(CellDut::Unavailable(reason)),
            },
            (Some(written), None) => {
                self.error(written.span(), written.get_ref(), "needs a chain", "add chain = \"FILE\"");
                return None;
            }
            (None, _) => match (&device.kind, chain) {
                (Some(written), chain) => {
                    let driver = self.driver(written, parameters, used)?;
                    return self.external(device, driver, chain, parameters, traffic, used);
                }
                (None, Some(chain)) => {
                    self.reject_external_keys(device);
                    self.check_hosts(device, None, Some(&chain))?;
                    return self.check_traffic(&chain, traffic).then(|| CellDut::InProcess(Box::new(chain)));
                }
                (None, None) => {
                    let remedy = "add chain = \"FILE\", kind = \"...\" or simulated = \"...\"";
                    self.error(0..0, "[dut]", "names no device", remedy);
                    return None;
                }
            },
        };
        self.external(device, driver, chain, parameters, traffic, used)
    }

    /// Returns an external device of a driver.
    fn external(
        &mut self,
        device: &file::Dut,
        driver: &'static dyn Driver,
        chain: Option<ChainFile>,
        parameters: &Parameters,
        traffic: &TrafficSpec,
        used: &mut Used,
    ) -> Option<CellDut> {
        self.check_hosts(device, Some(driver), chain.as_ref())?;
        let spec = self.spec(device, driver, chain.as_ref(), parameters, used)?;
        if traffic.is_bidirectional() && spec.ports.count() < 2 {
            self.errors_elsewhere.push(crate::dut::single_port_error(&spec.ports.to_string(), None));
            return None;
        }
        let file = match chain {
            Some(chain) => chain,
            None => self.default_chain()?,
        };
        self.check_traffic(&file, traffic).then(|| CellDut::External(Box::new((spec, file))))
    }

    /// Checks that a chain that describes several hosts, and no other, has the driver for that.
    fn check_hosts(
        &mut self,
        device: &file::Dut,
        driver: Option<&dyn Driver>,
        chain: Option<&ChainFile>,
    ) -> Option<()> {
        let runs_hosts = driver.is_some_and(|driver| driver.runs_hosts());
        let chain = chain.filter(|chain| chain.host.is_some() != runs_hosts);
        let (Some(_), Some(written)) = (chain, &device.chain) else { return Some(()) };
        let (problem, remedy) = match runs_hosts {
            true => ("describes no hosts", "add [host.NAME], or set kind = \"bondstone\""),
            false => ("describes several hosts", "set kind = \"hosts\" and the ports of the generator"),
        };
        self.error(written.span(), written.get_ref(), problem, remedy);
        None
    }

    /// Returns the driver of `kind`.
    fn driver(
        &mut self,
        written: &Spanned<String>,
        parameters: &Parameters,
        used: &mut Used,
    ) -> Option<&'static dyn Driver> {
        let text = self.substitute(written, parameters, used)?;
        let driver = registry::driver(&text);
        if driver.is_none() {
            let known: Vec<_> = registry::DRIVERS.iter().map(|driver| driver.name()).collect();
            let remedy = format!("use {}; or remove kind for a chain in this process", known.join(", "));
            self.error(written.span(), &text, "unknown kind of device", remedy);
        }
        driver
    }

    /// Returns the driver of `switch`, the external switch of a chain with sandboxes; the inner error is the reason why
    /// it cannot connect this chain.
    fn switch(
        &mut self,
        device: &file::Dut,
        written: &Spanned<String>,
        chain: &ChainFile,
        parameters: &Parameters,
        used: &mut Used,
    ) -> Option<Result<&'static dyn Driver, String>> {
        let file::Dut { kind, ports, env, ssh, interfaces, .. } = device;
        let spans = [kind, env, ssh].into_iter().flatten().map(Spanned::span);
        let spans = spans.chain(ports.iter().map(Spanned::span)).chain(interfaces.iter().map(Spanned::span));
        if let Some(span) = { spans }.next() {
            let text = self.source_text(span.clone());
            let remedy = "remove it: switch and NFs are processes on this host, connected by vhost-user";
            self.error(span, &text, "cannot be combined with switch", remedy);
            return None;
        }
        let (ports, generator_ports) = (chain.ports.len(), Ports::VhostUser.count());
        if ports != generator_ports {
            let problem = format!("has {ports} ports, the generator has {generator_ports}");
            let d = Diagnostic::new(problem).key("port");
            self.errors_elsewhere.push(Diagnostic { file: Some(chain.file.clone()), ..d });
            return None;
        }
        let text = self.substitute(written, parameters, used)?;
        let Some(driver) = registry::driver(&text).filter(|driver| driver.is_switch()) else {
            let switches = registry::DRIVERS.iter().filter(|driver| driver.is_switch());
            let known: Vec<_> = switches.map(|driver| driver.name()).collect();
            self.error(written.span(), &text, "unknown switch", format!("use {}", known.join(", ")));
            return None;
        };
        // Bondstone runs NFs outside of sandboxes as well
        if !driver.runs_chain() {
            if chain.sandboxes.is_empty() {
                return Some(Err(format!("{text} runs no NFs, and the chain has none in sandboxes")));
            }
            let host_side = chain.host_side(Path::new("/run"), &[], &BTreeMap::new(), self.registry);
            let host_side = host_side.map_err(|errors| self.errors_elsewhere.extend(errors)).ok()?;
            if let Err(d) = chain.check_external_switch().and_then(|()| host_side.port_pairs().map(drop)) {
                return Some(Err(format!("{text}: {} {}", d.value.unwrap_or_default(), d.problem)));
            }
        }
        Some(Ok(driver))
    }

    /// Reports keys that apply to external devices only.
    fn reject_external_keys(&mut self, device: &file::Dut) {
        let file::Dut {
            ports, cpus, env, ssh, program, interfaces, forward, start, ready, stop, reset, change, ..
        } = device;
        let texts = [env, ssh, program, forward, start, ready, stop, reset, change].into_iter().flatten();
        let spans = texts.map(Spanned::span).chain(ports.iter().map(Spanned::span));
        let spans = spans.chain(cpus.iter().map(Spanned::span)).chain(interfaces.iter().map(Spanned::span));
        for span in spans.collect::<Vec<_>>() {
            let text = self.source_text(span.clone());
            let remedy =
                "remove it, or use an external device: kind = \"bondstone\" runs the chain in a process of its own";
            self.error(span, &text, "applies to external devices only", remedy);
        }
    }

    fn default_chain(&self) -> Option<ChainFile> {
        ChainFile::parse(DEFAULT_CHAIN, Path::new("[traffic]"), self.registry).ok()
    }

    fn check_traffic(&mut self, chain: &ChainFile, traffic: &TrafficSpec) -> bool {
        if self.invalid.traffic {
            return true;
        }
        let result = check_traffic(chain, traffic);
        self.errors_elsewhere.extend(result.as_ref().err().cloned());
        result.is_ok()
    }

    /// Returns the checked spec of an external device.
    fn spec(
        &mut self,
        device: &file::Dut,
        driver: &'static dyn Driver,
        chain: Option<&ChainFile>,
        parameters: &Parameters,
        used: &mut Used,
    ) -> Option<DutSpec> {
        let name = driver.name();
        let kind_span = device.kind.as_ref().or(device.switch.as_ref()).map_or(0..0, Spanned::span);
        let is_switch = device.switch.is_some();
        let ports = self.ports(device, driver, parameters, used)?;
        let forward = match &device.forward {
            None if is_switch => Forward::Any,
            None => driver.default_forward(),
            Some(written) => {
                let text = self.substitute(written, parameters, used)?;
                match text.parse() {
                    Ok(forward) => forward,
                    Err(problem) => {
                        let problem: String = problem;
                        self.error(written.span(), &text, problem, "write one of these");
                        return None;
                    }
                }
            }
        };
        let needs_chain = driver.runs_chain() || driver.forwards_as_router() && forward == Forward::Route;
        if needs_chain != chain.is_some() && !is_switch {
            let (problem, remedy) = match chain {
                None => ("needs a chain", "add chain = \"FILE\""),
                Some(_) => ("does not run chains", "remove chain"),
            };
            self.error(kind_span, name, problem, remedy);
            return None;
        }
        let interfaces = self.interfaces(device, driver, &ports)?;
        let remote = self.remote_host(device, &interfaces, parameters, used)?;
        let env = self.env(device, driver, &ports, parameters, used)?;
        let cpus = device.cpus.as_ref().map(|c| c.get_ref().clone()).unwrap_or_default();
        let is_invalid = |c: &Spanned<Vec<usize>>| c.get_ref().is_empty() || c.get_ref().iter().any(|&n| n > MAX_CPU);
        if let Some(written) = device.cpus.as_ref().filter(|c| is_invalid(c)) {
            let text = self.source_text(written.span());
            self.error(written.span(), &text, "invalid list of CPUs", "write some, such as cpus = [0]");
        }
        let mut command = |written: &Option<Spanned<String>>| match written {
            Some(written) if !driver.takes_commands() => {
                let problem = "applies to kind = \"command\" only";
                self.error(written.span(), written.get_ref(), problem, "remove it");
                None
            }
            Some(written) => self.substitute(written, parameters, used),
            None => None,
        };
        let (start, ready, stop) = (command(&device.start), command(&device.ready), command(&device.stop));
        let (reset, change) = (command(&device.reset), command(&device.change));
        if driver.takes_commands() && start.is_none() {
            self.error(kind_span, name, "needs a start command", "add start = \"...\"");
            return None;
        }
        Some(DutSpec {
            kind: name.to_owned(),
            ports,
            cpus,
            env,
            forward,
            chain: chain.map(ChainText::of),
            commands: CustomCommands { start: start.unwrap_or_default(), ready, stop, reset, change },
            interfaces,
            remote,
        })
    }

    /// Returns the existing interfaces that the device uses.
    fn interfaces(&mut self, device: &file::Dut, driver: &'static dyn Driver, ports: &Ports) -> Option<Vec<String>> {
        let Some(written) = &device.interfaces else { return Some(vec![]) };
        let all = written.get_ref();
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        let is_name = |name: &String| {
            (1..=MAX_INTERFACE_BYTES).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(is_allowed)
        };
        let error = if driver.is_external() {
            Some(("cannot be set for an external device", "remove it"))
        } else if !matches!(ports, Ports::Devices(_)) {
            let remedy = "list the generator's ports: ports = [\"af_packet:eth2\", \"af_packet:eth3\"]";
            Some(("needs a list of ports at the other ends", remedy))
        } else if all.len() < 2 || all.len() != ports.count() || !all.iter().all(is_name) {
            let problem = "must be as many interfaces as ports, at least two";
            Some((problem, "write interfaces = [\"eth1\", \"eth2\"]"))
        } else {
            None
        };
        if let Some((problem, remedy)) = error {
            let text = self.source_text(written.span());
            self.error(written.span(), &text, problem, remedy);
            return None;
        }
        Some(all.clone())
    }

    /// Returns the host that the device runs on; `Some(None)` for this host.
    fn remote_host(
        &mut self,
        device: &file::Dut,
        interfaces: &[String],
        parameters: &Parameters,
        used: &mut Used,
    ) -> Option<Option<RemoteHost>> {
        let program = match &device.program {
            Some(written) if device.ssh.is_none() => {
                let problem = "applies to a device on a remote host only";
                self.error(written.span(), written.get_ref(), problem, "add ssh = \"HOST\"");
                return None;
            }
            Some(written) => self.substitute(written, parameters, used)?,
            None => RemoteHost::PROGRAM.to_owned(),
        };
        let Some(written) = &device.ssh else { return Some(None) };
        let host = self.substitute(written, parameters, used)?;
        if !RemoteHost::is_valid(&host) {
            self.error(written.span(), &host, "invalid host", "write ssh = \"root@HOST\", as ssh takes it");
            return None;
        }
        if interfaces.is_empty() {
            let remedy =
                "name the ends of the cables: ports = [\"af_packet:eth2\", ...] and interfaces = [\"eth1\", ...]";
            self.error(written.span(), &host, "needs interfaces that connect it to this host", remedy);
            return None;
        }
        Some(Some(RemoteHost { host, program }))
    }

    /// Returns the environment of the device's programs.
    fn env(
        &mut self,
        device: &file::Dut,
        driver: &'static dyn Driver,
        ports: &Ports,
        parameters: &Parameters,
        used: &mut Used,
    ) -> Option<Env> {
        let Some(written) = &device.env else { return Some(Env::default()) };
        let text = self.substitute(written, parameters, used)?;
        let env = text.parse::<Env>().and_then(|env| match env {
            Env::Container if !driver.supports_containers() => {
                Err(("not supported: this kind of device does not forward in a program", "set env = \"native\""))
            }
            Env::Container if !ports.are_sockets() => {
                let problem = "does not support these ports: a container has no host interfaces";
                Err((problem, "set ports = \"vhost-user\", or env = \"native\""))
            }
            env => Ok(env),
        });
        env.map_err(|(problem, remedy)| self.error(written.span(), &text, problem, remedy)).ok()
    }

    /// Returns the ports between generator and device.
    fn ports(
        &mut self,
        device: &file::Dut,
        driver: &'static dyn Driver,
        parameters: &Parameters,
        used: &mut Used,
    ) -> Option<Ports> {
        let Some(written) = &device.ports else {
            let default = driver.ports().first().cloned();
            if default.is_none() {
                let remedy = "add ports = [\"0000:01:00.0\", \"0000:01:00.1\"]";
                self.error(0..0, driver.name(), "needs a list of ports", remedy);
            }
            return default;
        };
        let span = written.span();
        if let Value::Array(all) = written.get_ref() {
            let all: Vec<String> = all.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect();
            let takes_list = driver.is_external() || device.interfaces.is_some();
            if !takes_list || all.is_empty() || all.len() > MAX_PORTS {
                let text = self.source_text(span.clone());
                let remedy = format!(
                    "list up to {MAX_PORTS} ports of kind = \"external\", or set the device's interfaces as well"
                );
                self.error(span, &text, "invalid list of ports", remedy);
                return None;
            }
            for (n, port) in all.iter().enumerate() {
                if let Err((problem, remedy)) = config::Device::parse(port, &format!("generator{n}")) {
                    self.error(span.clone(), port, problem, remedy);
                }
            }
            return Some(Ports::Devices(all));
        }
        let text = Spanned::new(span.clone(), written.get_ref().as_str().unwrap_or_default().to_owned());
        let text = self.substitute(&text, parameters, used)?;
        let ports = driver.ports().iter().find(|ports| ports.to_string() == text).cloned();
        if ports.is_none() {
            let known = driver.ports().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let problem = format!("unsupported ports of {}", driver.name());
            self.error(span, &text, problem, format!("use one of: {known}"));
        }
        ports
    }
}
