//! `bondstone import`.

use crate::exit::Exit;
use crate::stdout::stdout;
use diagnostics::Diagnostics;
use logger::eprintln;
use std::io::{Read, Write, stdin};
use std::path::PathBuf;

/// Converts a rule set of iptables or nftables to settings of the NF `firewall`.
///
/// Converts the rules for forwarded packets: the chain FORWARD, or the only nftables base chain of the hook forward,
/// with the chains that they jump to. Matches on connection states use the connection tracking of the NF. Rules that
/// the NF cannot express are errors with line, token and remedy; omitted statements without effect are listed in
/// comments.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 success, 2 the rule set cannot be converted.

Examples:
  iptables-save | bondstone import iptables - > firewall.toml
  nft -j list ruleset | bondstone import nft -
  bondstone import nft ruleset.json --lines > edge.rules")]
pub(crate) struct Import {
    /// Format of the rule set.
    #[arg(value_enum)]
    from: From,
    /// File with the rule set; - for standard input.
    list: PathBuf,
    /// Prints only the rules, one per line, for the setting `file`.
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
                let fault = diagnostics::Diagnostic::new(format!("cannot read: {e}")).value(self.list.display());
                Diagnostics(vec![fault.remedy("specify a file, or - for standard input")])
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
        let mut out = stdout();
        if self.lines {
            imported.notes.iter().try_for_each(|note| writeln!(out, "# {note}"))?;
            imported.rules.iter().try_for_each(|rule| writeln!(out, "{rule}"))?;
            let default = if imported.default_accept { "accept" } else { "drop" };
            eprintln!(
                "settings besides `file`: default = {default:?}{}",
                if imported.tracked { ", track = {}" } else { "" }
            );
        } else {
            write!(out, "{imported}")?;
        }
        Ok(Exit::Success)
    }
}
