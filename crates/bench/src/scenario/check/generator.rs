//! `[generator]`.

use super::Checker;
use crate::scenario::How;
use crate::scenario::file::File;
use crate::{Generator, Sent};
use std::collections::{BTreeMap, BTreeSet};

impl Checker<'_> {
    /// Who sends in a cell.
    pub(super) fn generator(
        &mut self,
        file: &File,
        parameters: &BTreeMap<String, String>,
        sent: &Sent,
        how: &How,
        used: &mut BTreeSet<String>,
    ) -> Option<Generator> {
        let (kind, command) = (&file.generator.kind, &file.generator.command);
        let Some(written) = kind else {
            if let Some(command) = command {
                self.fault(command.span(), command.get_ref(), "has no generator", "write kind = \"external\"");
            }
            return Some(Generator::Bondstone);
        };
        let text = self.put_in(written, parameters, used)?;
        let generator = match text.parse() {
            Ok(Generator::External(_)) => {
                let Some(command) = command else {
                    self.fault(written.span(), &text, "has no command", "write command = \"...\"");
                    return None;
                };
                Generator::External(self.put_in(command, parameters, used)?)
            }
            Ok(generator) => generator,
            Err(problem) => {
                let problem: &str = problem;
                self.fault(written.span(), &text, problem, "write one of these, or leave it out");
                return None;
            }
        };
        if let Err((problem, remedy)) = generator.fits(sent, how) {
            self.fault(written.span(), &text, problem, remedy);
        }
        Some(generator)
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;
    use std::path::Path;

    fn faults(more: &str) -> Vec<String> {
        let text = format!(
            "bondstone = 1\n[scenario]\ntitle = \"a\"\n[dut]\nkind = \"testpmd\"\nports = \"vhost-user\"\n{more}"
        );
        let faults = Scenario::parse(&text, Path::new("scenario.toml"), &nf::registry()).err().unwrap_or_default();
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_a_generator_cannot_do_is_a_fault() {
        let both = "[traffic]\nboth_ways = true\n[goal]\nmethods = [\"receive-rate\"]\n";
        let kinds = "[matrix]\ng = [\"bondstone\", \"testpmd\"]\n[generator]\nkind = \"${g}\"\n";
        assert_eq!(faults(&format!("{both}{kinds}")), [""; 0]);
        assert_eq!(faults("[generator]\nkind = \"external\"\ncommand = \"true\"\n"), [""; 0]);
        for (more, words) in [
            ("[generator]\nkind = \"trex\"\n", "there are bondstone, testpmd and external"),
            ("[generator]\nkind = \"external\"\n", "has no command"),
            ("[generator]\ncommand = \"true\"\n", "has no generator"),
            ("[generator]\nkind = \"testpmd\"\n", "knows no rate"),
            ("[generator]\nkind = \"testpmd\"\n[goal]\nmethods = [\"receive-rate\"]\n", "both ways"),
        ] {
            let said = faults(more);
            assert!(said.len() == 1 && said[0].contains(words), "{more}: {said:?}");
        }
    }
}
