//! The Linux bridge.

use super::common::{kernel, periodic};
use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::driver::{Device, Driver};
use crate::dut::network::Attachment;
use crate::dut::spec::{DutSpec, Forward, Ports};
use crate::dut::started::StartedDevice;
use crate::trial::{Disturbance, DisturbanceReport};
use std::sync::atomic::AtomicBool;
use traffic::nfpa::tables;

pub(crate) struct BridgeDriver;

impl Driver for BridgeDriver {
    fn name(&self) -> &'static str {
        "bridge"
    }

    fn summary(&self) -> &'static str {
        "the Linux bridge, in a network namespace"
    }

    fn ports(&self) -> &'static [Ports] {
        &[Ports::AfPacket, Ports::AfXdp]
    }

    fn default_forward(&self) -> Forward {
        Forward::Bridge
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        Box::new(Bridge { ports: spec.ports.clone() })
    }
}

struct Bridge {
    ports: Ports,
}

/// Returns the commands that create the bridge and add its ports.
fn commands(ports: &[String]) -> Vec<String> {
    let bridge = ["link add br0 type bridge mcast_snooping 0 stp_state 0", "link set br0 addrgenmode none"];
    let ports = ports.iter().map(|port| format!("link set {port} master br0"));
    let all = bridge.into_iter().map(str::to_owned).chain(ports).chain(["link set br0 up".to_owned()]);
    all.map(|words| format!("ip {words}")).collect()
}

impl Device for Bridge {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        let attachment = Attachment::new(context, &self.ports)?;
        let namespace = attachment.namespace(context)?;
        for command in commands(&attachment.device_ports) {
            namespace.run_text(context, &command)?;
        }
        let egress = attachment.egress();
        if let Some(table) = context.write_table("hosts.batch", |t, file| tables::bridge_batch(t, egress, file))? {
            let path = table.display().to_string();
            namespace.run(context, &["bridge", "-batch", &path])?;
        }
        let remarks = vec![kernel::cpu_remark(context)];
        let description = Description { version: kernel::version(), remarks, ..Description::default() };
        Ok(StartedDevice::new(context, attachment, vec![], description))
    }

    fn unsupported(&self, _: Disturbance) -> Option<&'static str> {
        None
    }

    /// Reset: deletes the bridge and creates it again. Changes: adds and deletes static MAC addresses that no test
    /// packet uses.
    fn disturb(
        &mut self,
        started: &StartedDevice,
        context: &DutContext,
        disturbance: Disturbance,
        stop: &AtomicBool,
    ) -> Result<DisturbanceReport, DutError> {
        let attachment = started.attachment();
        let namespace = attachment.namespace(context)?;
        let run = |words: &str| namespace.command(&words.split(' ').collect::<Vec<_>>()).succeeds();
        Ok(match disturbance {
            Disturbance::Reset { at_s } => periodic::reset_at(at_s, stop, || {
                let deleted = run("ip link del br0");
                commands(&attachment.device_ports).iter().fold(deleted, |success, command| run(command) && success)
            }),
            Disturbance::Changes { per_second } => periodic::repeat_changes(per_second, stop, |n| {
                let verb = if n.is_multiple_of(2) { "add" } else { "del" };
                let (mac, egress) = (n / 2 % 256, attachment.egress());
                run(&format!("bridge fdb {verb} 02:bb:00:00:00:{mac:02x} dev {egress} master static"))
            }),
        })
    }
}
