//! The kernel's bridge.

use super::attach::Attached;
use super::{About, Driver, DutError, Plan, Ports, Site, Started, rhythm};
use crate::bed::{Act, Acted};
use std::sync::atomic::AtomicBool;
use traffic::nfpa::tables;

pub(crate) struct Bridge {
    ports: Ports,
    attached: Option<Attached>,
}

impl Bridge {
    pub(crate) fn new(plan: &Plan) -> Bridge {
        Bridge { ports: plan.ports.clone(), attached: None }
    }
}

/// What the kernel calls itself.
pub(crate) fn kernel() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|v| format!("Linux {}", v.trim()))
}

/// What is to be known of a device in the kernel.
pub(crate) fn remark(site: &Site) -> String {
    format!(
        "the kernel's work is steered to CPU {} (RPS); what sends a frame costs the generator's CPU as well",
        site.cpu_list()
    )
}

/// Makes the bridge.
fn commands(ports: usize) -> Vec<String> {
    let bridge = ["link add br0 type bridge mcast_snooping 0 stp_state 0", "link set br0 addrgenmode none"];
    let ports = (0..ports).map(|n| format!("link set p{n} master br0"));
    let all = bridge.into_iter().map(str::to_owned).chain(ports).chain(["link set br0 up".to_owned()]);
    all.map(|words| format!("ip {words}")).collect()
}

impl Driver for Bridge {
    fn start(&mut self, site: &mut Site) -> Result<Started, DutError> {
        let attached = Attached::new(site, &self.ports)?;
        let namespace = attached.kernel(site)?;
        let run = |site: &mut Site, words: &str| namespace.run(site, &words.split(' ').collect::<Vec<_>>());
        for command in commands(attached.inner.len()) {
            run(site, &command)?;
        }
        if let Some(table) = site.table("hosts.batch", |tables, file| tables::bridge_batch(tables, "p1", file))? {
            let path = table.display().to_string();
            namespace.run(site, &["bridge", "-batch", &path])?;
        }
        let about = About { version: kernel(), configuration: site.notes(), remarks: vec![remark(site)] };
        let devices = attached.outer.clone();
        self.attached = Some(attached);
        Ok(Started { devices, about })
    }

    fn check(&mut self) -> Result<(), DutError> {
        self.attached.as_mut().and_then(|a| a.namespace.as_mut()).map_or(Ok(()), |n| n.check("bridge"))
    }

    fn cannot(&self, _: Act) -> Option<&'static str> {
        None
    }

    /// Reset: the bridge is deleted, and made anew with its ports. Changes: MAC addresses that no packet of the tests has are
    /// added to its table and taken out in turn.
    fn act(&mut self, site: &Site, act: Act, stop: &AtomicBool) -> Result<Acted, DutError> {
        let Some(attached) = &self.attached else { return Ok(Acted::default()) };
        let namespace = attached.kernel(site)?;
        let does = |words: &str| namespace.line(&words.split(' ').collect::<Vec<_>>()).succeeds();
        Ok(match act {
            Act::Reset { at_s } => rhythm::once(at_s, stop, || {
                let gone = does("ip link del br0");
                commands(attached.inner.len()).iter().fold(gone, |good, command| does(command) && good)
            }),
            Act::Changes { per_second } => rhythm::changes(per_second, stop, |n| {
                let verb = if n.is_multiple_of(2) { "add" } else { "del" };
                does(&format!("bridge fdb {verb} 02:bb:00:00:00:{:02x} dev p1 master static", n / 2 % 256))
            }),
        })
    }

    fn stop(&mut self) {
        self.attached = None;
    }
}
