//! A started device.

use super::context::{Description, DutContext, DutError};
use super::network::Attachment;
use super::process::{CommandLine, Program};
use super::remote::{AgentConnection, Request};
use std::time::Duration;

/// Time limit of the stop command.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A started device. Dropping it terminates its programs in reverse order, then removes its interfaces.
pub struct StartedDevice {
    description: Description,
    // dropped first: stops the device on the remote host before ssh
    connection: Option<AgentConnection>,
    stop_command: Option<CommandLine>,
    programs: Vec<Program>,
    // dropped last: programs use these interfaces and sockets until they end
    attachment: Attachment,
}

impl StartedDevice {
    /// Returns a device of programs in the order in which they were started. Configuration and remarks are those of the
    /// context.
    pub(crate) fn new(
        context: &DutContext,
        attachment: Attachment,
        programs: Vec<Program>,
        mut description: Description,
    ) -> StartedDevice {
        if description.configuration.is_empty() {
            description.configuration = context.configuration();
        }
        description.remarks.extend_from_slice(context.remarks());
        StartedDevice { description, connection: None, stop_command: None, programs, attachment }
    }

    /// Sets a command that is run before the programs are terminated.
    pub(crate) fn with_stop_command(mut self, command: Option<CommandLine>) -> StartedDevice {
        self.stop_command = command;
        self
    }

    /// Sets the connection to the remote host that the device runs on.
    pub(crate) fn with_connection(mut self, connection: AgentConnection) -> StartedDevice {
        self.connection = Some(connection);
        self
    }

    /// Returns the connection to the remote host, if any.
    pub(crate) fn connection(&self) -> Option<&AgentConnection> {
        self.connection.as_ref()
    }

    /// Returns the devices that the generator opens, in the order of the ports, as in a chain file.
    pub fn generator_ports(&self) -> &[String] {
        &self.attachment.generator_ports
    }

    /// Returns the description for the result.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns a command that runs in the container or namespace and on the CPUs of the first program.
    pub(crate) fn confine(&self, command: CommandLine, context: &DutContext) -> CommandLine {
        match self.programs.first() {
            Some(program) => self.attachment.confine_with(program, command, context),
            None => self.attachment.confine(command, context),
        }
    }

    /// Returns the ports between generator and device.
    pub(crate) fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// Returns the process ids of the local programs.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.programs.iter().map(Program::id).collect()
    }

    /// Returns the last output of each local program, for error messages.
    pub(crate) fn output_tail(&self) -> String {
        let tails = self.programs.iter().map(|program| (program.name(), program.output_tail()));
        tails.filter(|(_, tail)| !tail.is_empty()).map(|(name, tail)| format!("output of {name}:\n{tail}\n")).collect()
    }

    /// Checks that the device still runs.
    ///
    /// # Errors
    /// If a program has ended, with its last output, or the connection to the remote host is lost.
    pub(crate) fn check(&mut self, context: &DutContext) -> Result<(), DutError> {
        for program in &mut self.programs {
            program.check(context.name())?;
        }
        if let Some(connection) = &self.connection {
            connection.request(context.name(), &Request::Check)?;
        }
        self.attachment.check(context.name())
    }
}

impl Drop for StartedDevice {
    fn drop(&mut self) {
        if let Some(command) = self.stop_command.take() {
            command.succeeds_within(STOP_TIMEOUT);
        }
        self.connection = None;
        while let Some(program) = self.programs.pop() {
            drop(program);
        }
    }
}
