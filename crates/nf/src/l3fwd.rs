//! An IPv4 and IPv6 router.

mod config;
mod counters;
mod fib;
mod forward;
mod fragment;
mod headers;
mod icmp_errors;
mod install;
mod interface;
mod neighbours;
mod operations;
mod ports;
mod punt;
mod route_source;
mod router;
mod settings;
mod slow_path;

use config::Config;
use diagnostics::Diagnostic;
use fib::Fib;
pub use fib::installed_routes::{InstalledHop, InstalledTarget, Refused};
use graph::{BuildContext, ControlPlane, Nf, Node, Representor, RouteServer, TakeOver};
pub use operations::{LiveRoutes, LiveVrf};
use punt::limits::PuntBuckets;
pub use route_source::{FpmSettings, KernelRoutesSettings, RouteSource};
use router::Router;
use settings::Settings;

/// `l3fwd`: an IPv4 and IPv6 router (RFC 1812, RFC 8200).
pub struct L3fwd;

impl Nf for L3fwd {
    type Settings = Settings;
    const KIND: &'static str = "l3fwd";
    const ABOUT: &'static str = "Routes IPv4 and IPv6 packets between its interfaces by longest prefix match, resolves \
         neighbours by ARP and neighbor discovery, and reports undeliverable packets to their senders by ICMP.";
    const INPUTS: &'static [&'static str] = &[];
    const TAKES_OVER: Option<TakeOver> = Some(TakeOver { state: "neighbours", unless: &[], format: Some(2) });
    const OUTPUTS: &'static [&'static str] = ports::OUTPUTS;
    const EXAMPLE: &'static str = "interface.lan = { addresses = [\"10.0.0.1/24\", \"2001:db8::1/64\"] }\n\
         interface.wan = { addresses = [\"192.0.2.2/24\"] }\n\
         route = [{ prefix = \"0.0.0.0/0\", via = [\"192.0.2.1\"] }]";

    fn interfaces(settings: &Settings) -> Vec<String> {
        settings.ports().into_iter().cloned().chain(settings.representor_names()).collect()
    }

    fn representors(settings: &Settings, name: &str) -> Vec<Representor> {
        settings.representors(name)
    }

    fn control_planes(settings: &Settings) -> Vec<ControlPlane> {
        settings.tenant.iter().filter_map(|(name, tenant)| tenant.control_plane(name)).collect()
    }

    fn route_servers(settings: &Settings) -> Vec<RouteServer> {
        settings.route_servers()
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let config = Config::new(settings, cx)?;
        let fib = cx.shared(|| Fib::new(&config, settings, cx))?;
        let representors = || settings.representor_names().collect();
        let live = cx.shared(|| Ok(LiveRoutes::new(fib.clone(), config.clone(), representors())))?;
        if let Some(before) = cx.before::<LiveRoutes>() {
            live.take_over(&before);
        }
        let buckets = cx.shared(|| Ok(PuntBuckets::new(config.representors.len(), &config.punt)))?;
        Ok(Router::new(config, fib, buckets, cx.copy.0))
    }
}

#[cfg(test)]
mod tests;
