//! `bondstone maglev`.

use crate::exit::Exit;
use crate::instance::Target;
use crate::table::{Table, count};
use control::{MaglevBackend, MaglevBackends, MaglevDrained, Request};
use std::io::Write;

/// Lists and drains the backends of a running load balancer (maglev).
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  bondstone maglev backends
  bondstone maglev drain lb web1
  bondstone maglev undrain lb web1")]
pub(crate) enum Maglev {
    /// Lists backends with their state, connections and packets.
    #[command(
        after_help = "Examples:\n  bondstone maglev backends\n  bondstone maglev backends lb --json --instance edge"
    )]
    Backends {
        /// Name of the load balancer; it may be omitted if only one runs.
        nf: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Drains a backend: it receives no new connections, and present ones continue.
    ///
    /// Its connections are those that `backends` lists; when they are 0, the backend can be stopped. It stays drained,
    /// whatever health checks find, until `undrain`, or a reload that changes the settings of the load balancer.
    #[command(after_help = "Examples:\n  bondstone maglev drain lb web1\n  bondstone maglev drain lb shop/web1")]
    Drain(Backend),
    /// Lets a drained backend receive new connections again, also one that the chain file drains.
    #[command(after_help = "Examples:\n  bondstone maglev undrain lb web1")]
    Undrain(Backend),
}

/// Selects a backend.
#[derive(clap::Args)]
pub(crate) struct Backend {
    /// Name of the load balancer.
    nf: String,
    /// Name of the backend; SERVICE/BACKEND if several services have one of this name.
    backend: String,
    #[command(flatten)]
    target: Target,
}

impl Maglev {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match self {
            Maglev::Backends { nf, target } => {
                let list: MaglevBackends = target.connect()?.call(&Request::MaglevBackends { nf: nf.clone() })?;
                target.print(&list, print_list)
            }
            Maglev::Drain(backend) => drain(backend, true),
            Maglev::Undrain(backend) => drain(backend, false),
        }
    }
}

fn print_list(list: &MaglevBackends, out: &mut dyn Write) -> std::io::Result<()> {
    let mut table = Table::new(&["service", "backend", "address", "state", "connections", "packets", "slots"]);
    for b in &list.backends {
        let MaglevBackend { service, backend, address, state, slots, connections, packets } = b.clone();
        table.row([service, backend, address, state, count(connections), count(packets), count(slots as u64)]);
    }
    write!(out, "{table}")
}

fn drain(Backend { nf, backend, target }: &Backend, drain: bool) -> anyhow::Result<Exit> {
    let request = Request::MaglevDrain { nf: Some(nf.clone()), backend: backend.clone(), drain };
    let drained: MaglevDrained = target.connect()?.call(&request)?;
    target.print(&drained, |MaglevDrained { nf, service, backend, state }, out| {
        writeln!(out, "{nf}: {service}/{backend} is {state}")
    })
}
