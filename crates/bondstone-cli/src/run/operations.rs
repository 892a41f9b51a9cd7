//! Live operations on NFs and log messages, executed by the threads of clients of the control socket.

use super::fpm_servers::FpmServers;
use crate::control_planes::DaemonState;
use control::{
    MaglevBackends, MaglevDrained, NatClosed, NatSessions, Refusal, Request, RoutesChanged, RoutesPage, RulesChanged,
    RulesPage, Tenant, TenantDaemon, TenantInterface, Tenants,
};
use diagnostics::Diagnostic;
use graph::Nf;
use nf::live::{LiveBackends, LiveRoutes, LiveRules, LiveSessions, LiveVrf};
use nf::{Firewall, L3fwd, Maglev, Nat44, Nat64};
use runtime::LiveNfs;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;

/// Kinds with sessions.
const NAT: &[&str] = &[Nat44::KIND, Nat64::KIND];

/// Executes a request that operates an NF or the log; returns `None` for others.
pub(super) fn execute(request: &Request, nfs: &LiveNfs) -> Option<Result<serde_json::Value, Refusal>> {
    Some(match request {
        Request::Rules { nf, from } => select::<LiveRules>(nfs, nf.as_deref(), &[Firewall::KIND])
            .and_then(|(nf, rules)| to_json(&RulesPage { nf, ..rules.page(from.unwrap_or(1)) })),
        Request::ChangeRules { nf, changes } => select::<LiveRules>(nfs, nf.as_deref(), &[Firewall::KIND])
            .and_then(|(nf, rules)| to_json(&RulesChanged { nf, ..rules.change(changes)? })),
        Request::NatSessions { nf, filter, from } => select::<LiveSessions>(nfs, nf.as_deref(), NAT)
            .and_then(|(nf, live)| to_json(&NatSessions { nf, ..live.page(filter, from.as_deref())? })),
        Request::NatClose { nf, filter, from } => select::<LiveSessions>(nfs, nf.as_deref(), NAT)
            .and_then(|(nf, live)| to_json(&NatClosed { nf, ..live.close(filter, from.as_deref())? })),
        Request::MaglevBackends { nf } => select::<LiveBackends>(nfs, nf.as_deref(), &[Maglev::KIND])
            .and_then(|(nf, live)| to_json(&MaglevBackends { nf, ..live.list()? })),
        Request::MaglevDrain { nf, backend, drain } => select::<LiveBackends>(nfs, nf.as_deref(), &[Maglev::KIND])
            .and_then(|(nf, live)| to_json(&MaglevDrained { nf, ..live.drain(backend, *drain)? })),
        Request::Routes { nf, tenant, from } => vrf(nfs, nf.as_deref(), tenant.as_deref())
            .and_then(|(nf, live)| to_json(&RoutesPage { nf, ..live.page(from.as_deref())? })),
        Request::ChangeRoutes { nf, tenant, changes } => vrf(nfs, nf.as_deref(), tenant.as_deref())
            .and_then(|(nf, live)| to_json(&RoutesChanged { nf, ..live.change(changes)? })),
        Request::LogLevel { set, target } => {
            super::log::level(set.as_deref(), target.as_deref()).and_then(|levels| to_json(&levels))
        }
        Request::Stats {}
        | Request::Tenants { .. }
        | Request::Reload { .. }
        | Request::Capture(_)
        | Request::Trace { .. }
        | Request::Upgrade {}
        | Request::Stop { .. } => return None,
    })
}

