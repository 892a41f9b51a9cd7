//! `bondstone doctor`.

mod cpu;
mod devices;
mod dpdk;
mod gaps;
mod memory;
mod rights;
mod text;

use crate::exit::Exit;
use crate::table::Table;
use serde::Serialize;
use std::fmt;
use std::io::Write;

/// Looks at this machine and user: what is there, what each thing that is missing would add, and how to get it.
#[derive(clap::Args)]
#[command(after_help = "\
It starts DPDK and opens some of its devices for a moment, and keeps one CPU busy for half a second.

Examples:
  bondstone doctor
  bondstone doctor --json | jq '.[] | select(.state != \"ok\")'")]
pub(crate) struct Doctor {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    #[serde(rename = "ok")]
    Ok,
    #[serde(rename = "could be better")]
    Better,
    #[serde(rename = "missing")]
    Missing,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Ok => "ok",
            State::Better => "could be better",
            State::Missing => "missing",
        })
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
struct Check {
    check: String,
    state: State,
    found: String,
    /// What it gives, or would give.
    adds: String,
    /// What mends it, mostly a command; `None` when nothing needs mending, or nothing can.
    remedy: Option<String>,
}

impl Check {
    fn new(check: impl Into<String>, state: State, found: impl Into<String>, adds: impl Into<String>) -> Self {
        Check { check: check.into(), state, found: found.into(), adds: adds.into(), remedy: None }
    }

    /// Names what mends it, unless it is well.
    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        if self.state != State::Ok {
            self.remedy = Some(remedy.into());
        }
        self
    }
}

impl Doctor {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let mut checks = cpu::look();
        checks.extend(gaps::look());
        checks.extend(memory::look());
        checks.extend(devices::look());
        checks.extend(rights::look());
        // last: it takes pages that were counted as free
        let dpdk = dpdk::look();
        checks.extend(dpdk.checks.iter().cloned());
        let exit = if dpdk.memory.is_some() { Exit::Done } else { Exit::Environment };
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &checks)?;
            writeln!(out)?;
        } else {
            write!(out, "{}\n  {}\n", table(&checks), verdict(&checks, &dpdk))?;
        }
        Ok(exit)
    }
}

/// The checks for people: long cells go on below, commands stay in one line to be copied.
fn table(checks: &[Check]) -> Table {
    /// Characters of a line of what was found, and of what it adds.
    const WIDTH: (usize, usize) = (38, 56);
    let mut table = Table::new(&["check", "state", "found", "what it would add, or what mends it"]);
    for c in checks {
        let found = wrap(&c.found, WIDTH.0);
        let mut last = if c.state == State::Ok { vec![] } else { wrap(&c.adds, WIDTH.1) };
        last.extend(c.remedy.clone());
        for line in 0..found.len().max(last.len()).max(1) {
            let first = |s: &str| if line == 0 { s.to_owned() } else { String::new() };
            let cell = |lines: &[String]| lines.get(line).cloned().unwrap_or_default();
            table.row([first(&c.check), first(&c.state.to_string()), cell(&found), cell(&last)]);
        }
    }
    table
}

/// Breaks a text between words into lines of at most `width` characters; longer words stand alone.
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

/// What works now, in one sentence.
fn verdict(checks: &[Check], dpdk: &dpdk::Found) -> String {
    let Some(memory) = dpdk.memory else {
        return "DPDK does not start for this user: chain files can be checked, not run.".to_owned();
    };
    let works = |found: &dyn Fn(&&Check) -> bool| checks.iter().filter(found).any(|c| c.state == State::Ok);
    let parts = [
        ("physical NICs", works(&|c| c.check.starts_with("NIC "))),
        ("tap", works(&|c| c.check == "tap")),
        ("af_packet", works(&|c| c.check == "af_packet")),
        ("af_xdp", works(&|c| c.check == "af_xdp")),
        ("virtual machines at full speed", works(&|c| c.check == "KVM")),
        ("some of DPDK's virtual devices", works(&|c| c.check == dpdk::DEVICES)),
    ];
    let lacking: Vec<&str> = parts.iter().filter(|(_, works)| !works).map(|(part, _)| *part).collect();
    let but = if lacking.is_empty() { String::new() } else { format!(" but {}", lacking.join(", ")) };
    let pages = match memory {
        ::dpdk::Memory::Huge => "huge pages",
        ::dpdk::Memory::Ordinary => "ordinary pages, slower with large tables",
    };
    format!("Everything{but} works; packets are kept in {pages}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_go_on_below_and_commands_stay_whole() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("", 7), Vec::<String>::new());
        assert_eq!(wrap("a-very-long-word b", 4), ["a-very-long-word", "b"]);
        let command = "echo 512 | sudo tee /a/very/long/path/that/is/wider/than/any/column/of/this/table";
        let check = Check::new("pages", State::Missing, "none", "speed").remedy(command);
        let text = table(&[check]).to_string();
        assert!(text.contains(command) && text.contains("missing"), "{text}");
    }

    #[test]
    fn what_is_well_needs_no_cure() {
        assert_eq!(Check::new("a", State::Ok, "b", "c").remedy("d").remedy, None);
        assert_eq!(serde_json::to_value(State::Better).unwrap(), State::Better.to_string());
    }

    #[test]
    fn the_verdict_names_what_does_not_work() {
        let check = |name: &str, state| Check::new(name, state, "", "");
        let mut checks = vec![check("tap", State::Missing), check("NIC 0000:01:00.0", State::Better)];
        checks.extend(["af_packet", "af_xdp", "KVM", dpdk::DEVICES].map(|name| check(name, State::Ok)));
        let found = |memory| dpdk::Found { memory, checks: vec![] };
        let said = verdict(&checks, &found(Some(::dpdk::Memory::Ordinary)));
        assert!(said.starts_with("Everything but physical NICs, tap works; ") && said.contains("ordinary"), "{said}");
        checks.extend([check("tap", State::Ok), check("NIC 0000:02:00.0", State::Ok)]);
        assert!(verdict(&checks, &found(Some(::dpdk::Memory::Huge))).starts_with("Everything works; "));
        assert!(verdict(&checks, &found(None)).contains("does not start"));
    }
}
