//! `bondstone nat`.

use crate::exit::Exit;
use crate::instance::Target;
use crate::table::{Table, count};
use control::{NatClosed, NatSession, NatSessions, Request};
use diagnostics::{Diagnostic, Diagnostics};
use std::io::Write;

/// Lists and closes the sessions of a running address translator (nat44, nat64).
///
/// Workers read a few hundred sessions between two batches, so that a list of a million takes seconds and delays no
/// packet. Sessions that are created or end meanwhile may be missing.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  bondstone nat sessions
  bondstone nat sessions --filter 10.0.0.0/8 --filter tcp --limit 20
  bondstone nat close --filter 10.0.0.5")]
pub(crate) enum Nat {
    /// Lists sessions: inside, outside, peer, protocol, state, and seconds until it expires if no more packets arrive.
    #[command(after_help = "\
Examples:
  bondstone nat sessions                          # the first 100
  bondstone nat sessions nat --limit 0            # all sessions of one of several translators
  bondstone nat sessions --filter 10.0.0.5 --filter tcp --filter :443
  bondstone nat sessions --json --limit 0 | jq -r '.sessions[].inside' | sort | uniq -c")]
    Sessions {
        /// Name of the translator; it may be omitted if only one runs.
        nf: Option<String>,
        #[command(flatten)]
        filter: Filter,
        /// Largest number of sessions that are listed; 0 for all.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        target: Target,
    },
    /// Closes sessions: their ports become free, and further packets need a new session.
    #[command(after_help = "\
Examples:
  bondstone nat close --filter 10.0.0.5
  bondstone nat close nat --filter udp --filter :53
  bondstone nat close --all")]
    Close {
        /// Name of the translator; it may be omitted if only one runs.
        nf: Option<String>,
        #[command(flatten)]
        filter: Filter,
        /// Closes all sessions.
        #[arg(long, conflicts_with = "filter")]
        all: bool,
        #[command(flatten)]
        target: Target,
    },
}

/// Selects sessions.
#[derive(clap::Args)]
pub(crate) struct Filter {
    /// Condition of sessions; several have to be met all: tcp, udp, icmp, an address or network of one of the three
    /// ends, ADDRESS:PORT, [ADDRESS]:PORT or :PORT.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
}

impl Nat {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match self {
            Nat::Sessions { nf, filter, limit, target } => {
                let limit = if *limit == 0 { usize::MAX } else { *limit };
                target.print(&list(nf.as_ref(), filter, limit, target)?, print_list)
            }
            Nat::Close { nf, filter, all, target } => {
                if filter.filter.is_empty() && !all {
                    let problem = Diagnostic::new("no sessions are selected");
                    return Err(Diagnostics(vec![problem.remedy("write --filter TEXT, or --all")]).into());
                }
                target.print(&close(nf.as_ref(), filter, target)?, |closed, out| {
                    writeln!(out, "{}: {} closed", closed.nf, count(closed.closed as u64))
                })
            }
        }
    }
}

/// Returns sessions, which the instance lists in parts.
fn list(nf: Option<&String>, filter: &Filter, limit: usize, target: &Target) -> anyhow::Result<NatSessions> {
    let mut client = target.connect()?;
    let mut all = NatSessions { nf: nf.cloned().unwrap_or_default(), ..NatSessions::default() };
    let mut request = Request::NatSessions { nf: nf.cloned(), filter: filter.filter.clone(), from: None };
    loop {
        let NatSessions { nf, sessions, next } = client.call(&request)?;
        all.sessions.extend(sessions);
        (all.nf, all.next) = (nf.clone(), next.clone());
        if all.sessions.len() > limit {
            all.sessions.truncate(limit);
            return Ok(all);
        }
        if next.is_none() || all.sessions.len() == limit {
            return Ok(all);
        }
        request = Request::NatSessions { nf: Some(nf), filter: filter.filter.clone(), from: next };
    }
}

fn print_list(list: &NatSessions, out: &mut dyn Write) -> std::io::Result<()> {
    let mut table = Table::new(&["protocol", "inside", "outside", "peer", "state", "expires"]);
    for session in &list.sessions {
        let NatSession { protocol, inside, outside, peer, state, expires_s } = session.clone();
        table.row([protocol, inside, outside, peer, state, format!("{expires_s} s")]);
    }
    if table.is_empty() {
        return writeln!(out, "{}: no sessions", list.nf);
    }
    write!(out, "{table}")
}

/// Closes sessions, which the instance does in parts.
fn close(nf: Option<&String>, filter: &Filter, target: &Target) -> anyhow::Result<NatClosed> {
    let mut client = target.connect()?;
    let mut request = Request::NatClose { nf: nf.cloned(), filter: filter.filter.clone(), from: None };
    let mut total = 0;
    loop {
        let NatClosed { nf, closed, next } = client.call(&request)?;
        total += closed;
        if next.is_none() {
            return Ok(NatClosed { nf, closed: total, next });
        }
        request = Request::NatClose { nf: Some(nf), filter: filter.filter.clone(), from: next };
    }
}