/// Returns the tenants of all routers, or of one.
pub(super) fn tenants(
    nfs: &LiveNfs,
    nf: Option<&str>,
    file: &Path,
    fpm: &FpmServers,
    daemons: &[DaemonState],
) -> Result<serde_json::Value, Refusal> {
    let all = match nf {
        Some(name) => vec![select::<LiveRoutes>(nfs, Some(name), &[L3fwd::KIND])?],
        None => {
            let live = |nf: String| nfs.shared::<LiveRoutes>(&nf).map(|live| (nf, live));
            nfs.of_kind(L3fwd::KIND).into_iter().filter_map(live).collect()
        }
    };
    let tenant = |nf: &str, vrf: &LiveVrf| {
        let name = vrf.tenant()?;
        let state = fpm.state(nf, Some(name));
        let daemon = |state: &DaemonState| TenantDaemon {
            name: state.daemon.clone(),
            pid: state.pid,
            seconds: state.seconds,
            restarts: state.restarts,
            ended: state.ended.clone(),
        };
        Some(Tenant {
            nf: nf.to_owned(),
            name: name.to_owned(),
            namespace: vrf.fpm().and_then(|fpm| fpm.namespace.clone()),
            interfaces: vrf.interfaces().map(|(name, addresses)| TenantInterface { name, addresses }).collect(),
            installed_routes: vrf.installed_routes(),
            routes_max: vrf.fpm().map(|fpm| fpm.routes_max),
            prefixes: vrf.fpm().map_or(vec![], |fpm| fpm.prefixes.iter().map(|net| net.0.to_string()).collect()),
            peer: state.peer.map(|peer| peer.to_string()),
            refused: state.counts.refused,
            malformed: state.counts.malformed,
            daemons: daemons.iter().filter(|state| state.tenant == name).map(daemon).collect(),
        })
    };
    let tenants = all.iter().flat_map(|(nf, live)| live.vrfs().filter_map(move |vrf| tenant(nf, &vrf))).collect();
    to_json(&Tenants { file: file.display().to_string(), tenants })
}

/// Returns the name of a router, and its routes or those of a tenant.
fn vrf(nfs: &LiveNfs, nf: Option<&str>, tenant: Option<&str>) -> Result<(String, LiveVrf), Refusal> {
    let (nf, live) = select::<LiveRoutes>(nfs, nf, &[L3fwd::KIND])?;
    let Some(vrf) = live.vrf(tenant) else {
        let all: Vec<String> = live.vrfs().filter_map(|vrf| vrf.tenant().map(str::to_owned)).collect();
        let remedy = if all.is_empty() { "it has none".to_owned() } else { format!("name one of {}", all.join(", ")) };
        let d = Diagnostic::new(format!("is not a tenant of {nf}")).value(tenant.unwrap_or_default());
        return Err(d.remedy(remedy).into());
    };
    Ok((nf, vrf))
}

/// Returns the name of an NF of one of these kinds, and the state of it that is operated.
fn select<T: Any + Send + Sync>(
    nfs: &LiveNfs,
    name: Option<&str>,
    kinds: &[&str],
) -> Result<(String, Arc<T>), Refusal> {
    let all: Vec<String> = kinds.iter().flat_map(|kind| nfs.of_kind(kind)).collect();
    let kinds = kinds.join(" or ");
    let list = match &all[..] {
        [] => "NFs in sandboxes cannot be changed while they run".to_owned(),
        all => format!("name one of {}", all.join(", ")),
    };
    let refuse = |problem: String| Refusal::from(Diagnostic::new(problem).remedy(&list));
    let name = match (name, &all[..]) {
        (Some(name), _) if all.iter().any(|own| own == name) => name,
        (Some(name), _) => {
            let problem = match nfs.kind(name) {
                Some(kind) => format!("is of kind {kind}, not {kinds}"),
                None => format!("is not an NF of kind {kinds} in this process"),
            };
            return Err(Diagnostic::new(problem).value(name).remedy(&list).into());
        }
        (None, [only]) => only,
        (None, []) => return Err(refuse(format!("no NF of kind {kinds} runs in this process"))),
        (None, _) => return Err(refuse(format!("several NFs of kind {kinds} run"))),
    };
    match nfs.shared(name) {
        Some(state) => Ok((name.to_owned(), state)),
        // of another crate, or replaced a moment ago
        None => Err(Diagnostic::new("cannot be operated while it runs").value(name).into()),
    }
}

fn to_json(result: &impl serde::Serialize) -> Result<serde_json::Value, Refusal> {
    serde_json::to_value(result).map_err(|e| Refusal::new(e.to_string()))
}
