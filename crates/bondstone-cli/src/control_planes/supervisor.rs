//! The process that runs the control planes.

use super::frr::Daemons;
use super::messages::{DaemonState, Order, Said, say};
use super::namespace::Namespace;
use crate::exit::Exit;
use graph::ControlPlane;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Interval at which the daemons are checked.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time that daemons get to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which the namespaces of a run that is ending are waited for: longer than its daemons get.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A control plane.
struct Plane {
    namespace: Namespace,
    /// Its daemons, and the settings that they run with.
    running: Option<(ControlPlane, Daemons)>,
}

/// Runs control planes until standard input ends.
pub(crate) fn supervise() -> anyhow::Result<Exit> {
    // a service manager sends them to all processes; the end of the run ends this one
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let (sender, orders) = channel();
    std::thread::Builder::new().name("orders".to_owned()).spawn(move || {
        let orders = std::io::stdin().lines().map_while(Result::ok).map(|line| serde_json::from_str::<Order>(&line));
        for order in orders.map_while(Result::ok) {
            if sender.send(order).is_err() {
                return;
            }
        }
    })?;
    let mut planes: BTreeMap<String, Plane> = BTreeMap::new();
    loop {
        match orders.recv_timeout(INTERVAL) {
            Ok(order) => {
                let reply = execute(order, &mut planes);
                say(&Said::Reply(reply.map(|()| states(&planes))));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        for (_, daemons) in planes.values_mut().filter_map(|plane| plane.running.as_mut()) {
            daemons.poll();
        }
    }
    end(planes.values_mut());
    Ok(Exit::Success)
}

fn execute(order: Order, planes: &mut BTreeMap<String, Plane>) -> Result<(), String> {
    match order {
        Order::States => Ok(()),
        Order::EndDaemons => {
            end(planes.values_mut());
            Ok(())
        }
        Order::Prepare(wanted) => {
            let deadline = Instant::now() + LOCK_TIMEOUT;
            for ControlPlane { tenant, namespace, frr } in wanted {
                let of = |e: String| format!("tenant {tenant}: {e}");
                frr.map_or(Ok(()), |frr| super::frr::check(&frr)).map_err(of)?;
                if let Entry::Vacant(vacant) = planes.entry(namespace) {
                    let namespace = Namespace::open(vacant.key(), deadline).map_err(of)?;
                    vacant.insert(Plane { namespace, running: None });
                }
            }
            Ok(())
        }
        Order::Run(wanted, cpus) => {
            // ignore errors: daemons may then run on any
            let _ = runtime::set_affinity(&cpus);
            let is_wanted = |name: &String| wanted.iter().any(|plane| plane.namespace == *name);
            let gone: Vec<String> = planes.keys().filter(|name| !is_wanted(name)).cloned().collect();
            let mut gone: Vec<Plane> = gone.iter().filter_map(|name| planes.remove(name)).collect();
            end(gone.iter_mut());
            drop(gone);
            for wanted in wanted {
                let Some(plane) = planes.get_mut(&wanted.namespace) else { continue };
                if plane.running.as_ref().is_some_and(|(running, _)| *running == wanted) {
                    continue;
                }
                end([&mut *plane].into_iter());
                if let Some(frr) = &wanted.frr {
                    let daemons = Daemons::new(&wanted.tenant, &plane.namespace, frr);
                    plane.running = Some((wanted, daemons));
                }
            }
            Ok(())
        }
    }
}

/// Ends the daemons of control planes, all at once.
fn end<'a>(planes: impl Iterator<Item = &'a mut Plane>) {
    let mut running: Vec<Daemons> =
        planes.filter_map(|plane| plane.running.take()).map(|(_, daemons)| daemons).collect();
    running.iter_mut().for_each(Daemons::end);
    let deadline = Instant::now() + END_TIMEOUT;
    running.into_iter().for_each(|daemons| daemons.wait(deadline));
}

fn states(planes: &BTreeMap<String, Plane>) -> Vec<DaemonState> {
    planes.values().filter_map(|plane| plane.running.as_ref()).flat_map(|(_, daemons)| daemons.states()).collect()
}
