//! `bondstone doctor`.

mod cpu;
mod devices;
mod dpdk;
mod gaps;
mod memory;
mod privileges;
mod running;
mod sysfs;

use crate::exit::Exit;
use crate::stdout::stdout;
use crate::table::Table;
use serde::Serialize;
use std::fmt;
use std::io::Write;

/// Checks this host and user: available features, what each missing feature would provide, and how to enable it.
#[derive(clap::Args)]
#[command(after_help = "\
The command starts DPDK, opens some of its virtual devices, and keeps one CPU busy for half a second. With --running it
reads the counts of a running instance twice instead, a second apart.

Examples:
  bondstone doctor
  bondstone doctor --running edge.toml
  bondstone doctor --json | jq '.[] | select(.state != \"ok\")'")]
pub(crate) struct Doctor {
    /// Names what is wrong with a running instance: its control socket, chain file, name of the chain file, or number of
    /// the process. INSTANCE may be omitted if only one runs.
    #[arg(long, value_name = "INSTANCE")]
    running: Option<Option<String>>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    #[serde(rename = "ok")]
    Ok,
    #[serde(rename = "degraded")]
    Degraded,
    #[serde(rename = "missing")]
    Missing,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Ok => "ok",
            State::Degraded => "degraded",
            State::Missing => "missing",
        })
    }
}

/// One check.
#[derive(Clone, Debug, Serialize)]
struct Check {
    check: String,
    state: State,
    found: String,
    /// Purpose of the feature.
    provides: String,
    /// Remedy, usually a command; `None` if it is available or cannot be enabled.
    remedy: Option<String>,
}

impl Check {
    fn new(check: impl Into<String>, state: State, found: impl Into<String>, provides: impl Into<String>) -> Self {
        Check { check: check.into(), state, found: found.into(), provides: provides.into(), remedy: None }
    }

    /// Sets the remedy unless the state is ok.
    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        if self.state != State::Ok {
            self.remedy = Some(remedy.into());
        }
        self
    }
}

impl Doctor {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        if let Some(instance) = &self.running {
            return running::run(instance.clone(), self.json);
        }
        let mut checks = cpu::checks();
        checks.extend(gaps::check());
        checks.extend(memory::checks());
        checks.extend(devices::checks());
        checks.extend(privileges::checks());
        // last, because it allocates huge pages
        let dpdk = dpdk::checks();
        checks.extend(dpdk.checks.iter().cloned());
        let exit = if dpdk.memory.is_some() { Exit::Success } else { Exit::Environment };
        let mut out = stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &checks)?;
            writeln!(out)?;
        } else {
            write!(out, "{}\n  {}\n", table(&checks), verdict(&checks, &dpdk))?;
        }
        Ok(exit)
    }
}

/// Formats the checks: long cells are wrapped, commands stay on one line.
fn table(checks: &[Check]) -> Table {
    /// Widths of the last two columns, characters.
    const WIDTH: (usize, usize) = (38, 56);
    let mut table = Table::new(&["check", "state", "found", "provides, and remedy"]);
    for c in checks {
        let found = wrap(&c.found, WIDTH.0);
        let mut last = if c.state == State::Ok { vec![] } else { wrap(&c.provides, WIDTH.1) };
        last.extend(c.remedy.clone());
        for line in 0..found.len().max(last.len()).max(1) {
            let first = |s: &str| if line == 0 { s.to_owned() } else { String::new() };
            let cell = |lines: &[String]| lines.get(line).cloned().unwrap_or_default();
            table.row([first(&c.check), first(&c.state.to_string()), cell(&found), cell(&last)]);
        }
    }
    table
}

/// Wraps a text into lines of at most `width` characters; longer words are not broken.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Summarises in one sentence what is available.
fn verdict(checks: &[Check], dpdk: &dpdk::DpdkChecks) -> String {
    let Some(memory) = dpdk.memory else {
        return "DPDK does not start for this user: chain files can be checked but not run.".to_owned();
    };
    let available = |check: &dyn Fn(&&Check) -> bool| checks.iter().filter(check).any(|c| c.state == State::Ok);
    let parts = [
        ("physical NICs", available(&|c| c.check.starts_with("NIC "))),
        ("tap", available(&|c| c.check == "tap")),
        ("af_packet", available(&|c| c.check == "af_packet")),
        ("af_xdp", available(&|c| c.check == "af_xdp")),
        ("hardware virtualisation", available(&|c| c.check == "KVM")),
        ("some virtual devices of DPDK", available(&|c| c.check == dpdk::DEVICES)),
    ];
    let missing: Vec<&str> = parts.iter().filter(|(_, available)| !available).map(|(part, _)| *part).collect();
    let except = if missing.is_empty() { String::new() } else { format!(" except {}", missing.join(", ")) };
    let pages = match memory {
        ::dpdk::Memory::Huge => "huge pages",
        ::dpdk::Memory::Ordinary => "ordinary pages, which is slower with large tables",
    };
    format!("All features{except} are available; packets are stored in {pages}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_texts_but_not_commands() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("", 7), Vec::<String>::new());
        assert_eq!(wrap("a-very-long-word b", 4), ["a-very-long-word", "b"]);
        let command = "echo 512 | sudo tee /a/very/long/path/that/is/wider/than/any/column/of/this/table";
        let check = Check::new("pages", State::Missing, "none", "speed").remedy(command);
        let text = table(&[check]).to_string();
        assert!(text.contains(command) && text.contains("missing"), "{text}");
    }

    #[test]
    fn no_remedy_if_ok() {
        assert_eq!(Check::new("a", State::Ok, "b", "c").remedy("d").remedy, None);
        assert_eq!(serde_json::to_value(State::Degraded).unwrap(), State::Degraded.to_string());
    }

    #[test]
    fn verdict_names_missing_features() {
        let check = |name: &str, state| Check::new(name, state, "", "");
        let mut checks = vec![check("tap", State::Missing), check("NIC 0000:01:00.0", State::Degraded)];
        checks.extend(["af_packet", "af_xdp", "KVM", dpdk::DEVICES].map(|name| check(name, State::Ok)));
        let found = |memory| dpdk::DpdkChecks { memory, checks: vec![] };
        let text = verdict(&checks, &found(Some(::dpdk::Memory::Ordinary)));
        assert!(
            text.starts_with("All features except physical NICs, tap are available; ") && text.contains("ordinary"),
            "{text}"
        );
        checks.extend([check("tap", State::Ok), check("NIC 0000:02:00.0", State::Ok)]);
        assert!(verdict(&checks, &found(Some(::dpdk::Memory::Huge))).starts_with("All features are available; "));
        assert!(verdict(&checks, &found(None)).contains("does not start"));
    }
}
