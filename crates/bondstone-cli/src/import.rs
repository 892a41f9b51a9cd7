//! `bondstone import`.

use crate::exit::Exit;
use diagnostics::Diagnostics;
use std::io::{Read, Write, stdin, stdout};
use std::path::PathBuf;

/// Turns the rule list of another firewall into settings of the NF `firewall`.
///
/// Read is what decides about forwarded packets: the chain FORWARD, or nftables' one base chain of the hook forward, with
/// the chains that it jumps to. States of connections become the firewall's own tracking. What the firewall's rules cannot say is refused, with its
/// line, its word and a remedy; what is left out because it changes nothing is named in comments above the rules.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 done, 2 the list cannot be said in rules of the firewall.

Examples:
  iptables-save | bondstone import iptables - > firewall.toml
  nft -j list ruleset | bondstone import nft -
  bondstone import nft ruleset.json --lines > edge.rules")]
pub(crate) struct Import {
    /// What has printed the list.
    #[arg(value_enum)]
    from: From,
    /// The list; - for standard input.
    list: PathBuf,
    /// Prints the rules alone, one a line, for the setting file.
    #[arg(long)]
    lines: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum From {
    /// iptables-save
    Iptables,
    /// ip6tables-save
    Ip6tables,
    /// nft -j list ruleset
    Nft,
}

impl Import {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let mut text = String::new();
        if self.list.as_os_str() == "-" {
            stdin().read_to_string(&mut text)?;
        } else {
            text = std::fs::read_to_string(&self.list).map_err(|e| {
                let fault = diagnostics::Diagnostic::new(format!("cannot be read: {e}")).value(self.list.display());
                Diagnostics(vec![fault.remedy("name a file, or - for standard input")])
            })?;
        }
        let imported = match self.from {
            From::Iptables => ::nf::import::iptables(&text, false),
            From::Ip6tables => ::nf::import::iptables(&text, true),
            From::Nft => ::nf::import::nft(&text),
        };
        let imported = imported.map_err(|mut fault| {
            fault.file = Some(self.list.clone());
            Diagnostics(vec![fault])
        })?;
        let mut out = stdout().lock();
        if self.lines {
            imported.notes.iter().try_for_each(|note| writeln!(out, "# {note}"))?;
            imported.rules.iter().try_for_each(|rule| writeln!(out, "{rule}"))?;
            let default = if imported.accepts { "accept" } else { "drop" };
            eprintln!("beside file: default = {default:?}{}", if imported.tracked { ", track = {}" } else { "" });
        } else {
            write!(out, "{imported}")?;
        }
        Ok(Exit::Done)
    }
}
