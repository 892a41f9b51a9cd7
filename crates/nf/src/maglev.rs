//! A load balancer (Maglev, NSDI'16).

mod backends;
mod balancer;
mod config;
mod connection;
mod counters;
mod destination;
mod destination_numbers;
mod forward;
mod headers;
mod health;
mod operations;
mod rewrite;
mod saved_connections;
mod service_map;
mod settings;
mod slow_path;

use balancer::Balancer;
use config::Config;
use diagnostics::Diagnostic;
use graph::{BuildContext, Nf, Node, Spread, TakeOver};
pub use operations::LiveBackends;
use settings::Settings;
use std::sync::Arc;

/// `maglev`: spreads connections over backends (Maglev, NSDI'16).
pub struct Maglev;

impl Nf for Maglev {
    type Settings = Settings;
    const KIND: &'static str = "maglev";
    const ABOUT: &'static str = "Spreads TCP and UDP connections to virtual addresses over backends by consistent \
         hashing and a connection table; forwards by GRE, IP in IP, direct server return or NAT, and checks the health \
         of backends.";
    const SPREAD: Spread = Spread::Flow;
    const REWRITES: bool = true;
    const TAKES_OVER: Option<TakeOver> =
        Some(TakeOver { state: "connections", unless: &["connections"], format: Some(1) });
    const INPUTS: &'static [&'static str] = &["in", "backends"];
    const EXAMPLE: &'static str = "source = [\"10.0.0.1\"]\n\
         service.web = { vip = [\"tcp 192.0.2.10:80\"], forward = \"gre\", backend = { a = { address = \"10.0.0.11\" }, b = { address = \
         \"10.0.0.12\", weight = 2 } } }";

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let config = Arc::new(Config::new(settings)?);
        let live = cx.shared(|| {
            let before = cx.before::<LiveBackends>();
            let pool = health::start(config, before.as_ref().map(|live| &*live.pool.0))?;
            Ok(LiveBackends::new(Arc::new(pool)))
        })?;
        Balancer::new(settings, live.pool.clone(), live.attach(cx.copy.0))
    }
}

#[cfg(test)]
mod tests;
