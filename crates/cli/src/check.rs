//! `bondstone check`.

use crate::exit::Exit;
use chain::ChainFile;
use graph::{BuildCx, Diagnostic, Diagnostics, Registry};
use serde_json::json;
use std::io::{Write, stdout};
use std::path::PathBuf;

/// Checks a chain file without running it: its format, names, paths, edges, files and every NF's settings.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  bondstone check examples/demo.toml")]
pub(crate) struct Check {
    /// The chain file.
    chain: PathBuf,
    /// Prints the faults as JSON.
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(&self, registry: &Registry) -> anyhow::Result<Exit> {
        let (faults, warnings, file) = match ChainFile::read(&self.chain, registry) {
            Ok(file) => {
                // the file may be meant for another machine
                let absent = file.absent_cpus(&runtime::allowed_cpus());
                (settings(&file), [file.warnings.clone(), absent].concat(), Some(file))
            }
            Err(faults) => (faults, vec![], None),
        };
        if self.json {
            let verdict = json!({ "ok": faults.is_empty(), "faults": faults, "warnings": warnings });
            writeln!(stdout(), "{verdict:#}")?;
            return Ok(if faults.is_empty() { Exit::Done } else { Exit::Input });
        }
        for warning in &warnings {
            eprintln!("warning: {warning}");
        }
        match file {
            Some(file) if faults.is_empty() => {
                writeln!(
                    stdout(),
                    "{}: {} ports, {} NFs, {} chains, no fault",
                    self.chain.display(),
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
                Ok(Exit::Done)
            }
            _ => Err(Diagnostics(faults).into()),
        }
    }
}

/// Faults that only building an NF finds.
fn settings(file: &ChainFile) -> Vec<Diagnostic> {
    let build = |(n, nf): (usize, &chain::NfUse)| {
        let cx =
            BuildCx { name: nf.name.clone(), folder: file.folder().to_owned(), copy: (0, 1), ..Default::default() };
        nf.factory.build(&cx).err().map(|d| file.place(n, d))
    };
    file.nfs.iter().enumerate().filter_map(build).collect()
}
