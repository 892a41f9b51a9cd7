//! A device that custom commands start and stop.

use super::common::periodic;
use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::driver::{Device, Driver};
use crate::dut::network::Attachment;
use crate::dut::process::{CommandLine, ContainerOptions};
use crate::dut::spec::{CustomCommands, DutSpec, Env, Ports};
use crate::dut::started::StartedDevice;
use crate::trial::{Disturbance, DisturbanceReport};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Time limit of a reset or a change.
const DISTURBANCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of one run of the ready command.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct CommandDriver;

impl Driver for CommandDriver {
    fn name(&self) -> &'static str {
        "command"
    }

    fn summary(&self) -> &'static str {
        "your own start, ready and stop commands"
    }

    fn ports(&self) -> &'static [Ports] {
        &[Ports::VhostUser, Ports::AfPacket, Ports::AfXdp]
    }

    fn takes_commands(&self) -> bool {
        true
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        Box::new(CustomDevice { ports: spec.ports.clone(), commands: spec.commands.clone() })
    }
}

struct CustomDevice {
    ports: Ports,
    commands: CustomCommands,
}

/// Returns the command line of a script with its environment variables.
fn script(context: &DutContext, attachment: &Attachment, change: u64, script: &str) -> CommandLine {
    let ports = attachment.device_ports.iter().enumerate().map(|(n, port)| format!("BONDSTONE_PORT{n}={port}"));
    let folder = format!("BONDSTONE_FOLDER={}", context.path("").display());
    let command = CommandLine::new("env").args([folder, format!("BONDSTONE_CPUS={}", context.cpu_list())]).args(ports);
    // a container does not contain this program
    let own = context.own_program().ok().filter(|_| context.env() == Env::Native);
    let command = command.args([format!("BONDSTONE_MAC={}", context.traffic.dst_mac)]);
    let command = command.args(own.map(|own| format!("BONDSTONE={}", own.display())));
    command.args([&format!("BONDSTONE_CHANGE={change}"), "sh", "-c", script])
}

impl Device for CustomDevice {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        let attachment = Attachment::new(context, &self.ports)?;
        let command = script(context, &attachment, 0, &self.commands.start);
        // a PID namespace ends background processes of the command with it
        let command = if context.env() == Env::Native && rustix::process::geteuid().is_root() {
            command.prefixed(["unshare", "--pid", "--fork", "--kill-child"])
        } else {
            command
        };
        let mut program = attachment.start(context, "start", command, &ContainerOptions::default())?;
        if let Some(ready) = &self.commands.ready {
            let command = attachment.confine_with(&program, script(context, &attachment, 0, ready), context);
            program.wait_until(context, "the ready command", |_| command.succeeds_within(READY_TIMEOUT))?;
        }
        let stop = self.commands.stop.as_ref();
        let stop = stop.map(|stop| attachment.confine_with(&program, script(context, &attachment, 0, stop), context));
        let remarks = vec!["started by custom commands".to_owned()];
        let description = Description { remarks, ..Description::default() };
        Ok(StartedDevice::new(context, attachment, vec![program], description).with_stop_command(stop))
    }

    fn unsupported(&self, disturbance: Disturbance) -> Option<&'static str> {
        match disturbance {
            Disturbance::Reset { .. } if self.commands.reset.is_none() => Some("add reset = \"...\""),
            Disturbance::Changes { .. } if self.commands.change.is_none() => Some("add change = \"...\""),
            _ => None,
        }
    }

    fn disturb(
        &mut self,
        started: &StartedDevice,
        context: &DutContext,
        disturbance: Disturbance,
        stop: &AtomicBool,
    ) -> Result<DisturbanceReport, DutError> {
        let attachment = started.attachment();
        let run = |text: &str, n: u64| {
            started.confine(script(context, attachment, n, text), context).succeeds_within(DISTURBANCE_TIMEOUT)
        };
        match (disturbance, &self.commands) {
            (Disturbance::Reset { at_s }, CustomCommands { reset: Some(reset), .. }) => {
                Ok(periodic::reset_at(at_s, stop, || run(reset, 0)))
            }
            (Disturbance::Changes { per_second }, CustomCommands { change: Some(change), .. }) => {
                Ok(periodic::repeat_changes(per_second, stop, |n| run(change, n)))
            }
            _ => Ok(DisturbanceReport::default()),
        }
    }
}
