//! The sandboxes of a chain whose external switch is the device.

use super::chain_file;
use crate::dut::context::{DutContext, DutError};
use crate::dut::process::{CommandLine, Program};
use crate::dut::spec::ChainText;
use sandbox::{EXTERNAL_SWITCH_COMMAND, LISTENING, READY, SwitchSpec};
use std::path::PathBuf;
use toml::Table;

/// A process that runs the sandboxes of a chain.
pub(crate) struct SandboxHost {
    program: Program,
    /// Directory in which the switch may create sockets.
    pub(crate) folder: PathBuf,
    /// Sockets that the switch has to listen on, in addition to those of the generator.
    pub(crate) sockets: Vec<PathBuf>,
    /// Pairs of ports that the switch has to connect: those of the generator are numbered first, then `sockets`.
    pub(crate) hops: Vec<(usize, usize)>,
}

impl SandboxHost {
    /// Starts the process; it starts the sandboxes when the switch listens.
    ///
    /// # Errors
    /// If the chain file is invalid, or permission is denied.
    pub(crate) fn new(context: &mut DutContext, chain: &ChainText) -> Result<SandboxHost, DutError> {
        let invalid = |e: &str| context.error(format!("{}: {e}", chain.file.display()), "check the chain file");
        let mut table: Table = chain.text.parse().map_err(|e: toml::de::Error| invalid(e.message()))?;
        chain_file::adapt(&mut table, context);
        let text = toml::to_string(&table).map_err(|e| invalid(&e.to_string()))?;
        let file = chain_file::write(context, chain, &text)?;
        let program = context.own_program()?.display().to_string();
        let args = [EXTERNAL_SWITCH_COMMAND.to_owned(), file.display().to_string()];
        let mut program = Program::start(context, "hosts", CommandLine::new(program).args(args).on_cpus(context))?;
        let parse = |p: &Program| {
            let output = p.output_since(0);
            output.lines().find_map(|line| serde_json::from_str::<SwitchSpec>(line).ok())
        };
        program.wait_until(context, "the sandboxes", |p| parse(p).is_some())?;
        let SwitchSpec { folder, ports, pairs: hops } = parse(&program).unwrap_or_default();
        context.mask_name(&folder.parent().unwrap_or(&folder).display().to_string(), "SANDBOXES");
        context.record(text);
        let sockets = ports.into_iter().filter_map(|(_, socket)| socket).collect();
        Ok(SandboxHost { program, folder, sockets, hops })
    }

    /// Starts the sandboxes; the switch listens.
    ///
    /// # Errors
    /// If one does not start.
    pub(crate) fn start(mut self, context: &DutContext) -> Result<Program, DutError> {
        // a failure is reported by the wait
        let _ = self.program.write_stdin(&format!("{LISTENING}\n"));
        let is_ready = |p: &Program| p.output_since(0).lines().any(|line| line == READY);
        self.program.wait_until(context, "the sandboxes", is_ready)?;
        Ok(self.program)
    }

    /// Returns all ports in order if the hops form a single path from the generator's first port to its second, of
    /// `ports`, and a direct return path.
    pub(crate) fn single_path(&self, ports: usize) -> Option<Vec<usize>> {
        let mut path = vec![0];
        while let Some(last) = path.last()
            && *last != 1
        {
            let next = self.hops.iter().find(|(from, _)| from == last)?.1;
            if path.contains(&next) {
                return None;
            }
            path.push(next);
        }
        let is_on_path =
            |(from, to): &(usize, usize)| (*from, *to) == (1, 0) || path.windows(2).any(|two| two == [*from, *to]);
        (path.len() == ports + self.sockets.len() && self.hops.iter().all(is_on_path)).then_some(path)
    }
}
