//! A chain of Bondstone in a process of its own.

use super::common::{chain_file, periodic};
use crate::dut::QUEUE_SIZE;
use crate::dut::context::{Description, DutContext, DutError};
use crate::dut::driver::{Device, Driver};
use crate::dut::network::Attachment;
use crate::dut::process::{CommandLine, ContainerOptions};
use crate::dut::spec::{ChainText, DutSpec, Ports};
use crate::dut::started::StartedDevice;
use crate::trial::{Disturbance, DisturbanceReport};
use control::{Client, ClientError, Request, RouteChange, RuleChange};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use toml::{Table, Value};

pub(crate) struct BondstoneDriver;

impl Driver for BondstoneDriver {
    fn name(&self) -> &'static str {
        "bondstone"
    }

    fn summary(&self) -> &'static str {
        "a chain of Bondstone in a process of its own"
    }

    fn ports(&self) -> &'static [Ports] {
        &[Ports::VhostUser, Ports::VirtioUser, Ports::Memif, Ports::Tap, Ports::AfPacket, Ports::AfXdp]
    }

    fn runs_chain(&self) -> bool {
        true
    }

    fn is_switch(&self) -> bool {
        true
    }

    fn device(&self, spec: &DutSpec) -> Box<dyn Device + Send> {
        Box::new(Bondstone { ports: spec.ports.clone(), chain: spec.chain.clone() })
    }
}

struct Bondstone {
    ports: Ports,
    chain: Option<ChainText>,
}

/// An NF whose configuration is changed while it forwards.
enum Changing {
    /// Rules of a firewall with this name.
    Rules(String),
    /// Routes of a router with this name.
    Routes(String),
}

impl Changing {
    /// Returns the first firewall of a chain file, or else its first router.
    fn of(chain: &ChainText) -> Option<Changing> {
        let table: Table = chain.text.parse().ok()?;
        let nfs = table.get("nf")?.as_table()?;
        let first = |kind: &str| {
            let is_kind = |nf: &Value| nf.get("kind").and_then(Value::as_str) == Some(kind);
            nfs.iter().find(|(_, nf)| is_kind(nf)).map(|(name, _)| name.clone())
        };
        first("firewall").map(Changing::Rules).or_else(|| first("l3fwd").map(Changing::Routes))
    }

    /// Returns the request that adds the entry for an even number, or removes it for the odd number after it.
    fn request(&self, number: u64) -> Request {
        let (add, host) = (number.is_multiple_of(2), number / 2 % 256);
        match self {
            Changing::Rules(nf) => {
                let rule = format!("drop src 203.0.113.{host}");
                let change = if add { RuleChange::Add { rule, number: Some(1) } } else { RuleChange::RemoveText(rule) };
                Request::ChangeRules { nf: Some(nf.clone()), changes: vec![change] }
            }
            Changing::Routes(nf) => {
                let prefix = format!("203.0.113.{host}/32");
                let change = if add { RouteChange::Add(prefix + " blackhole") } else { RouteChange::Remove(prefix) };
                Request::ChangeRoutes { nf: Some(nf.clone()), tenant: None, changes: vec![change] }
            }
        }
    }
}

fn no_chain(context: &DutContext) -> DutError {
    context.error("has no chain", "name a chain file: chain = \"...\"")
}

/// Returns the control socket of the process.
fn control_socket(context: &DutContext) -> PathBuf {
    context.path("control.sock")
}

impl Bondstone {
    /// Returns the chain file with the given devices as ports and the CPUs of the context.
    fn text(&self, context: &DutContext, devices: &[String]) -> Result<String, DutError> {
        let file = self.chain.as_ref().ok_or_else(|| no_chain(context))?;
        let invalid = |what: &str| context.error(format!("{}: {what}", file.file.display()), "check the chain file");
        let mut table: Table = file.text.parse().map_err(|e: toml::de::Error| invalid(e.message()))?;
        let ports = table.get_mut("port").and_then(Value::as_table_mut).ok_or_else(|| invalid("has no ports"))?;
        if file.ports.len() != devices.len() {
            let problem = format!("has {} ports, the generator has {}", file.ports.len(), devices.len());
            return Err(invalid(&problem));
        }
        for (port, device) in file.ports.iter().zip(devices) {
            let port = ports.get_mut(port).and_then(Value::as_table_mut);
            let port = port.ok_or_else(|| invalid("a port is not a table"))?;
            port.insert("device".to_owned(), Value::String(device.clone()));
        }
        chain_file::adapt(&mut table, context);
        toml::to_string(&table).map_err(|e| invalid(&e.to_string()))
    }
}

