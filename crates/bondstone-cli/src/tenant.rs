//! `bondstone tenant`.

mod edit;

use crate::exit::Exit;
use crate::instance::Target;
use crate::stdout::stdout;
use crate::table::{Table, count};
use anyhow::Context as _;
use clap::Args;
use control::{ClientError, Request, TenantDaemon, TenantInterface, Tenants};
use diagnostics::{Diagnostic, Diagnostics};
use edit::{Addition, ChainText};
use ipnet::IpNet;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Lists, adds and removes tenants of routers (l3fwd), without losing a packet.
///
/// A tenant has interfaces, routes and a control plane of its own, such as daemons of FRR in a network namespace; the
/// router forwards for all of them.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  bondstone tenant list
  bondstone tenant show blue
  bondstone tenant add blue --interface blue-lan=10.1.0.1/24 --device blue-lan=tap:blue0 --frr bgpd --config blue.conf
  bondstone tenant rm blue")]
pub(crate) enum Tenant {
    /// Lists tenants: interfaces, routes, and whether their routing daemon runs and is connected.
    List {
        /// Name of the router; by default all routers.
        nf: Option<String>,
        #[command(flatten)]
        target: Target,
    },
    /// Shows a tenant with its interfaces, limits and daemons.
    Show {
        /// Name of the tenant.
        name: String,
        #[command(flatten)]
        target: Target,
    },
    /// Adds a tenant to the chain file, and reloads it.
    #[command(after_help = "\
Examples:
  # routing by BGP: FRR runs in the namespace blue, and `vtysh -N blue` configures it further
  bondstone tenant add blue --interface blue-lan=10.1.0.1/24,fd01::1/64 --device blue-lan=tap:blue0 --frr bgpd,bfdd \\
    --config bgp.conf --set as=65001 --routes-max 10000 --prefix 10.0.0.0/8
  # a routing daemon of your own in a namespace, or static routes: bondstone routes add --tenant red
  bondstone tenant add red --interface red-lan=10.1.0.1/24 --device red-lan=tap:red0 --namespace red
  # see the file that would run
  bondstone tenant add red --interface red-lan=10.1.0.1/24 --device red-lan=tap:red0 --dry-run")]
    Add(AddTenant),
    /// Removes a tenant from the chain file, with its interfaces and their ports and paths, and reloads it.
    Rm {
        /// Name of the tenant.
        name: String,
        #[command(flatten)]
        place: Place,
    },
}

/// The file that is changed, and the instance that runs it.
#[derive(Args)]
pub(crate) struct Place {
    /// Router in the file; it may be omitted if there is only one.
    #[arg(long, value_name = "NF")]
    router: Option<String>,
    /// Chain file, which is only changed; by default it is that of the instance, which reloads it.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Prints the new file, and changes nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
pub(crate) struct AddTenant {
    /// Name of the tenant.
    name: String,
    /// An interface, which is also the name of its port, with addresses: NAME=ADDRESS/LENGTH[,...]. Repeat it for more.
    #[arg(long, required = true, value_name = "NAME=ADDRESSES", value_parser = interface)]
    interface: Vec<(String, Vec<IpNet>)>,
    /// Device of an interface's port, as in the chain file; it may be omitted if the file has the port: NAME=DEVICE.
    #[arg(long, value_name = "NAME=DEVICE", value_parser = pair)]
    device: Vec<(String, String)>,
    /// Network namespace of the control plane, which is created if it does not exist [default with --frr: the name of the
    /// tenant].
    #[arg(long)]
    namespace: Option<String>,
    /// Daemons of FRR that run in the namespace, besides zebra and staticd.
    #[arg(long, value_name = "DAEMONS", value_delimiter = ',')]
    frr: Vec<String>,
    /// Configuration of FRR, in which @NAME@ stands for a value of --set [default: that in /etc/frr/NAMESPACE].
    #[arg(long, value_name = "FILE", requires = "frr")]
    config: Option<PathBuf>,
    /// A value of the configuration: NAME=VALUE.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, requires = "config")]
    set: Vec<(String, String)>,
    /// Maximum number of routes of the routing daemon.
    #[arg(long, value_name = "N")]
    routes_max: Option<u32>,
    /// Prefixes that contain its routes; by default any.
    #[arg(long, value_name = "PREFIX")]
    prefix: Vec<IpNet>,
    #[command(flatten)]
    place: Place,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("has no =")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn interface(text: &str) -> Result<(String, Vec<IpNet>), String> {
    let (name, addresses) = pair(text)?;
    let address = |text: &str| text.parse().map_err(|_| format!("{text:?} is not an address such as 10.0.0.1/24"));
    Ok((name, addresses.split(',').map(address).collect::<Result<_, _>>()?))
}

impl Tenant {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match self {
            Tenant::List { nf, target } => {
                let tenants: Tenants = target.connect()?.call(&Request::Tenants { nf: nf.clone() })?;
                target.print(&tenants, print_list)
            }
            Tenant::Show { name, target } => {
                let all: Tenants = target.connect()?.call(&Request::Tenants { nf: None })?;
                let found: Vec<_> = all.tenants.iter().filter(|tenant| tenant.name == *name).cloned().collect();
                if found.is_empty() {
                    let names: Vec<&str> = all.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
                    let remedy = if names.is_empty() {
                        "there is none".to_owned()
                    } else {
                        format!("name one of {}", names.join(", "))
                    };
                    return Err(Diagnostics(vec![Diagnostic::new("is not a tenant").value(name).remedy(remedy)]).into());
                }
                target.print(&Tenants { tenants: found, ..all }, print_details)
            }
            Tenant::Add(add) => add.place.change(|text| text.add(add.place.router.as_deref(), &add.addition())),
            Tenant::Rm { name, place } => place.change(|text| text.remove(place.router.as_deref(), name)),
        }
    }
}

impl AddTenant {
    fn addition(&self) -> Addition<'_> {
        let namespace = self.namespace.as_deref().or((!self.frr.is_empty()).then_some(self.name.as_str()));
        Addition {
            name: &self.name,
            interfaces: &self.interface,
            devices: &self.device,
            namespace,
            frr: &self.frr,
            config: self.config.as_deref(),
            values: &self.set,
            routes_max: self.routes_max,
            prefixes: &self.prefix,
        }
    }
}

