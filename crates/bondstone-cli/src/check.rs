//! `bondstone check`.

use crate::exit::Exit;
#[cfg(feature = "measure")]
use bench::{Scenario, dut::Env, scenario::CellDut};
use config::ChainFile;
use diagnostics::{Diagnostic, Diagnostics};
use graph::{BuildContext, Registry};
use serde_json::json;
use std::io::{Write, stdout};
use std::path::PathBuf;

/// Checks a chain file or scenario without running it: format, names, paths, edges, files and the settings of all NFs.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  bondstone check examples/demo.toml\n  bondstone check scenarios/netbricks/lpm.toml"
)]
pub(crate) struct Check {
    /// Chain file or scenario.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Prints the errors as JSON.
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
        let (errors, warnings, file) = match text.and_then(|text| ChainFile::parse(&text, &self.file, registry)) {
            Ok(file) => {
                // the file may be for another machine
                let unavailable = file.unavailable_cpus(&runtime::allowed_cpus());
                (settings(&file), [file.warnings.clone(), unavailable].concat(), Some(file))
            }
            Err(errors) => (errors, vec![], None),
        };
        if self.json {
            return verdict(&errors, &warnings);
        }
        for warning in &warnings {
            eprintln!("warning: {warning}");
        }
        match file {
            Some(file) if errors.is_empty() => {
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
            _ => Err(Diagnostics(errors).into()),
        }
    }

    #[cfg(feature = "measure")]
    fn scenario(&self, text: &str, registry: &Registry) -> anyhow::Result<Exit> {
        let (errors, scenario) = match Scenario::parse(text, &self.file, registry) {
            Ok(scenario) => (cells(&scenario), Some(scenario)),
            Err(errors) => (errors, None),
        };
        if self.json {
            return verdict(&errors, &[]);
        }
        let Some(scenario) = scenario.filter(|_| errors.is_empty()) else {
            return Err(Diagnostics(errors).into());
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

/// Prints the errors and warnings as JSON.
fn verdict(errors: &[Diagnostic], warnings: &[Diagnostic]) -> anyhow::Result<Exit> {
    let verdict = json!({ "ok": errors.is_empty(), "errors": errors, "warnings": warnings });
    writeln!(stdout(), "{verdict:#}")?;
    Ok(if errors.is_empty() { Exit::Success } else { Exit::Input })
}

/// Returns the errors of building the NFs of a scenario.
#[cfg(feature = "measure")]
fn cells(scenario: &Scenario) -> Vec<Diagnostic> {
    let chains = scenario.cells.iter().filter_map(|c| match &c.dut {
        CellDut::InProcess(file) => Some(&**file),
        CellDut::External(external) => Some(&external.1),
        CellDut::Simulated(_) | CellDut::Unavailable(_) => None,
    });
    chains.flat_map(settings).collect()
}

/// Returns the errors of building the NFs of a chain file.
pub(crate) fn settings(file: &ChainFile) -> Vec<Diagnostic> {
    let build = |(n, nf): (usize, &config::NfConfig)| {
        let (name, folder) = (nf.name.clone(), file.folder().to_owned());
        let cx = BuildContext { name, base_dir: folder, copy: (0, 1), check_only: true, ..Default::default() };
        nf.factory.build(&cx).err().map(|d| file.locate(n, d))
    };
    file.nfs.iter().enumerate().filter_map(build).collect()
}
