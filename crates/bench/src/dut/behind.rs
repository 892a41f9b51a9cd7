//! What is behind the walls of a chain, where the device is the switch between.

use super::bondstone::on_its_cpus;
use super::plan::ChainText;
use super::program::{Line, Program};
use super::{DutError, Site};
use sandbox::{HOSTS, Hops, LISTENS, READY};
use std::path::PathBuf;
use toml::Table;

/// A process with what is behind the walls: it ends with that.
pub(crate) struct Behind {
    program: Program,
    /// A folder where sockets may be that the switch makes.
    pub(crate) folder: PathBuf,
    /// Sockets at which the switch has to listen, behind those of the generator's ports.
    pub(crate) sockets: Vec<PathBuf>,
    /// From which port to which it hands packets, by their numbers: first the generator's, then these.
    pub(crate) hops: Vec<(usize, usize)>,
}

impl Behind {
    /// Makes ready what is behind the walls; nothing runs before the switch listens.
    ///
    /// # Errors
    /// What is wrong with the chain, or what this machine or user lacks.
    pub(crate) fn new(site: &mut Site, chain: &ChainText) -> Result<Behind, DutError> {
        let odd = |e: &str| site.wrong(format!("{}: {e}", chain.file.display()), "look at the chain file");
        let mut table: Table = chain.text.parse().map_err(|e: toml::de::Error| odd(e.message()))?;
        on_its_cpus(&mut table, site);
        let text = toml::to_string(&table).map_err(|e| odd(&e.to_string()))?;
        let file = chain.beside(site, &text)?;
        let own = super::own_program(site)?.display().to_string();
        let line = Line::new(own).args([HOSTS.to_owned(), file.display().to_string()]).on_cpus(site);
        let mut program = Program::start(site, "hosts", line)?;
        let told = |p: &Program| {
            let said = p.said_since(0);
            said.lines().find_map(|line| serde_json::from_str::<Hops>(line).ok())
        };
        program.wait(site, "what is behind the walls", |p| told(p).is_some())?;
        let Hops { folder, ports, hops } = told(&program).unwrap_or_default();
        site.call(&folder.parent().unwrap_or(&folder).display().to_string(), "WALLS");
        site.note(text);
        Ok(Behind { program, folder, sockets: ports.into_iter().filter_map(|(_, socket)| socket).collect(), hops })
    }

    /// Starts what is behind the walls, once the switch listens.
    ///
    /// # Errors
    /// Why it does not begin.
    pub(crate) fn start(mut self, site: &Site) -> Result<Program, DutError> {
        // errors: it has ended, which is told then
        let _ = self.program.tell(&format!("{LISTENS}\n"));
        self.program.wait(site, "what is behind the walls", |p| p.said_since(0).lines().any(|line| line == READY))?;
        Ok(self.program)
    }

    /// The ports in a line, the generator's first and second at its ends, if each hands packets to the next one.
    pub(crate) fn line(&self, ports: usize) -> Option<Vec<usize>> {
        let mut line = vec![0];
        while let Some(last) = line.last()
            && *last != 1
        {
            let next = self.hops.iter().find(|(from, _)| from == last)?.1;
            if line.contains(&next) {
                return None;
            }
            line.push(next);
        }
        let is_in_it =
            |(from, to): &(usize, usize)| (*from, *to) == (1, 0) || line.windows(2).any(|two| two == [*from, *to]);
        (line.len() == ports + self.sockets.len() && self.hops.iter().all(is_in_it)).then_some(line)
    }
}
