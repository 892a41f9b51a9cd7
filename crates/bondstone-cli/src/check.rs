//! `bondstone check`.

use crate::exit::Exit;
use crate::stdout::stdout;
#[cfg(feature = "measure")]
use bench::{
    Scenario,
    dut::{Env, Ports},
    scenario::CellDut,
};
use config::{ChainFile, Hosts};
use diagnostics::{Diagnostic, Diagnostics};
use graph::Registry;
use logger::eprintln;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Checks a chain file or scenario without running it: format, names, paths, edges, files, the settings of all NFs, and
/// the CPUs and devices of this machine that it names.
///
/// For a file that describes several hosts it prints the part of each, and does not check their CPUs and devices.
///
/// Reports all errors at once. Exits with the status that `run` or `bench` would have: 2 for an error in the file, 3 if
/// this machine lacks a device.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  bondstone check examples/demo.toml\n  bondstone check scenarios/netbricks/lpm.toml"
)]
pub(crate) struct Check {
    /// Chain file or scenario.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Prints the errors as JSON: `errors` of the file, `machine` for CPUs and devices that this machine lacks.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let text = match config::read(&self.file, "chain file") {
            #[cfg(feature = "measure")]
            Ok(text) if Scenario::is(&text) => return self.scenario(&text, registry),
            Ok(text) => Ok(text),
            Err(error) => Err(vec![error]),
        };
        let hosts = text.as_ref().ok().map_or(Ok(None), |text| Hosts::parse(text, &self.file, registry));
        if let Some(hosts) = hosts.transpose() {
            return self.hosts(hosts);
        }
        let (faults, file) = match text.and_then(|text| ChainFile::parse(&text, &self.file, registry)) {
            Ok(file) => {
                let faults = Faults {
                    errors: file.build_errors(),
                    cpus: file.unavailable_cpus(&runtime::allowed_cpus()),
                    devices: runtime::missing_devices(&file),
                    warnings: file.warnings.clone(),
                };
                (faults, Some(file))
            }
            Err(errors) => (Faults { errors, ..Faults::default() }, None),
        };
        let Some(file) = file.filter(|_| !self.json && faults.exit() == Exit::Success) else {
            return faults.report(self.json);
        };
        faults.report(false)?;
        writeln!(
            stdout(),
            "{}: {} ports, {} NFs, {} chains, no errors",
            self.file.display(),
            file.ports.len(),
            file.nfs.len(),
            file.chains.len()
        )?;
        for chain in &file.chains {
            let cores: Vec<_> = chain.cores.iter().map(ToString::to_string).collect();
            let cores = if cores.is_empty() {
                "a CPU chosen at the start".to_owned()
            } else {
                format!("CPU {}", cores.join(", "))
            };
            writeln!(stdout(), "  {}: {} on {cores}", chain.name, chain.path.join(" -> "))?;
        }
        for sandbox in &file.sandboxes {
            let (name, nfs, kind) = (&sandbox.name, sandbox.nfs.join(", "), sandbox.isolation.name());
            let transport = if sandbox.transport.is_trusted() {
                format!(", trusted, transport {}", sandbox.transport.name())
            } else {
                String::new()
            };
            writeln!(stdout(), "  sandbox {name}: {nfs} in a {kind}{transport}")?;
        }
        Ok(Exit::Success)
    }

    /// Reports the errors of a file that describes several hosts, or what they run.
    fn hosts(&self, hosts: Result<Hosts, Vec<Diagnostic>>) -> anyhow::Result<Exit> {
        let faults = match &hosts {
            Ok(Hosts { hosts, .. }) => {
                let mut errors: Vec<_> = hosts.iter().flat_map(|host| host.part.build_errors()).collect();
                let mut warnings: Vec<_> = hosts.iter().flat_map(|host| host.part.warnings.clone()).collect();
                diagnostics::remove_duplicates(&mut errors);
                diagnostics::remove_duplicates(&mut warnings);
                Faults { errors, warnings, ..Faults::default() }
            }
            Err(errors) => Faults { errors: errors.clone(), ..Faults::default() },
        };
        let Some(hosts) = hosts.ok().filter(|_| !self.json && faults.exit() == Exit::Success) else {
            return faults.report(self.json);
        };
        faults.report(false)?;
        let (number, links) = (hosts.hosts.len(), hosts.links.len());
        writeln!(stdout(), "{}: {number} hosts, {links} links, no errors", self.file.display())?;
        write!(stdout(), "{}", crate::hosts::partition(&hosts))?;
        Ok(Exit::Success)
    }

    #[cfg(feature = "measure")]
    fn scenario(&self, text: &str, registry: &Registry) -> anyhow::Result<Exit> {
        let (faults, scenario) = match Scenario::parse(text, &self.file, registry) {
            Ok(scenario) => (Faults::of(&scenario), Some(scenario)),
            Err(errors) => (Faults { errors, ..Faults::default() }, None),
        };
        let Some(scenario) = scenario.filter(|_| !self.json && faults.exit() == Exit::Success) else {
            return faults.report(self.json);
        };
        let (cells, claims) = (scenario.cells.len(), scenario.claims.len());
        writeln!(
            stdout(),
            "{}: scenario {}, {cells} cells, {claims} claims, no errors",
            self.file.display(),
            scenario.name
        )?;
        for cell in &scenario.cells {
            match &cell.dut {
                CellDut::InProcess(file) => writeln!(stdout(), "  {}: {}", cell.label(), file.file.display())?,
                CellDut::External(external) => {
                    let spec = &external.0;
                    let location = match &spec.remote {
                        Some(remote) => format!(" on {}", remote.host),
                        None if spec.env == Env::Container => " in containers".to_owned(),
                        None => String::new(),
                    };
                    writeln!(stdout(), "  {}: {}{location}, {} ports", cell.label(), spec.kind, spec.ports)?
                }
                CellDut::Simulated(device) => writeln!(stdout(), "  {}: simulated, {}", cell.label(), device.0)?,
                CellDut::Unavailable(reason) => writeln!(stdout(), "  {}: not measured: {reason}", cell.label())?,
            }
        }
        Ok(Exit::Success)
    }
}

