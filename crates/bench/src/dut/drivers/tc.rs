//! The Linux traffic control action `mirred`: every frame is redirected from one interface to the other.

use super::common::kernel;
use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::driver::{Device, Driver};
use crate::dut::network::Attachment;
use crate::dut::spec::{DutSpec, Ports};
use crate::dut::started::StartedDevice;

pub(crate) struct TcDriver;

impl Driver for TcDriver {
    fn name(&self) -> &'static str {
        "tc"
    }

    fn summary(&self) -> &'static str {
        "Linux traffic control: redirects frames between two interfaces, in a network namespace"
    }

    fn ports(&self) -> &'static [Ports] {
        &[Ports::AfPacket, Ports::AfXdp]
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        Box::new(Tc { ports: spec.ports.clone() })
    }
}

struct Tc {
    ports: Ports,
}

impl Device for Tc {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        let attachment = Attachment::new(context, &self.ports)?;
        let namespace = attachment.namespace(context)?;
        for (from, to) in [(attachment.ingress(), attachment.egress()), (attachment.egress(), attachment.ingress())] {
            let redirect = format!("protocol all u32 match u32 0 0 action mirred egress redirect dev {to}");
            namespace.run_text(context, &format!("tc qdisc add dev {from} clsact"))?;
            namespace.run_text(context, &format!("tc filter add dev {from} ingress {redirect}"))?;
        }
        let remarks = vec![kernel::cpu_remark(context)];
        let description = Description { version: kernel::version(), remarks, ..Description::default() };
        Ok(StartedDevice::new(context, attachment, vec![], description))
    }
}
