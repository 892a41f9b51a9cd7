//! The kernel's bridge.

use super::attach::Attached;
use super::{About, Driver, DutError, Plan, Ports, Running, Site, rhythm};
use crate::bed::{Act, Acted};
use std::sync::atomic::AtomicBool;
use traffic::nfpa::tables;

pub(crate) struct Bridge {
    ports: Ports,
}

impl Bridge {
    pub(crate) fn new(plan: &Plan) -> Bridge {
        Bridge { ports: plan.ports.clone() }
    }
}

/// What the kernel calls itself.
pub(crate) fn kernel() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|v| format!("Linux {}", v.trim()))
}

/// What is to be known of a device in the kernel.
pub(crate) fn remark(site: &Site) -> String {
    if !site.inner().is_empty() {
        return "the CPUs that work in the kernel are those of its interfaces' interrupts: none was steered".to_owned();
    }
    format!(
        "the kernel's work is steered to CPU {} (RPS); what sends a frame costs the generator's CPU as well",
        site.cpu_list()
    )
}

/// Makes the bridge.
fn commands(ports: &[String]) -> Vec<String> {
    let bridge = ["link add br0 type bridge mcast_snooping 0 stp_state 0", "link set br0 addrgenmode none"];
    let ports = ports.iter().map(|port| format!("link set {port} master br0"));
    let all = bridge.into_iter().map(str::to_owned).chain(ports).chain(["link set br0 up".to_owned()]);
    all.map(|words| format!("ip {words}")).collect()
}

impl Driver for Bridge {
    fn start(&mut self, site: &mut Site) -> Result<Running, DutError> {
        let attached = Attached::new(site, &self.ports)?;
        let namespace = attached.kernel(site)?;
        let run = |site: &mut Site, words: &str| namespace.run(site, &words.split(' ').collect::<Vec<_>>());
        for command in commands(&attached.inner) {
            run(site, &command)?;
        }
        if let Some(table) =
            site.table("hosts.batch", |tables, file| tables::bridge_batch(tables, attached.exit(), file))?
        {
            let path = table.display().to_string();
            namespace.run(site, &["bridge", "-batch", &path])?;
        }
        let about = About { version: kernel(), remarks: vec![remark(site)], ..About::default() };
        Ok(Running::new(site, attached, vec![], about))
    }

    fn cannot(&self, _: Act) -> Option<&'static str> {
        None
    }

    /// Reset: the bridge is deleted, and made anew with its ports. Changes: MAC addresses that no packet of the tests has are
    /// added to its table and taken out in turn.
    fn act(&mut self, running: &Running, site: &Site, act: Act, stop: &AtomicBool) -> Result<Acted, DutError> {
        let attached = running.attached();
        let namespace = attached.kernel(site)?;
        let does = |words: &str| namespace.line(&words.split(' ').collect::<Vec<_>>()).succeeds();
        Ok(match act {
            Act::Reset { at_s } => rhythm::once(at_s, stop, || {
                let gone = does("ip link del br0");
                commands(&attached.inner).iter().fold(gone, |good, command| does(command) && good)
            }),
            Act::Changes { per_second } => rhythm::changes(per_second, stop, |n| {
                let verb = if n.is_multiple_of(2) { "add" } else { "del" };
                does(&format!(
                    "bridge fdb {verb} 02:bb:00:00:00:{:02x} dev {} master static",
                    n / 2 % 256,
                    attached.exit()
                ))
            }),
        })
    }
}