/// Errors and warnings of a file.
#[derive(Default)]
struct Faults {
    /// Errors of the file itself.
    errors: Vec<Diagnostic>,
    /// CPUs of the file that this machine lacks, or that this process may not use.
    cpus: Vec<Diagnostic>,
    /// Devices of the file that this machine lacks.
    devices: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

impl Faults {
    /// Returns the errors of the cells of a scenario, each once.
    #[cfg(feature = "measure")]
    fn of(scenario: &Scenario) -> Faults {
        let allowed = runtime::allowed_cpus();
        let mut faults = Faults::default();
        for cell in &scenario.cells {
            let (chain, external) = match &cell.dut {
                CellDut::InProcess(file) => (&**file, None),
                CellDut::External(external) => (&external.1, Some(&external.0)),
                CellDut::Simulated(_) | CellDut::Unavailable(_) => continue,
            };
            faults.errors.extend(chain.build_errors());
            if external.is_none_or(|spec| spec.remote.is_none()) && chain.host.is_none() {
                faults.cpus.extend(chain.unavailable_cpus(&allowed));
            }
            if let Some(Ports::Devices(devices)) = external.map(|spec| &spec.ports) {
                let located = |d| Diagnostic { file: Some(scenario.file.clone()), ..d };
                faults.devices.extend(devices.iter().filter_map(|device| runtime::missing_device(device)).map(located));
            }
        }
        for list in [&mut faults.errors, &mut faults.cpus, &mut faults.devices] {
            diagnostics::remove_duplicates(list);
        }
        faults
    }

    /// Returns the exit status: that of `run` or `bench`.
    fn exit(&self) -> Exit {
        match self {
            Faults { errors, cpus, .. } if !errors.is_empty() || !cpus.is_empty() => Exit::Input,
            Faults { devices, .. } if !devices.is_empty() => Exit::Environment,
            _ => Exit::Success,
        }
    }

    /// Prints the errors and warnings.
    fn report(self, json: bool) -> anyhow::Result<Exit> {
        let exit = self.exit();
        let Faults { errors, cpus, devices, warnings } = self;
        let machine = [cpus, devices].concat();
        if json {
            let ok = exit == Exit::Success;
            let verdict = json!({ "ok": ok, "errors": errors, "machine": machine, "warnings": warnings });
            writeln!(stdout(), "{verdict:#}")?;
            return Ok(exit);
        }
        for warning in &warnings {
            eprintln!("warning: {warning}");
        }
        if exit != Exit::Success {
            eprintln!("error: {}", Diagnostics([errors, machine].concat()));
        }
        Ok(exit)
    }
}
