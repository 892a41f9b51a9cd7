//! `bondstone rules`.

use crate::exit::Exit;
use crate::instance::Target;
use crate::stdin_lines::lines;
use crate::table::{Table, count};
use control::{Request, RuleChange, RuleEntry, RulesChanged, RulesPage};
use std::io::Write;

/// Lists and changes the rules of a running firewall, without losing a packet.
///
/// Workers apply a change between two batches; known connections continue. Changes last until a reload changes the
/// settings of the firewall, or its file of rules changes.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  bondstone rules list
  bondstone rules add 'drop src 203.0.113.7' --at 1
  bondstone rules remove 3
  bondstone rules add - < new.rules")]
pub(crate) enum Rules {
    /// Lists rules with their numbers and packets.
    #[command(after_help = "Examples:\n  bondstone rules list\n  bondstone rules list fw --json --instance edge")]
    List {
        /// Name of the firewall; it may be omitted if only one runs.
        nf: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Adds rules, all of them at once or, if one is invalid, none.
    #[command(after_help = "\
Examples:
  bondstone rules add 'drop src 203.0.113.7'                  # the last one
  bondstone rules add 'drop src 203.0.113.7' --at 1 --nf fw   # the first one
  bondstone rules add - --at 3 < new.rules                    # one rule per line")]
    Add {
        /// Rules, such as 'drop src 10.0.0.0/8'; - reads them from standard input, one per line.
        #[arg(required = true)]
        rules: Vec<String>,
        /// Number that the first of them is to have, from 1 [default: after the last rule].
        #[arg(long, value_name = "NUMBER")]
        at: Option<usize>,
        /// Name of the firewall; it may be omitted if only one runs.
        #[arg(long, value_name = "NF")]
        nf: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Removes rules, all of them at once or, if one does not exist, none.
    #[command(after_help = "\
Examples:
  bondstone rules remove 3
  bondstone rules remove 3 4 5 --nf fw
  bondstone rules remove 'drop src 203.0.113.7'
  bondstone rules list --json | jq -r '.rules[] | select(.packets == 0).rule' | bondstone rules remove -")]
    Remove {
        /// Numbers of rules as they are now, or texts; - reads them from standard input, one per line.
        #[arg(required = true)]
        rules: Vec<String>,
        /// Name of the firewall; it may be omitted if only one runs.
        #[arg(long, value_name = "NF")]
        nf: Option<String>,
        #[command(flatten)]
        target: Target,
    },
}

impl Rules {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match self {
            Rules::List { nf, target } => target.print(&list(nf.as_ref(), target)?, print_list),
            Rules::Add { rules, at, nf, target } => {
                let add = |(n, rule)| RuleChange::Add { rule, number: at.map(|at| at + n) };
                change(nf.as_ref(), target, lines(rules)?.into_iter().enumerate().map(add).collect())
            }
            Rules::Remove { rules, nf, target } => {
                let (mut numbers, mut changes) = (vec![], vec![]);
                for rule in lines(rules)? {
                    match rule.parse() {
                        Ok(number) => numbers.push(number),
                        Err(_) => changes.push(RuleChange::RemoveText(rule)),
                    }
                }
                // the last one first, so that numbers stay what they are now
                numbers.sort_unstable();
                changes.splice(..0, numbers.into_iter().rev().map(RuleChange::Remove));
                change(nf.as_ref(), target, changes)
            }
        }
    }
}

/// Returns all rules, which the instance lists in pages.
fn list(nf: Option<&String>, target: &Target) -> anyhow::Result<RulesPage> {
    let mut client = target.connect()?;
    let mut all: RulesPage = client.call(&Request::Rules { nf: nf.cloned(), from: None })?;
    while let Some(from) = all.next {
        let next: RulesPage = client.call(&Request::Rules { nf: Some(all.nf.clone()), from: Some(from) })?;
        all.rules.extend(next.rules);
        all.next = next.next;
    }
    Ok(all)
}

fn print_list(list: &RulesPage, out: &mut dyn Write) -> std::io::Result<()> {
    let mut table = Table::new(&["rule", &format!("of {}", list.nf), "packets"]);
    for RuleEntry { number, rule, packets } in &list.rules {
        table.row([number.to_string(), rule.clone(), count(*packets)]);
    }
    table.row(["default".to_owned(), list.default.clone(), count(list.default_packets)]);
    write!(out, "{table}")
}

fn change(nf: Option<&String>, target: &Target, changes: Vec<RuleChange>) -> anyhow::Result<Exit> {
    let remedy = "write the rules to the file that the setting file of the firewall names";
    let changed: RulesChanged = target.change(&Request::ChangeRules { nf: nf.cloned(), changes }, remedy)?;
    target.print(&changed, |changed, out| {
        let RulesChanged { nf, added, removed, total } = changed;
        writeln!(out, "{nf}: {added} added, {removed} removed, {total} in total")
    })
}
