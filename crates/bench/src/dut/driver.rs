//! The traits of a DUT driver.

use super::context::{DutContext, DutError};
use super::spec::{DutSpec, Forward, Ports};
use super::started::StartedDevice;
use crate::trial::{Disturbance, DisturbanceReport};
use std::sync::atomic::AtomicBool;

/// A kind of external device under test: its properties, and how a device of this kind is built.
pub trait Driver: Sync {
    /// Returns the name of the kind in scenario files.
    fn name(&self) -> &'static str;

    /// Returns a description in one line.
    fn summary(&self) -> &'static str;

    /// Returns the kinds of ports that the device supports, the default first. If empty, the scenario lists the devices
    /// that the generator opens.
    fn ports(&self) -> &'static [Ports];

    /// Returns the forwarding behaviour if the scenario states none.
    fn default_forward(&self) -> Forward {
        Forward::Ports
    }

    /// Returns true if the device runs a Bondstone chain file, which the scenario then has to name.
    fn runs_chain(&self) -> bool {
        false
    }

    /// Returns true if the chain file describes several hosts.
    fn runs_hosts(&self) -> bool {
        false
    }

    /// Returns true if the device can connect the sandboxed NFs of a chain, as `switch` of a scenario.
    fn is_switch(&self) -> bool {
        false
    }

    /// Returns true if the device can forward as the router of a chain, with `forward = "route"`.
    fn forwards_as_router(&self) -> bool {
        false
    }

    /// Returns true if the user's own commands start and stop the device.
    fn takes_commands(&self) -> bool {
        false
    }

    /// Returns true if the device is not on this host, so that its CPUs and interfaces are unknown.
    fn is_external(&self) -> bool {
        false
    }

    /// Returns true if the device forwards in a program, which a container can run, and not in the kernel.
    fn supports_containers(&self) -> bool {
        self.ports().iter().any(Ports::are_sockets)
    }

    /// Builds a device from a checked spec; starts nothing.
    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send>;
}

/// A device under test. The device runs for as long as the [`StartedDevice`] that [`Device::start`] returns.
pub trait Device {
    /// Starts and configures the device; it forwards once the generator has opened its ports.
    ///
    /// # Errors
    /// If a program or permission is missing, or the device rejects its configuration.
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError>;

    /// Returns a remedy if the disturbance is not supported, else none.
    fn unsupported(&self, disturbance: Disturbance) -> Option<&'static str> {
        let _ = disturbance;
        Some("use another method, or control the device by custom commands: kind = \"command\"")
    }

    /// Disturbs the device from the first packet of a trial until it is done or `stop` is set.
    ///
    /// # Errors
    /// If the disturbance cannot be started.
    fn disturb(
        &mut self,
        started: &StartedDevice,
        context: &DutContext,
        disturbance: Disturbance,
        stop: &AtomicBool,
    ) -> Result<DisturbanceReport, DutError> {
        let _ = (started, disturbance, stop);
        Err(context.error("cannot be disturbed", "report a bug in Bondstone"))
    }
}
