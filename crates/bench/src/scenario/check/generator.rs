//! `[generator]`.

use super::Checker;
use crate::scenario::MeasurementSettings;
use crate::scenario::file::File;
use crate::{Generator, TrafficSpec};
use std::collections::{BTreeMap, BTreeSet};

impl Checker<'_> {
    /// Returns the generator of a cell.
    pub(super) fn generator(
        &mut self,
        file: &File,
        parameters: &BTreeMap<String, String>,
        traffic: &TrafficSpec,
        settings: &MeasurementSettings,
        used: &mut BTreeSet<String>,
    ) -> Option<Generator> {
        let (kind, command) = (&file.generator.kind, &file.generator.command);
        let Some(written) = kind else {
            if let Some(command) = command {
                self.error(command.span(), command.get_ref(), "needs a kind of generator", "add kind = \"command\"");
            }
            return Some(Generator::Bondstone);
        };
        let text = self.substitute(written, parameters, used)?;
        let generator = match text.parse() {
            Ok(Generator::Command(_)) => {
                let Some(command) = command else {
                    self.error(written.span(), &text, "needs a command", "add command = \"...\"");
                    return None;
                };
                Generator::Command(self.substitute(command, parameters, used)?)
            }
            Ok(generator) => generator,
            Err(problem) => {
                let problem: &str = problem;
                self.error(written.span(), &text, problem, "write one of these, or remove it");
                return None;
            }
        };
        let checked = !self.invalid.traffic && !self.invalid.goal;
        if let Err((problem, remedy)) = generator.check(traffic, settings)
            && checked
        {
            self.error(written.span(), &text, problem, remedy);
        }
        Some(generator)
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;
    use std::path::Path;

    fn errors(more: &str) -> Vec<String> {
        let text = format!(
            "bondstone = 1\n[scenario]\ntitle = \"a\"\n[dut]\nkind = \"testpmd\"\nports = \"vhost-user\"\n{more}"
        );
        let errors = Scenario::parse(&text, Path::new("scenario.toml"), &nf::registry()).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rejects_what_the_generator_does_not_support() {
        let both = "[traffic]\nbidirectional = true\n[goal]\nmethods = [\"receive-rate\"]\n";
        let kinds = "[matrix]\ng = [\"bondstone\", \"testpmd\"]\n[generator]\nkind = \"${g}\"\n";
        assert_eq!(errors(&format!("{both}{kinds}")), [""; 0]);
        assert_eq!(errors("[generator]\nkind = \"command\"\ncommand = \"true\"\n"), [""; 0]);
        for (more, words) in [
            ("[generator]\nkind = \"trex\"\n", "known are bondstone, testpmd and command"),
            ("[generator]\nkind = \"command\"\n", "needs a command"),
            ("[generator]\ncommand = \"true\"\n", "needs a kind of generator"),
            ("[generator]\nkind = \"testpmd\"\n", "no rate limit"),
            ("[generator]\nkind = \"testpmd\"\n[goal]\nmethods = [\"receive-rate\"]\n", "bidirectional"),
        ] {
            let messages = errors(more);
            assert!(messages.len() == 1 && messages[0].contains(words), "{more}: {messages:?}");
        }
    }
}
