//! `bondstone check`.

use crate::exit::Exit;
#[cfg(feature = "measure")]
use bench::{Scenario, dut::Env, scenario::Dut};
use config::ChainFile;
use diagnostics::{Diagnostic, Diagnostics};
use graph::{BuildContext, Registry};
use serde_json::json;
use std::io::{Write, stdout};
use std::path::PathBuf;

/// Checks a chain file or a scenario without running it: format, names, paths, edges, files and every NF's settings.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  bondstone check examples/demo.toml\n  bondstone check scenarios/netbricks/lpm.toml"
)]
pub(crate) struct Check {
    /// The chain file or scenario.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Prints the faults as JSON.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let text = match config::read(&self.file, "chain file") {
            #[cfg(feature = "measure")]
            Ok(text) if Scenario::is(&text) => return self.scenario(&text, registry),
            Ok(text) => Ok(text),
            Err(fault) => Err(vec![fault]),
        };
        let (faults, warnings, file) = match text.and_then(|text| ChainFile::parse(&text, &self.file, registry)) {
            Ok(file) => {
                // the file may be meant for another machine
                let absent = file.absent_cpus(&runtime::allowed_cpus());
                (settings(&file), [file.warnings.clone(), absent].concat(), Some(file))
            }
            Err(faults) => (faults, vec![], None),
        };
        if self.json {
            return verdict(&faults, &warnings);
        }
        for warning in &warnings {
            eprintln!("warning: {warning}");
        }
        match file {
            Some(file) if faults.is_empty() => {
                writeln!(
                    stdout(),
                    "{}: {} ports, {} NFs, {} chains, no fault",
                    self.file.display(),
                    file.ports.len(),
                    file.nfs.len(),
                    file.chains.len()
                )?;
                for chain in &file.chains {
                    let cores: Vec<_> = chain.cores.iter().map(ToString::to_string).collect();
                    let cores = if cores.is_empty() {
                        "a CPU to be chosen".to_owned()
                    } else {
                        format!("CPU {}", cores.join(", "))
                    };
                    writeln!(stdout(), "  {}: {} on {cores}", chain.name, chain.path.join(" -> "))?;
                }
                for wall in &file.walls {
                    let (name, nfs, kind) = (&wall.name, wall.nfs.join(", "), wall.isolation.name());
                    let by = if wall.transport.trusts() {
                        format!(", trusted, by {}", wall.transport.name())
                    } else {
                        String::new()
                    };
                    writeln!(stdout(), "  wall {name}: {nfs} in a {kind} of its own{by}")?;
                }
                Ok(Exit::Done)
            }
            _ => Err(Diagnostics(faults).into()),
        }
    }

    #[cfg(feature = "measure")]
    fn scenario(&self, text: &str, registry: &Registry) -> anyhow::Result<Exit> {
        let (faults, scenario) = match Scenario::parse(text, &self.file, registry) {
            Ok(scenario) => (cells(&scenario), Some(scenario)),
            Err(faults) => (faults, None),
        };
        if self.json {
            return verdict(&faults, &[]);
        }
        let Some(scenario) = scenario.filter(|_| faults.is_empty()) else {
            return Err(Diagnostics(faults).into());
        };
        let (cells, claims) = (scenario.cells.len(), scenario.claims.len());
        writeln!(
            stdout(),
            "{}: scenario {}, {cells} cells, {claims} claims, no fault",
            self.file.display(),
            scenario.name
        )?;
        for cell in &scenario.cells {
            match &cell.dut {
                Dut::Chain(file) => writeln!(stdout(), "  {}: {}", cell.label(), file.file.display())?,
                Dut::Rig(rig) => {
                    let plan = &rig.0;
                    let of = match &plan.elsewhere {
                        Some(there) => format!(" on {}", there.host),
                        None if plan.env == Env::Container => " in containers".to_owned(),
                        None => String::new(),
                    };
                    writeln!(stdout(), "  {}: {}{of}, {} ports", cell.label(), plan.kind.name(), plan.ports)?
                }
                Dut::Simulated(device) => writeln!(stdout(), "  {}: simulated, {}", cell.label(), device.0)?,
                Dut::Absent(why) => writeln!(stdout(), "  {}: not measured: {why}", cell.label())?,
            }
        }
        Ok(Exit::Done)
    }
}

fn verdict(faults: &[Diagnostic], warnings: &[Diagnostic]) -> anyhow::Result<Exit> {
    let verdict = json!({ "ok": faults.is_empty(), "faults": faults, "warnings": warnings });
    writeln!(stdout(), "{verdict:#}")?;
    Ok(if faults.is_empty() { Exit::Done } else { Exit::Input })
}

/// Faults that only building the NFs of a scenario's cells finds.
#[cfg(feature = "measure")]
fn cells(scenario: &Scenario) -> Vec<Diagnostic> {
    let chains = scenario.cells.iter().filter_map(|c| match &c.dut {
        Dut::Chain(file) => Some(&**file),
        Dut::Rig(rig) => Some(&rig.1),
        Dut::Simulated(_) | Dut::Absent(_) => None,
    });
    chains.flat_map(settings).collect()
}

/// Faults that only building an NF finds.
pub(crate) fn settings(file: &ChainFile) -> Vec<Diagnostic> {
    let build = |(n, nf): (usize, &config::NfUse)| {
        let (name, folder) = (nf.name.clone(), file.folder().to_owned());
        let cx = BuildContext { name, folder, copy: (0, 1), checks: true, ..Default::default() };
        nf.factory.build(&cx).err().map(|d| file.place(n, d))
    };
    file.nfs.iter().enumerate().filter_map(build).collect()
}
