//! A chain file that describes several hosts, on which Bondstone starts its parts by ssh.

use super::common::chain_file;
use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::driver::{Device, Driver};
use crate::dut::network::Attachment;
use crate::dut::process::{CommandLine, Program};
use crate::dut::spec::{ChainText, DutSpec, Ports};
use crate::dut::started::StartedDevice;
use std::time::Duration;

/// Longest start, which waits for one host after the other.
const START_TIMEOUT: Duration = Duration::from_mins(5);
/// Longest end, in which the runs on the hosts stop.
const STOP_TIMEOUT: Duration = Duration::from_mins(2);

pub(crate) struct HostsDriver;

impl Driver for HostsDriver {
    fn name(&self) -> &'static str {
        "hosts"
    }

    fn summary(&self) -> &'static str {
        "a chain file that describes several hosts, at the other end of these ports"
    }

    fn ports(&self) -> &'static [Ports] {
        &[]
    }

    fn runs_chain(&self) -> bool {
        true
    }

    fn runs_hosts(&self) -> bool {
        true
    }

    fn is_external(&self) -> bool {
        true
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        Box::new(HostsDevice { ports: spec.ports.clone(), chain: spec.chain.clone() })
    }
}

struct HostsDevice {
    ports: Ports,
    chain: Option<ChainText>,
}

impl Device for HostsDevice {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        let no_chain = || context.error("has no chain", "name a chain file: chain = \"...\"");
        let chain = self.chain.as_ref().ok_or_else(no_chain)?;
        let file = chain_file::write(context, chain, &chain.text)?;
        let program = context.own_program()?.display().to_string();
        // its messages tell the start, whatever the settings of this process are
        let arguments = ["run", &file.display().to_string(), "--log-to", "stderr", "--log-level", "info"];
        let command = CommandLine::new(program).args(arguments);
        let mut program = Program::start(context, "bondstone", command)?.with_terminate_timeout(STOP_TIMEOUT);
        // lines of hosts begin with their names
        let is_ready = |line: &str| line.starts_with("note: all ") && line.ends_with(" hosts are ready");
        program.wait_within(START_TIMEOUT, context, "all hosts", |p| p.output_since(0).lines().any(is_ready))?;
        context.record(chain.text.clone());
        let version = Some(env!("CARGO_PKG_VERSION").to_owned());
        let remarks = vec!["runs on other hosts".to_owned()];
        let description = Description { version, remarks, ..Description::default() };
        Ok(StartedDevice::new(context, Attachment::external(&self.ports), vec![program], description))
    }
}