impl Place {
    /// Changes the file, and has the instance reload it. A file that the instance refuses stays as it was.
    fn change(&self, change: impl FnOnce(&mut ChainText) -> Result<(), Diagnostic>) -> anyhow::Result<Exit> {
        let (file, mut client) = match &self.file {
            Some(file) => (file.clone(), None),
            None => {
                let mut client = self.target.connect()?;
                let Tenants { file, .. } = client.call(&Request::Tenants { nf: None })?;
                (PathBuf::from(file), Some(client))
            }
        };
        let at = |d: Diagnostic| Diagnostics(vec![Diagnostic { file: Some(file.clone()), ..d }]);
        let before = config::read(&file, "chain file").map_err(|d| Diagnostics(vec![d]))?;
        let mut text = ChainText::parse(&before).map_err(at)?;
        change(&mut text).map_err(at)?;
        let after = text.to_string();
        if self.dry_run {
            write!(stdout(), "{after}")?;
            return Ok(Exit::Success);
        }
        write(&file, &after)?;
        let Some(client) = &mut client else {
            writeln!(stdout(), "{} changed", file.display())?;
            return Ok(Exit::Success);
        };
        match client.call::<runtime::Reloaded>(&Request::Reload { file: Some(file.clone()) }) {
            Ok(reloaded) => self.target.print(&reloaded, |reloaded, out| write!(out, "{}", reloaded.changes)),
            Err(e) => {
                if matches!(e, ClientError::Refused(_)) {
                    write(&file, &before)?;
                }
                Err(e.into())
            }
        }
    }
}

/// Writes a file at once.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = file.with_file_name(name);
    let write = || {
        std::fs::write(&new, text)?;
        std::fs::set_permissions(&new, std::fs::metadata(file)?.permissions())?;
        std::fs::rename(&new, file)
    };
    write().with_context(|| format!("{} cannot be written", file.display()))
}

fn print_list(Tenants { tenants, .. }: &Tenants, out: &mut dyn Write) -> std::io::Result<()> {
    let mut table = Table::new(&["tenant", "router", "namespace", "interfaces", "control plane", "routes", "maximum"]);
    for tenant in tenants {
        let interfaces: Vec<&str> = tenant.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        let down: Vec<&str> =
            tenant.daemons.iter().filter(|daemon| daemon.pid.is_none()).map(|daemon| daemon.name.as_str()).collect();
        let state = match (&tenant.peer, tenant.routes_max) {
            _ if !down.is_empty() => format!("{} down", down.join(", ")),
            (Some(_), _) => "connected".to_owned(),
            (None, Some(_)) => "not connected".to_owned(),
            (None, None) => "none".to_owned(),
        };
        table.row([
            tenant.name.clone(),
            tenant.nf.clone(),
            tenant.namespace.clone().unwrap_or_default(),
            interfaces.join(", "),
            state,
            count(tenant.installed_routes as u64),
            tenant.routes_max.map_or(String::new(), |max| count(max as u64)),
        ]);
    }
    write!(out, "{table}")
}

fn print_details(Tenants { tenants, .. }: &Tenants, out: &mut dyn Write) -> std::io::Result<()> {
    for tenant in tenants {
        writeln!(out, "tenant {} of router {}", tenant.name, tenant.nf)?;
        if let Some(namespace) = &tenant.namespace {
            writeln!(out, "  namespace      {namespace}")?;
        }
        for TenantInterface { name, addresses } in &tenant.interfaces {
            writeln!(out, "  interface      {name}  {}", addresses.join(", "))?;
        }
        let max = tenant.routes_max.map_or(String::new(), |max| format!(" of at most {}", count(max as u64)));
        writeln!(out, "  routes         {}{max}", count(tenant.installed_routes as u64))?;
        if !tenant.prefixes.is_empty() {
            writeln!(out, "  prefixes       {}", tenant.prefixes.join(", "))?;
        }
        if tenant.routes_max.is_some() {
            let peer =
                tenant.peer.as_deref().map_or("not connected".to_owned(), |peer| format!("connected from {peer}"));
            writeln!(out, "  routing daemon {peer}")?;
        }
        if tenant.refused > 0 || tenant.malformed > 0 {
            let (refused, malformed) = (count(tenant.refused), count(tenant.malformed));
            writeln!(out, "  messages       {refused} refused, {malformed} malformed")?;
        }
        for TenantDaemon { name, pid, seconds, restarts, ended } in &tenant.daemons {
            let state = match pid {
                Some(pid) => format!("process {pid}, for {seconds} s"),
                None => "down".to_owned(),
            };
            let ended =
                ended.as_ref().map_or(String::new(), |ended| format!("; {restarts} restarts, the last as it {ended}"));
            writeln!(out, "  {name:<14} {state}{ended}")?;
        }
    }
    Ok(())
}
