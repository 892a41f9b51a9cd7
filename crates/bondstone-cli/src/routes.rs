//! `bondstone routes`.

use crate::exit::Exit;
use crate::instance::Target;
use crate::stdin_lines::lines;
use crate::table::Table;
use control::{NextHop, Request, Route, RouteChange, RoutesChanged, RoutesPage};
use std::io::Write;

/// Lists and changes the routes of a running router (l3fwd), without losing a packet.
///
/// Changes last until a reload changes the settings of the router or a file that they name.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  bondstone routes list
  bondstone routes add 10.0.0.0/8 via 192.0.2.1 192.0.2.2
  bondstone routes remove 10.0.0.0/8")]
pub(crate) enum Routes {
    /// Lists routes: prefix, next hops with interfaces and states of the neighbours.
    #[command(after_help = "\
Examples:
  bondstone routes list                # the first 100, shortest prefixes first
  bondstone routes list --limit 0      # all
  bondstone routes list --tenant blue
  bondstone routes list router --json --instance edge")]
    List {
        /// Name of the router; it may be omitted if only one runs.
        nf: Option<String>,
        /// Tenant whose routes are listed, instead of those of the router itself.
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Largest number of routes that are listed; 0 for all.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        target: Target,
    },
    /// Adds a route, or replaces the one to the same prefix.
    #[command(after_help = "\
Examples:
  bondstone routes add 10.0.0.0/8 via 192.0.2.1
  bondstone routes add 10.0.0.0/8 via 192.0.2.1 192.0.2.2 --nf router    # flows are spread
  bondstone routes add 203.0.113.7/32 blackhole
  bondstone routes add - < new-routes.txt                                # one per line")]
    Add {
        /// PREFIX via ADDRESS..., PREFIX unreachable, PREFIX prohibit or PREFIX blackhole; - reads lines of these forms from standard
        /// input, and adds all of them or, if one is invalid, none.
        #[arg(required = true, value_name = "PREFIX via ADDRESS")]
        route: Vec<String>,
        /// Name of the router; it may be omitted if only one runs.
        #[arg(long, value_name = "NF")]
        nf: Option<String>,
        /// Tenant whose routes are changed, instead of those of the router itself.
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Removes routes, all of them or, if one does not exist, none.
    #[command(after_help = "\
Examples:
  bondstone routes remove 10.0.0.0/8
  bondstone routes remove 10.0.0.0/8 2001:db8::/32 --nf router")]
    Remove {
        /// Prefixes; - reads them from standard input, one per line.
        #[arg(required = true, value_name = "PREFIX")]
        prefixes: Vec<String>,
        /// Name of the router; it may be omitted if only one runs.
        #[arg(long, value_name = "NF")]
        nf: Option<String>,
        /// Tenant whose routes are changed, instead of those of the router itself.
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        #[command(flatten)]
        target: Target,
    },
}

impl Routes {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match self {
            Routes::List { nf, tenant, limit, target } => {
                let limit = if *limit == 0 { usize::MAX } else { *limit };
                target.print(&list((nf, tenant), limit, target)?, print_list)
            }
            Routes::Add { route, nf, tenant, target } => {
                let routes = if route == &["-"] { lines(route)? } else { vec![route.join(" ")] };
                change((nf, tenant), target, routes.into_iter().map(RouteChange::Add).collect())
            }
            Routes::Remove { prefixes, nf, tenant, target } => {
                change((nf, tenant), target, lines(prefixes)?.into_iter().map(RouteChange::Remove).collect())
            }
        }
    }
}

/// Names of a router and of a tenant of it.
type Names<'a> = (&'a Option<String>, &'a Option<String>);

/// Returns routes, which the instance lists in pages.
fn list((nf, tenant): Names<'_>, limit: usize, target: &Target) -> anyhow::Result<RoutesPage> {
    let mut client = target.connect()?;
    let request = |nf, from| Request::Routes { nf, tenant: tenant.clone(), from };
    let mut all: RoutesPage = client.call(&request(nf.clone(), None))?;
    while let Some(from) = all.next.take().filter(|_| all.routes.len() < limit) {
        let next: RoutesPage = client.call(&request(Some(all.nf.clone()), Some(from)))?;
        all.routes.extend(next.routes);
        all.next = next.next;
    }
    all.routes.truncate(limit);
    Ok(all)
}

fn print_list(list: &RoutesPage, out: &mut dyn Write) -> std::io::Result<()> {
    let mut table = Table::new(&["prefix", "target", "source", "interface", "state", "MAC address"]);
    for Route { prefix, target, source, interface, via } in &list.routes {
        if via.is_empty() {
            table.row([
                prefix.clone(),
                target.clone(),
                source.clone(),
                interface.clone().unwrap_or_default(),
                String::new(),
                String::new(),
            ]);
        }
        for NextHop { address, interface, weight, state, mac } in via {
            let mac = mac.clone().unwrap_or_default();
            let weight = if *weight == 1 { String::new() } else { format!(" weight {weight}") };
            let target = format!("via {address}{weight}");
            table.row([prefix.clone(), target, source.clone(), interface.clone(), state.clone(), mac]);
        }
    }
    write!(out, "{table}")
}

fn change((nf, tenant): Names<'_>, target: &Target, changes: Vec<RouteChange>) -> anyhow::Result<Exit> {
    let remedy = "write the routes to the file that the setting routes of the router names";
    let changed: RoutesChanged =
        target.change(&Request::ChangeRoutes { nf: nf.clone(), tenant: tenant.clone(), changes }, remedy)?;
    target.print(&changed, |RoutesChanged { nf, tenant, added, removed }, out| {
        let of = tenant.as_ref().map_or_else(|| nf.clone(), |tenant| format!("{nf}, tenant {tenant}"));
        writeln!(out, "{of}: {added} added, {removed} removed")
    })
}
