//! A device that the user runs at the other end of the generator's ports.

use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::driver::{Device, Driver};
use crate::dut::network::Attachment;
use crate::dut::spec::{DutSpec, Ports};
use crate::dut::started::StartedDevice;

pub(crate) struct ExternalDriver;

impl Driver for ExternalDriver {
    fn name(&self) -> &'static str {
        "external"
    }

    fn summary(&self) -> &'static str {
        "a device at the other end of these ports, started by the user"
    }

    fn ports(&self) -> &'static [Ports] {
        &[]
    }

    fn is_external(&self) -> bool {
        true
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        Box::new(External { ports: spec.ports.clone() })
    }
}

struct External {
    ports: Ports,
}

impl Device for External {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        let Ports::Devices(_) = &self.ports else {
            return Err(context.error("has no list of ports", "set ports = [\"0000:01:00.0\", \"0000:01:00.1\"]"));
        };
        let remarks = vec!["external device: its configuration is unknown".to_owned()];
        let description = Description { remarks, ..Description::default() };
        Ok(StartedDevice::new(context, Attachment::external(&self.ports), vec![], description))
    }
}
