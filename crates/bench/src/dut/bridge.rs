//! The kernel's bridge.

use super::attach::Attached;
use super::{About, Driver, DutError, Plan, Ports, Site, Started};

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

impl Driver for Bridge {
    fn start(&mut self, site: &mut Site) -> Result<Started, DutError> {
        let attached = Attached::new(site, &self.ports)?;
        let namespace = attached.kernel(site)?;
        let run = |site: &mut Site, words: &str| namespace.run(site, &words.split(' ').collect::<Vec<_>>());
        run(site, "ip link add br0 type bridge mcast_snooping 0 stp_state 0")?;
        run(site, "ip link set br0 addrgenmode none")?;
        for port in &attached.inner {
            run(site, &format!("ip link set {port} master br0"))?;
        }
        run(site, "ip link set br0 up")?;
        let about = About { version: kernel(), configuration: site.notes(), remarks: vec![remark(site)] };
        let devices = attached.outer.clone();
        self.attached = Some(attached);
        Ok(Started { devices, about })
    }

    fn check(&mut self) -> Result<(), DutError> {
        self.attached.as_mut().and_then(|a| a.namespace.as_mut()).map_or(Ok(()), |n| n.check("bridge"))
    }

    fn stop(&mut self) {
        self.attached = None;
    }
}