impl Device for Bondstone {
    fn start(&mut self, context: &mut DutContext) -> Result<StartedDevice, DutError> {
        let attachment = Attachment::new(context, &self.ports)?;
        let device = |port: &String| match self.ports {
            Ports::VhostUser => format!("vhost:{port}"),
            Ports::VirtioUser => format!("virtio-user:{port},queue_size={QUEUE_SIZE}"),
            Ports::Memif => format!("memif:{port}"),
            Ports::Tap => format!("tap:{port}"),
            Ports::AfXdp => format!("af_xdp:{port}"),
            _ => format!("af_packet:{port}"),
        };
        let devices: Vec<String> = attachment.device_ports.iter().map(device).collect();
        let text = self.text(context, &devices)?;
        let chain = self.chain.as_ref().ok_or_else(|| no_chain(context))?;
        let file = chain_file::write(context, chain, &text)?;
        let program = context.own_program()?;
        let folder = chain.folder().and_then(|folder| folder.canonicalize().ok());
        let files = [Some(program.clone()), folder].into_iter().flatten().collect();
        let options = ContainerOptions { files, creates_interfaces: false };
        let command = CommandLine::new(program.display().to_string());
        // its messages tell the start, whatever the settings of this process are
        let log = ["--log-to", "stderr", "--log-level", "info"].map(str::to_owned);
        let mut command = command.args(["run".to_owned(), file.display().to_string()].into_iter().chain(log));
        if Changing::of(chain).is_some() {
            command = command.args(["--control".to_owned(), control_socket(context).display().to_string()]);
        }
        let mut program = attachment.start(context, "bondstone", command, &options)?;
        program.wait_until(context, "forwarding", |p| p.output_tail().lines().any(is_start))?;
        context.record(text);
        let version = Some(env!("CARGO_PKG_VERSION").to_owned());
        let description = Description { version, ..Description::default() };
        Ok(StartedDevice::new(context, attachment, vec![program], description))
    }

    fn unsupported(&self, disturbance: Disturbance) -> Option<&'static str> {
        match disturbance {
            Disturbance::Reset { .. } => Some("measure the reset of kind = \"bridge\" or \"command\""),
            Disturbance::Changes { .. } if self.chain.as_ref().and_then(Changing::of).is_some() => None,
            Disturbance::Changes { .. } => {
                Some("add a firewall or a router to the chain, kind = \"firewall\" or \"l3fwd\": it is changed")
            }
        }
    }

    /// Changes: adds and removes an entry that no test packet matches: a rule at the top of the first firewall's rule set,
    /// or a route of the first router.
    fn disturb(
        &mut self,
        _: &StartedDevice,
        context: &DutContext,
        disturbance: Disturbance,
        stop: &AtomicBool,
    ) -> Result<DisturbanceReport, DutError> {
        let Disturbance::Changes { per_second } = disturbance else { return Ok(DisturbanceReport::default()) };
        let Some(changing) = self.chain.as_ref().and_then(Changing::of) else {
            return Ok(DisturbanceReport::default());
        };
        let socket = control_socket(context);
        let client = Client::connect(&socket);
        let mut client = Some(client.map_err(|e| {
            context.error(format!("cannot connect to {}: {e}", socket.display()), "check the output of the device")
        })?);
        let mut change = |request: Request| {
            let mut connected = client.take().or_else(|| Client::connect(&socket).ok())?;
            let done = connected.call(&request);
            // a late response must not be taken for that of the next change
            client = matches!(done, Ok(_) | Err(ClientError::Refused(_))).then_some(connected);
            done.ok().map(|_: serde_json::Value| ())
        };
        Ok(periodic::repeat_changes(per_second, stop, |n| change(changing.request(n)).is_some()))
    }
}

/// Returns true for the line that the program prints for a worker once ports are open and NFs built.
fn is_start(line: &str) -> bool {
    line.starts_with("note: CPU ") && line.contains(" runs ")
}
